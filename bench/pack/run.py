#!/usr/bin/env python3
"""Starts of programs and boots on an emulated rotating disk before and after `ahead pack`: docs/results/pack.md.

    run.py [--programs libreoffice,java] [--trees minbase] [--runs 5]

Needs root, the tree of bench/coldstart/tree.sh, and built programs: AHEAD (default target/release/ahead) and AHEAD_REPLAY (`make embedded`). Boots
need what bench/boot needs. Results of one kind that are not measured again stay.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "boot")]
import machine  # noqa: E402
import run as boots  # noqa: E402
import stamp  # noqa: E402
from shared import temporary_directory  # noqa: E402

# Both benchmarks have a run.py.
del sys.modules["run"]
sys.path.insert(0, str(HERE.parent / "coldstart"))
import run as coldstart  # noqa: E402

MODEL = "hdd"
GOAL = 1.15


def compare(ahead, profile, runs, prepare, command):
    done = coldstart.run(ahead, "compare", "--json", "--no-reference", "-p", profile, "--runs", runs, *prepare, "--", *command,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result = json.loads(done.stdout)
    kept = {key: result[key] for key in ("bound_s", "recovered_share")}
    for kind in ("cold", "ahead", "warm"):
        kept[kind] = {key: result[kind][key] for key in ("median_s", "min_s", "max_s")}
        kept[kind]["requests"] = result[kind]["device"]["requests"]
    return kept


def measure(ahead, disk, program, environment, scratch, runs):
    profile, command = scratch / f"{program['name']}.ahead", coldstart.command_of(disk.tree, program, environment)
    prepare = coldstart.prepare_of(disk.tree, program)
    if prepare:
        coldstart.run("sh", "-c", prepare[1])
    record = [ahead, "record", "--cold", "-o", profile, "--", *command]
    coldstart.run(*record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = compare(ahead, profile, runs, prepare, command)
    packed = coldstart.run(ahead, "pack", profile, "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    coldstart.run(ahead, "pack", profile, "--commit", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The blocks of extents that the pack has added are in a new recording.
    coldstart.run(*record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = compare(ahead, profile, runs, prepare, command)
    return {"program": program["name"], "report": json.loads(packed.stdout), "before": before, "after": after}


BOOT_WAYS = ["nothing", "our replay before PID 1", "warm"]


def boot_rounds(bench, rounds):
    """Seconds to the target and to the prompt of each boot, by way, and the requests."""
    done = {way: [] for way in BOOT_WAYS}
    for _ in range(rounds):
        for way in BOOT_WAYS:
            done[way].append(bench.boot(way))
    return {way: {"target_s": [b.target_s for b in all], "boot_s": [b.boot_s for b in all], "requests": [b.requests for b in all]}
            for way, all in done.items()}


def in_tree(bench, *command):
    """Runs a command in the tree, with the kernel's file systems."""
    tree = bench.machine.directory
    with contextlib.ExitStack() as stack:
        for name in ("proc", "sys", "dev"):
            coldstart.run("mount", "--bind", f"/{name}", tree / name)
            stack.callback(coldstart.run, "umount", tree / name)
        return coldstart.run("chroot", tree, *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def measure_boots(programs, cache, tree, rounds):
    with contextlib.ExitStack() as stack:
        image, home, directory = (
            stack.enter_context(temporary_directory("pack", place))
            for place in ("/dev/shm", "/dev/shm", "/var/tmp"))
        boots.prepare(programs[0], programs[1], cache, tree, image / "image", directory)
        bench = boots.Bench(programs, home, stack.enter_context(machine.Machine(programs[0], image / "image", directory, MODEL)))
        bench.learn()
        before = boot_rounds(bench, rounds)
        profile = "/" + str(bench.stored.relative_to(directory))
        report = json.loads(in_tree(bench, "/usr/bin/ahead", "pack", profile, "--json"))
        in_tree(bench, "/usr/bin/ahead", "pack", profile, "--commit")
        shutil.copy2(bench.stored, home / "replay.ahead")
        after = boot_rounds(bench, rounds)
        return {"tree": tree, "report": report, "before": before, "after": after}


def boot_lines(results):
    """Boots have no timeline: the bound is the warm boot."""
    lines = ["## Boots", "",
             "Boots to the login prompt under systemd-nspawn with a replay that begins together with PID 1, recorded, packed. `target`: the",
             "time until graphical.target is reached; the prompt comes 1 s later, because agetty sleeps. A recorded boot has no timeline: the bound is",
             "the fastest warm boot.", "",
             "| tree | layout | nothing, s | replay, s | requests | warm, s | replay / bound | target: nothing, replay, warm, s |",
             "|---|---|---|---|---|---|---|---|"]
    for row in results:
        for layout, name in (("before", "as installed"), ("after", "packed")):
            of, middle = row[layout], statistics.median
            nothing, replay, warm = (of[way] for way in BOOT_WAYS)
            ratio = middle(replay["boot_s"]) / min(warm["boot_s"])
            missed = " ✗" if layout == "after" and ratio > GOAL else ""
            targets = ", ".join(f"{middle(way['target_s']):.2f}" for way in (nothing, replay, warm))
            lines.append(
                f"| {row['tree']} | {name} | {middle(nothing['boot_s']):.2f} "
                f"| {middle(replay['boot_s']):.2f} ({min(replay['boot_s']):.2f} to {max(replay['boot_s']):.2f}) "
                f"| {middle(replay['requests']):.0f} | {middle(warm['boot_s']):.2f} | {ratio:.2f}{missed} | {targets} |")
    return [*lines, ""]


def document(results):
    lines = [*stamp.heading("Relocation", "bench/pack/run.py", results["commit"], results["date"], results["machine"]),
             "## Programs", "",
             "Programs of bench/coldstart on the emulated disk `hdd`, ext4, window 128 KiB: recorded, packed, recorded again. Medians (lowest to",
             f"highest) of {results['runs']} rounds. Bound: that of each layout. Goal: at most {GOAL} times the bound of the packed layout.", "",
             "| program | layout | cold, s | ahead, s | requests | warm, s | bound, s | ahead / bound |",
             "|---|---|---|---|---|---|---|---|"]
    for row in results["programs"]:
        for layout in ("before", "after"):
            of = row[layout]
            ratio = of["ahead"]["median_s"] / of["bound_s"]
            missed = " ✗" if layout == "after" and ratio > GOAL else ""
            lines.append(
                f"| {row['program']} | {'as unpacked' if layout == 'before' else 'packed'} | {of['cold']['median_s']:.2f} "
                f"| {of['ahead']['median_s']:.2f} ({of['ahead']['min_s']:.2f} to {of['ahead']['max_s']:.2f}) | {of['ahead']['requests']} "
                f"| {of['warm']['median_s']:.2f} | {of['bound_s']:.2f} | {ratio:.2f}{missed} |")
    return "\n".join([*lines, "", *(boot_lines(results["boots"]) if results.get("boots") else [])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="libreoffice,java")
    parser.add_argument("--trees", default="minbase")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ahead = os.environ.get("AHEAD", str(stamp.ROOT / "target/release/ahead"))
    replay = os.environ.get("AHEAD_REPLAY", str(stamp.ROOT / "target/x86_64-unknown-linux-gnu/embedded/ahead-replay"))
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    stored = stamp.ROOT / "bench/results/pack.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    results |= {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine(), "runs": arguments.runs}
    wanted, trees = ([name for name in names.split(",") if name] for names in (arguments.programs, arguments.trees))
    if wanted:
        results["programs"] = measure_programs(ahead, cache, wanted, arguments.runs)
    if trees:
        results["boots"] = [measure_boots((ahead, replay, None), cache, tree, arguments.runs) for tree in trees]
    stored.write_text(json.dumps(results, indent=1) + "\n")
    (stamp.ROOT / "docs/results/pack.md").write_text(document(results))
    # Programs that are not measured again were checked when they were measured.
    measured = results["programs"] if wanted else []
    wrong = [f"{row['program']} {layout} packing ({', '.join(ways)})" for row in measured for layout in ("before", "after")
             if (ways := coldstart.table.below_bound(row[layout]))]
    if wrong:
        sys.exit(f"run.py: faster than the lower bound, so the bound is wrong: {'; '.join(wrong)}")


def measure_programs(ahead, cache, wanted, runs):
    suite = tomllib.loads((HERE.parent / "coldstart/programs.toml").read_text())
    rows = []
    with temporary_directory("pack") as scratch:
        mount, image = scratch / "tree", scratch / "image"
        mount.mkdir()
        coldstart.populate(ahead, suite, cache / "tree.tar", image, mount, "ext4")
        with coldstart.Disk(ahead, image, mount, MODEL) as disk:
            for program in (program for program in suite["program"] if program["name"] in wanted):
                rows.append(measure(ahead, disk, program, suite["environment"], scratch, runs))
                print(json.dumps({key: rows[-1][key] for key in ("program", "before", "after")}), flush=True)
    return rows


if __name__ == "__main__":
    main()
