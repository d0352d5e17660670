"""Plays systemd with a store of descriptors: starts a daemon, kills it, and starts the next one with what was stored.

Usage: service_manager.py FOLDER FILE EXPECTED PROGRAM ARGUMENTS...
FOLDER is where PROGRAM mounts, FILE a file there, and EXPECTED one with the same bytes elsewhere. With
$S3MOUNT_WITHOUT_RESEND, the daemon is not killed, but asked to make way.
"""

import os
import signal
import socket
import subprocess
import sys

folder, name, expected, *command = sys.argv[1:]
path = folder + ".notify"
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
manager.settimeout(60)
stored = {}


def start():
    """Starts a daemon as systemd does, and waits until it is ready."""
    names, files = ":".join(stored), list(stored.values())
    variables = {"NOTIFY_SOCKET": path, "FDSTORE": "2"}
    if files:
        variables |= {"LISTEN_FDS": str(len(files)), "LISTEN_FDNAMES": names}

    def inherit():
        for number, file in enumerate(files, 3):
            os.dup2(file, number)

    kept = range(3, 3 + len(files))
    shell = ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command]
    daemon = subprocess.Popen(shell, env=os.environ | variables, pass_fds=kept, preexec_fn=inherit)
    while hear().get("READY") != "1":
        pass
    return daemon


def hear():
    """Takes one message of the daemon."""
    text, files, _, _ = socket.recv_fds(manager, 4096, 4)
    lines = dict(line.split("=", 1) for line in text.decode().splitlines())
    if "FDSTORE" in lines:
        # The numbers have to be higher than those that a daemon inherits.
        stored[lines["FDNAME"]] = os.dup2(files[0], 100 + len(stored))
        os.close(files[0])
    if "FDSTOREREMOVE" in lines:
        os.close(stored.pop(lines["FDNAME"]))
    return lines


# Another process reads: who closes a file of the mount waits for a daemon, and each start closes what is open here.
READER = """
import sys
with open(sys.argv[1], "rb") as file, open(sys.argv[2], "rb") as expected:
    first = file.read(1 << 20)
    print("begun", flush=True)
    sys.stdin.readline()
    assert first + file.read() == expected.read()
"""

is_old = "S3MOUNT_WITHOUT_RESEND" in os.environ
both = ["s3mount-device", "s3mount-state"]
daemon = start()
assert sorted(stored) == ([] if is_old else both), stored
read = [sys.executable, "-c", READER, os.path.join(folder, name), expected]
reader = subprocess.Popen(read, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert reader.stdout.readline() == "begun\n"
for _ in range(2):
    daemon.send_signal(signal.SIGUSR2 if is_old else signal.SIGKILL)
    assert daemon.wait(60) == (75 if is_old else -signal.SIGKILL)
    while sorted(stored) != both:
        hear()
    daemon = start()
    assert sorted(stored) == ([] if is_old else both), stored
reader.communicate("go on\n", timeout=60)
assert reader.returncode == 0
daemon.send_signal(signal.SIGTERM)
assert daemon.wait(60) == 0
assert not os.path.ismount(folder)
