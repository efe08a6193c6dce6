#!/usr/bin/env python3
"""Measures the programs of examples/rust: the library beside plain reads, posix_fadvise, madvise, tokio, fio and GNU sort.

    sudo bench/library/run.py [--models hdd,ssd,emmc,cloud,own] [--size 1G] [--rounds 3] [--only a,b,c,d,e,f] [--out FILE]

    a  one reader that computes                     d  small files in random but known order
    b  cached files (on the machine's disk only)    e  external sort
    c  64 readers within 64 MiB                     f  index scan

`own` is a directory of a disk of this machine (--own-directory). Needs root, and built programs: AHEAD (default target/release/ahead),
AHEAD_EXAMPLES (the directory of the example programs, default target/examples) and, if it is there, AHEAD_TOKIO (default
target/library-tokio/release/checksum-tokio). Writes bench/results/library.json, from which table.py makes docs/results/library.md. Parts
that are not measured keep their figures. All parts on all disks with 1 GiB take some hours. Status 77: it cannot run here.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import parts  # noqa: E402
import rig  # noqa: E402
import stamp  # noqa: E402
from shared import ROOT, Disk, OwnDisk, end_on_signals, names_of, read_ahead_kb, size_of, unavailable  # noqa: E402

MODELS = ["hdd", "ssd", "emmc", "cloud", "own"]
# Sizes below this give the full number of small files.
FULL_SIZE_BYTES = 1 << 30


class Bench:
    """What every part needs."""

    def __init__(self, programs, direct, size_bytes, rounds):
        self.programs, self.direct, self.size_bytes, self.rounds = programs, direct, size_bytes, rounds

    def count(self, count):
        """A number of small files: fewer in a small trial."""
        return max(100, count * min(self.size_bytes, FULL_SIZE_BYTES) // FULL_SIZE_BYTES)


def save(path, results):
    results |= {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine()}
    path.write_text(json.dumps(results, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), type=names_of(MODELS))
    parser.add_argument("--size", default="1G", type=size_of)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--only", default=",".join(parts.PARTS), type=names_of(list(parts.PARTS)))
    parser.add_argument("--own-directory", default="/var/tmp", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "bench/results/library.json", type=pathlib.Path)
    options = parser.parse_args()
    end_on_signals()
    if os.geteuid() != 0:
        unavailable("it needs root (emulated disks, dropping caches)")
    ahead = os.environ.get("AHEAD", str(ROOT / "target/release/ahead"))
    examples = pathlib.Path(os.environ.get("AHEAD_EXAMPLES", ROOT / "target/examples"))
    tokio = os.environ.get("AHEAD_TOKIO", ROOT / "target/library-tokio/release/checksum-tokio")
    for program in (ahead, examples / "ahead-checksum"):
        if shutil.which(program) is None:
            unavailable(f"{program} is missing; run: make bench-library")
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    with rig.Programs(examples, tokio) as programs:
        bench = Bench(programs, rig.Direct(), options.size, options.rounds)
        for model in options.models:
            for part in options.only:
                if part in parts.ONLY_OWN and model != "own":
                    continue
                # A new disk for each part: no part finds the files or the layout of another. Room for input, runs and output of a sort.
                place = OwnDisk(options.own_directory) if model == "own" else Disk(ahead, model, 4 * options.size + (512 << 20))
                with place:
                    about = {"commit": stamp.commit(), "date": stamp.today(), "size_bytes": options.size, "rounds": options.rounds,
                             "read_ahead_kb": read_ahead_kb(place.directory), "direct": bench.direct.describe()}
                    figures = parts.PARTS[part](bench, place)
                results.setdefault(part, {})[model] = {**about, "figures": figures}
                save(options.out, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
