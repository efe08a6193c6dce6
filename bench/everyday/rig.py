"""What the tables of bench/everyday share: programs, disks, files on them, and times of starts."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from shared import MEMORY, Disk, OwnDisk, device_of, drop_caches, output, run

DISKS = ["hdd", "cloud", "ssd", "own"]
DISK_BYTES = 2 << 30
# The programs of ours; `aheadd` where it is built.
PROGRAMS = ["ahead", "ahead-lab", "aheadd"]
# An id without rights, for what is measured without root.
NO_RIGHTS = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# Small files of the work tree.
FILES = 1500


class Programs:
    """`ahead` and its programs, in memory: other builds do not change them, and no eviction reaches them."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ahead-everyday.", dir=MEMORY))
        self.home.chmod(0o755)
        for name in PROGRAMS:
            if (self.directory / name).exists():
                shutil.copy(self.directory / name, self.home)
        self.ahead, self.service = self.home / "ahead", self.home / "aheadd"
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home, ignore_errors=True)


class Counted:
    """Counts of the device below a directory, and its scheduler."""

    def open_to_all(self):
        """Users without rights reach the directory."""
        for parent in [self.directory, *self.directory.parents[:-1]]:
            os.chmod(parent, os.stat(parent).st_mode | 0o055)
        self.sysfs = pathlib.Path(f"/sys/dev/block/{device_of(self.directory)}")
        return self

    def reads(self):
        """Read requests and bytes so far."""
        fields = (self.sysfs / "stat").read_text().split()
        return int(fields[0]), 512 * int(fields[2])

    def schedulers(self):
        """Those of the kernel, and the one in use."""
        words = (self.sysfs / "queue/scheduler").read_text().split()
        return [word.strip("[]") for word in words], next(word.strip("[]") for word in words if word.startswith("["))

    def set_scheduler(self, name):
        (self.sysfs / "queue/scheduler").write_text(name)


class EmulatedDisk(Counted, Disk):
    def __enter__(self):
        return Disk.__enter__(self).open_to_all()


class MachineDisk(Counted, OwnDisk):
    def __enter__(self):
        return OwnDisk.__enter__(self).open_to_all()


def disk_of(programs, model):
    """A disk of the model, or the machine's own."""
    return MachineDisk("/var/tmp") if model == "own" else EmulatedDisk(programs.ahead, model, DISK_BYTES, "everyday")


def make_cold(place, *warm):
    """Evicts everything, and runs the commands in `warm`: what they need is on another disk, and not what is measured."""
    place.make_cold()
    for command in warm:
        run(*command, stdout=subprocess.DEVNULL)


def seconds(command, **options):
    """Time from the start of a command to its end."""
    began = time.monotonic()
    run(*command, stdout=subprocess.DEVNULL, **options)
    return time.monotonic() - began


def processor_seconds(pid):
    """Processor time of a process and its children so far, s."""
    ticks = 0
    for one in [str(pid), *pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]:
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def copy_python(directory):
    """A Python with its standard library on the disk: its command, without a program."""
    interpreter = pathlib.Path(sys.executable).resolve()
    library = pathlib.Path(output(interpreter, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    target = directory / "usr/bin" / interpreter.name
    target.parent.mkdir(parents=True)
    shutil.copy(interpreter, target)
    shutil.copytree(library, directory / str(library).lstrip("/"), ignore=shutil.ignore_patterns("test", "dist-packages"), symlinks=True)
    return [str(target), "-I"]


def make_repository(directory):
    """A work tree whose index is older than the next second, so that its files are not read again: `git` in it."""
    tree = directory / "tree"
    for number in range(FILES):
        file = tree / f"d{number // 50}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 200)
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@invalid"]
    run("git", "init", "-q", tree)
    run(*git, "add", "-A")
    run(*git, "commit", "-q", "-m", "all")
    return ["git", "-c", f"safe.directory={tree}", "-C", str(tree), "--no-optional-locks"]


def readable_to_all(directory):
    run("chmod", "-R", "a+rX", directory)
