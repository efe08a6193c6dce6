#!/usr/bin/env python3
"""Boots and a streaming program in a control group that does not hold what they read: docs/results/windows.md.

    run.py [--tree minbase] [--models hdd,cloud] [--rounds 5] [--only boots,streams]

Needs root, systemd-nspawn, debootstrap, a memory controller of version 1, and built programs: AHEAD (default target/release/ahead) and
AHEAD_REPLAY (`make embedded`). The group of a boot holds what its processes use, and 60 % of what the boot reads. Replays run in the same
group. The program reads files of three times the memory of its group, front to back (`cat`).
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
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "boot")]
import machine  # noqa: E402
import run as boots  # noqa: E402
import stamp  # noqa: E402
from shared import MEMORY_GROUPS, MIB, Group, drop_caches, temporary_directory  # noqa: E402
from trees import run  # noqa: E402

SHARE = 0.6
STREAM_GROUP = 48 * MIB
STREAM_FILES = 72
WAYS = ["nothing", "everything at once", "window"]


def boot(bench, group, way):
    """One boot: seconds to the prompt, requests and KiB of the disk, and the memory of its processes."""
    drop_caches()
    run("systemd-nspawn", "--version")
    run(bench.ahead, "--version")
    reads, began = bench.machine.reads(), time.monotonic()
    with machine.console(group.inside(bench.machine.command([], False, None))) as (process, screen):
        options = {"everything at once": ["--budget", "1G"], "window": ["--window", "auto", "--follow", process.pid]}.get(way)
        replay = None
        if options:
            command = [bench.home / "ahead", "replay", "--json", "--priority", "normal", "--root", bench.machine.directory, *options,
                       bench.home / "replay.ahead"]
            replay = subprocess.Popen(group.inside(command), stdout=subprocess.PIPE, text=True)
        times = machine.wait_for(process, screen, [machine.PROMPT], machine.LONGEST_S)
        if machine.PROMPT not in times:
            sys.exit("run.py: the tree did not boot to its login prompt")
        after, used = bench.machine.reads(), group.used_by_processes()
        account = None
        if replay:
            # A window goes on for what the recorded boots used later.
            replay.send_signal(signal.SIGTERM)
            account = json.loads(replay.communicate()[0] or "null")
    return {"boot_s": times[machine.PROMPT] - began, "requests": after[0] - reads[0], "kib": after[1] - reads[1], "used": used,
            "window": (account or {}).get("window")}


def measure_boots(programs, cache, tree, model, rounds):
    with contextlib.ExitStack() as stack:
        image, home, directory = (
            stack.enter_context(temporary_directory("windows", place))
            for place in ("/dev/shm", "/dev/shm", "/var/tmp"))
        boots.prepare(programs[0], programs[1], cache, tree, image / "image", directory)
        computer = stack.enter_context(machine.Machine(programs[0], image / "image", directory, model))
        bench = boots.Bench(programs, home, computer)
        bench.learn()
        group = stack.enter_context(Group("windows"))
        free = boot(bench, group, "nothing")
        limit_bytes = int(free["used"] + SHARE * free["kib"] * 1024)
        done = {way: [] for way in WAYS}
        group.limit(limit_bytes)
        for number in range(rounds):
            for way in WAYS:
                done[way].append(boot(bench, group, way))
            print(number + 1, model, {way: round(all[-1]["boot_s"], 2) for way, all in done.items()}, file=sys.stderr)
        return {"tree": tree, "disk": model, "read_mib": free["kib"] / 1024, "limit_mib": limit_bytes / MIB, "free_s": free["boot_s"], "ways": done}


def stream(ahead, group, command, profile, way):
    drop_caches()
    run(ahead, "--version")
    run("cat", "/dev/null")
    options = [ahead, "run", "--window", "auto", "-p", profile, "--"] if way == "window" else []
    began = time.monotonic()
    subprocess.run(group.inside([*options, *command]), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def measure_streams(ahead, model, rounds):
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(temporary_directory("windows"))
        mount, name = stack.enter_context(temporary_directory("windows", "/var/tmp")), f"windows-{os.getpid()}"
        run(ahead, "disk", "create", home / "image", "--size", "512M", "--model", model, "--name", name, "--mount", mount)
        stack.callback(run, ahead, "disk", "detach", name)
        files = [mount / f"file{number:02}" for number in range(STREAM_FILES)]
        for file in files:
            file.write_bytes(os.urandom(2 * MIB))
        device = run("findmnt", "-n", "-o", "MAJ:MIN", mount).stdout.strip()
        pathlib.Path(f"/sys/dev/block/{device}/queue/read_ahead_kb").write_text("128")
        command, profile = ["cat", *map(str, files)], home / "stream.ahead"
        run(ahead, "record", "--cold", "-o", profile, "--", *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        group = stack.enter_context(Group("windows"))
        group.limit(STREAM_GROUP)
        ratios, times = [], {"nothing": [], "window": []}
        for number in range(rounds):
            order = ["nothing", "window"] if number % 2 == 0 else ["window", "nothing"]
            took = {way: stream(ahead, group, command, profile, way) for way in order}
            ratios.append(took["window"] / took["nothing"])
            for way, s in took.items():
                times[way].append(s)
        print(model, "stream", round(statistics.median(ratios), 3), file=sys.stderr)
        return {"disk": model, "ratios": ratios, **times}


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def document(results):
    lines = [*stamp.heading("Windows in little memory", "bench/windows/run.py", results["commit"], results["date"], results["machine"]),
             "Boots to the login prompt under systemd-nspawn, all ways in each round, in a control group that holds the memory of the processes",
             "and 60 % of what the boot reads; window 128 KiB. Goal: -25 % with a window. Medians (lowest to highest).", "",
             "| tree | disk | read, MiB | group, MiB | way | boot, s | change | requests | read, MiB | largest window, MiB |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in results["boots"]:
        base = statistics.median(boot["boot_s"] for boot in row["ways"]["nothing"])
        for way, boots in row["ways"].items():
            of = lambda key: [boot[key] for boot in boots]  # noqa: E731
            windows = [boot["window"]["largest_bytes"] / MIB for boot in boots if boot["window"]]
            lines.append(
                f"| {row['tree']} | `{row['disk']}` | {row['read_mib']:.1f} | {row['limit_mib']:.1f} | {way} | {spread(of('boot_s'))} "
                f"| {100 * (statistics.median(of('boot_s')) / base - 1):+.1f} % | {statistics.median(of('requests')):.0f} "
                f"| {statistics.median(of('kib')) / 1024:.1f} | {f'{statistics.median(windows):.1f}' if windows else ''} |")
    lines += ["", f"`cat` of {STREAM_FILES * 2} MiB in a group of {STREAM_GROUP // MIB} MiB, with `ahead run --window auto` and without, in pairs. Goal: not slower.", "",
              "| disk | without, s | with a window, s | ratio of the pairs |", "|---|---|---|---|"]
    for row in results["streams"]:
        lines.append(f"| `{row['disk']}` | {spread(row['nothing'])} | {spread(row['window'])} | {spread(row['ratios'], 3)} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", default="minbase")
    parser.add_argument("--models", default="hdd,cloud")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="boots,streams")
    options = parser.parse_args()
    missing = [tool for tool in ("systemd-nspawn", "debootstrap") if "boots" in options.only and not shutil.which(tool)]
    if os.geteuid() != 0 or not MEMORY_GROUPS.is_dir() or missing:
        print("run.py: it needs root, a memory controller of version 1, systemd-nspawn and debootstrap", file=sys.stderr)
        sys.exit(77)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ahead = boots.program("AHEAD", ROOT / "target/release/ahead")
    path = ROOT / "bench/results/windows.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results |= {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine()}
    models = options.models.split(",")
    if "boots" in options.only:
        replay = boots.program("AHEAD_REPLAY", ROOT / "target/x86_64-unknown-linux-gnu/embedded/ahead-replay")
        cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
        results["boots"] = [measure_boots((ahead, replay, None), cache, options.tree, model, options.rounds) for model in models]
    if "streams" in options.only:
        results["streams"] = [measure_streams(ahead, model, 2 * options.rounds) for model in models]
    path.write_text(json.dumps(results, indent=1) + "\n")
    (ROOT / "docs/results/windows.md").write_text(document(results))


main()
