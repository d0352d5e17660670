"""Runs the examples of docs/PYTORCH.md.

    pytorch.py make FOLDER          makes the small data that they read
    pytorch.py run PAGE MOUNT WORK  runs each block of Python on the mount of that folder

A block reads below /mnt/data, and hands what it has read to `train`; its section has a check below, which compares
that with what was made. A block that is marked `ranks` runs in eight processes with RANK and WORLD_SIZE, as torchrun
starts them. A block that is marked `not-run: REASON` does not run.
"""

import io
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import warnings

import numpy
import torch

# The loaders have more workers than CI has cores.
warnings.filterwarnings("ignore", "This DataLoader will create")

IMAGES, CLASSES = 60, 3
RECORDS, SHARDS = 150, 3
TOKENS, WINDOW = 40 * 1024, 1024
ROWS = 2000
RANKS = 8
MAKERS, CHECKS = [], {}


def maker(function):
    MAKERS.append(function)
    return function


def check(section):
    """Marks what compares the batches of a section's block with what was made."""

    def note(function):
        CHECKS[section] = function
        return function

    return note


def generator():
    return numpy.random.default_rng(7)


def image(index):
    """A picture in a colour of its own, and the JPEG of it."""
    from PIL import Image

    colour = (index * 4, 100, 255 - index * 4)
    file = io.BytesIO()
    Image.new("RGB", (48, 40), colour).save(file, "JPEG", quality=95)
    return colour, file.getvalue()


def red(pixels):
    """The index of an image, told by how red it is."""
    return round(float(pixels[0].float().mean() * 255) / 4)


def seen(batches, at=0):
    """One entry of all batches, as one list."""
    return [entry for batch in batches for entry in batch[at]]


def same(found, wanted, what):
    if sorted(found) != sorted(wanted):
        raise AssertionError(f"{what}: {len(found)} were read, {len(wanted)} are there: {sorted(found)[:9]}")


@maker
def images(folder):
    for index in range(IMAGES):
        place = folder / "images" / f"class-{index % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{index:04}.jpg").write_bytes(image(index)[1])


@check("Files in folders of classes")
def images_are_right(batches):
    labels = seen(batches, 1)
    found = [red(pixels) for pixels in seen(batches)]
    if any(abs(index % CLASSES - label) > 0 for index, label in zip(found, labels)):
        raise AssertionError("an image has the label of another")
    same(found, range(IMAGES), "images")
    if found == sorted(found):
        raise AssertionError("the images were not shuffled")


@maker
def shards(folder):
    (folder / "shards").mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / "shards" / f"{shard:05}.tar", "w") as tar:
            for index in range(shard, IMAGES, SHARDS):
                for suffix, data in (("jpg", image(index)[1]), ("cls", str(index).encode())):
                    member = tarfile.TarInfo(f"{index:06}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


@check("Tar shards")
def shards_are_right(batches):
    classes = [int(index) for index in seen(batches, 1)]
    same(classes, range(IMAGES), "records")
    if [red(pixels) for pixels in seen(batches)] != classes:
        raise AssertionError("a record has the picture of another")


@maker
def indexed(folder):
    """Shards as MosaicML's MDSWriter writes them: a count, offsets, the configuration, and the records."""
    (folder / "mds").mkdir()
    shards = []
    for shard in range(SHARDS):
        records = []
        for index in range(shard * RECORDS, (shard + 1) * RECORDS):
            text = f"record {index} ".encode() * (1 + index % 50)
            records.append(struct.pack("<I", len(text)) + struct.pack("<q", index) + text)
        columns = {"column_names": ["index", "text"], "column_encodings": ["int", "str"], "column_sizes": [8, None]}
        config = {"version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": 1 << 26, **columns}
        said = json.dumps(config, sort_keys=True).encode()
        offsets = numpy.cumsum([0, *map(len, records)]) + 4 * (RECORDS + 2) + len(said)
        data = struct.pack("<I", RECORDS) + offsets.astype("<u4").tobytes() + said + b"".join(records)
        (folder / "mds" / f"shard.{shard:05}.mds").write_bytes(data)
        raw = {"basename": f"shard.{shard:05}.mds", "bytes": len(data), "hashes": {}}
        shards.append({**config, "samples": RECORDS, "raw_data": raw, "zip_data": None})
    (folder / "mds" / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


@check("Shards with an index")
def indexed_are_right(batches):
    found = [int(index) for index in seen(batches)]
    same(found, range(SHARDS * RECORDS), "records")
    for index, text in zip(found, seen(batches, 1)):
        if text != f"record {index} " * (1 + index % 50):
            raise AssertionError(f"record {index} is {text[:60]!r}")


def tokens_wanted():
    return generator().integers(0, 50_000, TOKENS + 1, dtype=numpy.uint16)


@maker
def tokens(folder):
    tokens_wanted().tofile(folder / "tokens.bin")


@check("Tokens in one large file")
def tokens_are_right(batches):
    wanted = tokens_wanted().astype(numpy.int64)
    starts = {wanted[at : at + WINDOW].tobytes(): at for at in range(0, TOKENS, WINDOW)}
    found = [starts[window.numpy().tobytes()] for window in seen(batches)]
    same(found, starts.values(), "windows")
    for at, targets in zip(found, seen(batches, 1)):
        if targets.numpy().tobytes() != wanted[at + 1 : at + 1 + WINDOW].tobytes():
            raise AssertionError(f"the targets at {at} are others")


def weights_wanted():
    numbers = generator()
    shapes = {"embed": (64, 32), "layer.weight": (48, 48), "layer.bias": (48,), "head": (1000, 16)}
    return {name: torch.from_numpy(numbers.random(shape, numpy.float32)) for name, shape in shapes.items()}


@maker
def weights(folder):
    from safetensors.torch import save_file

    save_file(weights_wanted(), folder / "model.safetensors")
    torch.save({"model": weights_wanted(), "step": 500}, folder / "checkpoint.pt")


@check("Weights as safetensors, by all ranks")
def weights_are_right(ranks):
    for name, wanted in weights_wanted().items():
        parts = torch.cat([batch[name] for batches in ranks for batch in batches])
        if not torch.equal(parts, wanted):
            raise AssertionError(f"{name} is another")


@check("Checkpoints of torch.save, by all ranks")
def checkpoints_are_right(ranks):
    for batches in ranks:
        (state,) = batches
        for name, wanted in weights_wanted().items():
            if not torch.equal(state[name], wanted):
                raise AssertionError(f"{name} is another")


@maker
def rows(folder):
    import pyarrow
    from pyarrow import parquet

    (folder / "rows").mkdir()
    for part in range(4):
        ids = numpy.arange(part * ROWS // 4, (part + 1) * ROWS // 4)
        table = pyarrow.table({"id": ids, "text": [f"row {id}" for id in ids], "unused": [b"x" * 100] * len(ids)})
        parquet.write_table(table, folder / "rows" / f"part-{part}.parquet", row_group_size=100)


def rows_are_right(batches):
    found = [int(id) for id in seen(batches)]
    same(found, range(ROWS), "rows")
    if seen(batches, 1) != [f"row {id}" for id in found]:
        raise AssertionError("a row has the text of another")


check("Parquet")(rows_are_right)
check("Datasets of Hugging Face, streamed")(rows_are_right)


def volume_wanted():
    return generator().random((96, 16, 16), numpy.float32)


@maker
def volume(folder):
    import h5py

    with h5py.File(folder / "volumes.h5", "w") as file:
        file.create_dataset("x", data=volume_wanted(), chunks=(1, 16, 16))


@check("HDF5")
def volume_is_right(batches):
    wanted = {part.tobytes(): at for at, part in enumerate(volume_wanted())}
    same([wanted[part.numpy().tobytes()] for part in seen(batches)], wanted.values(), "chunks")


@maker
def arrow(folder):
    import datasets

    ids = list(range(ROWS))
    made = datasets.Dataset.from_dict({"id": ids, "text": [f"row {id}" for id in ids]})
    made.save_to_disk(str(folder / "arrow"), num_shards=2)


check("Datasets of Hugging Face, saved")(rows_are_right)


def blocks(page):
    """The blocks of Python: the section, what stands behind `python`, and the program."""
    section, lines = None, iter(page.splitlines())
    for line in lines:
        section = line[3:].strip() if line.startswith("## ") else section
        if line.startswith("```python"):
            yield section, line[9:].strip(), "\n".join(iter(lambda: next(lines), "```"))


def run(program, name):
    """Runs a block, and returns what it has given to `train`."""
    batches = []
    # A file, so that an error shows the line.
    path = pathlib.Path(tempfile.mkdtemp()) / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.py"
    path.write_text(program)
    names = {"__name__": "example", "train": lambda *batch: batches.append(batch)}
    exec(compile(program, path, "exec"), names)
    # Workers that are kept end with their loader, before others are forked.
    names.clear()
    return batches


def run_rank(program, name, rank, out):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    # Eight processes share two cores or four.
    torch.set_num_threads(1)
    batches = [batch[0] for batch in run(program, name)]
    pathlib.Path(out).write_bytes(pickle.dumps(batches))


def run_ranks(program, name, work):
    """Runs a block in eight processes, and returns what each has given to `train`."""
    fork = multiprocessing.get_context("fork")
    outs = [work / f"rank-{rank}" for rank in range(RANKS)]
    ranks = [fork.Process(target=run_rank, args=(program, name, rank, out)) for rank, out in enumerate(outs)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    if any(rank.exitcode for rank in ranks):
        raise AssertionError(f"ranks ended with {[rank.exitcode for rank in ranks]}")
    return [pickle.loads(out.read_bytes()) for out in outs]


def run_page(page, mount, work):
    left, failed = set(CHECKS), 0
    for section, how, program in blocks(pathlib.Path(page).read_text()):
        left.remove(section)
        how, _, reason = how.partition("not-run: ")
        if reason:
            print(f"{section} is not run: {reason}")
            continue
        program, started = program.replace("/mnt/data", mount), time.monotonic()
        try:
            CHECKS[section](run_ranks(program, section, work) if how.strip() else run(program, section))
            print(f"{section}, {time.monotonic() - started:.1f} s: ok")
        except Exception:
            traceback.print_exc()
            print(f"{section} fails", file=sys.stderr)
            failed += 1
    if failed or left:
        sys.exit(f"{failed} examples fail; without an example: {sorted(left)}")


def main():
    what, *where = sys.argv[1:]
    if what == "make":
        for make in MAKERS:
            make(pathlib.Path(where[0]))
    else:
        run_page(where[0], where[1], pathlib.Path(where[2]))


if __name__ == "__main__":
    main()
