"""One epoch of a PyTorch job, in a process of its own: `loaders.py` starts it, and measures it.

    jobs.py FORMAT WAY ROOT URL WORKERS COMPUTE

It prints JSON: samples, batches, seconds from the start to the first batch and to the end, and CPU seconds of its
processes. Time and CPU begin after the imports; names are listed, and data is staged, after that.
"""

import io
import json
import os
import resource
import shutil
import sys
import tarfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path

import boto3
import botocore.config
import h5py
import numpy
import pyarrow.parquet
import safetensors.torch
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

warnings.filterwarnings("ignore", "This DataLoader will create")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from s3mount_hints import hinted

BUCKET = "data"
# Of a file of tokens, so many windows are read, and so many tokens are one.
WINDOWS, LENGTH = 1500, 2048
RANKS = 8


@lru_cache
def client(url, process):
    """The client of a process: workers must not use their parent's."""
    config = botocore.config.Config(s3={"addressing_style": "path"}, max_pool_connections=32)
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=config)


class Folder:
    """Objects are files of a folder: a mount, or what was staged."""

    def __init__(self, root):
        self.root = root

    def names(self, prefix):
        return sorted(f"{prefix}{entry.name}" for entry in os.scandir(os.path.join(self.root, prefix)))

    def path(self, name):
        return os.path.join(self.root, name)

    def open(self, name):
        return open(self.path(name), "rb", buffering=1 << 20)

    def read(self, name):
        with open(self.path(name), "rb", buffering=0) as file:
            return file.read()

    @cached_property
    def tokens(self):
        return numpy.memmap(self.path("tokens.bin"), numpy.uint16, mode="r")

    def window(self, at):
        return self.tokens[at : at + LENGTH]

    def weights(self):
        return safetensors.torch.load_file(self.path("model.safetensors"))


class Boto3:
    """Objects are got by boto3, whole where a file is wanted."""

    def __init__(self, url):
        self.url = url

    def names(self, prefix):
        pages = client(self.url, os.getpid()).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page["Contents"])

    def get(self, name, **more):
        return client(self.url, os.getpid()).get_object(Bucket=BUCKET, Key=name, **more)["Body"]

    def open(self, name):
        return io.BytesIO(self.read(name))

    def read(self, name):
        return self.get(name).read()

    def window(self, at):
        body = self.get("tokens.bin", Range=f"bytes={2 * at}-{2 * (at + LENGTH) - 1}")
        return numpy.frombuffer(body.read(), numpy.uint16)

    def weights(self):
        return safetensors.torch.load(self.read("model.safetensors"))


class Connector(Boto3):
    """Objects are got by s3torchconnector: streamed, or in ranges where a file is wanted that is not read in order.
    Names are listed as above."""

    @cached_property
    def library(self):
        import s3torchconnector

        return s3torchconnector

    def reader(self, name, constructor):
        config = self.library.S3ClientConfig(force_path_style=True)
        objects = self.library.S3MapDataset.from_objects(
            f"s3://{BUCKET}/{name}", region="us-east-1", endpoint=self.url, s3client_config=config,
            reader_constructor=constructor)
        return objects[0]

    @lru_cache(maxsize=None)
    def ranges(self, name, size, process):
        return self.reader(name, self.library.S3ReaderConstructor.range_based(buffer_size=size))

    @lru_cache(maxsize=None)
    def stream(self, process):
        config = self.library.S3ClientConfig(force_path_style=True)
        from s3torchconnector._s3client import S3Client

        return S3Client(region="us-east-1", endpoint=self.url, s3client_config=config)

    def read(self, name):
        return self.stream(os.getpid()).get_object(BUCKET, name).read()

    def open(self, name):
        if name.endswith(".tar"):
            return self.stream(os.getpid()).get_object(BUCKET, name)
        return self.ranges(name, 8 << 20 if name.endswith(".parquet") else 0, os.getpid())

    def window(self, at):
        reader = self.ranges("tokens.bin", 0, os.getpid())
        reader.seek(2 * at)
        return numpy.frombuffer(reader.read(2 * LENGTH), numpy.uint16)


def stage(url, names, folder):
    """Downloads objects, 16 at a time, as a job does that copies its data first."""
    shutil.rmtree(folder, ignore_errors=True)

    def download(name):
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        client(url, os.getpid()).download_file(BUCKET, name, str(path))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(download, names))


class Images(Dataset):
    """One file a sample."""

    PREFIX, BATCH = "images/", 24

    def __init__(self, source):
        self.source, self.names = source, source.names(self.PREFIX)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(self.source.read(self.names[index])), dtype=torch.uint8)

    def place(self, index):
        return self.source.path(self.names[index])


class Tokens(Dataset):
    """Windows of one large file, at random."""

    PREFIX, BATCH = "tokens.bin", 16

    def __init__(self, source):
        self.source = source
        # The file is so large that few of the windows lie beside each other.
        self.starts = numpy.random.default_rng(1).permutation((256 << 20) // 2 // LENGTH)[:WINDOWS] * LENGTH

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        return torch.from_numpy(self.source.window(int(self.starts[index])).astype(numpy.int64))

    def place(self, index):
        return self.source.path("tokens.bin"), 2 * int(self.starts[index]), 2 * LENGTH


class Volumes(Dataset):
    """Chunks of an HDF5 file, at random."""

    PREFIX, BATCH = "volumes.h5", 16

    def __init__(self, source):
        self.source, self.data = source, None
        with self.file() as file:
            self.count = len(file["x"])

    def file(self):
        is_file = isinstance(self.source, Folder)
        return h5py.File(self.source.path(self.PREFIX) if is_file else self.source.open(self.PREFIX))

    @cached_property
    def chunks(self):
        found = []
        with self.file() as file:
            file["x"].id.chunk_iter(found.append)
        return {chunk.chunk_offset[0]: (chunk.byte_offset, chunk.size) for chunk in found}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.data is None:
            self.data = self.file()["x"]
        return torch.from_numpy(self.data[index])

    def place(self, index):
        return self.source.path(self.PREFIX), *self.chunks[index]


class Files(IterableDataset):
    """Records out of files that are read from front to back, each worker its share of them."""

    def __init__(self, source):
        self.source, self.names = source, source.names(self.PREFIX)

    def __iter__(self):
        worker = get_worker_info()
        for name in self.names[worker.id :: worker.num_workers]:
            yield from self.records(name)


class Shards(Files):
    PREFIX, BATCH = "shards/", 64

    def records(self, name):
        with tarfile.open(fileobj=self.source.open(name), mode="r|", bufsize=1 << 20) as tar:
            for member in tar:
                yield torch.frombuffer(bytearray(tar.extractfile(member).read()), dtype=torch.uint8)


class Rows(Files):
    PREFIX, BATCH = "rows/", 256

    def records(self, name):
        with pyarrow.parquet.ParquetFile(self.source.open(name), pre_buffer=True) as file:
            for batch in file.iter_batches(batch_size=1024, columns=["id", "text"]):
                yield from batch.to_pylist()


FORMATS = {"images": Images, "shards": Shards, "tokens": Tokens, "rows": Rows, "volumes": Volumes}


def load(source, done):
    """One of the ranks that take all weights: each adds all numbers, so that it has read them."""
    torch.set_num_threads(1)
    done.put(sum(float(tensor.sum()) for tensor in source.weights().values()))


def weights(source):
    context = torch.multiprocessing.get_context("fork")
    done = context.SimpleQueue()
    ranks = [context.Process(target=load, args=(source, done)) for _ in range(RANKS)]
    for rank in ranks:
        rank.start()
    sums = {done.get() for _ in ranks}
    for rank in ranks:
        rank.join()
    assert len(sums) == 1, sums
    return RANKS, RANKS, time.monotonic()


def epoch(kind, way, source, workers, compute):
    """Reads all samples, with a pause for each batch. Returns samples, batches, and when the first batch came."""
    dataset = kind(source)
    shuffle = not isinstance(dataset, IterableDataset)
    loader = DataLoader(dataset, kind.BATCH, shuffle=shuffle, num_workers=workers)
    if way == "mount, told":
        hinted(loader, paths=dataset.place)
    samples, batches, first = 0, 0, None
    for batch in loader:
        first = first or time.monotonic()
        samples += len(batch["id"] if isinstance(batch, dict) else batch)
        batches += 1
        time.sleep(compute)
    return samples, batches, first


def main():
    name, way, root, url, workers, compute = sys.argv[1:]
    if way == "s3torchconnector":
        import s3torchconnector  # noqa: F401 its import is not measured, as the others' are not
    torch.set_num_threads(1)
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    source = {"boto3": Boto3(url), "s3torchconnector": Connector(url)}.get(way) or Folder(root)
    if way == "staged":
        prefix = FORMATS[name].PREFIX if name in FORMATS else "model.safetensors"
        stage(url, Boto3(url).names(prefix), root)
    if name == "weights":
        samples, batches, first = weights(source)
    else:
        samples, batches, first = epoch(FORMATS[name], way, source, int(workers), float(compute))
    ended = time.monotonic()
    after, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + workers.ru_utime + workers.ru_stime
    print(json.dumps({"samples": samples, "batches": batches, "first": first - started, "took": ended - started,
                      "cpu": cpu}))


if __name__ == "__main__":
    main()
