"""Measures what writing through a mount costs, beside the client alone and, when given, mount-s3.

    cargo build --release --package s3mount-write --example upload_speed
    python3 benches/writes.py
    python3 benches/writes.py --only "small files" --peer /usr/bin/mount-s3
    python3 benches/writes.py --only "one writer" --disk /nvme/scratch

It starts the test server and mounts its bucket with the binaries in target/release. Repetitions are
interleaved, and the medians are shown, with the processor time of the daemon (of the client, where that is
alone).
"""

import argparse
import http.client
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request

from second_epoch import ENVIRONMENT, MIB, Mount, Server

GIB = 1 << 30
WRITERS = 32
FILES = 2000
SMALL = 16 << 10
# As many parts as a mount uploads at once: a quarter of --max-connections.
AT_ONCE = 128


class Client:
    """Uploads from memory, without a file system."""

    def __init__(self, url, gib):
        command = ["target/release/examples/upload_speed", url, "data", str(gib), str(AT_ONCE)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT)

    def upload(self):
        """Returns seconds, and CPU seconds."""
        self.process.stdin.write("alone\n")
        self.process.stdin.flush()
        seconds, cpu = self.process.stdout.readline().split()
        return float(seconds), float(cpu)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ours(args):
    """The builds of s3mount that are measured."""
    return {"mount": args.binary} | ({"base": args.base} if args.base else {})


def write_stream(path, size):
    """Writes a file from front to back in pieces of 1 MiB, and closes it."""
    piece = memoryview(bytes(range(256)) * (MIB // 256))
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // MIB):
            file.write(piece)


def write_files(folder, names, start):
    start.wait()
    for name in names:
        with open(os.path.join(folder, name), "wb", buffering=0) as file:
            file.write(bytes(SMALL))


def stream(args, server_binary):
    """One file, written from front to back."""
    size = args.gib * GIB
    server = Server(server_binary, "fast", "--bucket", "data")
    client = Client(server.url, args.gib)
    flags = ["--allow-write", "--allow-overwrite", "--allow-delete"]
    mounts = {way: Mount(binary, server.url, *flags) for way, binary in ours(args).items()}
    if args.peer:
        mounts["mount-s3"] = Mount(args.peer, server.url, "--allow-overwrite", "--allow-delete",
                                   "--force-path-style", "--region", "us-east-1")
    ways = {"client alone": [], **{way: [] for way in mounts}}
    try:
        for turn in range(args.passes + 1):
            for way in list(ways) if turn % 2 else list(ways)[::-1]:
                if mount := mounts.get(way):
                    path = os.path.join(mount.dir, "file")
                    cpu, begun = mount.cpu_seconds(), time.monotonic()
                    write_stream(path, size)
                    result = time.monotonic() - begun, mount.cpu_seconds() - cpu
                    os.unlink(path)
                else:
                    result = client.upload()
                # The first pass warms up the memory of the machine.
                if turn:
                    ways[way].append((size / result[0], result[1] / args.gib))
        base = statistics.median(speed for speed, _ in ways["client alone"])
        for way, all in ways.items():
            speed, cpu = (statistics.median(one[at] for one in all) for at in (0, 1))
            peak = f", {mounts[way].peak_mib()} MiB at the peak" if way in mounts else ""
            print(f"{args.gib} GiB from front to back  {way:13} {speed / 1e9:5.2f} GB/s  {speed / base:5.2f}"
                  f"  {cpu:5.2f} CPU s/GiB{peak}", flush=True)
    finally:
        for mount in mounts.values():
            mount.close()
        client.close()
        server.close()


def latency(server):
    """The mean time of a PUT of one small object by a connection that sends one after another."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    begun = time.monotonic()
    for index in range(100):
        connection.request("PUT", f"/data/alone/{index}", bytes(SMALL))
        connection.getresponse().read()
    return (time.monotonic() - begun) / 100


def small_files(args, server_binary):
    """Many small files by many writers, at S3's latency."""
    server = Server(server_binary, "aws", "--bucket", "data")
    mounts = {way: Mount(binary, server.url, "--allow-write") for way, binary in ours(args).items()}
    if args.peer:
        mounts["mount-s3"] = Mount(args.peer, server.url, "--force-path-style", "--region", "us-east-1")
    ways, requests = {way: [] for way in mounts}, {way: [] for way in mounts}
    try:
        # What thirty-two connections can reach that do nothing else.
        most = WRITERS / latency(server)
        print(f"a PUT takes {1000 * WRITERS / most:.1f} ms; {WRITERS} at a time are {most:.0f} files/s")
        for turn in range(args.passes + 1):
            for way in list(ways) if turn % 2 else list(ways)[::-1]:
                mount = mounts[way]
                folder = os.path.join(mount.dir, f"{way}-{turn}")
                os.mkdir(folder)
                start = multiprocessing.Barrier(WRITERS + 1)
                names = [f"file-{index:05}" for index in range(FILES)]
                jobs = [multiprocessing.Process(target=write_files, args=(folder, names[at::WRITERS], start))
                        for at in range(WRITERS)]
                for job in jobs:
                    job.start()
                before, cpu = counts(server), mount.cpu_seconds()
                start.wait()
                begun = time.monotonic()
                for job in jobs:
                    job.join()
                took = time.monotonic() - begun
                if turn:
                    ways[way].append((FILES / took, mount.cpu_seconds() - cpu))
                    after = counts(server)
                    requests[way].append({kind: after[kind] - before[kind] for kind in after
                                          if after[kind] > before[kind]})
        for way, all in ways.items():
            speed, cpu = (statistics.median(one[at] for one in all) for at in (0, 1))
            print(f"{FILES} files of {SMALL >> 10} KiB, {WRITERS} writers  {way:10} {speed:5.0f} files/s"
                  f"  {speed / most:5.2f}  {cpu / FILES * 1000:5.2f} CPU s/1000 files  {requests[way][-1]}",
                  flush=True)
    finally:
        for mount in mounts.values():
            mount.close()
        server.close()


def one_writer(args, server_binary):
    """Small files by one writer, at S3's latency: beside a local disk, and with and without --write-behind."""
    server = Server(server_binary, "aws", "--bucket", "data")
    behind, local = tempfile.mkdtemp(dir=args.disk), tempfile.mkdtemp(dir=args.disk)
    flags = ["--allow", "all"]
    mounts = {"write-behind": Mount(args.binary, server.url, *flags, "--write-behind", behind),
              "mount": Mount(args.binary, server.url, *flags)}
    folders = {"local disk": local, **{way: mount.dir for way, mount in mounts.items()}}
    # Without it, a file takes a round trip.
    many = {way: FILES // 10 if way == "mount" else args.files for way in folders}
    work = {f"{SMALL >> 10} KiB files": write_alone,
            "git clone": lambda folder, _: clone(folder)}
    try:
        for name, make in work.items():
            ways = {way: [] for way in folders}
            for turn in range(args.passes + 1):
                for way in list(ways) if turn % 2 else list(ways)[::-1]:
                    if way == "mount" and make is not write_alone:
                        continue
                    folder, mount = os.path.join(folders[way], f"{way}, {name}, {turn}"), mounts.get(way)
                    os.mkdir(folder)
                    cpu, begun = mount.cpu_seconds() if mount else 0, time.monotonic()
                    make(folder, many[way])
                    closed = time.monotonic() - begun
                    if way == "write-behind":
                        subprocess.run([args.binary, "flush", mount.dir], check=True, stderr=subprocess.DEVNULL)
                    stored = time.monotonic() - begun
                    made = sum(len(files) for _, _, files in os.walk(folder))
                    if turn:
                        ways[way].append((made, closed, stored, mount.cpu_seconds() - cpu if mount else 0))
            for way, all in ways.items():
                if all:
                    made, closed, stored, cpu = (statistics.median(one[at] for one in all) for at in range(4))
                    print(f"{name:14} {way:13} {made:6.0f} files  {closed:6.2f} s  {made / closed:6.0f} files/s"
                          f"  in the store after {stored:6.2f} s  {cpu / made * 1000:5.2f} CPU s/1000 files", flush=True)
    finally:
        for mount in mounts.values():
            mount.close()
        server.close()
        shutil.rmtree(behind)
        shutil.rmtree(local)


def write_alone(folder, count):
    for index in range(count):
        with open(os.path.join(folder, f"file-{index:05}"), "wb", buffering=0) as file:
            file.write(bytes(SMALL))


def clone(folder):
    """Clones this repository."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ".", os.path.join(folder, "clone")], check=True)


def counts(server):
    """Requests of each kind."""
    stats = json.load(urllib.request.urlopen(server.url + "/_test/stats"))
    return {kind: value["requests"] for kind, value in stats.items()
            if isinstance(value, dict) and "requests" in value}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", default="target/release/s3mount")
    parser.add_argument("--base", help="binary of an earlier build, to measure beside")
    parser.add_argument("--peer", help="binary of mount-s3, to measure beside")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--gib", type=int, default=4, help="size of the one large file")
    parser.add_argument("--files", type=int, default=10_000, help="small files that one writer makes")
    parser.add_argument("--disk", help="folder of a local disk for --write-behind and to measure beside")
    parser.add_argument("--only", choices=["stream", "small files", "one writer"], help="measure only this")
    args = parser.parse_args()
    server = "target/release/s3mount-test-server"
    rows = {"stream": stream, "small files": small_files, "one writer": one_writer}
    for name, measure in rows.items():
        if args.only in (None, name):
            measure(args, server)


if __name__ == "__main__":
    main()
