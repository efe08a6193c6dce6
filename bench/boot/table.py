#!/usr/bin/env python3
"""Makes the document of the boots: table.py RESULTS DOCUMENT"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import stamp  # noqa: E402

HEAD = """\
The trees of `bench/boot/trees.py` on emulated disks, window 128 KiB, to the login prompt under systemd-nspawn; all ways in each round.
The first five boots are recorded by the units in the tree. Mean and standard deviation as in table 1 of Opdenacker 2007; recovered: the
share of the difference between nothing and warm. Replays before PID 1 start together with systemd-nspawn, with programs in memory, as
those of an initramfs. The image and systemd-nspawn itself are in memory: all waits are those of the emulated disk. `target`: the mean
time until graphical.target is reached. The prompt comes at least 1 s later: agetty sleeps 1 s on a serial line.

| tree | disk | replay | boot, mean s | deviation | change | recovered | target, s | idle, mean s | requests | MiB | replay, s | replay, MiB of memory |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def rows(tree, disk):
    ways = {way["way"]: way for way in disk["ways"]}
    base, warm = (statistics.mean(ways[name]["boot_s"]) for name in ("nothing", "warm"))
    for name, way in ways.items():
        mean = statistics.mean(way["boot_s"])
        deviation = statistics.stdev(way["boot_s"]) if len(way["boot_s"]) > 1 else 0.0
        change = "" if name == "nothing" else f"{100 * (mean / base - 1):+.1f} %"
        replay = f"{statistics.mean(way['replay_s']):.3f} | {max(way['rss_kib']) / 1024:.1f}" if "replay_s" in way else " | "
        yield (f"| {tree} | `{disk['disk']}` | {name} | {mean:.3f} | {deviation:.3f} | {change} | {(base - mean) / (base - warm):.2f} "
               f"| {statistics.mean(way['target_s']):.3f} | {statistics.mean(way['idle_s']):.3f} | {round(statistics.median(way['requests']))} "
               f"| {statistics.median(way['kib']) / 1024:.1f} | {replay} |")


SIMULATED = """
On a disk too fast to be emulated, in the simulator: how long a boot waits for what the profile of the tree has (one process, one read after the
other, with the kernel's read-ahead), and how long the whole replay takes beside it. A replay that is shorter cannot make a boot slower.

| tree | disk | waits without replay, s | replay, s | requests |
|---|---|---|---|---|"""


def simulated(tree, disk):
    figures = disk["simulated"]
    return f"| {tree} | `{figures['disk']}` | {figures['waits_s']:.3f} | {figures['replay_s']:.3f} | {figures['requests']} |"


COMPARED = """
The boot as a command, which a user measures: `ahead record --cold --until-output login: --linger 40s`, then `ahead compare`; medians and the
range of its runs. `ahead` is `ahead run`, with the loading of its program and its profile. `bench/boot/run.py --only compared`.

| tree | disk | cold, s | ahead, s | change | warm, s | prefetched MiB | wasted MiB | measured |
|---|---|---|---|---|---|---|---|---|"""


def compared(tree, disk):
    figures = disk["compared"]
    medians = {way: statistics.median(figures[way]) for way in ("cold", "ahead", "warm")}
    cold, ahead, warm = (f"{medians[way]:.2f} ({min(figures[way]):.2f} to {max(figures[way]):.2f})" for way in medians)
    wasted = "" if figures["wasted_bytes"] is None else f"{figures['wasted_bytes'] / 2**20:.1f}"
    return (f"| {tree} | `{disk['disk']}` | {cold} | {ahead} | {100 * (medians['ahead'] / medians['cold'] - 1):+.1f} % | {warm} "
            f"| {figures['prefetched_bytes'] / 2**20:.1f} | {wasted} | {figures['date']}, {figures['commit']} |")


def main():
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    disks = [(tree["tree"], disk) for tree in results["trees"] for disk in tree["disks"]]
    table = [row for tree, disk in disks if "ways" in disk for row in rows(tree, disk)]
    commands = [compared(tree, disk) for tree, disk in disks if "compared" in disk]
    # The profile is that of a boot: it differs little between disks, and the last one counts.
    more = list({tree: simulated(tree, disk) for tree, disk in disks if "simulated" in disk}.values())
    heading = stamp.heading("Boots", "make bench-boot", results["commit"], results["date"], results["machine"])
    pathlib.Path(sys.argv[2]).write_text("\n".join([*heading, HEAD, *table, COMPARED, *commands, SIMULATED, *more, ""]))


main()
