"""Reads a file in random pieces, through a map or by pread, and prints each as offset, length (both
of 8 bytes, little-endian) and bytes. Usage: random_reads.py mmap|numpy|pread FILE"""

import mmap
import os
import random
import struct
import sys

MIB = 1 << 20


def pieces(size):
    """Every MiB of the file once, in random order."""
    offsets = list(range(0, size, MIB))
    random.Random(1).shuffle(offsets)
    return [(offset, min(MIB, size - offset)) for offset in offsets]


def spots(size, count):
    """`count` pieces of up to 150 KiB anywhere."""
    generator = random.Random(2)
    for _ in range(count):
        length = generator.randint(1, 150 << 10)
        yield generator.randint(0, size - length), length


def put(offset, data):
    sys.stdout.buffer.write(struct.pack("<QQ", offset, len(data)))
    sys.stdout.buffer.write(data)


how, path = sys.argv[1:]
size = os.path.getsize(path)
with open(path, "rb", buffering=0) as file:
    if how == "mmap":
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            for offset, length in pieces(size):
                put(offset, mapped[offset : offset + length])
    elif how == "numpy":
        import numpy

        array = numpy.memmap(path, dtype=numpy.uint8, mode="r")
        assert array.shape == (size,)
        for offset, length in pieces(size):
            put(offset, array[offset : offset + length].tobytes())
    else:
        for offset, length in spots(size, 2000):
            put(offset, os.pread(file.fileno(), length, offset))
