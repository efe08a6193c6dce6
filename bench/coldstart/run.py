#!/usr/bin/env python3
"""Measures every program of programs.toml on emulated disks: cold, with each prefetcher, warm.

    run.py [--suite programs] [--models hdd,cloud,ssd] [--fs ext4] [--runs 5] [--programs NAME,...]
           [--rivals vmtouch,list,sorted] [--out DIR]

Needs root, the tree of tree.sh, and a built `ahead` (AHEAD, default target/release/ahead). Writes one JSON file per model
and file system to DIR (default bench/results), from which table.py makes docs/results/coldstart.md. The suite `others` has the programs
of others.toml; its files are named coldstart-others-*.
"""

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tomllib

import check
import table
from table import stamp

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from shared import end_on_signals, run, temporary_directory  # noqa: E402

ROOT = HERE.parent.parent
IMAGE_SIZE = "5G"


def allow_devices(tree):
    """The disk is mounted without devices; the programs need those of the tree (/dev/null), which a benchmark's own tree may have."""
    run("mount", "-o", "remount,bind,dev", tree)


class Disk:
    """The tree on an emulated disk, mounted with what the programs need; taken down at the end, whatever happens."""

    def __init__(self, ahead, image, mount, model):
        self.ahead, self.image, self.tree, self.model = ahead, image, mount, model
        self.mounted = []

    def __enter__(self):
        # Read-ahead 128: the classic default, which distributions and most measurements use.
        run(self.ahead, "disk", "attach", self.image, "--name", self.name(), "--model", self.model, "--mount", self.tree,
            "--read-ahead-kb", 128, stdout=subprocess.DEVNULL)
        allow_devices(self.tree)
        for kind, options in [("proc", []), ("tmpfs", ["-o", "mode=1777"])]:
            target = self.tree / ("tmp" if kind == "tmpfs" else kind)
            run("mount", "-t", kind, *options, kind, target)
            self.mounted.append(target)
        return self

    def name(self):
        return f"coldstart-{os.getpid()}"

    def __exit__(self, *_):
        for target in reversed(self.mounted):
            subprocess.run(["umount", str(target)])
        self.mounted = []
        subprocess.run([self.ahead, "disk", "detach", self.name()], stdout=subprocess.DEVNULL)


def populate(ahead, suite, archive, image, mount, filesystem):
    """Makes the image and unpacks the tree on it, on the fastest model: its time is not what is measured."""
    name = f"coldstart-{os.getpid()}"
    run(ahead, "disk", "create", image, "--name", name, "--size", IMAGE_SIZE, "--model", "nvme", "--fs", filesystem,
        "--mount", mount, stdout=subprocess.DEVNULL)
    try:
        allow_devices(mount)
        run("tar", "--numeric-owner", "--xattrs", "-C", mount, "-xf", archive)
        for command in suite["after_unpack"]:
            run(*check.argv(mount, {}, command), env=suite["environment"], stdout=subprocess.DEVNULL)
        os.sync()
    finally:
        run(ahead, "disk", "detach", name, stdout=subprocess.DEVNULL)


def command_of(tree, program, environment):
    """The command line that ahead gets: the program in its tree, with its environment and input."""
    source = tree / program["input"].lstrip("/") if "input" in program else "/dev/null"
    shell = ["sh", "-c", f'exec "$@" <{shlex.quote(str(source))}', "sh"]
    variables = [f"{name}={value}" for name, value in environment.items()]
    return [*shell, "env", "-i", *variables, *check.argv(tree, program, program["command"])]


def prepare_of(tree, program):
    """What has to be gone before each run."""
    gone = [shlex.quote(str(tree / path.lstrip("/"))) for path in program.get("fresh", [])]
    return ["--prepare", "rm -rf " + " ".join(gone)] if gone else []


def measure(arguments, ahead, disk, program, environment, scratch, whole_files):
    tree, name = disk.tree, program["name"]
    profile, command, prepare = scratch / f"{name}.ahead", command_of(tree, program, environment), prepare_of(tree, program)
    if prepare:
        run("sh", "-c", prepare[1])
    run(ahead, "record", "--cold", "-o", profile, "--", *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shown = json.loads(run(ahead, "show", profile, "--json", stdout=subprocess.PIPE).stdout)
    listed = scratch / f"{name}.list"
    listed.write_text("".join(entry["path"] + "\n" for entry in shown["file_list"]))
    shells = {
        "vmtouch": f"vmtouch -q -t -b {listed}",
        "list": f"{whole_files} {listed}",
        "sorted": f"{whole_files} --sorted {listed}",
    }
    against = [word for rival in arguments.rivals for word in ("--against", f"{rival}={shells[rival]}")]
    done = run(ahead, "compare", "--json", "-p", profile, "--runs", arguments.runs, *prepare, *against, "--", *command,
               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    result = json.loads(done.stdout)
    # Paths of the measuring machine are omitted.
    for key in ("file_list", "extent_list", "metadata", "milestones", "directory", "command", "command_percent"):
        shown.pop(key, None)
        result.pop(key, None)
    return {"program": name, "kind": program["kind"], "profile": shown, "result": result}


def line(row):
    result = row["result"]
    share = result["recovered_share"]
    rivals = "  ".join(f"{rival['name']} {table.rival_time(rival)}" for rival in result["against"])
    wasted = result["wasted_bytes"] / max(1, result["prefetched_bytes"])
    bridged = result["bridged_bytes"] / max(1, result["prefetched_bytes"])
    return (f"{row['program']:12} cold {result['cold']['median_s']:7.2f}  ahead {result['ahead']['median_s']:6.2f}"
            f"  warm {result['warm']['median_s']:6.2f}  bound {result['bound_s'] or 0:6.2f}"
            f"  recovered {share if share is not None else float('nan'):5.2f}  wasted {wasted:4.0%}  bridged {bridged:4.0%}  {rivals}")


RIVALS = ["vmtouch", "list", "sorted"]


def rivals_of(text):
    """Those named, in the order of RIVALS; none for an empty text."""
    named = [name for name in text.split(",") if name]
    unknown = sorted(set(named) - set(RIVALS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no such rival: {', '.join(unknown)} (there are {', '.join(RIVALS)})")
    return [name for name in RIVALS if name in named]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="programs", choices=["programs", "others"])
    parser.add_argument("--models", default="hdd,cloud,ssd")
    parser.add_argument("--fs", default="ext4")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--programs", default="")
    parser.add_argument("--rivals", default=",".join(RIVALS), type=rivals_of)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results")
    arguments = parser.parse_args()
    end_on_signals()
    ahead = os.environ.get("AHEAD", str(ROOT / "target/release/ahead"))
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    suite = tomllib.loads((HERE / f"{arguments.suite}.toml").read_text())
    wanted = [name for name in arguments.programs.split(",") if name]
    programs = [program for program in suite["program"] if not wanted or program["name"] in wanted]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with temporary_directory("coldstart") as scratch:
        mount, image, whole_files = scratch / "tree", scratch / "image", scratch / "whole-files"
        mount.mkdir()
        run("cc", "-O2", "-o", whole_files, HERE / "whole-files.c")
        populate(ahead, suite, cache / "tree.tar", image, mount, arguments.fs)
        wrong = []
        for model in arguments.models.split(","):
            rows = []
            print(f"\n{model}, {arguments.fs}", flush=True)
            with Disk(ahead, image, mount, model) as disk:
                for program in programs:
                    rows.append(measure(arguments, ahead, disk, program, suite["environment"], scratch, whole_files))
                    print(line(rows[-1]), flush=True)
            name = table.stem({"suite": arguments.suite, "model": model, "fs": arguments.fs})
            out = arguments.out / f"{name}.json"
            about = {"suite": arguments.suite, "commit": stamp.commit(), "date": stamp.today(), "model": model, "fs": arguments.fs}
            out.write_text(json.dumps({**about, "programs": rows}, indent=1) + "\n")
            wrong += [f"{model}: {row['program']} ({', '.join(ways)})" for row in rows if (ways := table.below_bound(row["result"]))]
    if wrong:
        sys.exit(f"run.py: faster than the lower bound, so the bound is wrong: {'; '.join(wrong)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
