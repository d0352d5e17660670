"""Mounts that processes share, and that go away with the last of them.

Locks of files count who uses a mount, because the kernel lets go of them when a process ends, also by SIGKILL.
`gate` is held by who mounts or unmounts, for as long as that takes. `users` is shared by all who use the mount:
a process that holds `gate` and gets `users` for itself knows that nobody uses the mount. `watched` is shared by
the same processes. A process of `_watch.py` waits for it, so that it never holds `users` when others look.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Sequence, Union

Value = Union[bool, int, float, str, "os.PathLike[str]", Sequence[str], None]


class MountError(RuntimeError):
    """The bucket could not be mounted. The text is what s3mount has said."""


def binary() -> str:
    """The path of the `s3mount` program: the one of this package, else the one in `$PATH`."""
    for directory in (sysconfig.get_path("scripts"), None):
        found = shutil.which("s3mount", path=directory)
        if found:
            return found
    raise MountError("there is no program s3mount beside this package or in $PATH; install it with: pip install s3mount")


def mount(
    source: str,
    path: str | os.PathLike[str] | None = None,
    **options: Value,
) -> Mount:
    """A mount of `source`, such as `s3://bucket/prefix`, for a `with` block.

    `path` is an empty folder to mount at. Without it, s3mount makes one, which the same user's processes of this
    machine find that mount the same source with the same options.

    `options` are the flags of `s3mount mount`, with underscores: `memory_limit="4GiB"`, `allow_other=True`,
    `cache=["/nvme0", "/nvme1"]`. An option that is `None` or `False` is left out. Credentials come from where the
    AWS CLI takes them.
    """
    return Mount(source, path, **options)


class Mount:
    """A mount for a `with` block, or for a notebook: `start()` in one cell, and `stop()` in the last."""

    def __init__(self, source: str, path: str | os.PathLike[str] | None = None, **options: Value) -> None:
        self._arguments = [source, *_flags(options)]
        home = _home()
        named = Path(path).absolute() if path is not None else None
        # Processes with other credentials must not share a mount.
        told = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("AWS_")]
        key = "\0".join([*self._arguments, os.getcwd(), str(named or ""), *told])
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.path: Path = named or home / name
        self._owns_path = named is None
        self._gate, self._users = home / f"{name}.gate", home / f"{name}.users"
        self._watched = home / f"{name}.watched"
        self._locks: list[IO[bytes]] = []

    def __enter__(self) -> Path:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Path:
        """Mounts, unless another process has done so, and returns the folder. It answers when this returns."""
        if self._locks:
            return self.path
        with _locked(self._gate):
            if not _answers(self.path):
                self._mount()
            for path in (self._users, self._watched):
                lock = open(path, "ab")
                fcntl.flock(lock, fcntl.LOCK_SH)
                self._locks.append(lock)
        return self.path

    def stop(self) -> None:
        """Leaves the mount, and unmounts if nobody else uses it. Files that were closed are in the bucket then."""
        locks, self._locks = self._locks, []
        if not locks:
            return
        with _locked(self._gate):
            for lock in locks:
                # Forked processes, as a DataLoader's workers, share the lock. This lets go of it for them too.
                fcntl.flock(lock, fcntl.LOCK_UN)
                lock.close()
            self._unmount_unused()

    def _mount(self) -> None:
        if self._owns_path:
            try:
                self.path.mkdir(mode=0o700, exist_ok=True)
            except OSError:
                pass  # A killed daemon has left a dead mount. s3mount takes it down.
        command = [binary(), "mount", *self._arguments, str(self.path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise MountError(done.stderr.strip() or f"s3mount ended with {done.returncode}")
        if done.stderr.strip():
            print(done.stderr.strip(), file=sys.stderr)
        self._watch()

    def _watch(self) -> None:
        """Starts a process that unmounts when all who use the mount are gone, if they could not do it."""
        arguments = [str(path) for path in (self.path, self._gate, self._users, self._watched)]
        watch = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_watch.py")), binary(), *arguments]
        if self._owns_path:
            watch.append("--remove")
        null = subprocess.DEVNULL
        # The shell starts it and ends, so that it is nobody's child here, and leaves no zombie.
        command = ["sh", "-c", '"$@" &', "sh", *watch]
        subprocess.run(
            command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/", check=True
        )

    def _unmount_unused(self) -> None:
        with open(self._users, "ab") as users:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            command = [binary(), "umount", str(self.path)]
            if subprocess.run(command, capture_output=True).returncode != 0:
                # A file is open yet. It can be read until it is closed.
                command.insert(2, "--lazy")
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0 and os.path.ismount(self.path):
                    raise MountError(done.stderr.strip())
            if self._owns_path:
                self.path.rmdir()


def _flags(options: dict[str, Value]) -> list[str]:
    flags = []
    for name, value in sorted(options.items()):
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, (list, tuple)):
            flags += [f"{flag}={one}" for one in value]
        else:
            flags.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
    return flags


def _home() -> Path:
    """The folder of this user's mounts, to which no other user has access."""
    home = Path(tempfile.gettempdir()) / f"s3mount-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise MountError(f"{home} is not a folder of yours alone; remove it, or set $TMPDIR to another folder")
    return home


def _answers(path: Path) -> bool:
    try:
        return os.path.ismount(path) and (path / ".s3mount" / "stats").exists()
    except OSError:
        return False


class _locked:
    """Holds the lock of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._file = open(self._path, "ab")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()
