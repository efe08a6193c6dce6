#!/usr/bin/env python3
"""Starts of programs on an emulated rotating disk before and after `ahead pack`: docs/results/pack.md.

    run.py [--programs libreoffice,java] [--runs 5]

Needs root, the tree of bench/coldstart/tree.sh, and a built `ahead` (AHEAD, default target/release/ahead).
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "coldstart")]
import run as coldstart  # noqa: E402
import stamp  # noqa: E402

MODEL = "hdd"
GOAL = 1.15


def compare(ahead, profile, runs, prepare, command):
    done = coldstart.run(ahead, "compare", "--json", "--no-reference", "-p", profile, "--runs", runs, *prepare, "--", *command,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result = json.loads(done.stdout)
    kept = {key: result[key] for key in ("bound_s", "bound_kind", "planned_s", "recovered_share")}
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


def document(results):
    lines = [*stamp.heading("Relocation", "bench/pack/run.py", results["commit"], results["date"], results["machine"]),
             "Programs of bench/coldstart on the emulated disk `hdd`, ext4, window 128 KiB: recorded, packed, recorded again. Medians (lowest to",
             f"highest) of {results['runs']} rounds. Bound: that of each layout. Goal: at most {GOAL} times the bound of the packed layout.", "",
             "| program | layout | cold, s | ahead, s | requests | planned, s | warm, s | bound, s | ahead / bound |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in results["programs"]:
        for layout in ("before", "after"):
            of = row[layout]
            ratio = of["ahead"]["median_s"] / of["bound_s"]
            missed = " ✗" if layout == "after" and ratio > GOAL else ""
            planned = "–" if of["planned_s"] is None else f"{of['planned_s']:.2f}"
            lines.append(
                f"| {row['program']} | {'as unpacked' if layout == 'before' else 'packed'} | {of['cold']['median_s']:.2f} "
                f"| {of['ahead']['median_s']:.2f} ({of['ahead']['min_s']:.2f} to {of['ahead']['max_s']:.2f}) | {of['ahead']['requests']} "
                f"| {planned} | {of['warm']['median_s']:.2f} | {of['bound_s']:.2f} | {ratio:.2f}{missed} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="libreoffice,java")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ahead = os.environ.get("AHEAD", str(stamp.ROOT / "target/release/ahead"))
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    suite = tomllib.loads((HERE.parent / "coldstart/programs.toml").read_text())
    wanted = arguments.programs.split(",")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ahead-pack.", dir="/dev/shm") as home:
        scratch = pathlib.Path(home)
        mount, image = scratch / "tree", scratch / "image"
        mount.mkdir()
        coldstart.populate(ahead, suite, cache / "tree.tar", image, mount, "ext4")
        with coldstart.Disk(ahead, image, mount, MODEL) as disk:
            for program in (program for program in suite["program"] if program["name"] in wanted):
                rows.append(measure(ahead, disk, program, suite["environment"], scratch, arguments.runs))
                print(json.dumps({key: rows[-1][key] for key in ("program", "before", "after")}), flush=True)
    results = {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine(), "runs": arguments.runs, "programs": rows}
    (stamp.ROOT / "bench/results/pack.json").write_text(json.dumps(results, indent=1) + "\n")
    (stamp.ROOT / "docs/results/pack.md").write_text(document(results))


if __name__ == "__main__":
    main()
