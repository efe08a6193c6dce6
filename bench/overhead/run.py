#!/usr/bin/env python3
"""Measures what `ahead` costs where it gains nothing: a warm start with `ahead run`, and a warm run under `ahead record`.

    run.py [--runs 15] [--programs NAME,...] [--out DIR]

Each round runs a program plainly, with `ahead run`, and under `ahead record`, everything cached. A program that has just
run is some percent faster (processor caches), and one that has waited for the recording's set-up is not: so a plain run comes
before each timed one, and both that are compared for recording wait as long as a set-up takes.
Needs root, the tree of coldstart/tree.sh, and a built `ahead`. Writes DIR/overhead.json, from which coldstart/table.py
makes docs/results/overhead.md.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "coldstart"))
import run as coldstart  # noqa: E402

LOOP_MIB, LOOP_TIMES = 64, 20
# Time that a recording on this machine needs before it starts the program (as it reports), rounded.
SET_UP_S = 0.2


def quiet(command):
    begin = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


class Case:
    """A command, its profile, and how it is brought back to its first state."""

    def __init__(self, name, command, prepare, scratch, ahead):
        self.name, self.command, self.prepare, self.ahead = name, command, prepare, ahead
        self.profile, self.again, self.took = (scratch / f"{name}.{end}" for end in ("ahead", "again.ahead", "ns"))
        self.timed = [scratch / "timed", self.took, *command]

    def fresh(self):
        if self.prepare:
            quiet(["sh", "-c", self.prepare[1]])

    def outside_s(self, command):
        self.fresh()
        quiet(self.command)
        self.fresh()
        return quiet(command)

    def inside_s(self, command, pause_s=0.0):
        self.fresh()
        quiet(self.command)
        self.fresh()
        time.sleep(pause_s)
        quiet(command)
        return int(self.took.read_text()) / 1e9

    def round(self):
        plain = self.outside_s(self.command)
        with_run = self.outside_s([self.ahead, "run", "-p", self.profile, "--", *self.command])
        plain_inside = self.inside_s(self.timed, SET_UP_S)
        recorded = self.inside_s([self.ahead, "record", "-o", self.again, "--", *self.timed])
        return {"plain_s": plain, "run_s": with_run, "plain_inside_s": plain_inside, "recorded_s": recorded}

    def measure(self, runs):
        self.fresh()
        quiet([self.ahead, "record", "--cold", "-o", self.profile, "--", *self.command])
        self.round()
        rounds = [self.round() for _ in range(runs)]
        row = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        row["run_more_s"] = statistics.median(one["run_s"] - one["plain_s"] for one in rounds)
        row["recorded_ratio"] = statistics.median(one["recorded_s"] / one["plain_inside_s"] for one in rounds)
        spread = sorted(one["recorded_s"] / one["plain_inside_s"] for one in rounds)
        row["recorded_ratio_quartiles"] = [spread[len(spread) // 4], spread[3 * len(spread) // 4]]
        shown = subprocess.run([self.ahead, "show", "--json", self.again], check=True, stdout=subprocess.PIPE)
        return {"program": self.name, **row, "lost_events": json.loads(shown.stdout)["lost_events"]}


def line(row):
    return (f"{row['program']:12} warm {row['plain_s']:6.3f}  run {row['run_more_s'] * 1e3:+6.1f} ms"
            f"  record {100 * (row['recorded_ratio'] - 1):+5.1f} %  lost {row['lost_events']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--programs", default="")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    ahead = os.environ.get("AHEAD", str(coldstart.ROOT / "target/release/ahead"))
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    suite = tomllib.loads((HERE.parent / "coldstart/programs.toml").read_text())
    wanted = [name for name in arguments.programs.split(",") if name]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ahead-overhead.", dir="/dev/shm") as home:
        scratch = pathlib.Path(home)
        mount, image = scratch / "tree", scratch / "image"
        mount.mkdir()
        for helper in ("timed", "read-loop"):
            coldstart.run("cc", "-O2", "-o", scratch / helper, HERE / f"{helper}.c")
        coldstart.populate(ahead, suite, cache / "tree.tar", image, mount, "ext4")
        rows = []
        with coldstart.Disk(ahead, image, mount, "ssd") as disk:
            cases = [(program["name"], coldstart.command_of(disk.tree, program, suite["environment"]),
                      coldstart.prepare_of(disk.tree, program)) for program in suite["program"]]
            looped = disk.tree / "srv/loop"
            looped.write_bytes(os.urandom(LOOP_MIB << 20))
            cases.append(("4 KiB reads", [scratch / "read-loop", looped, LOOP_TIMES], []))
            for name, command, prepare in cases:
                if not wanted or name in wanted:
                    rows.append(Case(name.replace(" ", "-"), command, prepare, scratch, ahead).measure(arguments.runs))
                    rows[-1]["program"] = name
                    print(line(rows[-1]), flush=True)
    reads = LOOP_TIMES * (LOOP_MIB << 20) // 4096
    stamp = coldstart.stamp
    about = {"commit": stamp.commit(), "date": stamp.today(), "kernel": platform.release(), "runs": arguments.runs,
             "loop_reads": reads}
    (arguments.out / "overhead.json").write_text(json.dumps({**about, "programs": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
