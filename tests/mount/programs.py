"""Runs programs that write to a mount, and compares what boto3 gets from the bucket with what they meant.

    programs.py ENDPOINT BUCKET MOUNT WORK [NAME...]

Each program writes into a folder of the mount, through the mount alone. boto3 then downloads what the bucket holds
of that folder. A program whose files are the same in each run also writes into a local folder, and both are
compared byte by byte. Of any other program, its own reader looks at the download. The same is then done with the
folder in the mount.
"""

import filecmp
import json
import logging
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
import zipfile
from pathlib import Path

import boto3
import numpy

MIB = 1 << 20
SAME, READ = [], {}


def same(function):
    """A program that writes the same files in each run."""
    SAME.append(function)
    return function


def read_by(reader):
    """A program whose files `reader` has to look at."""

    def note(function):
        READ[function] = reader
        return function

    return note


def data(seed, length):
    return random.Random(seed).randbytes(length)


def arrays(large=3 * MIB):
    generator = numpy.random.default_rng(7)
    return {"large": generator.random(large), "small": numpy.arange(10), "b": generator.random((30, 40))}


def shell(script, folder, *arguments):
    subprocess.run(["sh", "-ec", script, "sh", *map(str, arguments)], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def local():
    """A folder that is not in the mount."""
    return tempfile.TemporaryDirectory(prefix="local-")


def fill(folder):
    """A tree of small files and a large one."""
    for name in ["a", "b/c", "b/d/e", "b/d/f g", "empty", "large"]:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        length = {"empty": 0, "large": 12 * MIB}.get(name, 10_000)
        path.write_bytes(data(name, length))


# What jobs save.


def state():
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays().items()}


def has_state(loaded):
    import torch

    assert loaded.keys() == state().keys()
    for name, tensor in state().items():
        assert torch.equal(loaded[name], tensor), name


def torch_load(folder):
    import torch

    for name in ["checkpoint.pt", "legacy.pt", "last.pt"]:
        has_state(torch.load(folder / name))


@read_by(torch_load)
def torch_save(folder):
    import torch

    torch.save(state(), folder / "checkpoint.pt")
    torch.save(state(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
    # A checkpoint takes the place of the one before it.
    torch.save({"other": torch.zeros(3 * MIB)}, folder / "last.pt")
    torch.save(state(), folder / "last.pt")


def distributed():
    """torch's checkpoints in shards."""
    import dataclasses

    # Debian 12 has torch 1.13 with Python 3.11, which takes no unhashable defaults any more.
    plain = dataclasses.dataclass

    def hashable(of=None, **how):
        if of is None:
            return lambda of: hashable(of, **how)
        return plain(of, **({"unsafe_hash": "__hash__" not in vars(of)} | how))

    dataclasses.dataclass = hashable
    try:
        from torch.distributed._shard import checkpoint
    finally:
        dataclasses.dataclass = plain
    return checkpoint


def dcp_load(folder):
    import torch

    checkpoint = distributed()

    loaded = {name: torch.zeros_like(tensor) for name, tensor in state().items()}
    checkpoint.load_state_dict(loaded, checkpoint.FileSystemReader(folder / "dcp"), no_dist=True)
    has_state(loaded)


@read_by(dcp_load)
def torch_distributed_checkpoint(folder):
    checkpoint = distributed()
    checkpoint.save_state_dict(state(), checkpoint.FileSystemWriter(folder / "dcp"), no_dist=True)


@same
def torch_2_distributed_checkpoint(folder):
    """As torch 2 does it: fsync before the buffers are flushed, and a rename of the metadata."""
    for _ in range(2):
        with open(folder / "__0_0.distcp", "wb") as stream:
            for seed in range(5):
                stream.write(data(seed, 3 * MIB + 17))
                os.fsync(stream.fileno())
        temporary, metadata = folder / ".metadata.tmp", folder / ".metadata"
        with open(temporary, "wb") as stream:
            pickle.dump(list(range(1000)), stream)
            os.fsync(stream.fileno())
        if metadata.exists():
            metadata.unlink()
        temporary.rename(metadata)


@same
def safetensors_save_file(folder):
    from safetensors.numpy import save_file

    save_file(arrays(), folder / "model.safetensors")
    save_file({"one": numpy.ones(5)}, folder / "small.safetensors")
    save_file(arrays(100), folder / "small.safetensors")


@same
def lightning(folder):
    """A checkpoint is written to a local file, and moved."""
    for name in ["epoch=1.ckpt", "last.ckpt", "last.ckpt"]:
        with local() as elsewhere:
            path = Path(elsewhere) / "tmp"
            path.write_bytes(data(name, 11 * MIB))
            shutil.move(path, folder / name)


def numpy_load(folder):
    expected = arrays()
    for name in ["plain.npz", "compressed.npz"]:
        with numpy.load(folder / name) as loaded:
            assert sorted(loaded) == sorted(expected)
            assert all(numpy.array_equal(loaded[key], expected[key]) for key in expected), name
    assert numpy.array_equal(numpy.load(folder / "one.npy"), expected["large"])
    mapped = numpy.load(folder / "mapped.npy", mmap_mode="r")
    assert numpy.array_equal(mapped, numpy.arange(MIB)[::-1])


@read_by(numpy_load)
def numpy_save(folder):
    numpy.savez(folder / "plain.npz", **arrays())
    numpy.savez_compressed(folder / "compressed.npz", **arrays())
    numpy.save(folder / "one.npy", arrays()["large"])
    mapped = numpy.lib.format.open_memmap(folder / "mapped.npy", mode="w+", dtype="int64", shape=(MIB,))
    mapped[:] = numpy.arange(MIB)[::-1]
    mapped.flush()


def h5py_load(folder):
    import h5py

    with h5py.File(folder / "data.h5", "r") as file:
        assert numpy.array_equal(file["a/large"][:2000], numpy.zeros(2000))
        assert numpy.array_equal(file["a/large"][2000:], arrays()["large"][2000:])
        assert file["a/b"].attrs["unit"] == "metre" and "small" not in file
        assert numpy.array_equal(file["grown"], numpy.arange(3 * 5000).reshape(3, 5000))


@read_by(h5py_load)
def h5py_file(folder):
    import h5py

    with h5py.File(folder / "data.h5", "w") as file:
        file.create_dataset("a/large", data=arrays()["large"], chunks=(50_000,), compression="gzip", compression_opts=1)
        file.create_dataset("a/b", data=arrays()["b"])
        file.create_dataset("grown", shape=(0, 5000), maxshape=(None, 5000), dtype="int64", chunks=(1, 5000))
        file.flush()
        file["small"] = 1
    with h5py.File(folder / "data.h5", "a") as file:
        for row in range(3):
            file["grown"].resize((row + 1, 5000))
            file["grown"][row] = numpy.arange(5000) + row * 5000
            file.flush()
    with h5py.File(folder / "data.h5", "r+") as file:
        file["a/large"][:2000] = 0
        file["a/b"].attrs["unit"] = "metre"
        del file["small"]


def table():
    import pyarrow

    return pyarrow.table({"n": list(range(200_000)), "part": ["even", "odd"] * 100_000, "v": arrays(200_000)["large"]})


def parquet_read(folder):
    import pyarrow.parquet as parquet
    import pyarrow

    for name in ["plain.parquet", "groups.parquet"]:
        assert parquet.read_table(folder / name).equals(table()), name
    found = parquet.read_table(folder / "dataset").sort_by("n")
    assert found["n"].to_pylist() == list(range(200_000)) and set(found["part"].to_pylist()) == {"even", "odd"}
    with pyarrow.memory_map(str(folder / "table.arrow")) as source:
        assert pyarrow.ipc.open_file(source).read_all().equals(table())


@read_by(parquet_read)
def pyarrow_parquet(folder):
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(table(), folder / "plain.parquet", compression="none")
    with parquet.ParquetWriter(folder / "groups.parquet", table().schema) as writer:
        for start in range(0, 200_000, 20_000):
            writer.write_table(table().slice(start, 20_000))
    parquet.write_to_dataset(table(), folder / "dataset", partition_cols=["part"])
    with pyarrow.OSFile(str(folder / "table.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table())


def events(folder):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    steps = {}
    for path in sorted(folder.glob("*/*tfevents*")):
        found = [event.step for event in EventFileLoader(str(path)).Load() if event.summary.value]
        steps.setdefault(path.parent.name, []).extend(found)
    assert steps == {"tensorboard": list(range(30)), "tensorboardX": list(range(30))}, steps


@read_by(events)
def tensorboard_writers(folder):
    from tensorboardX import SummaryWriter as Other
    from torch.utils.tensorboard import SummaryWriter

    for name, kind in [("tensorboard", SummaryWriter), ("tensorboardX", Other)]:
        with kind(str(folder / name)) as writer:
            for step in range(30):
                writer.add_scalar("loss", 1 / (step + 1), step)
                if step % 5 == 0:
                    writer.flush()


@same
def logs(folder):
    """Logs grow, by one writer that keeps the file open, and by many that open it for a line."""
    handler = logging.FileHandler(folder / "job.log")
    for line in range(50):
        handler.emit(logging.LogRecord("job", 20, "", 0, f"line {line}", (), None))
        with open(folder / "results.jsonl", "a") as file:
            print(json.dumps({"line": line}), file=file)
    handler.close()


@same
def replaced_json(folder):
    """A state file is replaced as a whole, as programs do that fear to be killed."""
    for step in range(5):
        descriptor, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"step": step}, file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, folder / "trainer_state.json")
        folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder_descriptor)
        os.close(folder_descriptor)


@same
def zip_file(folder):
    entry = zipfile.ZipInfo("first")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr(entry, data(1, 7 * MIB))
    with zipfile.ZipFile(folder / "a.zip", "a") as archive:
        archive.writestr(zipfile.ZipInfo("second"), data(2, 7 * MIB))


@same
def copied_tree(folder):
    with local() as elsewhere:
        fill(elsewhere)
        shutil.copytree(elsewhere, folder / "tree")
    shutil.copytree(folder / "tree", folder / "again")
    shutil.rmtree(folder / "tree")


# Tools.


@same
def cp_mv_rm(folder):
    with local() as elsewhere:
        fill(elsewhere)
        script = """
            cp -r "$1/b" plain; cp -a "$1/large" .; cp -r plain copy; cp large larger; cp -f large copy/c
            mv larger moved; mv moved copy/; mv copy/d/e "copy/d/e e"; rm -r plain; mv -n large copy/c || true
            install -m 755 "$1/a" tool; truncate -s 5000 tool
        """
        shell(script, folder, elsewhere)


@same
def moved_folders(folder):
    """As Trainers of Hugging Face name a checkpoint once it is whole."""
    with local() as elsewhere:
        fill(elsewhere)
        script = """
            cp -r "$1" checkpoint-1.tmp; mv checkpoint-1.tmp checkpoint-1
            mkdir kept; mv checkpoint-1 kept/; mv kept/checkpoint-1/b kept/b; echo more >> kept/b/c
        """
        shell(script, folder, elsewhere)
    with open(folder / "kept" / "log", "w") as log:
        log.write("before, ")
        os.rename(folder / "kept", folder / "moved")
        log.write("after")


@same
def tar_and_gzip(folder):
    with local() as elsewhere:
        fill(elsewhere)
        shell('tar cf "$1.tar" -C "$1" .; tar xf "$1.tar"; tar xf "$1.tar"; gzip -nk large; gunzip -c large.gz > out; rm large.gz; rm "$1.tar"', folder, elsewhere)


@same
def rsync(folder):
    with local() as elsewhere:
        fill(elsewhere)
        shell('rsync -a "$1/" whole/; rsync -a --inplace "$1/" inplace/', folder, elsewhere)
        with open(Path(elsewhere) / "large", "r+b") as file:
            file.seek(5 * MIB)
            file.write(b"changed")
        with open(Path(elsewhere) / "a", "ab") as file:
            file.write(b"longer")
        (Path(elsewhere) / "b/c").unlink()
        shell('rsync -a --checksum --no-whole-file --delete "$1/" whole/; rsync -a --inplace --no-whole-file --checksum "$1/" inplace/', folder, elsewhere)
        shell('rsync -a --append-verify "$1/large" appended; head -c 3000000 "$1/large" > appended; rsync -a --append-verify "$1/large" appended', folder, elsewhere)


@same
def editors(folder):
    (folder / "text").write_text("one\ntwo\nthree\n")
    shell("""
        sed -i s/one/ONE/ text; sed -i.orig s/three/THREE/ text; sort -o text text; tee -a text < text.orig > /dev/null
        perl -pi -e 's/two/TWO/' text; printf 'x\\n' | cat - text > new; mv -f new text
    """, folder)


@same
def dd(folder):
    with local() as elsewhere:
        fill(elsewhere)
        script = """
            dd if="$1/large" of=whole bs=64k; dd if="$1/large" of=whole bs=1000 seek=3000 count=500 conv=notrunc
            dd if="$1/large" of=sparse bs=1M seek=7 count=1; dd if="$1/a" of=whole bs=1 seek=5 count=7 conv=notrunc,fsync
            dd if="$1/large" of=direct bs=1M oflag=direct; dd if="$1/a" of=direct oflag=append conv=notrunc
            split -b 5000000 "$1/large" piece.; cat piece.* > together
        """
        shell("{ " + script + " } 2> /dev/null", folder, elsewhere)


def git_check(folder):
    with local() as elsewhere:
        # git wants the folders that hold nothing, and the bucket has none.
        copy = Path(elsewhere) / "copy"
        shutil.copytree(folder / "clone", copy)
        (copy / ".git/refs/tags").mkdir(parents=True, exist_ok=True)
        git("fsck", "--strict", folder=copy)
        assert git("log", "--format=%s", folder=copy) == "third\nsecond\nfirst\n"
        assert git("status", "--porcelain", folder=copy) == ""


def git(*arguments, folder):
    command = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "core.fileMode=false", "-C", folder, *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}).stdout


@read_by(git_check)
def git_clone(folder):
    with local() as elsewhere:
        fill(elsewhere)
        git("init", "-q", folder=elsewhere)
        git("add", ".", folder=elsewhere)
        git("commit", "-qm", "first", folder=elsewhere)
        git("clone", "-q", elsewhere, folder / "clone", folder=elsewhere)
    clone = folder / "clone"
    (clone / "a").write_text("changed")
    git("commit", "-qam", "second", folder=clone)
    git("mv", "a", "renamed", folder=clone)
    git("commit", "-qm", "third", folder=clone)
    git("gc", "-q", folder=clone)


def sqlite_check(folder):
    # A database is opened read-write even to read it, so this looks at a copy.
    with local() as elsewhere:
        copy = shutil.copy(folder / "db.sqlite", elsewhere)
        connection = sqlite3.connect(copy)
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        assert connection.execute("select count(*), sum(n) from t").fetchone() == (2000, sum(range(2000)))
        connection.close()


@read_by(sqlite_check)
def sqlite(folder):
    connection = sqlite3.connect(folder / "db.sqlite")
    connection.execute("create table t (n integer, text text)")
    for start in range(0, 2000, 500):
        with connection:
            rows = ((n, "x" * 500) for n in range(start, start + 500))
            connection.executemany("insert into t values (?, ?)", rows)
    connection.execute("begin")
    connection.execute("delete from t")
    connection.rollback()
    connection.execute("vacuum")
    connection.close()


# The comparison.


def download(client, bucket, prefix, folder):
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            path = folder / entry["Key"][len(prefix):]
            path.parent.mkdir(parents=True, exist_ok=True)
            client.download_file(bucket, entry["Key"], str(path))


def compare(expected, found):
    def files(folder):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    assert files(expected) == files(found), f"{files(expected)} expected, found {files(found)}"
    for name in files(expected):
        assert filecmp.cmp(expected / name, found / name, shallow=False), f"{name} differs"


def run(client, bucket, mount, work, function):
    name = function.__name__
    folder, stored, expected = mount / name, work / "stored" / name, work / "expected" / name
    folder.mkdir()
    stored.mkdir(parents=True)
    function(folder)
    download(client, bucket, f"{name}/", stored)
    if function in READ:
        READ[function](stored)
        READ[function](folder)
    else:
        expected.mkdir(parents=True)
        function(expected)
        compare(expected, stored)
        compare(expected, folder)


def main(endpoint, bucket, mount, work, *names):
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    failed = []
    for function in [*READ, *SAME]:
        if names and function.__name__ not in names:
            continue
        try:
            run(client, bucket, Path(mount), Path(work), function)
            print("passed", function.__name__, flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(function.__name__)
    sys.exit(f"failed: {failed}" if failed else 0)


main(*sys.argv[1:])
