"""Runs `s3mount top` in a terminal of its own, presses keys, and prints what the terminal got.

usage: top.py COLUMNS ROWS KEYS WANTED COMMAND...

Waits until WANTED was drawn, types KEYS (backslashes are escapes), and waits for the end. Prints the exit code,
whether the terminal's settings are what they were, and what was drawn.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

columns, rows, keys, wanted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
command = sys.argv[5:]
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
before = termios.tcgetattr(theirs)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(theirs, fd)
    os.execve(command[0], command, {"TERM": "xterm-256color", "PATH": "/usr/bin:/bin"})
drawn, typed, deadline = b"", False, time.monotonic() + 60
status = None
while status is None and time.monotonic() < deadline:
    if select.select([ours], [], [], 0.05)[0]:
        drawn += os.read(ours, 65536)
    if not typed and wanted.encode() in drawn:
        os.write(ours, keys.encode().decode("unicode_escape").encode())
        typed = True
    ended, status_now = os.waitpid(pid, os.WNOHANG)
    if ended:
        status = os.waitstatus_to_exitcode(status_now)
if status is None:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
while select.select([ours], [], [], 0.2)[0]:
    drawn += os.read(ours, 65536)
same = termios.tcgetattr(theirs) == before
print(status, same)
sys.stdout.flush()
sys.stdout.buffer.write(drawn)
