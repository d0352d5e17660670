"""Measures mounts of many names whose listings are kept in a disk cache: 1,000 folders of 1,000 files, and one
folder of 1,000,000.

    python3 benches/kept_names.py --cache /nvme/scratch

It starts the test server and mounts its bucket with the binaries in target/release. The page cache is dropped
before each mount (which needs root).
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import urllib.request

from second_epoch import MIB, Mount, Server


def lists(server):
    return json.load(urllib.request.urlopen(server.url + "/_test/stats"))["list_objects"]["requests"]


def kept(cache):
    """The kept listings, and their bytes."""
    files = [path for path in pathlib.Path(cache, "names").glob("*/*") if not path.name.startswith(".new")]
    return len(files), sum(path.stat().st_size for path in files)


def shell(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout.strip()


def show_one(mount):
    return shell(f"ls -U {mount.dir}/one | wc -l")


def show_many(mount):
    return shell(f"ls -U {mount.dir} && find {mount.dir}/many -type f | wc -l").split()[-1]


def stat_random(paths):
    def stat(mount):
        for path in paths:
            os.stat(os.path.join(mount.dir, path))
        return len(paths)

    return stat


def measure(args, server, flags, what, work):
    """Mounts, does the work, and unmounts."""
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    before, begun = lists(server), time.monotonic()
    mount = Mount(args.binary, server.url, *flags)
    mounted, at_mount = time.monotonic() - begun, lists(server) - before
    begun = time.monotonic()
    result = work(mount)
    took = time.monotonic() - begun
    sent = lists(server) - before - at_mount
    print(f"{what:44} mounted in {mounted * 1000:4.0f} ms with {at_mount} LISTs, then {result} names in "
          f"{took:6.2f} s, {sent} LISTs, {mount.peak_mib()} MiB at the peak", flush=True)
    return mount


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", required=True, help="folder on the disk to measure")
    parser.add_argument("--binary", default="target/release/s3mount")
    parser.add_argument("--folders", type=int, default=1000, help="folders, and files in each of them")
    args = parser.parse_args()
    side = args.folders
    os.makedirs(args.cache, exist_ok=True)
    cache = tempfile.mkdtemp(dir=args.cache)
    os.chmod(cache, 0o700)
    many = [f"--many=data/many/d{folder:04}/={side}x1" for folder in range(side)]
    server = Server("target/release/s3mount-test-server", "aws", f"--many=data/one/={side * side}x1", *many)
    choose = random.Random(1)
    one = [f"one/f{choose.randrange(side * side):05}.bin" for _ in range(10_000)]
    of_many = [f"many/d{choose.randrange(side):04}/f{choose.randrange(side):05}.bin" for _ in range(10_000)]
    try:
        measure(args, server, ["--immutable"], "no cache: ls of one folder", show_one).close()
        flags = ["--immutable", "--cache", cache]
        first = measure(args, server, flags, "first mount: ls of one folder", show_one)
        first.close()
        measure(args, server, flags, "first mount: find over the folders", show_many).close()
        count, size = kept(cache)
        print(f"{count} listings are kept, {size / MIB:.0f} MiB", flush=True)
        for what, work in [("ls of one folder", show_one), ("find over the folders", show_many),
                           ("stat in one folder", stat_random(one)), ("stat in the folders", stat_random(of_many))]:
            measure(args, server, flags, f"later mount: {what}", work).close()
        ttl = ["--metadata-ttl", "3600", "--cache", cache]
        measure(args, server, ttl, "later mount, a TTL: stat in one folder", stat_random(one)).close()
        measure(args, server, ttl, "later mount, a TTL: stat in the folders", stat_random(of_many)).close()
    finally:
        server.close()
        shutil.rmtree(cache)


if __name__ == "__main__":
    main()
