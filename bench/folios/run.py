#!/usr/bin/env python3
"""Measures what folios cost: ways to bring a file into the page cache.

    run.py [--rounds 9] [--size 512] [--out DIR]

Ways: each brings ranges of a file on a loop device, and then a mapping or read(2) touches them. A separate run, which is not timed, counts the
folios by order (tracepoint mm_filemap_add_to_page_cache) and the bytes of the device.
Needs root and a C compiler. Writes DIR/folios.json.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stamp  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
WAYS = ["willneed", "readahead", "pread", "pread-random", "nowait", "populate", "populate-random", "populate-huge", "block"]
WINDOWS_KIB = [128, 8192]
# A call reads at most the largest request of a loop device.
CALL_BYTES, THREADS = 512 * KIB, 4


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def output(*command):
    return run(*command, stdout=subprocess.PIPE, text=True).stdout


def fill(path, mib):
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def device_bytes(path):
    number = os.stat(path).st_dev
    for line in pathlib.Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == (os.major(number), os.minor(number)):
            return int(fields[5]) * 512
    raise SystemExit(f"{path}: its device is not in /proc/diskstats")


def set_window(path, kib):
    number = os.stat(path).st_dev
    pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/read_ahead_kb").write_text(str(kib))


@contextlib.contextmanager
def loop(scratch, filesystem, mib):
    image, mount = scratch / f"{filesystem}.image", scratch / f"mount-{filesystem}"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(mib * MIB)
    run(f"mkfs.{filesystem}", "-q", image)
    run("mount", "-o", "loop", image, mount)
    try:
        yield mount
    finally:
        run("umount", mount)
        image.unlink()


@contextlib.contextmanager
def tracing(scratch):
    """An instance of tracefs for this process that records folios of the page cache."""
    root = scratch / "tracefs"
    root.mkdir()
    run("mount", "-t", "tracefs", "folios", root)
    instance = root / f"instances/folios-{os.getpid()}"
    try:
        instance.mkdir()
        (instance / "buffer_size_kb").write_text("32768")
        yield instance
        (instance / "events/filemap/mm_filemap_add_to_page_cache/enable").write_text("0")
    finally:
        instance.rmdir()
        run("umount", root)


def orders(instance, path, work):
    enable = instance / "events/filemap/mm_filemap_add_to_page_cache/enable"
    (instance / "trace").write_text("")
    enable.write_text("1")
    work()
    enable.write_text("0")
    ino, found = f" ino {os.stat(path).st_ino:x} ", {}
    with open(instance / "trace") as lines:
        for line in lines:
            match = ino in line and re.search(r"order=(\d+)", line)
            if match:
                found[int(match[1])] = found.get(int(match[1]), 0) + 1
    return dict(sorted(found.items()))


def median(rows):
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def ways(arguments, scratch, program, instance):
    rows = []
    extents = [64 * KIB, 256 * KIB, MIB, 2 * MIB, 16 * MIB, arguments.size * MIB]
    for filesystem in ["ext4", "xfs"]:
        with loop(scratch, filesystem, arguments.size * 5 // 4 + 300) as mount:
            fill(mount / "file", arguments.size + 32)
            for window in WINDOWS_KIB:
                set_window(mount, window)
                for extent in extents:
                    rows += way_rows(arguments, mount, program, instance, {"filesystem": filesystem, "read_ahead_kb": window,
                                                                            "extent_bytes": extent})
    return rows


def way_rows(arguments, mount, program, instance, about):
    extent = about["extent_bytes"]
    total = arguments.size * MIB
    stride = extent if extent == total else 2 * extent
    wanted = total // stride * extent
    timed = {}
    named = [way for way in WAYS if way != "block" or extent >= 2 * MIB]
    for touch in ["map", "read"]:
        for _ in range(arguments.rounds):
            for way in named:
                timed.setdefault((touch, way), []).append(json.loads(output(
                    program, way, mount / "file", extent, stride, total, CALL_BYTES, THREADS, touch)))
    rows = []
    for way in named:
        before = device_bytes(mount)
        found = orders(instance, mount / "file", lambda way=way: output(
            program, way, mount / "file", extent, stride, total, CALL_BYTES, THREADS, "map"))
        row = {**about, "way": way, "device_share": (device_bytes(mount) - before) / wanted, "orders": found, "bytes": wanted}
        for touch in ["map", "read"]:
            row[touch] = median(timed[touch, way])
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", type=int, default=512, help="MiB of the largest file")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ahead-folios.", dir="/dev/shm") as home:
        scratch = pathlib.Path(home)
        run("cc", "-O2", "-pthread", "-o", scratch / "ways", HERE / "ways.c")
        results = {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine(), "rounds": arguments.rounds,
                   "size_mib": arguments.size, "load": os.getloadavg()[0]}
        with tracing(scratch) as instance:
            results["ways"] = ways(arguments, scratch, scratch / "ways", instance)
    (arguments.out / "folios.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
