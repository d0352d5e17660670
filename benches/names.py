"""Measures names: a listing of one large folder, look-ups, and hinted files.

    python3 benches/names.py
    python3 benches/names.py --base /usr/bin/s3mount-before --only lookups

It starts the test server, which has S3's latency, and mounts its bucket anew for each pass with the binaries in
target/release. Passes are interleaved, and the medians are shown, with the processor time of the daemon and with
requests.
"""

import argparse
import os
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from second_epoch import Mount, Server
from writes import counts, ours

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from s3mount_hints import Hints

SMALL = 16 << 10
LISTED = 1_000_000
LOOKED_UP = 20_000
HINTED = 10_000
READERS = 8


def paths(mount, folder, count):
    return [os.path.join(mount.dir, folder, f"f{index:05}.bin") for index in range(count)]


def shared(work, items):
    """Does `work` with shares of `items`, by as many threads as there are readers."""
    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(work, [items[at::READERS] for at in range(READERS)]))


def ls(mount):
    """One folder, listed from its first name to its last."""
    found = sum(1 for _ in os.scandir(os.path.join(mount.dir, "listed")))
    assert found == LISTED, found


def lookups(mount):
    """Names of a folder that nobody has listed, in an order without a pattern."""
    names = paths(mount, "looked-up", LOOKED_UP)
    random.Random(1).shuffle(names)
    shared(lambda share: [os.stat(name) for name in share], names)


def hinted(mount):
    """Small files that the mount is told of, read in an order without a pattern."""
    names = paths(mount, "hinted", HINTED)
    random.Random(1).shuffle(names)
    hints = Hints()
    hints.tell(names)

    def read(share):
        for name in share:
            with open(name, "rb", buffering=0) as file:
                assert len(file.read(SMALL)) == SMALL

    shared(read, names)
    hints.close()


ROWS = {"ls": (ls, LISTED), "lookups": (lookups, LOOKED_UP), "hinted": (hinted, HINTED)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default="target/release/s3mount")
    parser.add_argument("--base", help="binary of an earlier build, to measure beside")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--only", choices=ROWS, help="measure only this")
    args = parser.parse_args()
    content = [("listed", LISTED), ("looked-up", LOOKED_UP), ("hinted", HINTED)]
    many = [part for folder, count in content for part in ("--many", f"data/{folder}/={count}x{SMALL}")]
    server = Server("target/release/s3mount-test-server", "aws", *many)
    try:
        for row, (work, names) in ROWS.items():
            if args.only not in (None, row):
                continue
            ways = {way: [] for way in ours(args)}
            for turn in range(args.passes + 1):
                for way, binary in list(ours(args).items())[:: 1 if turn % 2 else -1]:
                    mount = Mount(binary, server.url)
                    before, cpu, begun = counts(server), mount.cpu_seconds(), time.monotonic()
                    work(mount)
                    took, cpu = time.monotonic() - begun, mount.cpu_seconds() - cpu
                    sent = sum(counts(server).values()) - sum(before.values())
                    # The first pass warms up the memory of the machine.
                    if turn:
                        ways[way].append((names / took, cpu, sent, mount.peak_mib()))
                    mount.close()
            for way, passes in ways.items():
                speed, cpu, sent, peak = (statistics.median(one[at] for one in passes) for at in range(4))
                print(f"{row:8} {way:6} {speed:7.0f} names/s  {cpu / names * 1e6:6.1f} CPU us/name"
                      f"  {sent:6.0f} requests  {peak:5.0f} MiB at the peak", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
