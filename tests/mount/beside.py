"""Runs the same commands in a folder of a mount and in a local one, and compares what each says and leaves behind:
its exit status, the names, the contents, and who may run each file."""

import os
import select
import stat
import subprocess
import sys

mount, local = sys.argv[1:3]

GIT = "git -c init.defaultBranch=main -c user.name=n -c user.email=e@x -c gc.auto=0 -c core.fileMode=true"

# What one command leaves, the next finds.
COMMANDS = [
    "printf 'one\\n' > a; printf 'two\\n' > b; mkdir -p d/e; printf 'deep\\n' > d/e/f",
    "mv a moved",
    "mv -n moved b; cat b",
    "mv moved b; cat b; ls",
    "mv missing b",
    "mv b d",
    "mv d/b b; mv -T b d",
    "cp b c && cp -r d copy && find . -type f | sort | xargs cat",
    "cp -a d archive && ls archive/e",
    "rm c",
    "rm c",
    "rm -f c",
    "rm d",
    "rmdir d",
    "rm -r copy archive && ls",
    "ln b linked; test ! -e linked || rm linked",
    "install -m755 b run && test -x run",
    "install -D -m644 b deep/er/plain && test ! -x deep/er/plain",
    "printf '#!/bin/sh\\necho ran $1\\n' > script; ./script",
    "chmod +x script && ./script first",
    "mv script renamed && ./renamed second",
    "printf 'echo more\\n' >> renamed && ./renamed third",
    "mkdir bin && mv renamed bin/ && mv bin tools && tools/renamed fourth",
    "chmod -x tools/renamed; tools/renamed fifth",
    "printf 'int main(void) { return 7; }\\n' > m.c && cc -o program m.c && ./program",
    "printf 'all: m\\n\\t./m || echo built\\nm: m.c\\n\\tcc -o m m.c\\n' > Makefile && make -s && make -s && rm m",
    "printf 'x\\n' > temporary && python3 -c \"import os; os.replace('temporary', 'b')\" && cat b",
    "python3 -c \"import os; os.rename('b', 'd')\"",
    "rm -r tools deep && ls",
    f"{GIT} init -q repo && cd repo && printf '#!/bin/sh\\necho hooked\\n' > .git/hooks/pre-commit && "
    f"chmod +x .git/hooks/pre-commit && printf 'text\\n' > file && printf 'exit 0\\n' > tool && chmod 755 tool && "
    f"{GIT} add . && {GIT} commit -qm first && {GIT} ls-files -s | cut -c1-6",
    f"cd repo && printf 'more\\n' >> file && {GIT} commit -qam second && {GIT} status --short && {GIT} log --oneline | wc -l",
    f"cd repo && {GIT} checkout -q -b other HEAD~1 && cat file && {GIT} mv file renamed && {GIT} commit -qm third && ls",
    f"{GIT} clone -q repo clone && cd clone && ls -A && test -x tool && {GIT} status --short",
]


def ran(folder, command):
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C"}
    done = subprocess.run(
        ["sh", "-c", f"umask 022; {command}"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def left(folder):
    """The files and folders below a folder, with who may run each file, and its contents."""
    found = {}
    for path, _, files in os.walk(folder):
        # Git's own files have times and random names in them.
        if "/.git" in path:
            continue
        below = os.path.relpath(path, folder)
        found[below] = "folder"
        for name in files:
            full = os.path.join(path, name)
            with open(full, "rb") as file:
                found[os.path.join(below, name)] = (oct(os.stat(full).st_mode & 0o111), file.read())
    return found


def ready(path):
    """What select, poll and epoll say of an open file."""
    with open(path, "w+b") as file:
        poll, epoll = select.poll(), select.epoll()
        poll.register(file, select.POLLIN | select.POLLOUT)
        epoll.register(file, select.EPOLLIN | select.EPOLLOUT)
        readable, writable, _ = select.select([file], [file], [], 1)
        return bool(readable), bool(writable), poll.poll(1000)[0][1], epoll.poll(1)[0][1]


failed = 0
for command in COMMANDS:
    (code, said, complained), expected = ran(mount, command), ran(local, command)
    here, there = left(mount), left(local)
    if (code, said) != expected[:2] or here != there:
        failed += 1
        print(f"{command}\n  here  {code} {said!r} {complained!r}\n  there {expected}")
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                print(f"  {name}: here {here.get(name)!r:.200}, there {there.get(name)!r:.200}")
print(f"{failed} of {len(COMMANDS)} commands differ")
says = ready(os.path.join(mount, "polled"))
if says != (True, True, select.POLLIN | select.POLLOUT, select.EPOLLIN | select.EPOLLOUT):
    failed += 1
    print(f"an open file is not ready: {says}")
sys.exit(failed > 0)
