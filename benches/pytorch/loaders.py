"""Measures loaders of PyTorch over a mount, beside other ways to the same objects, at S3's latency.

    python3 -m venv --system-site-packages venv
    venv/bin/pip install boto3 h5py pyarrow safetensors
    venv/bin/pip install --no-deps s3torchconnector s3torchconnectorclient
    venv/bin/python benches/pytorch/loaders.py
    venv/bin/python benches/pytorch/loaders.py --only images --only tokens --peer /usr/bin/mount-s3

It starts the test server with the latencies of S3, and mounts its bucket anew for each measurement, with the
binaries in target/release. Each measurement is an epoch in a process of its own (`jobs.py`): once as fast as it
goes, and once with an accelerator that takes some time for each batch. Repetitions are interleaved, and the medians
are shown. Memory is the peak of what the job's processes and the daemon have for themselves, their shares of what
they share, sampled ten times a second; the page cache does not count.
"""

import argparse
import io
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from second_epoch import ENVIRONMENT, Mount, Server

KIB, MIB = 1 << 10, 1 << 20

# For each format: the preset, workers, seconds that a batch takes the accelerator, and whether hints help.
FORMATS = {
    "images": ("small-files", 8, 0.0476, True),
    "shards": ("training", 4, 0.05, False),
    "tokens": ("random", 8, 0.03, True),
    "rows": ("training", 4, 0.02, False),
    "volumes": ("random", 8, 0.04, True),
    "weights": ("model-loading", 8, 0.0, False),
}
WAYS = ["mount", "mount, told", "staged", "boto3", "s3torchconnector", "mount-s3"]


def make(folder):
    """The objects that need a format: the images need none, and are made by the server."""
    import h5py
    import numpy
    import pyarrow.parquet
    import safetensors.torch
    import torch

    random = numpy.random.default_rng(1)
    (folder / "shards").mkdir(parents=True)
    for shard in range(8):
        with tarfile.open(folder / "shards" / f"{shard:05}.tar", "w") as tar:
            for index in range(300):
                member = tarfile.TarInfo(f"{index:06}.bin")
                member.size = 110 * KIB
                tar.addfile(member, io.BytesIO(random.bytes(member.size)))
    random.integers(0, 50_000, 128 * MIB, dtype=numpy.uint16).tofile(folder / "tokens.bin")
    (folder / "rows").mkdir()
    for part in range(8):
        text = [random.bytes(500).hex() for _ in range(8_000)]
        unused = [random.bytes(1000) for _ in text]
        table = pyarrow.table({"id": range(len(text)), "text": text, "unused": unused})
        pyarrow.parquet.write_table(table, folder / "rows" / f"{part}.parquet", row_group_size=2000)
    with h5py.File(folder / "volumes.h5", "w", libver="latest") as file:
        data = random.integers(0, 255, (1200, 128, 1024), dtype=numpy.uint8)
        file.create_dataset("x", data=data, chunks=(1, 128, 1024))
    tensors = {f"layer.{index}": torch.from_numpy(random.random((2048, 2048), numpy.float32)) for index in range(32)}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def requests(server):
    stats = json.load(urllib.request.urlopen(server.url + "/_test/stats"))
    return sum(kind["requests"] for kind in stats.values() if isinstance(kind, dict) and "requests" in kind)


def memory(process):
    """What a process has for itself, and its shares, in bytes."""
    try:
        rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    # Anonymous memory and that of tmpfs; pages of files are the page cache's.
    sizes = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", rollup, re.MULTILINE)
    return sum(map(int, sizes)) * KIB


def family(process):
    """A process and those that it has started."""
    found = [process]
    for one in found:
        for task in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                pass
    return found


class Watch(threading.Thread):
    """Notes the peak of the memory of a process, those that it starts, and a daemon."""

    def __init__(self, job, daemon):
        super().__init__(daemon=True)
        self.job, self.daemon, self.peak, self.ended = job, daemon, 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            processes = family(self.job) + ([self.daemon] if self.daemon else [])
            self.peak = max(self.peak, sum(map(memory, processes)))


def measure(args, server, name, way, compute, scratch):
    preset, workers, _, _ = FORMATS[name]
    mount = None
    if way.startswith("mount"):
        # The peer would rather list a folder once, too.
        peer = ["--read-only", "--metadata-ttl", "indefinite", "--force-path-style", "--region", "us-east-1"]
        binary, flags = (args.peer, peer) if way == "mount-s3" else (args.binary, ["--preset", preset])
        mount = Mount(binary, server.url, *flags)
    root = mount.dir if mount else str(scratch / "staged")
    before, cpu = requests(server), mount.cpu_seconds() if mount else 0
    command = [sys.executable, HERE / "jobs.py", name, way, root, server.url, str(workers), str(compute)]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**ENVIRONMENT, "HOME": str(scratch)})
    watch = Watch(job.pid, mount and mount.process.pid)
    watch.start()
    try:
        said = job.communicate()[0]
        watch.ended.set()
        watch.join()
        if job.returncode:
            sys.exit(f"{name} by {way} failed")
        result = json.loads(said)
        result["cpu"] += mount.cpu_seconds() - cpu if mount else 0
        return {**result, "requests": requests(server) - before, "peak": watch.peak}
    finally:
        job.kill()
        if mount:
            mount.close()
        shutil.rmtree(scratch / "staged", ignore_errors=True)


def show(name, way, runs):
    free, paced = ([run for run in runs if (run["compute"] > 0) == is_paced] for is_paced in (False, True))

    def median(value, of=free):
        return statistics.median(map(value, of))

    speed = median(lambda run: run["samples"] / run["took"])
    unit = f"{speed:.0f}" if name != "weights" else f"{median(lambda run: run['took']):.2f} s"
    works = median(lambda run: run["batches"] * run["compute"] / run["took"], paced) if paced else None
    cells = [
        name, way, unit, f"{works:.2f}" if works is not None else "", f"{median(lambda run: run['first']):.2f}",
        f"{median(lambda run: run['cpu']):.1f}", f"{median(lambda run: run['peak']) / MIB:.0f}",
        f"{median(lambda run: run['requests']):.0f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default="target/release/s3mount")
    parser.add_argument("--server", default="target/release/s3mount-test-server")
    parser.add_argument("--peer", help="binary of mount-s3, to measure beside")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--only", action="append", choices=FORMATS, help="measure only this format")
    parser.add_argument("--way", action="append", choices=WAYS, help="measure only this way")
    parser.add_argument("--data", help="a folder that keeps the objects for the next run [default: a new one]")
    args = parser.parse_args()
    scratch = pathlib.Path(tempfile.mkdtemp())
    root = pathlib.Path(args.data) if args.data else scratch / "root"
    if not root.exists():
        make(root / "data")
    server = Server(args.server, "aws", "--root", str(root), "--many", f"data/images/={args.images}x110KiB")
    print("| data | way | samples/s | accelerator works | first batch, s | CPU s | peak MiB | requests |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    try:
        for name in args.only or FORMATS:
            _, _, compute, is_told = FORMATS[name]
            ways = [way for way in args.way or WAYS if is_told or way != "mount, told"]
            ways = [way for way in ways if args.peer or way != "mount-s3"]
            runs = {way: [] for way in ways}
            for turn in range(args.passes):
                for way in ways if turn % 2 else ways[::-1]:
                    for pace in sorted({0.0, compute}):
                        result = measure(args, server, name, way, pace, scratch)
                        runs[way].append({**result, "compute": pace})
            for way in ways:
                show(name, way, runs[way])
    finally:
        server.close()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
