"""Makes system calls in a folder of a mount, and prints what each returns: its name, and the errno or `ok`."""

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
AT_FDCWD = -100
os.chdir(sys.argv[1])


def say(name, call):
    try:
        said = call()
        print(name, "ok" if said is None or said is True else said)
    except OSError as error:
        print(name, errno.errorcode[error.errno])


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def rename(old, new, flags):
    checked(libc.renameat2(AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), flags))


def opened(path, flags, mode=0o644):
    os.close(os.open(path, flags, mode))


def allocated(mode, length):
    fd = os.open("allocated", os.O_RDWR | os.O_CREAT)
    try:
        checked(libc.fallocate(fd, mode, 0, length))
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def written(path, flags, data):
    fd = os.open(path, flags | os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def locked(lock, how):
    with open("locked", "w") as one, open("locked") as other:
        lock(one, how)
        if lock is fcntl.flock:
            try:
                lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return "no lock"
            except BlockingIOError:
                pass


def bound():
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")


def deep():
    """Makes folders until the key is too long for S3."""
    path = "."
    for _ in range(5):
        path += "/" + "d" * 250
        os.mkdir(path)


def page():
    """A page of memory, as O_DIRECT wants it."""
    memory = mmap.mmap(-1, 4096)
    memory.write(b"p" * 4096)
    return memory


with open("file", "w") as file:
    file.write("text")
os.mkdir("folder")
os.mkdir("full")
opened("full/file", os.O_WRONLY | os.O_CREAT)
with open("file") as file:
    say("chmod", lambda: os.chmod("file", 0o600))
    say("fchmod", lambda: os.fchmod(file.fileno(), 0o600))
    say("chown", lambda: os.chown("file", 1, 1))
    say("utimens", lambda: os.utime("file", (1, 1)))
    say("fsync", lambda: os.fsync(file.fileno()))
say("chmod-folder", lambda: os.chmod("folder", 0o700))
say("mode", lambda: oct(os.stat("file").st_mode))
say("link", lambda: os.link("file", "linked"))
say("symlink", lambda: os.symlink("file", "linked"))
say("fifo", lambda: os.mkfifo("fifo"))
say("device", lambda: os.mknod("device", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
say("socket", bound)
say("mknod-file", lambda: os.mknod("plain", stat.S_IFREG | 0o600))
say("tmpfile", lambda: opened(".", os.O_TMPFILE | os.O_RDWR))
say("setxattr", lambda: os.setxattr("file", "user.a", b"b"))
say("getxattr", lambda: os.getxattr("file", "user.a"))
say("removexattr", lambda: os.removexattr("file", "user.a"))
say("listxattr", lambda: os.listxattr("file") and "names")
say("rename-exchange", lambda: rename("file", "full/file", 2))
say("rename-whiteout", lambda: rename("file", "elsewhere", 4))
say("rename-noreplace", lambda: rename("file", "full/file", 1))
say("rename-itself", lambda: os.rename("file", "file"))
say("rename-to-folder", lambda: os.rename("file", "folder"))
say("rename-folder-to-file", lambda: os.rename("folder", "file"))
say("rename-folder-to-full", lambda: os.rename("folder", "full"))
say("rename-missing", lambda: os.rename("missing", "folder/missing"))
say("fallocate", lambda: allocated(0, 100))
say("fallocate-less", lambda: allocated(0, 10))
say("fallocate-keep-size", lambda: allocated(1, 1000))
say("fallocate-punch-hole", lambda: allocated(3, 10))
say("fallocate-zero-range", lambda: allocated(0x10, 10))
say("fallocate-collapse", lambda: allocated(8, 4096))
say("fallocate-insert", lambda: allocated(0x20, 4096))
say("flock", lambda: locked(fcntl.flock, fcntl.LOCK_EX))
say("lockf", lambda: locked(fcntl.lockf, fcntl.LOCK_EX))
folder = os.open("folder", os.O_RDONLY)
say("fsync-folder", lambda: os.fsync(folder))
say("syncfs", lambda: checked(libc.syncfs(folder)))
os.close(folder)
say("statvfs", lambda: "room" if os.statvfs(".").f_bavail > 0 else "none")
say("access", lambda: os.access("file", os.R_OK | os.W_OK))
say("access-run", lambda: "may run" if os.access("file", os.X_OK) else "may not run")
say("name-255", lambda: written("n" * 255, 0, b"text"))
say("name-256", lambda: written("n" * 256, 0, b"text"))
say("stat-256", lambda: os.stat("n" * 256) and None)
say("mkdir-256", lambda: os.mkdir("n" * 256))
say("name-no-text", lambda: written(b"\xff", 0, b"text"))
say("mkdir-no-text", lambda: os.mkdir(b"\xff"))
say("key-1024", deep)
say("mkdir-dot", lambda: os.mkdir("folder/."))
say("mkdir-dots", lambda: os.mkdir("folder/.."))
say("rmdir-dot", lambda: os.rmdir("folder/."))
say("rmdir-dots", lambda: os.rmdir("folder/.."))
say("rmdir-full", lambda: os.rmdir("full"))
say("rmdir-file", lambda: os.rmdir("file"))
say("rmdir-missing", lambda: os.rmdir("missing"))
say("unlink-folder", lambda: os.unlink("folder"))
say("mkdir-file", lambda: os.mkdir("file"))
say("mkdir-folder", lambda: os.mkdir("folder"))
say("mkdir-p", lambda: os.makedirs("folder/a/b", exist_ok=True))
say("rmdir-p", lambda: os.removedirs("folder/a/b"))
say("create-folder", lambda: opened("full", os.O_WRONLY | os.O_CREAT))
say("create-in-file", lambda: opened("file/new", os.O_WRONLY | os.O_CREAT))
say("create-in-missing", lambda: opened("missing/new", os.O_WRONLY | os.O_CREAT))
say("create-exclusive", lambda: opened("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
say("direct", lambda: written("direct", os.O_DIRECT, page()))
say("sync", lambda: written("sync", os.O_SYNC, b"sync"))
say("reflink", lambda: fcntl.ioctl(os.open("copy", os.O_WRONLY | os.O_CREAT), 0x40049409, os.open("file", os.O_RDONLY)))
