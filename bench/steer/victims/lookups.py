"""A Python program with a mapped file: a scan of its first part, then lookups of records at random. Prints a checksum.

    lookups.py FILE SCAN_MIB LOOKUPS
"""

import mmap
import random
import sys

RECORD_BYTES = 100


def main():
    path, scan_bytes, lookups = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
    numbers, checksum = random.Random(2010), 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for start in range(0, min(scan_bytes, len(mapped)), 1 << 16):
            checksum = (checksum * 31 + sum(mapped[start:start + (1 << 16):512])) & 0xFFFFFFFF
        for _ in range(lookups):
            start = numbers.randrange(len(mapped) - RECORD_BYTES)
            checksum = (checksum * 31 + sum(mapped[start:start + RECORD_BYTES])) & 0xFFFFFFFF
    print(f"{checksum:08x}")


if __name__ == "__main__":
    main()
