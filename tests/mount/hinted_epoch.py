"""Reads an epoch of shuffled files by 4 workers, with the sampler that tells the mount what comes.
Usage: hinted_epoch.py FOLDER_OF_s3mount_hints ROOT"""

import os
import sys

sys.path.insert(0, sys.argv[1])
import torch.utils.data as data
from s3mount_hints import HintedSampler, mount_of

root = sys.argv[2]
paths = sorted(os.path.join(root, name) for name in os.listdir(root))


class Files(data.Dataset):
    def __len__(self):
        return len(paths)

    def __getitem__(self, index):
        with open(paths[index], "rb") as file:
            return len(file.read())


batches = data.BatchSampler(data.RandomSampler(paths), batch_size=16, drop_last=False)
hinted = HintedSampler(batches, paths, ahead=16)
assert len(hinted) == len(batches) and hinted.batch_size == 16
sizes = [size for batch in data.DataLoader(Files(), batch_sampler=hinted, num_workers=4) for size in batch.tolist()]
assert sum(sizes) == sum(os.path.getsize(path) for path in paths)
print(f"{len(sizes)} samples, hinted {mount_of(root) is not None}")
