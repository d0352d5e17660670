"""Measures the share of the time in which an accelerator works that a PyTorch DataLoader feeds. Each file
below ROOT is a sample. The accelerator works on a batch for `--compute` seconds. The defaults are those of
MLPerf Storage for retinanet: 8 workers, batches of 24 samples, 47.55 ms for each batch.

    python3 benches/utilisation.py /mnt/data/train --hints

Prints that share, from the first batch on, and the CPU time of the loader's processes.
"""

import argparse
import os
import pathlib
import resource
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from s3mount_hints import hinted


class Files(Dataset):
    def __init__(self, root):
        self.paths = sorted(str(path) for path in pathlib.Path(root).rglob("*") if path.is_file())

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb", buffering=0) as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("root", help="a folder of files of one size")
    parser.add_argument("--hints", action="store_true", help="tell the mount which files are read next")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--compute", type=float, default=0.04755, help="seconds that a batch takes")
    args = parser.parse_args()
    files = Files(args.root)
    loader = DataLoader(files, args.batch, shuffle=True, num_workers=args.workers, drop_last=True)
    batches = iter(hinted(loader) if args.hints else loader)
    begun = time.monotonic()
    next(batches)
    first, count = time.monotonic(), 1
    time.sleep(args.compute)
    for _ in batches:
        time.sleep(args.compute)
        count += 1
    took = time.monotonic() - first
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used)
    print(
        f"{count * args.compute / took:.3f} of the time, {count} batches in {took:.1f} s, the first after "
        f"{first - begun:.2f} s; {seconds:.1f} s of processor time in {os.path.basename(sys.executable)}"
    )


if __name__ == "__main__":
    main()
