"""The boot of a container as a command: `ahead record`, then `ahead compare`, as a user measures it who starts a machine this way."""

import json
import os
import shlex
import sys

from trees import run

# What the services of the tree read after the login prompt competes for the disk, too.
LINGER = "40s"


def compared(ahead, machine, home, rounds):
    """Records the second boot of the tree, and compares."""
    # The first boot writes files that no later one writes.
    machine.boot()
    # nspawn's console is a terminal, and its filter of system calls knows neither bpf(2) nor cachestat(2).
    start = ["script", "--quiet", "--return", "--command", shlex.join(map(str, machine.command((), False, None))), os.devnull]
    environment = os.environ | {"SYSTEMD_SECCOMP": "0"}
    until, profile = ["--until-output", "login:"], home / "container.ahead"
    # Nothing is typed, and the end of the input would be passed on: a pipe that stays open.
    silence, held = os.pipe()
    try:
        run(ahead, "record", "--cold", "-o", profile, *until, "--linger", LINGER, "--", *start, stdin=silence, env=environment)
        # The comparison reads its input to the end first: from here on there is none.
        os.close(held)
        done = run(ahead, "compare", "--json", "--runs", rounds, "--profile", profile, *until, "--", *start, stdin=silence, env=environment)
    finally:
        os.close(silence)
    report = json.loads(done.stdout)
    kept = {way: [round(sample["s"], 3) for sample in report[way]["samples"]] for way in ("cold", "ahead", "warm")}
    print(f"compared on {machine.model}: {kept}; {report['verdict']}", file=sys.stderr)
    return kept | {name: report[name] for name in ("prefetched_bytes", "wasted_bytes", "verdict")}
