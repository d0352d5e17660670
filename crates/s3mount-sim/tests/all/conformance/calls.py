"""Runs scripts of system calls, each line in the process that it names.

A line is `PROCESS VARIABLE CALL ARGUMENTS`. The answer is one line. The process 0 only begins others.
"""

import ctypes
import fcntl
import os
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for call in (libc.msync, libc.munmap):
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + ([ctypes.c_int] if call is libc.msync else [])

FLAGS = {
    "r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "creat": os.O_CREAT, "excl": os.O_EXCL,
    "trunc": os.O_TRUNC, "append": os.O_APPEND,
}

me, routes, children, names = 0, {}, {}, {}


def check(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "failed")
    return result


def shown(data):
    return f"{len(data)}:{sum((at + 1) * byte for at, byte in enumerate(data)) % (1 << 32)}"


def fork(child):
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid:
        os.close(to_child[0])
        os.close(to_parent[1])
        routes[child] = (os.fdopen(to_parent[0]), os.fdopen(to_child[1], "w"))
        children[child] = pid
        return "ok"
    os.close(to_child[1])
    os.close(to_parent[0])
    global me
    me = child
    routes.clear()
    children.clear()
    serve(os.fdopen(to_child[0]), os.fdopen(to_parent[1], "w"))
    os._exit(0)


def listing(path):
    return ",".join(sorted(os.listdir(path))) or "nothing"


def mapped(fd, length, kind):
    shared = kind == "shared"
    return [check(libc.mmap(None, length, 3 if kind != "read" else 1, 1 if shared or kind == "read" else 2, fd, 0)), length]


def run(variable, call, args):
    at = lambda number: int(args[number])
    value = names.get(variable)
    if call == "fork":
        return fork(int(variable))
    if call == "sleep":
        return time.sleep(float(args[0])) or "ok"
    if call == "open":
        flags = 0
        for flag in args[1].split(","):
            flags |= FLAGS[flag]
        names[variable] = os.open(args[0], flags, 0o644)
        return "ok"
    if call == "dup":
        names[variable] = os.dup(names[args[0]])
        return "ok"
    if call == "map":
        names[variable] = mapped(names[args[0]], at(1), args[2])
        return "ok"
    if call == "mread":
        return shown(ctypes.string_at(value[0] + at(0), at(1)))
    if call == "mwrite":
        return ctypes.memmove(value[0] + at(0), args[1].encode(), len(args[1])) and "ok"
    if call == "msync":
        return check(libc.msync(value[0], value[1], 4)) or "ok"
    if call == "munmap":
        return check(libc.munmap(value[0], value[1])) or "ok"
    if call == "noreplace":
        return check(libc.renameat2(-100, args[0].encode(), -100, args[1].encode(), 1)) or "ok"
    if call == "append":
        flags = fcntl.fcntl(value, fcntl.F_GETFL) & ~os.O_APPEND
        return fcntl.fcntl(value, fcntl.F_SETFL, flags | (os.O_APPEND if args[0] == "on" else 0)) or "ok"
    if call == "lock":
        return fcntl.flock(value, fcntl.LOCK_NB | (fcntl.LOCK_EX if args[0] == "alone" else fcntl.LOCK_SH)) or "ok"
    if call == "copy":
        return str(os.copy_file_range(value, names[args[0]], at(3), at(1), at(2)))
    calls = {
        "read": lambda: shown(os.read(value, at(0))),
        "pread": lambda: shown(os.pread(value, at(1), at(0))),
        "write": lambda: str(os.write(value, args[0].encode())),
        "pwrite": lambda: str(os.pwrite(value, args[1].encode(), at(0))),
        "fill": lambda: str(os.pwrite(value, args[2].encode() * at(1), at(0))),
        "end": lambda: str(os.lseek(value, 0, os.SEEK_END)),
        "fsync": lambda: os.fsync(value) or "ok",
        "ftruncate": lambda: os.ftruncate(value, at(0)) or "ok",
        "allocate": lambda: os.posix_fallocate(value, at(0), at(1)) or "ok",
        "close": lambda: os.close(value) or "ok",
        "fstat": lambda: str(os.fstat(value).st_size),
        "stat": lambda: str(os.stat(args[0]).st_size),
        "truncate": lambda: os.truncate(args[0], at(1)) or "ok",
        "rename": lambda: os.rename(args[0], args[1]) or "ok",
        "unlink": lambda: os.unlink(args[0]) or "ok",
        "mkdir": lambda: os.mkdir(args[0]) or "ok",
        "rmdir": lambda: os.rmdir(args[0]) or "ok",
        "list": lambda: listing(args[0] if args else "."),
    }
    return calls[call]()


def answer(line):
    process, variable, call, *args = line.split()
    process = int(process)
    if process != me:
        receiver, sender = routes[process]
        print(line, file=sender, flush=True)
        reply = receiver.readline().strip()
        if call == "fork":
            routes[int(variable)] = routes[process]
        elif call == "exit" and process in children:
            os.waitpid(children[process], 0)
            reply = "ok"
        return reply
    if call == "exit":
        os._exit(0)
    try:
        return run(variable, call, args)
    except OSError as error:
        return f"errno {error.errno}"


def serve(receiver, sender):
    for line in receiver:
        print(answer(line.strip()), file=sender, flush=True)


os.chdir(sys.argv[1])
serve(sys.stdin, sys.stdout)
