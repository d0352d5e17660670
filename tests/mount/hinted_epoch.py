"""Reads shuffled epochs of the files below ROOT, told to the mount ahead, and prints what happened.
Usage: hinted_epoch.py FOLDER_OF_s3mount_hints KIND ROOT. KIND is one of:

sampler     HintedSampler around a BatchSampler, 4 workers
fork        hinted(), by a dataset with `samples`; 4 workers that are forked for each epoch
spawn       hinted(), by a function; 2 spawned workers, kept for both epochs
rank        hinted(), by a Subset, as one of two ranks of a DistributedSampler
errors      prints what hinted() says to loaders that it can't help"""

import os
import sys
import warnings

sys.path.insert(0, sys.argv[1])
import torch.utils.data as data
from s3mount_hints import HintedSampler, hinted

kind, root = sys.argv[2:]


class Files(data.Dataset):
    def __init__(self, root):
        self.samples = sorted((os.path.join(root, name), 0) for name in os.listdir(root))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        with open(self.samples[index][0], "rb") as file:
            return index, len(file.read())


class Table(data.Dataset):
    """Says nothing of paths."""

    def __init__(self, files):
        self.inner = files

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index]


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(4))


def loader_of(files):
    if kind == "sampler":
        paths = [path for path, _ in files.samples]
        batches = data.BatchSampler(data.RandomSampler(paths), batch_size=16, drop_last=False)
        batches = HintedSampler(batches, paths, ahead=16)
        assert len(batches) == -(-len(files) // 16) and batches.batch_size == 16
        return data.DataLoader(files, batch_sampler=batches, num_workers=4)
    if kind == "fork":
        return hinted(data.DataLoader(files, batch_size=16, shuffle=True, num_workers=4))
    if kind == "spawn":
        loader = data.DataLoader(
            Table(files), 16, True, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
        )
        return hinted(loader, paths=lambda index: files.samples[index][0], ahead=64)
    subset = data.Subset(files, range(0, len(files), 2))
    sampler = data.distributed.DistributedSampler(subset, num_replicas=2, rank=0)
    return hinted(data.DataLoader(subset, batch_size=None, sampler=sampler, num_workers=2))


def main():
    files = Files(root)
    if kind == "errors":
        running = data.DataLoader(files, num_workers=1, persistent_workers=True)
        next(iter(running))
        for loader in [data.DataLoader(Table(files)), data.DataLoader(Stream()), running]:
            try:
                hinted(loader)
            except (TypeError, ValueError) as error:
                print(error)
        return
    loader = loader_of(files)
    assert isinstance(loader, data.DataLoader)
    orders = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for epoch in range(2):
            if kind == "rank":
                loader.sampler.set_epoch(epoch)
            orders.append([])
            for indices, sizes in loader:
                assert sum(sizes.tolist() if kind != "rank" else [sizes]) > 0
                orders[-1] += indices.tolist() if kind != "rank" else [indices]
    assert sorted(orders[0]) != orders[0] and orders[0] != orders[1], "not shuffled"
    for message in sorted({str(one.message) for one in warned if "s3mount" in str(one.message)}):
        print(message)
    print(f"{len(orders[0])} and {len(orders[1])} samples of {len(set(orders[0] + orders[1]))} files")


if __name__ == "__main__":
    main()
