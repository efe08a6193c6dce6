#!/usr/bin/env python3
"""Measures `ahead steer` and `ahead top` with unmodified programs, with and without `ahead steer` in pairs.

    sudo bench/steer/run.py [--suite NAMES] [--models NAMES] [--rounds 1] [--seconds 10] [--only NAMES] [--out FILE] [--stock-only] [--rules FILE]

    orders    backward, stride and interleaved reads, beside the simulator's `oracle`        (--only: these names)
    faults    random faults in a file larger than memory, beside MADV_RANDOM                 (--only: 128, 8192)
    fixed     a sequential reader, beside every fixed window
    both      a sequential and a random reader at the same time
    streams   800 slow streams in 64 MiB
    programs  fio, SQLite, RocksDB, grep, tar, a Python program: cold and cached             (--only: their names)
    costs     runs of BPF programs on cached reads, idle CPU, latencies, samples of `ahead top`

Models: ssd, cloud, hdd (emulated disks), fuse (a FUSE server with latency), own (a loop device on a disk of this machine, --own-directory).
Each suite has its models; --models selects of them, and --every-model adds those that a suite leaves out. --stock-only leaves out what needs
`ahead steer`. Needs root, a C compiler, a memory controller of version 1, and built programs beside AHEAD (default target/release/ahead). Only
one `ahead steer` can run on a machine. Writes bench/results/steer.json, from which table.py makes docs/results/steer.md. Suites that are not
measured keep their figures. Status 77: it cannot run here.
"""

import argparse
import collections
import json
import os
import pathlib
import platform
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import costs  # noqa: E402
import faults  # noqa: E402
import orders  # noqa: E402
import programs  # noqa: E402
import rig  # noqa: E402
import stamp  # noqa: E402
import streams  # noqa: E402
import windows  # noqa: E402
from shared import MEMORY_GROUPS, ROOT, end_on_signals, names_of, say, unavailable  # noqa: E402

MODELS = ["ssd", "cloud", "hdd", "fuse", "own"]
GIB = 1 << 30
Suite = collections.namedtuple("Suite", "measure models others size_bytes windows_kib cache")
SUITES = {
    "orders": Suite(orders.measure, ["ssd", "cloud", "hdd"], [], 2 * GIB, [orders.WINDOW_KIB], "cold"),
    "faults": Suite(faults.measure, ["ssd", "cloud", "hdd", "own"], ["fuse"], 2 * GIB, faults.WINDOWS_KIB, "cold"),
    "fixed": Suite(windows.fixed, ["cloud", "hdd", "fuse", "own"], ["ssd"], GIB, windows.FIXED_KIB, "cold"),
    "both": Suite(windows.both, ["ssd", "cloud"], ["hdd", "own"], 3 * GIB, windows.SINGLE_KIB, "cold"),
    "streams": Suite(streams.measure, ["ssd", "cloud"], ["own"], 2 * GIB, [streams.WINDOW_KIB], "cold"),
    "programs": Suite(programs.measure, ["ssd", "cloud"], ["hdd", "own"], 3 * GIB, [programs.WINDOW_KIB], "cold and cached"),
    "costs": Suite(costs.measure, ["ssd"], ["cloud", "hdd", "own"], 2 * GIB, [costs.WINDOW_KIB], "cached"),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default=",".join(SUITES), type=names_of(list(SUITES)))
    parser.add_argument("--models", default=",".join(MODELS), type=names_of(MODELS))
    parser.add_argument("--every-model", action="store_true")
    parser.add_argument("--rounds", default=1, type=int)
    parser.add_argument("--seconds", default=10, type=int)
    parser.add_argument("--only", default="", type=lambda text: [name for name in text.split(",") if name])
    parser.add_argument("--own-directory", default="/var/tmp", type=pathlib.Path)
    parser.add_argument("--stock-only", action="store_true")
    parser.add_argument("--rules", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "bench/results/steer.json", type=pathlib.Path)
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1:
        parser.error("--rounds and --seconds have to be at least 1")
    return options


def place_of(bench, options, model, size_bytes):
    if model == "own":
        return rig.LoopPlace(options.own_directory, size_bytes)
    if model == "fuse":
        return rig.FusePlace(bench.programs, size_bytes // 2)
    return rig.EmulatedPlace(bench.programs, model, size_bytes)


def save(path, results):
    results |= {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine()}
    path.write_text(json.dumps(results, indent=1) + "\n")


def main():
    options = arguments()
    end_on_signals()
    if os.geteuid() != 0:
        unavailable("it needs root (emulated disks, control groups, ahead steer)")
    if not MEMORY_GROUPS.is_dir():
        unavailable(f"it needs a memory controller of version 1 at {MEMORY_GROUPS}")
    ahead = pathlib.Path(os.environ.get("AHEAD", ROOT / "target/release/ahead"))
    missing = [str(path) for path in (ahead, "cc", "findmnt", *programs.TOOLS) if shutil.which(path) is None]
    if missing:
        unavailable(f"{', '.join(missing)} missing; run: make bench-steer")
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    with rig.Programs(ahead.parent) as built:
        bench = rig.Bench(built, options)
        if not built.has_steer and not options.stock_only:
            unavailable(f"{ahead.parent}/ahead-steer is missing; build it, or measure with --stock-only")
        for name in options.suite:
            suite = SUITES[name]
            for model in options.models:
                if model not in suite.models + (suite.others if options.every_model else []):
                    continue
                if model == "fuse" and not built.has_fuse:
                    say("fuse is left out: libfuse3-dev is not installed")
                    continue
                load = os.getloadavg()[0]
                # A new disk for each suite: none finds the files or the layout of another.
                with place_of(bench, options, model, suite.size_bytes) as place:
                    about = {"commit": stamp.commit(), "date": stamp.today(), "kernel": platform.release(), "rounds": options.rounds,
                             "seconds": options.seconds, "read_ahead_kb": suite.windows_kib, "cache": suite.cache, "load": load,
                             "steer": not options.stock_only}
                    figures = suite.measure(bench, place)
                results.setdefault(name, {})[model] = {**about, "figures": figures}
                save(options.out, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
