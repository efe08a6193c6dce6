#!/usr/bin/env python3
"""Boots Debian trees on emulated disks, to the login prompt, without and with a replay: the table 1 of Opdenacker 2007.

    run.py [--trees minbase,services] [--models hdd,emmc,cloud] [--rounds 10] [--only boots|compared] [--results FILE]

Needs root, systemd-nspawn, debootstrap, and built programs: AHEAD (default target/release/ahead) and AHEAD_REPLAY (`make embedded`). With
UREADAHEAD, the path of that program, it is measured, too. A tree is a Debian 12 with systemd and what trees.py adds (AHEAD_CACHE, default
/var/cache/ahead). Its image is in memory (TMPDIR: elsewhere) and takes 0.5 to 1 GB. Its first five boots are recorded by the units of
`ahead boot install`, as on any machine. Then each round boots it cold in every way, and once warm. Time is from the start of
systemd-nspawn, and of a replay beside it, to "login:". `compared`: the same boot as a command of `ahead record` and `ahead compare`.

The results of one tree and disk replace the earlier ones in FILE (default bench/results/boot.json). table.py makes the document.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import stamp  # noqa: E402
from compared import compared  # noqa: E402
from machine import Machine  # noqa: E402
from shared import temporary_directory  # noqa: E402
from trees import TREES, run, tree  # noqa: E402

# Recordings that are merged (KEPT_BOOTS in crates/boot/src/state.rs).
RECORDED_BOOTS = 5
# What is read beside the login is observed for so long.
LINGER_S = 10
TRACEFS = "/sys/kernel/tracing"
INIT = "/usr/lib/ahead/init"
# For the simulator: the reads of the profile, with the kernel's read-ahead.
SCENARIO = """policies = ["linux-6.18"]
[machine]
memory_mb = 4096
[disk]
model = "{disk}"
[[workload]]
profile = "replay.ahead"
"""
WAYS = ["nothing", "whole files", "ureadahead", "our unit", "our init", "our replay before PID 1", "observed", "warm"]


class Bench:
    """One tree on one disk."""

    def __init__(self, programs, home, machine):
        self.ahead, self.replay, self.ureadahead = programs
        self.home, self.machine = home, machine

    def learn(self):
        """The first boots, as installed; then ureadahead's. Afterwards no boot is recorded unless it is asked for."""
        for number in range(RECORDED_BOOTS):
            is_done = self.is_settled if number + 1 == RECORDED_BOOTS else lambda: self.is_recorded(number + 1)
            boot = self.machine.boot(permitted=True, until=is_done)
            print(f"recorded boot {number + 1}: {boot.boot_s:.2f} s, {boot.requests} requests", file=sys.stderr)
        if not self.is_settled():
            sys.exit("bench-boot: the machine was switched off while the state was saved; try again")
        self.stored = self.recordings()[0].parent / "replay.ahead"
        # An initramfs is in memory: so are the programs and the profile that a replay before PID 1 takes from it.
        for name, source in [("replay.ahead", self.stored), ("ahead-replay", self.replay), ("ahead", self.ahead)]:
            shutil.copy2(source, self.home / name)
        listed = run(self.ahead, "export", self.home / "replay.ahead", "--format", "readahead-list").stdout
        (self.home / "files").write_text(listed)
        if self.ureadahead:
            self.trace_with_ureadahead()

    def recordings(self):
        return list(self.machine.directory.glob("var/lib/ahead/boot/*/boot-*.ahead"))

    def is_recorded(self, boots):
        """Whether that many boots are recorded and merged."""
        recordings = self.recordings()
        merged = [recordings[0].parent / "replay.ahead"] if recordings else []
        times = [max((path.stat().st_mtime for path in paths if path.exists()), default=0) for paths in (recordings, merged)]
        return len(recordings) >= boots and times[0] <= times[1]

    def is_settled(self):
        """Whether no boot is recorded any more."""
        return any(self.machine.directory.glob("var/lib/ahead/boot/settled-*"))

    def trace_with_ureadahead(self):
        shutil.copy2(self.ureadahead, self.home / "ureadahead")
        command = [self.home / "ureadahead", "--quiet", "--force-trace", f"--pack-file={self.home}/pack", self.machine.directory]
        with contextlib.ExitStack() as stack:
            if not os.path.ismount(TRACEFS):
                # It is mounted by ureadahead, and stays.
                stack.callback(run, "umount", TRACEFS, check=False)
            tracing = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
            stack.callback(tracing.wait)
            stack.callback(tracing.send_signal, 2)
            end = time.monotonic() + LINGER_S
            self.machine.boot(until=lambda: time.monotonic() > end)

    def commands(self):
        """What runs beside a boot, with the list on its standard input."""
        directory = self.machine.directory
        ways = {
            "whole files": ([self.home / "ahead", "replay", "--priority", "normal", "--root", directory, "-"], self.home / "files"),
            "our replay before PID 1": ([self.home / "ahead-replay", "--root", directory, self.home / "replay.ahead"], None),
        }
        if self.ureadahead:
            ways["ureadahead"] = ([self.home / "ureadahead", "--quiet", f"--pack-file={self.home}/pack", directory], None)
        return ways

    def boot(self, way):
        with contextlib.ExitStack() as stack:
            before = None
            if way in self.commands():
                command, path = self.commands()[way]
                before = (command, stack.enter_context(open(path)) if path else None)
            options = {
                "our unit": {"permitted": True},
                "our init": {"permitted": True, "init": INIT},
                # Without a replay, which is what a boot costs that is recorded for the first time.
                "observed": {"permitted": True, "words": ["ahead=record"]},
                "warm": {"drop": False},
            }.get(way, {})
            return self.machine.boot(before=before, **options)

    def measure(self, rounds):
        ways = [way for way in WAYS if way != "ureadahead" or self.ureadahead]
        boots = {way: [] for way in ways}
        for number in range(rounds):
            for way in ways:
                # The warm boot is the last one of each round: the others leave the caches full.
                boots[way].append(self.boot(way))
            print(number + 1, self.machine.model, {way: round(done[-1].boot_s, 2) for way, done in boots.items()}, file=sys.stderr)
        return [figures(way, done) for way, done in boots.items()]

    def simulated(self, disk):
        """On a simulated disk, seconds: how long a boot without replay waits for what the profile has, and how long the whole replay takes."""
        scenario = self.home / "scenario.toml"
        scenario.write_text(SCENARIO.format(disk=disk))
        without = json.loads(run(self.ahead, "sim", "run", scenario, "--json").stdout)["policies"][0]
        command = [self.ahead, "sim", "replay", self.home / "replay.ahead", "--disk", disk, "--priority", "normal", "--json"]
        replay = json.loads(run(*command).stdout)
        return {"disk": disk, "waits_s": without["wait_s"], "replay_s": replay["arrived_s"], "requests": replay["requests"]}


def figures(way, boots):
    kept = {
        "way": way,
        "boot_s": [round(boot.boot_s, 4) for boot in boots],
        "target_s": [round(boot.target_s, 4) for boot in boots],
        "idle_s": [round(boot.idle_s, 3) for boot in boots],
        "requests": [boot.requests for boot in boots],
        "kib": [boot.kib for boot in boots],
    }
    if boots[0].replay:
        kept |= {name: [round(boot.replay[name], 4) for boot in boots] for name in boots[0].replay}
    return kept


def prepare(ahead, replay, cache, name, image, directory):
    """An image with the tree and our programs, as the package installs them."""
    disk = f"boot-{os.getpid()}"
    run(ahead, "disk", "create", image, "--size", "2G", "--model", "nvme", "--name", disk, "--mount", directory)
    try:
        run("cp", "-a", f"{tree(cache, name)}/.", directory)
        shutil.copy2(ahead, directory / "usr/bin/ahead")
        own = directory / "usr/lib/ahead"
        own.mkdir()
        for program in [replay, ROOT / "dist/initramfs/start-replay", ROOT / "dist/initramfs/init"]:
            shutil.copy2(program, own)
        run(ahead, "boot", "install", "--root", directory, "--linger", f"{LINGER_S}s")
    finally:
        run(ahead, "disk", "detach", disk)


def measure(programs, cache, name, model, options):
    """One tree on one disk."""
    ahead, replay, _ = programs
    with contextlib.ExitStack() as stack:
        # The image is in memory, so that the time of the emulated disk is that of its model. It is mounted elsewhere: prefetchers leave out what
        # is below /dev.
        memory = os.environ.get("TMPDIR", "/dev/shm")
        image, home, directory = (
            stack.enter_context(temporary_directory("boot", place))
            for place in (memory, "/dev/shm", "/var/tmp"))
        prepare(ahead, replay, cache, name, image / "image", directory)
        machine = stack.enter_context(Machine(ahead, image / "image", directory, model))
        measured = {"disk": model}
        if "compared" in options.only:
            measured["compared"] = compared(ahead, machine, home, options.rounds)
        if "boots" in options.only:
            bench = Bench(programs, home, machine)
            bench.learn()
            measured |= {"ways": bench.measure(options.rounds), "simulated": bench.simulated("nvme")}
        return measured


def keep(path, name, disk):
    """Adds the results, or replaces earlier ones of this tree, disk and kind."""
    results = json.loads(path.read_text()) if path.exists() else {}
    measured = {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine(), "kernel": os.uname().release}
    if "compared" in disk:
        disk["compared"] |= measured
    if "ways" in disk or not results:
        results |= measured
    trees = results.setdefault("trees", [])
    entry = next((entry for entry in trees if entry["tree"] == name), None)
    if entry is None:
        entry = {"tree": name, "disks": []}
        trees.append(entry)
    known = next((known for known in entry["disks"] if known["disk"] == disk["disk"]), None)
    if known is None:
        entry["disks"].append(disk)
    else:
        known |= disk
    path.write_text(json.dumps(results, indent=1) + "\n")


def program(variable, default):
    path = pathlib.Path(os.environ.get(variable, default)).resolve()
    if not path.exists():
        sys.exit(f"run.py: {path}: there is no such program; build it with make bench-boot, or name it in {variable}")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", default=",".join(TREES))
    parser.add_argument("--models", default="hdd,emmc,cloud")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=["boots", "compared"], nargs="*", default=["boots", "compared"])
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results/boot.json")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("run.py: it needs root (emulated disks, systemd-nspawn, dropping caches)", file=sys.stderr)
        sys.exit(77)
    # As Ctrl-C: the disk is detached.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ahead = program("AHEAD", ROOT / "target/release/ahead")
    replay = program("AHEAD_REPLAY", ROOT / "target/x86_64-unknown-linux-gnu/embedded/ahead-replay")
    ureadahead = program("UREADAHEAD", "") if os.environ.get("UREADAHEAD") else None
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    cache.mkdir(parents=True, exist_ok=True)
    for name in options.trees.split(","):
        for model in options.models.split(","):
            keep(options.results, name, measure((ahead, replay, ureadahead), cache, name, model, options))


if __name__ == "__main__":
    main()
