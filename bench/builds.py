#!/usr/bin/env python3
"""Measures two builds of this project in pairs: whether a change made anything slower.

    builds.py EARLIER [LATER (target/release)] [--parts programs,library,steer,computing] [--models hdd,cloud] [--rounds 5] [--programs NAME,...] [--keep]

EARLIER and LATER are directories with the programs of `cargo build --release -p ahead-cli -p ahead-lab-cli -p ahead-steer-cli -p ahead-examples`.
In each round both builds do the same, in alternating order; before each cold run all caches are dropped. The ratio is the median of LATER by the
median of EARLIER. Needs root, and for `programs` the tree of coldstart/tree.sh. Writes docs/results/builds.md.

    programs    the programs of coldstart/programs.toml under `ahead run`, each build with a profile that it has recorded, on emulated disks
    library     the example programs that read by the library, cold, on emulated disks
    steer       programs of steer/programs.py, cold, while `ahead steer` runs, on emulated disks
    computing   the simulator, and loading a large profile, with everything cached
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
import types

HERE = pathlib.Path(__file__).resolve().parent
# In this order, as some of their modules have the same name.
sys.path[1:1] = [str(HERE / part) for part in ("coldstart", "steer", "library")]
import parts  # noqa: E402
import programs as steered  # noqa: E402
import rig  # noqa: E402
import shared  # noqa: E402
import stamp  # noqa: E402
from figures import median  # noqa: E402
from run import Disk as TreeDisk, command_of, populate  # noqa: E402

BUILDS = ["earlier", "later"]
FILE_BYTES = 256 * shared.MIB
# A profile with many files: loading it is measurable.
PROFILE_FILES = 20_000
# Programs of bench/steer whose work is reading: sequential, by an index, mapped, many files.
STEERED = ["SQLite", "SQLite mmap", "grep -r", "Python mmap"]
NEEDLE = "a string that is not there"


def timed(command, **options):
    """Seconds until the command ends."""
    began = time.monotonic()
    shared.run(*command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    return time.monotonic() - began


class Table:
    """The rows: what was measured, seconds of both builds."""

    def __init__(self, kept):
        """`kept`: rows of an earlier run, by name."""
        self.rows = dict(kept)

    def add(self, name, found):
        texts = [f"{median(found[build]):.3f} ({min(found[build]):.3f}–{max(found[build]):.3f})" for build in BUILDS]
        earlier, later = (median(found[build]) for build in BUILDS)
        # Slower is what is slower than the spread of the earlier build explains.
        is_slower = later > max(found["earlier"]) and later > 1.01 * earlier
        self.rows[name] = f"| {name} | {' | '.join(texts)} | {later / earlier:.2f}{' ✗' if is_slower else ''} |"
        shared.say(self.rows[name])


def rows_of(document):
    """The rows of an earlier run, by name."""
    lines = document.read_text().splitlines() if document.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| `")}


def programs(arguments, homes, table):
    suite = tomllib.loads((HERE / "coldstart/programs.toml").read_text())
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    with tempfile.TemporaryDirectory(prefix="ahead-builds.", dir=shared.MEMORY) as name:
        scratch = pathlib.Path(name)
        mount, image = scratch / "tree", scratch / "image"
        mount.mkdir()
        ahead = homes["later"] / "ahead"
        populate(ahead, suite, cache / "tree.tar", image, mount, "ext4")
        for model in arguments.models:
            with TreeDisk(ahead, image, mount, model) as disk:
                for program in suite["program"]:
                    if not arguments.programs or program["name"] in arguments.programs:
                        table.add(f"`ahead run`, {program['name']}, {model}", started(arguments, homes, disk, program, suite, scratch))


def started(arguments, homes, disk, program, suite, scratch):
    """Times of cold starts by both builds."""
    command = command_of(disk.tree, program, suite["environment"])
    profiles = {build: scratch / f"{program['name']}.{build}.ahead" for build in BUILDS}

    def fresh():
        for path in program.get("fresh", []):
            shared.run("rm", "-rf", disk.tree / path.lstrip("/"))

    def start(build):
        fresh()
        shared.drop_caches()
        shared.restart(disk.name())
        return timed([homes[build] / "ahead", "run", "-p", profiles[build], "--", *command])

    for build in BUILDS:
        fresh()
        timed([homes[build] / "ahead", "record", "--cold", "-o", profiles[build], "--", *command])
    return shared.interleaved(BUILDS, arguments.rounds, start)


def library(arguments, homes, table):
    for model in arguments.models:
        with shared.Disk(homes["later"] / "ahead", model, 2 * FILE_BYTES, "builds") as disk:
            file = shared.write_random(disk.directory / "file", FILE_BYTES // 2)
            _, listed = parts.small_files(disk, 2000, 50, parts.SMALL_KIB)
            ways = {
                "`Reader`, checksum": ["ahead-checksum", "--reader", "ahead", file],
                "`Reader` direct, checksum": ["ahead-checksum", "--reader", "ahead-direct", file],
                "`advise`, grep": ["ahead-grep", "--advise", "ahead", NEEDLE, file],
                "`Prefetcher`, loader": ["ahead-loader", "--ahead", listed],
            }

            def read(build, command, disk=disk):
                disk.make_cold()
                shared.output(homes[build] / command[0], "--help")
                return json.loads(shared.output(homes[build] / command[0], *command[1:], "--json"))["elapsed_s"]

            for name, command in ways.items():
                table.add(f"{name}, {model}", shared.interleaved(BUILDS, arguments.rounds, lambda build, command=command: read(build, command)))


def steer(arguments, homes, table):
    with contextlib.ExitStack() as stack:
        builds = {build: stack.enter_context(rig.Programs(homes[build])) for build in BUILDS}
        bench = types.SimpleNamespace(programs=builds["later"], seconds=3)
        chosen = [program for program in steered.known(bench) if program.name in STEERED]
        for model in arguments.models:
            place = stack.enter_context(rig.EmulatedPlace(builds["later"], model, 4 * FILE_BYTES))
            rig.set_window(place, steered.WINDOW_KIB)
            for program in chosen:
                file = program.files(place.directory)

                def run(build, program=program, file=file, place=place):
                    with rig.Steer(builds[build]):
                        place.make_cold()
                        rig.set_window(place, steered.WINDOW_KIB)
                        return steered.timed_run(program, program.command(file))[0]

                table.add(f"`ahead steer`, {program.name}, {model}", shared.interleaved(BUILDS, arguments.rounds, run))


def computing(arguments, homes, table):
    workloads = HERE / "sim/workloads.toml"
    with tempfile.TemporaryDirectory(prefix="ahead-builds.", dir=shared.MEMORY) as name:
        directory = pathlib.Path(name)
        for number in range(PROFILE_FILES):
            (directory / f"file{number:05}").write_bytes(bytes(4096))
        listed, profile = directory / "list", directory / "many.ahead"
        listed.write_text("".join(f"{path}\n" for path in sorted(directory.glob("file*"))))
        shared.run(homes["earlier"] / "ahead", "import", listed, "-o", profile, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ways = {
            "`ahead sim run`, bench/sim/workloads.toml": ["sim", "run", workloads, "--json"],
            f"`ahead show`, {PROFILE_FILES:,} files": ["show", profile, "--json"],
            f"`ahead replay`, {PROFILE_FILES:,} cached files": ["replay", profile, "--wait"],
        }
        for name, command in ways.items():
            for build in BUILDS:
                timed([homes[build] / "ahead", *command])
            table.add(name, shared.interleaved(BUILDS, arguments.rounds, lambda build, command=command: timed([homes[build] / "ahead", *command])))


PARTS = {"programs": programs, "library": library, "steer": steer, "computing": computing}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=pathlib.Path)
    parser.add_argument("later", type=pathlib.Path, nargs="?", default=shared.ROOT / "target/release")
    parser.add_argument("--parts", default=list(PARTS), type=shared.names_of(list(PARTS)))
    parser.add_argument("--models", default=["hdd", "cloud"], type=shared.names_of(["hdd", "cloud", "ssd", "nvme"]))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", default=[], type=lambda text: text.split(","))
    parser.add_argument("--earlier-commit", default="", help="what the earlier build is of, for the heading")
    parser.add_argument("--keep", action="store_true", help="keep the rows of the document that are not measured now: of the same builds")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        shared.unavailable("needs root: emulated disks, dropping caches")
    shared.end_on_signals()
    homes = {"earlier": arguments.earlier.resolve(), "later": arguments.later.resolve()}
    document = shared.ROOT / "docs/results/builds.md"
    table = Table(rows_of(document) if arguments.keep else {})
    for part in arguments.parts:
        PARTS[part](arguments, homes, table)
    lines = stamp.heading("Two builds in pairs", "bench/builds.py")
    lines += [f"Earlier: {arguments.earlier_commit or 'another build'}. Disks are emulated, read-ahead 128 KiB; {arguments.rounds} rounds, interleaved.",
              "Seconds: median (range); ratio of the medians, ✗: slower than every run of the earlier build, by more than 1 %.", "",
              "| what | earlier | later | ratio |", "|---|---|---|---|", *table.rows.values()]
    document.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
