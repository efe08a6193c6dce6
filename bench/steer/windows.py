"""Suites `fixed` and `both`: `ahead steer` at the kernel's default window beside every fixed setting."""

import contextlib
import json
import pathlib
import subprocess
import time

from rig import brief, set_window
from shared import MIB, Group, fail, interleaved

FIXED_KIB = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
BLOCK_KIB, STOCK_KIB, FILE_MIB = 64, 128, 512
# Suite `both`. Single settings, and pairs: the window of the sequential reader, then that of the random reader.
SINGLE_KIB = [4, 16, 128, 1024, 8192]
PAIRS_KIB = [(128, 4), (1024, 4), (8192, 4)]
GROUP_MIB, BOTH_MIB, COUNT = 256, 1024, 200_000
# Work of the sequential program after each block of 64 KiB: it needs about 40 % of the disk, so that both programs have room.
THINK_US = {"ssd": 200, "cloud": 800, "hdd": 600, "own": 200}


def fixed(bench, place):
    """A sequential reader."""
    file = place.file("fixed", FILE_MIB * MIB)

    def read(way):
        window_kib = STOCK_KIB if way == "steer" else int(way)
        return bench.cold(place, way, window_kib, lambda: bench.programs.report("orders", "sequential", file, BLOCK_KIB, "--seconds", bench.seconds))

    done = interleaved(bench.ways("steer", *map(str, FIXED_KIB)), bench.rounds, read)
    brief(fixed=place.model, **{f"{way}": f"{max(rates(all_of)) / 1e6:.0f}" for way, all_of in done.items()})
    return {"file_mib": FILE_MIB, "block_kib": BLOCK_KIB, "ways": done}


def rates(runs):
    return [one["bytes"] / one["elapsed_s"] for one in runs]


def parse(way):
    """The windows of both programs, KiB."""
    if way == "steer":
        return STOCK_KIB, STOCK_KIB
    first, _, second = way.partition("+")
    return int(first), int(second or first)


def wait_for_open(process, path):
    """Until the process has this file open."""
    while process.poll() is None:
        with contextlib.suppress(OSError):
            if any(entry.readlink() == path for entry in pathlib.Path(f"/proc/{process.pid}/fd").iterdir()):
                return
        time.sleep(0.001)


def both(bench, place):
    """A sequential reader that computes and a random reader of a mapping, at the same time."""
    sequential, mapped = place.file("sequential", BOTH_MIB * MIB), place.file("mapped", BOTH_MIB * MIB)

    def start(stack, group, *words):
        process = subprocess.Popen(group.inside(bench.programs.command(*words)), stdout=subprocess.PIPE, text=True)
        stack.callback(process.kill)
        return process

    def run_both(group, windows_kib):
        with contextlib.ExitStack() as stack:
            first = start(stack, group, "orders", "sequential", sequential, BLOCK_KIB, "--seconds", bench.seconds, "--think-us", THINK_US[place.model],
                          "--passes", 1000)
            wait_for_open(first, sequential)
            # A file keeps the window of the device that it found when it was opened.
            set_window(place, windows_kib[1])
            second = start(stack, group, "faults", mapped, COUNT, "--seconds", bench.seconds, "--stat", place.stat_path)
            wait_for_open(second, mapped)
            set_window(place, windows_kib[0])
            results = [process.communicate()[0] for process in (first, second)]
            if first.returncode or second.returncode:
                fail(f"both on {place.model}: a victim failed")
        first, second = map(json.loads, results)
        second["counted_bytes"] = second.pop("device_bytes")
        return {"sequential": first, "random": second}

    with Group("steer-both") as group:
        group.limit(GROUP_MIB * MIB)
        ways = ["steer", *map(str, SINGLE_KIB), *(f"{one}+{other}" for one, other in PAIRS_KIB)]
        done = interleaved(bench.ways(*ways), bench.rounds, lambda way: bench.cold(place, way, parse(way)[0], lambda: run_both(group, parse(way))))
    for way, all_of in done.items():
        brief(both=place.model, way=way, sequential=f"{max(one['sequential']['bytes'] / one['sequential']['elapsed_s'] for one in all_of) / 1e6:.1f} MB/s",
              random=f"{min(one['random']['us_per_fault'] for one in all_of):.1f} µs")
    return {"think_us": THINK_US[place.model], "group_mib": GROUP_MIB, "ways": done}
