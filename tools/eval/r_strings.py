"""Prints the character vectors of an R package's data, a line for each string.

Usage: r_strings.py Rdata.rdb

R keeps a package's data as serialised objects one behind another, each with its length in four bytes and compressed
by zlib ("R Internals", sections 1.8 and 1.17). Every object must be a plain character vector in serialisation version 3.
"""

import struct
import sys
import zlib

CHARACTER_VECTOR, STRING = 16, 9  # the lowest byte of an object's flags


def objects_of(data):
    while data:
        decompressor = zlib.decompressobj()
        yield decompressor.decompress(data[4:])
        data = decompressor.unused_data


def strings_of(serialised):
    if serialised[:6] != b"X\n\0\0\0\3":
        sys.exit("not an object in R's binary serialisation, version 3")
    (n_encoding,) = struct.unpack_from(">i", serialised, 14)  # after the versions of R that wrote and can read it
    at = 18 + n_encoding
    flags, n = struct.unpack_from(">Ii", serialised, at)
    if flags & 0xFF != CHARACTER_VECTOR:
        sys.exit("not a character vector")
    at += 8
    for _ in range(n):
        flags, n_bytes = struct.unpack_from(">Ii", serialised, at)
        if flags & 0xFF != STRING or n_bytes < 0:
            sys.exit("not a string")
        at += 8
        yield serialised[at : at + n_bytes]
        at += n_bytes


def main():
    with open(sys.argv[1], "rb") as file:
        for serialised in objects_of(file.read()):
            for line in strings_of(serialised):
                sys.stdout.buffer.write(line + b"\n")


if __name__ == "__main__":
    main()
