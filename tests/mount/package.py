"""Uses the Python package `s3mount` as jobs do. Arguments: the URL of a server with the bucket `data` and its
object d/f ("text"). Prints a line for each thing that works."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import s3mount

ENDPOINT = sys.argv[1]
SOURCE = "s3://data/d"
OPTIONS = {"endpoint_url": ENDPOINT, "memory_limit": "128MiB", "log_directory": tempfile.gettempdir()}


def mounts():
    home = f" {tempfile.gettempdir()}/s3mount-"
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if home in line]


def wait_until(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def rank():
    """What one of several processes does, as the ranks of torchrun."""
    with s3mount.mount(SOURCE, **OPTIONS) as path:
        print(path, (path / "f").read_text(), path.stat().st_dev, flush=True)
        sys.stdin.read()


def ranks(count):
    command = [sys.executable, __file__, ENDPOINT, "rank"]
    pipe = subprocess.PIPE
    return [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(count)]


def main():
    with s3mount.mount(SOURCE, **OPTIONS) as path:
        assert (path / "f").read_text() == "text" and len(mounts()) == 1
        kept = open(path / "f")
    assert not path.exists() and not mounts()
    kept.close()
    print("a block mounts and unmounts")

    try:
        with s3mount.mount(SOURCE, **OPTIONS) as path:
            raise KeyError("of the job")
    except KeyError:
        assert not path.exists()
    print("an error in the block unmounts too")

    try:
        s3mount.mount("s3://no-such-bucket", **OPTIONS).start()
        raise AssertionError("it was mounted")
    except s3mount.MountError as error:
        assert 'bucket "no-such-bucket" does not exist' in str(error), error
    print("an error says what s3mount said")

    started = ranks(4)
    said = {one.stdout.readline() for one in started}
    assert len(said) == 1 and len(mounts()) == 1, said
    for one in started[:3]:
        one.communicate()
        assert one.returncode == 0 and len(mounts()) == 1
    started[3].communicate()
    assert not mounts() and not Path(said.pop().split()[0]).exists()
    print("ranks share a mount until the last one has left")

    started = ranks(2)
    for one in started:
        one.stdout.readline()
    for one in started:
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
    wait_until("nobody uses the mount", lambda: not mounts())
    print("the mount of killed processes goes away")

    with tempfile.TemporaryDirectory() as folder:
        with s3mount.mount("data", folder, allow="write", **OPTIONS) as path:
            (path / "new").write_text("more")
        assert os.listdir(folder) == []
        notebook = s3mount.mount("data", folder, **OPTIONS)
        assert (notebook.start() / "new").read_text() == "more" and notebook.start() == path
        notebook.stop()
        notebook.stop()
        assert os.listdir(folder) == []
    print("a folder of the user's, and what was written there")


if sys.argv[2:] == ["rank"]:
    rank()
else:
    main()
