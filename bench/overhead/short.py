#!/usr/bin/env python3
"""Measures short programs on the machine's own disk, where `ahead run` can gain little: plain and with `ahead run`, cold and cached.

    short.py [--rounds 15] [--directory DIR]

The programs are `git status` in a fresh clone of this repository and `python3 -c pass`; both are recorded first. The copy of `ahead` lies below
DIR [/var/tmp], so that a cold start reads it from the disk, too. Needs root and a built `ahead`. Writes docs/results/short.md.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import shared  # noqa: E402
import stamp  # noqa: E402

PROGRAMS = {"git status": ["git", "status", "--short"], "python3": ["python3", "-c", "pass"]}
DISK = pathlib.Path("/sys/dev/block")


def requests(directory):
    """Read requests of the disk of a directory so far."""
    place = (DISK / shared.device_of(directory)).resolve()
    disk = place if (place / "queue").exists() else place.parent
    return int((disk / "stat").read_text().split()[0])


class Bench:
    """Two ways to start each program, in a clone."""

    def __init__(self, scratch, rounds):
        self.scratch, self.rounds, self.clone = scratch, rounds, scratch / "clone"
        self.ahead = shutil.copy2(os.environ.get("AHEAD", shared.ROOT / "target/release/ahead"), scratch / "ahead")
        self.environment = {**os.environ, "XDG_STATE_HOME": str(scratch / "state")}
        shared.run("git", "clone", "--quiet", shared.ROOT, self.clone)

    def start(self, command, **options):
        subprocess.run([str(word) for word in command], check=True, cwd=self.clone, env=self.environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, **{"stderr": subprocess.DEVNULL, **options})

    def timed(self, command, is_cold):
        """Seconds, and read requests of the disk."""
        if is_cold:
            shared.drop_caches()
            # What starts the command is cached again, as in any shell.
            self.start(["true"])
        before, began = requests(self.scratch), time.monotonic()
        self.start(command)
        return time.monotonic() - began, requests(self.scratch) - before

    def rows(self, name):
        command = PROGRAMS[name]
        self.start([self.ahead, "record", "--cold", "--", *command], stderr=None)
        ways = {"plain": command, "ahead run": [self.ahead, "run", "--", *command]}
        self.start(ways["ahead run"])
        for state in ("cold", "cached"):
            found = shared.interleaved(list(ways), self.rounds, lambda way: self.timed(ways[way], state == "cold"))
            plain, ahead = ([time_s * 1e3 for time_s, _ in found[way]] for way in ways)
            counts = " | ".join(f"{statistics.median(count for _, count in found[way]):.0f}" for way in ways)
            ratio = statistics.median(ahead) / statistics.median(plain)
            yield f"| {name}, {state} | {spread(plain)} | {spread(ahead)} | {ratio:.2f} | {counts} |"


def spread(times):
    return f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("/var/tmp"))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        shared.unavailable("needs root, to drop the caches")
    shared.end_on_signals()
    lines = stamp.heading("Short programs", "bench/overhead/short.py")
    with tempfile.TemporaryDirectory(prefix="ahead-short.", dir=arguments.directory) as home:
        bench = Bench(pathlib.Path(home), arguments.rounds)
        lines += [f"The machine's own disk, read-ahead {shared.read_ahead_kb(home)} KiB; {arguments.rounds} rounds, interleaved. Milliseconds:",
                  "median (range). Goal: 1.03 times.", "",
                  "| program | plain | `ahead run` | ratio | requests | with `ahead run` |", "|---|---|---|---|---|---|"]
        for name in PROGRAMS:
            lines += bench.rows(name)
    (shared.ROOT / "docs/results/short.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
