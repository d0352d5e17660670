"""Records what real loaders ask of a mount: the traces beside this file.

Takes PyTorch, safetensors, pyarrow and numpy; builds nothing:

    python3 record.py target/release/s3mount target/release/s3mount-test-server

Each trace is a loader's reads of one object as the daemon gets them, after the kernel's readahead:
a line with the object's size, then a line with process, offset and length for each read.
"""

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import safetensors.torch
import torch

MIB = 1 << 20
TRACES = Path(__file__).parent


def make(folder):
    """Files as training jobs have them."""
    random = numpy.random.default_rng(1)
    with tarfile.open(folder / "shard.tar", "w") as tar:
        for index in range(1500):
            entry = tarfile.TarInfo(f"{index:06}.jpg")
            entry.size = max(1000, int(random.normal(110_000, 30_000)))
            tar.addfile(entry, io.BytesIO(random.bytes(entry.size)))
    (folder / "records.bin").write_bytes(random.bytes(1500 * 150_000))
    tensors = {f"layers.{index}": torch.rand(2048, 2048) for index in range(16)}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    torch.save(tensors, folder / "model.pt")
    numpy.savez(folder / "arrays.npz", **{f"a{index}": random.random(MIB) for index in range(16)})
    columns = {f"c{index}": random.random(400_000) for index in range(20)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "table.parquet", row_group_size=50_000)


class Records(torch.utils.data.IterableDataset):
    """Records in a row, divided by the workers."""

    def __init__(self, path):
        self.path = path

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        with open(self.path, "rb") as file:
            for index in range(info.id, 1500, info.num_workers):
                file.seek(index * 150_000)
                yield len(file.read(150_000))


def tar(path):
    with tarfile.open(path, "r|") as shard:
        for entry in shard:
            shard.extractfile(entry).read()


def interleaved(path):
    for _ in torch.utils.data.DataLoader(Records(path), batch_size=64, num_workers=4):
        pass


def mapped(path):
    """Four ranks of a job map one checkpoint, each from another tensor on."""
    ranks = [os.fork() for _ in range(4)]
    if 0 in ranks:
        rank = ranks.index(0)
        with safetensors.safe_open(path, "pt") as file:
            names = sorted(file.keys())
            for name in names[rank * 4 :] + names[: rank * 4]:
                file.get_tensor(name).sum()
        os._exit(0)
    for rank in ranks:
        os.waitpid(rank, 0)


def pickled(path):
    torch.load(path, map_location="cpu")


def zipped(path):
    with numpy.load(path) as arrays:
        for name in ["a7", "a2", "a11"]:
            arrays[name].sum()


def columns(path):
    file = pyarrow.parquet.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group, columns=["c0", "c3", "c11"])


LOADERS = {
    "tar": ("shard.tar", tar),
    "interleaved": ("records.bin", interleaved),
    "safetensors": ("model.safetensors", mapped),
    "torch-load": ("model.pt", pickled),
    "npz": ("arrays.npz", zipped),
    "parquet": ("table.parquet", columns),
}


def record(name, file, load, bucket, endpoint, s3mount):
    """Runs one loader on a mount of its own, and writes down what the mount was asked."""
    with tempfile.TemporaryDirectory() as mount:
        log = tempfile.NamedTemporaryFile("w+")
        environment = os.environ | {"S3MOUNT_LOG": "s3mount_fuse=trace"}
        command = [s3mount, "mount", "--foreground", "--no-sign-request", "--endpoint-url", endpoint]
        daemon = subprocess.Popen(command + ["bucket", mount], env=environment, stdout=log, stderr=log)
        while not os.path.ismount(mount):
            assert daemon.poll() is None, Path(log.name).read_text()
        loader = os.fork()
        if loader == 0:
            load(os.path.join(mount, file))
            os._exit(0)
        assert os.waitpid(loader, 0)[1] == 0, name
        daemon.terminate()
        daemon.wait()
        reads = re.findall(r"pid=(\d+) offset=(\d+) size=(\d+)", Path(log.name).read_text())
    numbers = {}
    lines = [str((bucket / file).stat().st_size)]
    for pid, offset, size in reads:
        lines.append(f"{numbers.setdefault(pid, len(numbers))} {offset} {size}")
    (TRACES / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(name, len(reads), "reads by", len(numbers))


def main():
    s3mount, server = sys.argv[1:]
    with tempfile.TemporaryDirectory() as root:
        bucket = Path(root, "bucket")
        bucket.mkdir()
        make(bucket)
        process = subprocess.Popen([server, "--root", root], stdout=subprocess.PIPE, text=True)
        endpoint = process.stdout.readline().split()[-1]
        try:
            for name, (file, load) in LOADERS.items():
                record(name, file, load, bucket, endpoint, s3mount)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
