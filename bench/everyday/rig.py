"""What the tables of bench/everyday share: programs, disks, files on them, and times of starts."""

import contextlib
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

from shared import MEMORY, Disk, OwnDisk, device_of, fail, output, remove, run, say, wait_while

HERE = pathlib.Path(__file__).resolve().parent
DISKS = ["hdd", "cloud", "ssd", "own"]
DISK_BYTES = 2 << 30
# Programs of packages that are not installed.
CACHE = pathlib.Path(os.environ.get("AHEAD_CACHE", "/var/cache/ahead")) / "everyday"
# The programs of ours; `aheadd` where it is built.
PROGRAMS = ["ahead", "ahead-lab", "aheadd"]
# An id without rights, for what is measured without root.
USER = 65534
USER_NAME = pwd.getpwuid(USER).pw_name
NO_RIGHTS = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
# Programs of ours that act on all others. They may end within this time, seconds; and how often a run is repeated.
ACTING, OTHERS_S, TRIES = ("aheadd", "ahead-steer"), 1800, 10
# Our running services.
OWN = set()
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
        remove(self.home)


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


def debian_program(name):
    """A program of a Debian package of the same name. Where it is not installed, the package is fetched into the cache. None: that failed."""
    installed = shutil.which(name)
    if installed:
        return pathlib.Path(installed)
    place = CACHE / name
    if not place.exists():
        place.mkdir(parents=True)
        script = f"apt-get download -q -o APT::Sandbox::User=root {name} && dpkg -x {name}_*.deb ."
        subprocess.run(["sh", "-c", script], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return next((path for path in place.glob(f"usr/*bin/{name}")), None)


def disk_of(programs, model):
    """A disk of the model, or the machine's own."""
    return MachineDisk("/var/tmp") if model == "own" else EmulatedDisk(programs.ahead, model, DISK_BYTES, "everyday")


class Disturbed(Exception):
    """Another service acted on a start."""


def others():
    """Processes that act on what other programs read, except our own ones."""
    found = []
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text().strip() in ACTING and int(comm.parent.name) not in OWN:
                found.append(comm.parent.name)
    return found


def check_alone():
    if others():
        raise Disturbed


def wait_until_alone():
    """Until no other service prefetches or steers."""
    wait_while(others, OTHERS_S, "another aheadd or ahead-steer runs")


def undisturbed(measure):
    """The result of a run during which no other service was seen; a disturbed one is measured again."""
    for _ in range(TRIES):
        wait_until_alone()
        with contextlib.suppress(Disturbed):
            result = measure()
            check_alone()
            return result
        say("another aheadd or ahead-steer ran: measured again")
    fail(f"another service ran during each of {TRIES} runs")


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


def started(start, group=None, prefix=()):
    """Time from fork to end of a program of programs.py, which a user without rights starts, in the group; after the command in `prefix`."""
    def become_user():
        if group:
            group.enter()
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)

    return seconds([*prefix, *start.command], env=start.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=become_user)


def processor_seconds(pid):
    """Processor time of a process and its children so far, s."""
    ticks = 0
    for one in [str(pid), *pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]:
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def copy_python(directory):
    """A Python with its standard library on the disk, which it finds from its own place: its command, without a program."""
    # The system's, if there is one: in others the library has all packages, too.
    interpreter = pathlib.Path(shutil.which("python3", path="/usr/bin") or sys.executable).resolve()
    library = pathlib.Path(output(interpreter, "-I", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))").strip())
    target = directory / "usr/bin" / interpreter.name
    target.parent.mkdir(parents=True)
    shutil.copy(interpreter, target)
    shutil.copytree(library, directory / "usr/lib" / library.name, ignore=shutil.ignore_patterns("test", "dist-packages"), symlinks=True)
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
