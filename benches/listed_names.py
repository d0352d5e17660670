"""Measures mounts that have their names from a list: 10,000 folders of 1,000 names each.

    python3 benches/listed_names.py --scratch /nvme/scratch

It writes the list twice, once in order (CSV, compressed) and once shuffled (TSV), unless an earlier run has, starts the
test server, and mounts its bucket with the binaries in target/release. No object is read.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

from second_epoch import MIB, Mount, Server

FILES = 1000


def rows(folder):
    for number in range(FILES):
        key = f"train/n{folder:05d}/n{folder:05d}_{number:05d}.JPEG"
        time = f"2025-11-{1 + folder % 28:02d}T{number % 24:02d}:{number % 60:02d}:00.000Z"
        yield key, 110_000 + (number * 7919 + folder) % 90_000, hashlib.md5(key.encode()).hexdigest(), time


def write_lists(scratch, folders):
    in_order, shuffled = scratch / "in-order.csv.gz", scratch / "shuffled.tsv"
    if shuffled.exists():
        return [in_order, shuffled]
    with gzip.open(in_order, "wb", compresslevel=1) as out:
        out.write(b"Key,Size,ETag,LastModifiedDate,StorageClass\n")
        for folder in range(folders):
            lines = (f'"{key}","{size}","{etag}","{time}","STANDARD"\n' for key, size, etag, time in rows(folder))
            out.write("".join(lines).encode())
    choose, order = random.Random(1), list(range(folders))
    choose.shuffle(order)
    with open(shuffled, "w", buffering=MIB) as out:
        for folder in order:
            lines = [f'{key}\t{size}\t"{etag}"\t{time}\n' for key, size, etag, time in rows(folder)]
            choose.shuffle(lines)
            out.write("".join(lines))
    return [in_order, shuffled]


def timed(what, work):
    begun = time.monotonic()
    result = work()
    took = time.monotonic() - begun
    print(f"{what:52} {took:8.3f} s{'' if result is None else f'  {result}'}", flush=True)
    return took


def shell(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scratch", required=True, help="folder for lists and indexes")
    parser.add_argument("--folders", type=int, default=10_000)
    parser.add_argument("--binaries", default="target/release")
    args = parser.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    scratch = pathlib.Path(args.scratch)
    cache = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    server = Server(f"{args.binaries}/s3mount-test-server", "aws", "--many=data/unlisted/=1x1")
    binary = f"{args.binaries}/s3mount"
    try:
        for path in write_lists(scratch, args.folders):
            print(f"{path.name}: {path.stat().st_size / MIB:.0f} MiB")
            mounts = []
            begin = lambda: mounts.append(Mount(binary, server.url, "--names-from", str(path), "--cache", str(cache)))
            timed("the first mount, which builds the index", begin)
            print(f"    at the peak {mounts[0].peak_mib()} MiB")
            mounts.pop().close()
        indexes = list((cache / "lists").glob("*.names"))
        print(f"the index takes {indexes[0].stat().st_size / args.folders / FILES:.1f} bytes a name")
        timed("a later mount", begin)
        mount = mounts.pop()
        timed("    its first name", lambda: os.stat(f"{mount.dir}/train"))
        timed("ls of one folder", lambda: shell(f"ls -U {mount.dir}/train/n{args.folders // 2:05d} | wc -l"))
        timed("ls of the folder of folders", lambda: shell(f"ls -U {mount.dir}/train | wc -l"))
        choose = random.Random(2)
        names = [f"{mount.dir}/{key}" for key in
                 (f"train/n{f:05d}/n{f:05d}_{n:05d}.JPEG" for f, n in
                  ((choose.randrange(args.folders), choose.randrange(FILES)) for _ in range(10_000)))]
        took = timed("10,000 times stat at random", lambda: [os.stat(name) for name in names] and None)
        print(f"    {took / len(names) * 1e6:.0f} us for each")
        took = timed("find", lambda: shell(f"find {mount.dir} -type f | wc -l"))
        print(f"    {args.folders * FILES / took:.0f} names a second; at the peak {mount.peak_mib()} MiB")
        mount.close()
    finally:
        server.close()
        shutil.rmtree(cache)


if __name__ == "__main__":
    main()
