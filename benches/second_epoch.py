"""Measures what a second epoch costs with a disk cache, beside reading the same files from the cache's own
file system, and the first epoch with and without the cache.

    python3 benches/second_epoch.py --cache /nvme/scratch
    python3 benches/second_epoch.py --cache /nvme/scratch --only "small files" --peer /usr/bin/mount-s3

It starts the test server and mounts its bucket with the binaries in target/release. The page cache is dropped
before each measurement (which needs root). Repetitions are interleaved, and the medians are shown, with the
processor time of the daemon.
"""

import argparse
import json
import mmap
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

MIB = 1 << 20
ENVIRONMENT = {"PATH": os.environ["PATH"], "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secret"}


class Server:
    def __init__(self, binary, model, *content):
        command = [binary, "--model", model, *content]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0].rstrip("/.")

    def gets(self):
        return json.load(urllib.request.urlopen(self.url + "/_test/stats"))["get_object"]["requests"]

    def close(self):
        self.process.kill()
        self.process.wait()


class Mount:
    def __init__(self, binary, url, *flags):
        self.dir = tempfile.mkdtemp()
        command = [binary, "data", self.dir, "--endpoint-url", url, "--foreground", *flags]
        self.process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        while not os.path.ismount(self.dir):
            if self.process.poll() is not None:
                sys.exit(f"{command} ended")
            time.sleep(0.01)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024

    def close(self):
        subprocess.run(["umount", self.dir], check=True)
        self.process.wait()
        os.rmdir(self.dir)


def read_stream(paths, piece):
    """Reads files to their ends in pieces."""
    buffer, done = memoryview(bytearray(piece)), 0
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while read := file.readinto(buffer):
                done += read
    return done


def read_shuffled(paths, piece):
    """Reads files to their ends, in an order without a pattern."""
    paths = list(paths)
    random.Random(len(paths)).shuffle(paths)
    return read_stream(paths, piece)


def read_random(paths, piece, count=1500):
    """Reads aligned pieces of files at random."""
    buffer, done = [memoryview(bytearray(piece))], 0
    files = [os.open(path, os.O_RDONLY) for path in paths]
    pieces = [os.fstat(file).st_size // piece for file in files]
    choose = random.Random(len(paths[0]) + os.getpid())
    for _ in range(count):
        which = choose.randrange(len(files))
        done += os.preadv(files[which], buffer, choose.randrange(pieces[which]) * piece)
    return done


def read_map(paths, piece):
    """Reads files to their ends through maps."""
    done = 0
    for path in paths:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            for at in range(0, len(mapped), piece):
                done += len(mapped[at : at + piece])
    return done


def work(read, paths, piece, start, results):
    start.wait()
    results.put(read(paths, piece))


def timed(read, paths, readers, piece, mount=None):
    """Reads with processes of their own. Returns bytes a second, files a second, and CPU seconds a GiB."""
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    start, results = multiprocessing.Barrier(readers + 1), multiprocessing.Queue()
    shares = [paths[reader::readers] for reader in range(readers)]
    jobs = [multiprocessing.Process(target=work, args=(read, share, piece, start, results)) for share in shares]
    for job in jobs:
        job.start()
    before = mount.cpu_seconds() if mount else 0
    start.wait()
    begun = time.monotonic()
    done = sum(results.get() for _ in jobs)
    took = time.monotonic() - begun
    for job in jobs:
        job.join()
    cpu = mount.cpu_seconds() - before if mount else 0
    return done / took, len(paths) / took, cpu / (done / (1 << 30))


def kept(cache, size):
    """The whole objects of one size in a cache."""
    whole = re.compile("[0-9a-f]{64}")
    found = (path for path in pathlib.Path(cache, "v1").glob("*/*") if whole.fullmatch(path.name))
    return sorted(str(path) for path in found if path.stat().st_size == size)


def fill(mount, names, cache, size, count):
    """Reads all files until all of them are kept."""
    for turn in range(20):
        read_stream([os.path.join(mount.dir, name) for name in names], MIB)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if len(kept(cache, size)) == count:
                return
            time.sleep(0.1)
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    sys.exit(f"only {len(kept(cache, size))} of {count} files are kept")


def show(name, ways, unit):
    base = statistics.median(one[unit] for one in ways["directly"])
    for way, all in ways.items():
        value = statistics.median(one[unit] for one in all)
        cpu = statistics.median(one[2] for one in all)
        shown = f"{value / 1e9:6.2f} GB/s" if unit == 0 else f"{value:6.0f} files/s"
        print(f"{name:32} {way:18} {shown}  {value / base:5.2f}  {cpu:6.3f} CPU s/GiB", flush=True)


def epochs(args, server_binary, count, size, rows, label):
    """Fills a cache, and measures each row directly, by passthrough, and through the daemon."""
    cache = tempfile.mkdtemp(dir=args.cache)
    os.chmod(cache, 0o700)
    server = Server(server_binary, "fast", "--many", f"data/d/={count}x{size}")
    names = [f"d/f{index:05}.bin" for index in range(count)]
    flags = ["--cache", cache, "--immutable"]
    try:
        mount = Mount(args.binary, server.url, *flags)
        fill(mount, names, cache, size, count)
        mount.close()
        mounts = {"passthrough": Mount(args.binary, server.url, *flags),
                  "daemon": Mount(args.binary, server.url, *flags, "--no-passthrough")}
        if args.peer:
            peer_cache = tempfile.mkdtemp(dir=args.cache)
            peer = Mount(args.peer, server.url, "--cache", peer_cache, "--metadata-ttl", "indefinite",
                         "--force-path-style", "--region", "us-east-1")
            read_stream([os.path.join(peer.dir, name) for name in names], MIB)
            mounts["mount-s3"] = peer
        for mount in mounts.values():
            os.listdir(os.path.join(mount.dir, "d"))
        before = server.gets()
        for name, read, readers, piece, unit in rows:
            if args.only and args.only not in name:
                continue
            ways = {"directly": [], **{way: [] for way in mounts}}
            for turn in range(args.passes + 1):
                order = list(ways)
                for way in order if turn % 2 else order[::-1]:
                    mount = mounts.get(way)
                    paths = kept(cache, size) if mount is None else [os.path.join(mount.dir, n) for n in names]
                    result = timed(read, paths, readers, piece, mount)
                    # The first pass warms up the memory of the machine.
                    if turn:
                        ways[way].append(result)
            show(name, ways, unit)
        print(f"{label}: {server.gets() - before} GETs in all of these epochs", flush=True)
        for mount in mounts.values():
            mount.close()
    finally:
        server.close()
        shutil.rmtree(cache)
        if args.peer:
            shutil.rmtree(peer_cache)


def first_epoch(args, server_binary):
    """The first epoch at S3's latency, with the cache and without. Each pass reads other files, so that the
    daemons keep the memory that they have: a machine may take a second to give a new one 500 MiB."""
    size, count = 512 * MIB, 8
    folders = [f"d{turn}" for turn in range(args.passes + 1)]
    many = [argument for folder in folders for argument in ("--many", f"data/{folder}/={count}x{size}")]
    server = Server(server_binary, "aws", *many)
    cache = None
    try:
        for readers in (1, 4, 8):
            cache = tempfile.mkdtemp(dir=args.cache)
            # Files that are deleted below stay counted, so the limit is larger than the disk needs to be.
            flags = {"directly": [], "with the cache": ["--cache", cache, "--max-cache-size", "100GiB"]}
            mounts = {way: Mount(args.binary, server.url, "--memory-limit", "1GiB", *flags[way]) for way in flags}
            ways, whole = {way: [] for way in flags}, []
            for turn, folder in enumerate(folders):
                for way in list(flags) if turn % 2 else list(flags)[::-1]:
                    mount = mounts[way]
                    names = sorted(os.listdir(os.path.join(mount.dir, folder)))[: max(readers, 4)]
                    paths = [os.path.join(mount.dir, folder, name) for name in names]
                    result = timed(read_stream, paths, readers, MIB, mount)
                    if turn:
                        ways[way].append(result)
                    if way != "directly":
                        # What waits is written.
                        time.sleep(1)
                        whole.append(f"{len(kept(cache, size))} of {len(paths)}")
                        for path in pathlib.Path(cache, "v1").glob("*/*"):
                            path.unlink()
            peaks = " and ".join(f"{mount.peak_mib()} MiB {way}" for way, mount in mounts.items())
            for mount in mounts.values():
                mount.close()
            shutil.rmtree(cache)
            show(f"first epoch, {readers} readers", ways, 0)
            print(f"  at the peak {peaks}; files kept whole: {', '.join(whole[1:])}", flush=True)
    finally:
        server.close()
        shutil.rmtree(cache, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cache", required=True, help="folder on the disk to measure")
    parser.add_argument("--binary", default="target/release/s3mount")
    parser.add_argument("--peer", help="binary of mount-s3, to measure beside")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", help="measure only rows whose names contain this")
    args = parser.parse_args()
    os.makedirs(args.cache, exist_ok=True)
    server = "target/release/s3mount-test-server"
    large = [("stream, 1 reader", read_stream, 1, MIB, 0), ("stream, 4 readers", read_stream, 4, MIB, 0),
             ("random 128KiB, 1 reader", read_random, 1, MIB // 8, 0),
             ("random 128KiB, 4 readers", read_random, 4, MIB // 8, 0),
             ("mapped, 1 reader", read_map, 1, MIB, 0), ("mapped, 4 readers", read_map, 4, MIB, 0)]
    small = [("small files, shuffled, 8 readers", read_shuffled, 8, 256 << 10, 1),
             ("small files, in order, 8 readers", read_stream, 8, 256 << 10, 1),
             ("small files, shuffled, 1 reader", read_shuffled, 1, 256 << 10, 1)]
    wanted = lambda rows: not args.only or any(args.only in row[0] for row in rows)
    if wanted(large):
        epochs(args, server, 8, 256 * MIB, large, "large files")
    if wanted(small):
        epochs(args, server, 20_000, 110 << 10, small, "small files")
    if not args.only or args.only in "first epoch":
        first_epoch(args, server)


if __name__ == "__main__":
    main()
