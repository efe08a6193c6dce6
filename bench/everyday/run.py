#!/usr/bin/env python3
"""Commands that users run every day: docs/results/everyday.md.

    run.py [--rounds 3] [--runs 7] [--disks hdd,own]

Needs root, git, python3 and setpriv, and built programs: AHEAD (default target/release/ahead). `ahead cold` and `ahead compare` measure the
same command in turn, `ahead cold` also without root; the commands' files are on the disk that is named.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent)]
import stamp  # noqa: E402
from shared import Disk, OwnDisk, end_on_signals, interleaved, names_of, output, run, say  # noqa: E402

WAYS = ["compare", "cold", "cold without root"]
DISK_BYTES = 1 << 30
FILES = 1500


def copy_python(directory):
    """A Python with its standard library on the disk."""
    interpreter = pathlib.Path(sys.executable).resolve()
    library = pathlib.Path(output(interpreter, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    target = directory / "usr/bin" / interpreter.name
    target.parent.mkdir(parents=True)
    shutil.copy(interpreter, target)
    shutil.copytree(library, directory / str(library).lstrip("/"), ignore=shutil.ignore_patterns("test", "dist-packages"), symlinks=True)
    return [str(target), "-I", "-c", "import json"]


def make_repository(directory):
    """A work tree whose index is older than the next second, so that its files are not read again."""
    tree = directory / "tree"
    for number in range(FILES):
        file = tree / f"d{number // 50}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 200)
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@invalid"]
    run("git", "init", "-q", tree)
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "all")
    return ["git", "-c", f"safe.directory={tree}", "-C", str(tree), "--no-optional-locks", "status", "--short"]


def measure(ahead, way, command, profile, runs):
    """Medians of cold and warm, s."""
    if way == "compare":
        result = json.loads(output(ahead, "compare", "--json", "--no-reference", "--runs", runs, "-p", profile, "--", *command))
        return result["cold"]["median_s"], result["warm"]["median_s"], result["cold_state"]
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if way == "cold without root" else []
    result = json.loads(output(*user, ahead, "cold", "--json", "--runs", runs, "--", *command))
    cold, warm = result["results"]
    return cold["median"], warm["median"], result["cold_state"]


def measure_disk(ahead, model, rounds, runs):
    rows = []
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(OwnDisk("/var/tmp") if model == "own" else Disk(ahead, model, DISK_BYTES, "everyday"))
        for parent in [disk.directory, *disk.directory.parents[:-1]]:
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
        for name, command in [("python3 -c 'import json'", copy_python(disk.directory)), ("git status", make_repository(disk.directory))]:
            subprocess.run(["chmod", "-R", "a+rX", str(disk.directory)], check=True)
            profile = disk.directory / f"{len(rows)}.ahead"
            output(ahead, "record", "--cold", "-o", profile, "--", *command)
            results = interleaved(WAYS, rounds, lambda way: measure(ahead, way, command, profile, runs))
            say(model, name, {way: [[round(s, 4) for s in one[:2]] for one in all] for way, all in results.items()})
            rows.append({"disk": model, "command": name, "ways": results})
    return rows


def spread(all, index):
    """The median of the measurements, and their range, ms."""
    values = [one[index] * 1e3 for one in all]
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def document(results):
    lines = [*stamp.heading("Everyday commands", "make bench-everyday", results["commit"], results["date"], results["machine"]),
             "## Cold and warm, by `ahead cold` and by `ahead compare`", "",
             f"{results['rounds']} measurements of each, in turn, of {results['runs']} rounds each, with a {results['build']} build; medians of their medians (lowest to",
             "highest): a difference within that range is none. Goal: `cold` within 3 % of",
             "`compare`; without root within 5 %, or a reason. Without root it can evict only what was seen from outside, and no names and inodes.", "",
             "| disk | command | by | cold, ms | to compare | warm, ms | to compare | stayed cached |", "|---|---|---|---|---|---|---|---|"]
    for row in results["rows"]:
        medians = {way: [statistics.median(one[index] for one in all) for index in (0, 1)] for way, all in row["ways"].items()}
        for way, (cold, warm) in medians.items():
            base, all = medians["compare"], row["ways"][way]
            state = row["ways"][way][-1][2]
            kept = f"{state['kept_bytes'] / 2**20:.1f} MiB" + (f", {state['unknown_bytes'] / 2**20:.1f} MiB unknown" if state["unknown_bytes"] else "")
            lines.append(f"| `{row['disk']}` | `{row['command']}` | {way} | {spread(all, 0)} | {100 * (cold / base[0] - 1):+.1f} % "
                         f"| {spread(all, 1)} | {100 * (warm / base[1] - 1):+.1f} % | {kept} |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--disks", type=names_of(["hdd", "own"]), default=["hdd", "own"])
    parser.add_argument("--build", default="release", help="of the programs, for the document")
    options = parser.parse_args()
    end_on_signals()
    ahead = pathlib.Path(os.environ.get("AHEAD", ROOT / "target/release/ahead")).resolve()
    results = {"commit": stamp.commit(), "date": stamp.today(), "machine": stamp.machine(), "rounds": options.rounds, "runs": options.runs,
               "build": options.build}
    results["rows"] = [row for disk in options.disks for row in measure_disk(ahead, disk, options.rounds, options.runs)]
    (ROOT / "bench/results/everyday.json").write_text(json.dumps(results, indent=1) + "\n")
    (ROOT / "docs/results/everyday.md").write_text(document(results))


if __name__ == "__main__":
    main()
