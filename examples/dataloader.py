"""Reads a mounted bucket by a PyTorch DataLoader: files in random order, or records of tar shards.

    python3 examples/dataloader.py /mnt/data/images          # each file is a sample
    python3 examples/dataloader.py /mnt/data/shards --tar    # each member of each *.tar is one

The mount is a folder like any other: the datasets below know nothing of S3.
"""

import argparse
import os
import tarfile
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


def tensor(data):
    """Bytes as a tensor; an empty file is an empty one."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


class Files(Dataset):
    """Every file below a folder; a sample is its name and its bytes."""

    def __init__(self, root):
        self.root = root
        self.names = sorted(
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root)
            for name in names
        )

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        with open(os.path.join(self.root, name), "rb") as file:
            return name, tensor(file.read())


class TarShards(IterableDataset):
    """The members of all tar files in a folder. Each worker streams its share of the shards from
    end to end, which s3mount reads ahead of."""

    def __init__(self, root):
        self.shards = sorted(entry.path for entry in os.scandir(root) if entry.name.endswith(".tar"))

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for shard in self.shards[first::step]:
            # Large reads: tarfile's own are of 10 KiB.
            with open(shard, "rb", buffering=1 << 20) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                for member in tar:
                    if member.isfile():
                        yield member.name, tensor(tar.extractfile(member).read())


def loader(root, tar=False, workers=4, batch=64):
    """A DataLoader of batches, each a list of names and byte tensors."""
    dataset = TarShards(root) if tar else Files(root)
    return DataLoader(
        dataset, batch_size=batch, shuffle=not tar, num_workers=workers, collate_fn=list
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("root", help="a folder of the mount")
    parser.add_argument("--tar", action="store_true", help="read records of tar shards")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    samples, size, start = 0, 0, time.monotonic()
    for batch in loader(args.root, args.tar, args.workers, args.batch):
        samples += len(batch)
        size += sum(len(data) for _, data in batch)
    seconds = time.monotonic() - start
    print(f"{samples} samples, {size / 1e6:.1f} MB in {seconds:.2f} s: {size / 1e6 / seconds:.0f} MB/s")


if __name__ == "__main__":
    main()
