"""Reads an epoch by the example's DataLoader with 4 workers, and compares each sample with the file
of its name in a local folder. Usage: loader_epoch.py EXAMPLES_DIR files|tar ROOT TRUTH"""

import os
import pathlib
import sys

examples, kind, root, truth = sys.argv[1:]
sys.path.insert(0, examples)
import dataloader

expected = {
    str(path.relative_to(truth)): path.read_bytes() for path in pathlib.Path(truth).rglob("*") if path.is_file()
}
order = []
for batch in dataloader.loader(root, tar=kind == "tar", workers=4, batch=32):
    for name, data in batch:
        name = os.path.normpath(name)
        assert data.numpy().tobytes() == expected[name], f"{name} has other bytes"
        order.append(name)
assert sorted(order) == sorted(expected), f"{len(order)} of {len(expected)} samples"
if kind == "files":
    assert order != sorted(order), "not shuffled"
print(len(order))
