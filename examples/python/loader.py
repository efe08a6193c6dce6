#!/usr/bin/env python3
"""A data loader: reads all files of a directory in shuffled order and makes batches of them, as the training of a model does.

    loader.py DIRECTORY                 one thread: opens and reads a file after the other (--plain)
    loader.py DIRECTORY --threads 16    N threads read whole files ahead, in the same order, as the workers of a DataLoader do
    loader.py DIRECTORY --ahead         one thread, and ahead.Prefetcher: the loop is that of --plain

In shuffled order the kernel cannot read ahead from file to file: each file costs the full latency of the disk, a seek on rotating disks and a
round trip on those in a cloud. The loader knows the order. Threads hide the latency with two batches of file contents in memory for each;
ahead.Prefetcher has the kernel read the files into the page cache, a window ahead.

All ways read the same files in the same order with the same batches; the checksum over the batches proves it. Prints one line of JSON:

    {"way": "ahead", "elapsed_s": 1.234, "files": 10000, "bytes": 81920000, "batches": 313, "checksum": "9ae0daaf",
     "max_rss_bytes": 41943040, "start_rss_bytes": 20971520, "counters": {…}}

max_rss_bytes - start_rss_bytes is the memory that the loading took. Files that are cached already are read from memory: for a measurement,
drop the cache first (as root: echo 3 >/proc/sys/vm/drop_caches).
"""

import argparse
import collections
import concurrent.futures
import json
import os
import random
import sys
import time
import zlib

# A worker of a PyTorch DataLoader reads two batches ahead (its prefetch_factor).
BATCHES_PER_THREAD = 2


def main():
    arguments = parse()
    try:
        paths = sorted(entry.path for entry in os.scandir(arguments.directory) if entry.is_file())
    except OSError as error:
        sys.exit(f"loader.py: {arguments.directory}: {error.strerror}")
    random.Random(arguments.seed).shuffle(paths)
    result = {"way": way_of(arguments), "files": 0, "bytes": 0, "batches": 0, "checksum": 0}
    if arguments.ahead:
        # Imported before the clock starts, as the other modules are.
        import ahead  # noqa: F401
    result["start_rss_bytes"] = memory("VmRSS")
    started = time.monotonic()
    for batch in batches(contents(paths, arguments, result), arguments.batch):
        consume(batch, result)
    result["elapsed_s"] = round(time.monotonic() - started, 6)
    result["max_rss_bytes"] = memory("VmHWM")
    result["checksum"] = f"{result['checksum']:08x}"
    print(json.dumps(result))


def contents(paths, arguments, result):
    """The contents of the files, in the order of the paths."""
    if arguments.threads:
        return in_threads(paths, arguments.threads, arguments.batch)
    if arguments.ahead:
        return with_read_ahead(paths, arguments.window, result)
    return map(read, paths)


def with_read_ahead(paths, window, result):
    """The plain loop, with the files read ahead."""
    import ahead

    with ahead.Prefetcher(paths, window=window) as prefetched:
        for path in prefetched:
            yield read(path)
        result["counters"] = prefetched.counters()


def in_threads(paths, threads, batch):
    """Reads whole files in threads, at most two batches for each thread ahead of the consumer."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting = collections.deque()
        for path in paths:
            waiting.append(pool.submit(read, path))
            if len(waiting) >= BATCHES_PER_THREAD * batch * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def batches(samples, size):
    """Lists of this many samples; the last one is shorter."""
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def consume(batch, result):
    """The step of the training: here a checksum, which depends on the order."""
    for sample in batch:
        result["checksum"] = zlib.crc32(sample, result["checksum"])
        result["bytes"] += len(sample)
    result["files"] += len(batch)
    result["batches"] += 1


def memory(name):
    """A size from /proc/self/status, bytes. (ru_maxrss also counts the memory of the parent before exec.)"""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
    return 0


def way_of(arguments):
    if arguments.threads:
        return f"{arguments.threads} threads"
    return "ahead" if arguments.ahead else "plain"


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not larger than 0")
    return number


def parse():
    parser = argparse.ArgumentParser(description="Reads all files of a directory in shuffled order, in batches; prints JSON.")
    parser.add_argument("directory", help="directory of the files; subdirectories are ignored")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--plain", action="store_true", help="one thread, no read-ahead between files (default)")
    way.add_argument("--threads", type=positive, metavar="N", help="N threads read whole files ahead")
    way.add_argument("--ahead", action="store_true", help="one thread, files are read ahead by ahead.Prefetcher")
    parser.add_argument("--window", default="32M", help="window of --ahead (default: 32M)")
    parser.add_argument("--batch", type=positive, default=32, metavar="FILES", help="files in a batch (default: 32)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the order (default: 1)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
