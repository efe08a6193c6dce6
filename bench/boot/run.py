#!/usr/bin/env python3
"""Boots a Debian tree on emulated disks, to its login prompt, without and with a replay: the table 1 of Opdenacker 2007.

    run.py [--models hdd,emmc,cloud] [--pairs 10] [--document docs/results/boot.md]

Needs root, systemd-nspawn, debootstrap and a built `ahead` (AHEAD, default target/release/ahead). The tree is a Debian 12 with systemd and
nothing else (AHEAD_CACHE, default /var/cache/ahead). It is recorded once by the units of `ahead boot install`. Then each round boots it cold
in every way, and once warm. Time is from the start of systemd-nspawn (or of an earlier replay) to "login:".
"""

import argparse
import contextlib
import os
import pathlib
import pty
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import stamp  # noqa: E402

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,udev,libpam-systemd,login"
PERMITTED = "AHEAD_CONTAINER=1"
# A boot that takes longer has failed.
LONGEST_S = 180
# What is read beside the login is observed for so long.
LINGER_S = 20
WAYS = ["nothing", "whole files", "our unit", "our replay before PID 1"]


def run(*command, **options):
    options = {"check": True, "stdout": subprocess.PIPE, "text": True} | options
    return subprocess.run([str(word) for word in command], **options)


def make_tree(cache):
    """The tree, built once."""
    tree = cache / f"boot-{SUITE}"
    if not (tree / "done").exists():
        shutil.rmtree(tree, ignore_errors=True)
        targets = run("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)", "Created-By: Packages").stdout
        mirrors = [line.split()[0] for line in targets.splitlines() if line.split()[1:] == [SUITE, "main"]]
        mirror = os.environ.get("AHEAD_MIRROR") or (mirrors[0] if mirrors else None)
        if mirror is None:
            sys.exit(f"run.py: apt on this machine knows no {SUITE}: set AHEAD_MIRROR to a Debian mirror's address")
        print(f"bootstrapping {SUITE} into {tree}", file=sys.stderr)
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, tree, mirror)
        for archive in (tree / "var/cache/apt/archives").glob("*.deb"):
            archive.unlink()
        (tree / "etc/machine-id").write_text("")
        (tree / "done").touch()
    return tree


class Disk:
    """The image of the tree on an emulated disk."""

    def __init__(self, ahead, image, directory, model):
        self.ahead, self.image, self.directory, self.model = ahead, image, directory, model

    def __enter__(self):
        self.name = f"boot-{os.getpid()}"
        run(self.ahead, "disk", "attach", self.image, "--name", self.name, "--model", self.model, "--mount", self.directory,
            "--read-ahead-kb", 128)
        self.device, self.node = run("findmnt", "-n", "-o", "MAJ:MIN,SOURCE", self.directory).stdout.split()
        return self

    def __exit__(self, *_):
        run(self.ahead, "disk", "detach", self.name)

    def reads(self):
        """Requests and KiB that the disk has read."""
        fields = pathlib.Path(f"/sys/dev/block/{self.device}/stat").read_text().split()
        return int(fields[0]), int(fields[2]) // 2

    def boot(self, permitted, drop=True, before=None, after_s=0.0):
        """One boot: seconds to the prompt, seconds of idle processors, requests, KiB. `before`: a command that runs beside it."""
        if drop:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        reads, idle, began = self.reads(), idle_s(), time.monotonic()
        earlier = before and subprocess.Popen(before[0], stdin=before[1], stdout=subprocess.DEVNULL)
        with console(self.command(permitted)) as (process, screen):
            if not wait_for(process, screen, b"login:", LONGEST_S):
                sys.exit("run.py: the tree did not boot to its login prompt")
            took_s, idle = time.monotonic() - began, idle_s() - idle
            after = self.reads()
            # Nothing is waited for: the screen is read on, so that the machine does not block.
            wait_for(process, screen, None, after_s)
        if earlier:
            earlier.wait()
        return took_s, idle, after[0] - reads[0], after[1] - reads[1]

    def command(self, permitted):
        # With ahead=off systemd does not even start our program.
        mode = [f"--setenv={PERMITTED}"] if permitted else []
        arguments = [] if permitted else ["ahead=off"]
        return ["systemd-nspawn", "--quiet", f"--directory={self.directory}", "--boot", "--machine=ahead-boot", "--register=no",
                "--keep-unit", "--link-journal=no", "--console=interactive", f"--bind={self.node}",
                "--capability=CAP_SYS_ADMIN,CAP_BPF,CAP_PERFMON", *mode, *arguments]


def idle_s():
    """Idle and waiting time of all processors, as the second figure of /proc/uptime."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK") / os.cpu_count()


@contextlib.contextmanager
def console(command):
    """A machine on a pseudo-terminal; powered off at the end."""
    screen, terminal = pty.openpty()
    # nspawn's filter of system calls knows neither bpf(2) nor cachestat(2).
    environment = os.environ | {"SYSTEMD_SECCOMP": "0"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, env=environment)
    os.close(terminal)
    try:
        yield process, screen
    finally:
        process.send_signal(signal.SIGTERM)
        wait_for(process, screen, None, 60)
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen)


def wait_for(process, screen, text, limit_s):
    """Reads the screen until the text appears; without a text, until the machine has ended."""
    seen, end = b"", time.monotonic() + limit_s
    while (left := end - time.monotonic()) > 0 and process.poll() is None:
        if select.select([screen], [], [], min(left, 0.05))[0]:
            try:
                seen += os.read(screen, 1 << 16)
            except OSError:
                break
        if text and text in seen:
            return True
    return False


def prepare(ahead, cache, home):
    """An image with the tree and our program."""
    tree, image, directory = make_tree(cache), home / "image", home / "mnt"
    directory.mkdir()
    run(ahead, "disk", "create", image, "--size", "2G", "--model", "nvme", "--name", f"boot-{os.getpid()}", "--mount", directory)
    run("cp", "-a", f"{tree}/.", directory)
    shutil.copy2(ahead, directory / "usr/bin/ahead")
    run(ahead, "boot", "install", "--root", directory, "--linger", f"{LINGER_S}s")
    run(ahead, "disk", "detach", f"boot-{os.getpid()}")
    return image, directory


def earlier_replays(ahead, disk, home):
    """The commands that run before PID 1, as the hook of an initramfs starts them, with their input."""
    profile = next(disk.directory.glob("var/lib/ahead/boot/*/replay.ahead"))
    kept = home / "replay.ahead"
    shutil.copy2(profile, kept)
    files = run(ahead, "export", kept, "--format", "readahead-list").stdout
    (home / "files").write_text(files)
    replay = [ahead, "replay", "--priority", "normal", "--root", disk.directory]
    return {"whole files": ([*replay, "-"], home / "files"), "our replay before PID 1": ([*replay, kept], None)}


def measure(ahead, cache, model, pairs):
    """For each way its boots, and the warm ones."""
    with tempfile.TemporaryDirectory(prefix="ahead-boot.", dir=os.environ.get("TMPDIR", "/var/tmp")) as home:
        home = pathlib.Path(home)
        image, directory = prepare(ahead, cache, home)
        with Disk(ahead, image, directory, model) as disk:
            disk.boot(True, after_s=LINGER_S + 5)
            commands = earlier_replays(ahead, disk, home)
            # Only the first boot is recorded: the benchmark compares replays.
            (directory / "etc/systemd/system/sysinit.target.wants/ahead-boot-record.service").unlink()
            boots = {way: [] for way in [*WAYS, "warm"]}
            for _ in range(pairs):
                for way in WAYS:
                    command, path = commands.get(way, (None, None))
                    with open(path or os.devnull) as listed:
                        before = ([str(word) for word in command], listed) if command else None
                        boots[way].append(disk.boot(way == "our unit", before=before))
                boots["warm"].append(disk.boot(False, drop=False))
                print(model, {way: round(done[-1][0], 2) for way, done in boots.items()}, file=sys.stderr)
            return boots


def rows(model, boots):
    base = statistics.mean(boot[0] for boot in boots["nothing"])
    warm = statistics.mean(boot[0] for boot in boots["warm"])
    for way, done in boots.items():
        times, idle, requests, kib = zip(*done)
        mean = statistics.mean(times)
        change = "" if way == "nothing" else f"{100 * (mean / base - 1):+.1f} %"
        recovered = f"{(base - mean) / (base - warm):.2f}" if base > warm else ""
        deviation = statistics.stdev(times) if len(times) > 1 else 0.0
        yield (f"| `{model}` | {way} | {mean:.3f} | {deviation:.3f} | {change} | {recovered} | {statistics.mean(idle):.3f} "
               f"| {round(statistics.median(requests))} | {statistics.median(kib) / 1024:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="hdd,emmc,cloud")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--document", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("run.py: it needs root (emulated disks, systemd-nspawn, dropping caches)", file=sys.stderr)
        sys.exit(77)
    ahead = pathlib.Path(os.environ.get("AHEAD", ROOT / "target/release/ahead")).resolve()
    cache = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead"))
    cache.mkdir(parents=True, exist_ok=True)
    table = []
    for model in options.models.split(","):
        table += rows(model, measure(ahead, cache, model, options.pairs))
    command = f"bench/boot/run.py --models {options.models} --pairs {options.pairs}"
    text = "\n".join([
        *stamp.heading("Boots", command),
        f"A Debian 12 tree (minbase with systemd) on emulated disks, window 128 KiB, to the login prompt under systemd-nspawn; {options.pairs} "
        "rounds, all ways in each. Recorded once by the units in the tree. Mean and standard deviation as in table 1 of Opdenacker 2007; "
        "recovered: the share of the difference between nothing and warm. Replays before PID 1 start together with systemd-nspawn, as the "
        "hook of an initramfs starts them.",
        "",
        "| disk | replay | boot, mean s | deviation | change | recovered | idle, mean s | requests | MiB |",
        "|---|---|---|---|---|---|---|---|---|",
        *table,
        "",
    ])
    if options.document:
        options.document.write_text(text)
    else:
        print(text)


main()
