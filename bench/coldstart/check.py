#!/usr/bin/env python3
"""Runs every program of programs.toml once in the tree and checks that it did its work.

    check.py TREE [NAME...]

Prints one line per program with its time, and fails if one does not work. TREE/proc and TREE/tmp must be mounted.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

LIMIT_S = 120


def argv(tree: pathlib.Path, program: dict, command: list[str]) -> list[str]:
    """The command as it is run from outside the tree."""
    user = program.get("user")
    return ["chroot", *([f"--userspec={user}:{user}"] if user else []), str(tree), *command]


def run(tree: pathlib.Path, program: dict, environment: dict) -> tuple[float, str | None]:
    """Seconds that the program took, and what is wrong with it, if anything."""
    for path in program.get("fresh", []):
        shutil.rmtree(tree / path.lstrip("/"), ignore_errors=True)
    source = tree / program["input"].lstrip("/") if "input" in program else os.devnull
    with open(source, "rb") as given:
        start = time.monotonic()
        done = subprocess.run(
            argv(tree, program, program["command"]),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=LIMIT_S,
        )
        took = time.monotonic() - start
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        return took, f"status {done.returncode}: {output[-2000:]}"
    if not re.search(program["expect"], output, re.MULTILINE):
        return took, f"no {program['expect']!r} in its output: {output[-2000:]}"
    return took, None


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    tree, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    with open(pathlib.Path(__file__).with_name("programs.toml"), "rb") as file:
        suite = tomllib.load(file)
    failed = False
    for command in suite["after_unpack"]:
        subprocess.run(argv(tree, {}, command), env=suite["environment"], stdout=subprocess.DEVNULL, check=True)
    for program in suite["program"]:
        if names and program["name"] not in names:
            continue
        took, wrong = run(tree, program, suite["environment"])
        print(f"{program['name']:12} {took:7.2f} s  {wrong or 'works'}")
        failed = failed or wrong is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
