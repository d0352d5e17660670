"""Reads random windows of a file through maps, by several processes, and prints each as offset, length
(both of 8 bytes, little-endian) and bytes.

Usage: map_windows.py kept|reopened|mixed FILE COUNT BYTES

kept: one map, opened before the processes fork. reopened: a map for each window. mixed: a map that is kept,
while other threads read the same file by preads of many sizes, sendfile, madvise, and have maps populated."""

import mmap
import os
import random
import struct
import sys
import threading

PROCESSES = 4
MADV_POPULATE_READ = 22
ADVICE = [mmap.MADV_WILLNEED, mmap.MADV_SEQUENTIAL, mmap.MADV_NORMAL, mmap.MADV_RANDOM]

how, path, count, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
size = os.path.getsize(path)
lock = threading.Lock()


def put(offset, data):
    with lock:
        piece = struct.pack("<QQ", offset, len(data)) + data
        # The processes share the pipe: a piece at a time.
        os.lockf(shared, os.F_LOCK, 0)
        while piece:
            piece = piece[os.write(1, piece) :]
        os.lockf(shared, os.F_ULOCK, 0)


def opened():
    file = os.open(path, os.O_RDONLY)
    mapped = mmap.mmap(file, 0, prot=mmap.PROT_READ)
    os.close(file)
    return mapped


def windows(seed, kept):
    generator = random.Random(seed)
    for _ in range(count):
        # Tokens of two bytes.
        offset = generator.randrange(0, (size - length) // 2) * 2
        if kept:
            put(offset, kept[offset : offset + length])
        else:
            with opened() as mapped:
                put(offset, mapped[offset : offset + length])


def preads(seed):
    generator = random.Random(seed)
    file = os.open(path, os.O_RDONLY)
    for _ in range(count // 4):
        length = generator.choice([4096, 70_000, 1 << 20, (1 << 20) + 5, 3 << 20])
        offset = generator.randrange(0, size - length)
        data = os.pread(file, length, offset)
        assert len(data) == length
        put(offset, data)
    os.close(file)


def sendfiles(seed):
    generator = random.Random(seed)
    file = os.open(path, os.O_RDONLY)
    for _ in range(count // 8):
        offset = generator.randrange(0, size - (2 << 20))
        with open(f"{sys.argv[5]}/{os.getpid()}-{seed}", "w+b") as copy:
            done = 0
            while done < 2 << 20:
                sent = os.sendfile(copy.fileno(), file, offset + done, (2 << 20) - done)
                assert sent
                done += sent
            copy.seek(0)
            put(offset, copy.read())
    os.close(file)


def advised(seed):
    generator = random.Random(seed)
    mapped = opened()
    for _ in range(count // 4):
        offset = generator.randrange(0, (size - (1 << 20)) // 4096) * 4096
        mapped.madvise(generator.choice(ADVICE), offset, 1 << 20)
        length = generator.choice([10, 8192, 200_000, 1 << 20])
        put(offset, mapped[offset : offset + length])


def populated(seed):
    generator = random.Random(seed)
    mapped = opened()
    for _ in range(count // 4):
        length = generator.choice([4096, 40_960, 1 << 20, 3 << 20])
        offset = generator.randrange(0, (size - length) // 4096) * 4096
        # An error where a page cannot be had.
        mapped.madvise(MADV_POPULATE_READ, offset, length)
        put(offset, mapped[offset : offset + length])


def direct(seed):
    generator = random.Random(seed)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, 1 << 20)
    for _ in range(count // 4):
        offset = generator.randrange(0, (size - (1 << 20)) // 4096) * 4096
        assert os.preadv(file, [memory], offset) == 1 << 20
        put(offset, memory[:])
    os.close(file)


def work(seed, kept):
    if how != "mixed":
        return windows(seed, kept)
    failed = []

    def guarded(job, *args):
        try:
            job(*args)
        except BaseException as error:
            failed.append(error)
            raise

    jobs = [(windows, seed, kept)]
    jobs += [(job, seed + at) for at, job in enumerate([preads, sendfiles, advised, direct, populated], 1)]
    threads = [threading.Thread(target=guarded, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


shared = os.open(sys.argv[5] + "/lock", os.O_RDWR | os.O_CREAT)
kept = None if how == "reopened" else opened()
children = []
for index in range(PROCESSES):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(index * 10, kept)
            code = 0
        finally:
            os._exit(code)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0] * PROCESSES, codes
