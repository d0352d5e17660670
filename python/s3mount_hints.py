"""Tells s3mount what a PyTorch DataLoader reads next, so that it is there when it is read.

    from s3mount_hints import hinted

    loader = hinted(DataLoader(ImageFolder("/mnt/data/train"), shuffle=True, batch_size=64, num_workers=8))

The dataset says which file an index reads: its `samples`, `imgs`, `paths` or `files` (ImageFolder has
the first two), also below a Subset or a ConcatDataset. For any other dataset, give a list or a function
from the index to the path: `hinted(loader, paths=lambda index: table[index].path)`.

Where a loop has a sampler and no DataLoader, `HintedSampler(sampler, paths)` does the same.

A mount that is read-only, or another user's, is told through its Unix socket (`s3mount
--control-socket PATH`): give `control_socket=PATH`, or set S3MOUNT_CONTROL_SOCKET. Where nothing takes
hints, a warning says so and the loader works as before. The standard library is all that this takes.
"""

import bisect
import collections
import functools
import os
import socket
import warnings

# Hints that are told before they are read. A mount follows 2,048 at most; 512 files of 100 KiB are
# half a second of a loader that reads 1,000 files a second, and S3 answers in a tenth of that.
AHEAD = 512

# Seconds until a control socket that takes nothing is given up.
SOCKET_TIMEOUT = 5


def mount_of(path):
    """The root of the s3mount that `path` lies in, or None."""
    root = os.path.realpath(path)
    while not os.path.ismount(root):
        root = os.path.dirname(root)
    return root if os.path.lexists(os.path.join(root, ".s3mount")) else None


class HintFile:
    """The file of a mount that takes hints."""

    def __init__(self, root):
        self.file = open(os.path.join(root, ".s3mount", "prefetch"), "wb", buffering=0)

    def write(self, text):
        self.file.write(text)

    def close(self):
        self.file.close()


class HintSocket:
    """A mount's control socket. It is connected anew when the mount has closed the connection."""

    def __init__(self, path):
        self.path = path
        self.connect()

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SOCKET_TIMEOUT)
        try:
            self.socket.connect(self.path)
            self.socket.sendall(b"prefetch\n")
        except OSError:
            self.socket.close()
            raise

    def write(self, text):
        try:
            self.socket.sendall(text)
        except OSError:
            self.socket.close()
            self.connect()
            self.socket.sendall(text)

    def close(self):
        self.socket.close()


class Hints:
    """Takes what will be read, and tells it to the mounts that it lies in."""

    def __init__(self, control_socket=None):
        self.control_socket = control_socket or os.environ.get("S3MOUNT_CONTROL_SOCKET")
        self.mounts = {}
        # The folders of a dataset are few, and looking for a folder's mount takes a dozen system calls.
        self.place = functools.lru_cache(maxsize=4096)(self._place)

    def tell(self, reads):
        """Says what will be read, in this order: paths, or (path, offset, length)."""
        lines = collections.defaultdict(list)
        for read in reads:
            path, *span = (read,) if isinstance(read, (str, os.PathLike)) else read
            folder, name = os.path.split(os.fspath(path))
            root, below = self.place(folder)
            if root is not None and not set("\n\t") & set(name):
                lines[root].append("\t".join([os.path.join(below, name), *map(str, span)]) + "\n")
        for root, told in lines.items():
            self._write(root, "".join(told).encode())

    def close(self):
        """No more hints come."""
        for mount in self.mounts.values():
            if mount is not None:
                mount.close()
        self.mounts = {}

    def _place(self, folder):
        """The root of the mount of `folder`, and the folder's path below it."""
        real = os.path.realpath(folder)
        root = mount_of(real)
        if root is None:
            self._warn(f"{folder or os.curdir} is not on an s3mount")
            return None, None
        below = os.path.relpath(real, root)
        return root, "" if below == os.curdir else below

    def _write(self, root, text):
        if root not in self.mounts:
            self.mounts[root] = self._open(root)
        mount = self.mounts[root]
        try:
            if mount is not None:
                mount.write(text)
        except OSError as error:
            self._warn(f"the mount at {root} takes no more hints ({error})")
            self.mounts[root] = None

    def _open(self, root):
        try:
            return HintSocket(self.control_socket) if self.control_socket else HintFile(root)
        except OSError as error:
            where = self.control_socket or os.path.join(root, ".s3mount", "prefetch")
            self._warn(
                f"the mount at {root} takes no hints through {where} ({error.strerror or error}); mount it with "
                "--control-socket PATH and set S3MOUNT_CONTROL_SOCKET=PATH, or run as the user who mounted it"
            )
            return None

    @staticmethod
    def _warn(what):
        warnings.warn(f"s3mount_hints: {what}: reading goes on without hints", RuntimeWarning, stacklevel=2)


class HintedSampler:
    """Yields what `sampler` yields, and tells the mount of it `ahead` items before.

    `sampler` yields indices, or lists of them. `paths[index]`, or `paths(index)`, is what is read for an
    index: a path, or (path, offset, length). This runs in the process of the DataLoader, whatever
    `num_workers` is.
    """

    def __init__(self, sampler, paths, ahead=AHEAD, control_socket=None):
        self.sampler = sampler
        self.paths = paths
        self.ahead = ahead
        self.control_socket = control_socket

    def __len__(self):
        return len(self.sampler)

    def __getattr__(self, name):
        # set_epoch, batch_size and what else the loop asks of the sampler.
        if name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self):
        items = iter(self.sampler)
        hints = Hints(self.control_socket)
        waiting = collections.deque()
        try:
            # So many at once in the beginning, then one for each that leaves.
            self._take(items, waiting, hints, self.ahead)
            while waiting:
                yield waiting.popleft()
                self._take(items, waiting, hints, 1)
        finally:
            hints.close()

    def _take(self, items, waiting, hints, count):
        taken = [item for _, item in zip(range(count), items)]
        waiting.extend(taken)
        indices = [index for item in taken for index in (item if isinstance(item, (list, tuple)) else [item])]
        path_of = self.paths if callable(self.paths) else self.paths.__getitem__
        hints.tell(map(path_of, indices))


def hinted(loader, paths=None, ahead=None, control_socket=None):
    """Makes `loader`, a DataLoader, tell the mount what its workers read next; returns `loader`.

    `paths` is what `HintedSampler` takes, where the dataset does not say it. `ahead` counts samples
    beyond those that the workers were given.

    Raises TypeError for a dataset without indices or paths, ValueError for a loader that has begun.
    """
    from torch.utils.data import IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        raise TypeError("an IterableDataset has no indices, so nobody knows what it reads next")
    if getattr(loader, "_iterator", None) is not None:
        raise ValueError("this DataLoader keeps its workers and has begun: call hinted() before its first epoch")
    path_of = paths_of(loader.dataset) if paths is None else paths
    if path_of is None:
        raise TypeError(
            f"{type(loader.dataset).__name__} does not say which file an index reads: it has no samples, imgs, "
            "paths or files; give hinted() a list or a function from the index to the path as `paths`"
        )
    name, size = ("sampler", 1) if loader.batch_sampler is None else ("batch_sampler", loader.batch_size or 1)
    given = loader.num_workers * (loader.prefetch_factor or 0)
    beyond = -(-(AHEAD if ahead is None else ahead) // size)
    sampler = HintedSampler(getattr(loader, name), path_of, given + beyond, control_socket)
    # A DataLoader lets nobody set its samplers. Its iterators take them from here all the same.
    vars(loader)[name] = sampler
    return loader


def paths_of(dataset):
    """The function from an index of `dataset` to the path that it reads, or None if it does not say."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        inner = paths_of(dataset.dataset)
        return inner and (lambda index: inner(dataset.indices[index]))
    if hasattr(dataset, "cumulative_sizes") and hasattr(dataset, "datasets"):
        return paths_of_all(dataset)
    for name in ("samples", "imgs", "paths", "files"):
        items = getattr(dataset, name, None)
        if isinstance(items, (list, tuple)) and len(items) == len(dataset) > 0 and path_in(items[0]) is not None:
            return lambda index: path_in(items[index])
    return None


def paths_of_all(dataset):
    """The same for a ConcatDataset."""
    inner = [paths_of(one) for one in dataset.datasets]
    if None in inner:
        return None
    ends = dataset.cumulative_sizes

    def path_of(index):
        index = range(ends[-1])[index]
        which = bisect.bisect_right(ends, index)
        return inner[which](index - (ends[which - 1] if which > 0 else 0))

    return path_of


def path_in(item):
    """The path in an item of a dataset's list: the item, or the first of a pair of path and class."""
    first = item[0] if isinstance(item, (list, tuple)) and item else item
    return first if isinstance(first, (str, os.PathLike)) else None
