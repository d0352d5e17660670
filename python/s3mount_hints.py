"""Tells s3mount what a PyTorch DataLoader reads next, so that it is there when it is read.

    from s3mount_hints import HintedSampler

    paths = sorted(glob.glob("/mnt/data/train/*/*.jpg"))
    sampler = HintedSampler(RandomSampler(paths), paths)
    loader = DataLoader(Files(paths), sampler=sampler, batch_size=64, num_workers=8)

A BatchSampler is wrapped in the same way: `HintedSampler(batch_sampler, paths, ahead=16)`, and given
as `batch_sampler`. The standard library is all that this takes. Where the paths don't lie on an
s3mount, or the mount is not yours, the wrapper does nothing.
"""

import collections
import os


def mount_of(path):
    """The root of the s3mount that `path` lies in and that takes our hints, or None."""
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    takes_hints = os.access(os.path.join(path, ".s3mount", "prefetch"), os.W_OK)
    return path if takes_hints else None


class Hints:
    """Where hints for the mount at `root` are written; nowhere for None."""

    def __init__(self, root):
        self.root = root
        self.file = None if root is None else open(os.path.join(root, ".s3mount", "prefetch"), "wb", buffering=0)

    def tell(self, reads):
        """Says what will be read, in this order: paths, or (path, offset, length)."""
        if self.file is None:
            return
        lines = []
        for read in reads:
            path, *span = (read,) if isinstance(read, (str, os.PathLike)) else read
            below = os.path.relpath(os.path.realpath(os.path.dirname(path)), self.root)
            name = os.path.normpath(os.path.join(below, os.path.basename(path)))
            if not name.startswith("..") and "\n" not in name and "\t" not in name:
                lines.append("\t".join([name, *map(str, span)]))
        try:
            self.file.write("".join(line + "\n" for line in lines).encode())
        except OSError:
            # The mount is gone: reading will say so better.
            self.file = None

    def close(self):
        """No more hints come."""
        if self.file is not None:
            self.file.close()
            self.file = None


class HintedSampler:
    """Yields what `sampler` yields, and tells the mount of it `ahead` items before.

    `sampler` yields indices, or lists of them; `paths[index]` is what is read for an index: a path,
    or (path, offset, length). It runs in the process of the DataLoader, whatever `num_workers` is.
    """

    def __init__(self, sampler, paths, ahead=512):
        self.sampler = sampler
        self.paths = paths
        self.ahead = ahead

    def __len__(self):
        return len(self.sampler)

    def __getattr__(self, name):
        # set_epoch, batch_size and what else the loop asks of the sampler.
        if name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __iter__(self):
        items = iter(self.sampler)
        hints = Hints(self._root())
        waiting = collections.deque()
        try:
            # So many at once in the beginning, then one for each that leaves.
            self._take(items, waiting, hints, self.ahead)
            while waiting:
                yield waiting.popleft()
                self._take(items, waiting, hints, 1)
        finally:
            hints.close()

    def _root(self):
        if len(self.paths) == 0:
            return None
        first = self.paths[0]
        return mount_of(first if isinstance(first, (str, os.PathLike)) else first[0])

    def _take(self, items, waiting, hints, count):
        taken = [item for _, item in zip(range(count), items)]
        waiting.extend(taken)
        indices = [index for item in taken for index in (item if isinstance(item, (list, tuple)) else [item])]
        hints.tell(self.paths[index] for index in indices)
