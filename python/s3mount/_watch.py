"""Unmounts when all who use a mount are gone. `_mount.py` starts this, and explains the locks."""

import fcntl
import os
import subprocess
import sys


def main(binary: str, path: str, gate_path: str, users_path: str, watched_path: str, remove: str = "") -> None:
    with open(watched_path, "ab") as watched, open(users_path, "ab") as users, open(gate_path, "ab") as gate:
        while True:
            fcntl.flock(watched, fcntl.LOCK_EX)
            # Who mounts holds the gate and waits for `watched`: this must not hold them in the other order.
            fcntl.flock(watched, fcntl.LOCK_UN)
            fcntl.flock(gate, fcntl.LOCK_EX)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(gate, fcntl.LOCK_UN)
                continue
            # The last user has mostly unmounted. Then this fails.
            subprocess.run([binary, "umount", "--lazy", path], check=False)
            if remove and os.path.isdir(path):
                os.rmdir(path)
            return


main(*sys.argv[1:])
