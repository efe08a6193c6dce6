"""What the suites of bench/steer share: programs, victims, places, and `ahead steer` in the background."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from shared import MEMORY, MIB, Disk, ReadySocket, end, fail, output, read_ahead_kb, run, say, wait_while, window_path, write_random

HERE = pathlib.Path(__file__).resolve().parent
# Options of the compiler for each victim.
VICTIMS = {"orders": [], "faults": [], "streams": ["-pthread"]}
FUSE = "slow-fuse"
# Latency of `fuse`, that of the model cloud, and a bandwidth that is only reached with several requests at a time.
FUSE_LATENCY_US, FUSE_MB_PER_S = 1000, 500
# A start loads BPF programs; an end puts every window back. Unit of both limits: seconds.
START_S, STOP_S = 60, 60
# For this time another program may keep a file system. Unit: seconds.
BUSY_S = 120
# Only one process can steer. Another one may end within this time.
LOCK, OTHER_S = "/run/ahead/steer.lock", 1800
# Interval in which a run without `ahead steer` looks for another one, and how often it is repeated.
WATCH_S, TRIES = 0.05, 10


class Programs:
    """`ahead` and the victims, in memory: other builds of this checkout do not change them, and no eviction reaches them."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ahead-steer-programs.", dir=MEMORY))
        try:
            for path in self.directory.glob("ahead*"):
                if path.is_file() and os.access(path, os.X_OK):
                    shutil.copy(path, self.home)
            for name, options in VICTIMS.items():
                run("cc", "-O2", "-o", self.home / name, HERE / f"victims/{name}.c", *options)
            shutil.copy(HERE / "victims/lookups.py", self.home)
            self.has_fuse = self.build_fuse()
        except BaseException:
            self.__exit__()
            raise
        self.ahead = self.home / "ahead"
        self.has_steer = (self.home / "ahead-steer").exists()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home, ignore_errors=True)

    def build_fuse(self):
        """Whether libfuse is installed."""
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if flags.returncode != 0:
            return False
        run("cc", "-O2", "-pthread", "-o", self.home / FUSE, HERE / f"victims/{FUSE}.c", *flags.stdout.split())
        return True

    def command(self, victim, *arguments):
        return [str(word) for word in [self.home / victim, *arguments]]

    def report(self, victim, *arguments, group=None):
        """The JSON of a victim."""
        command = self.command(victim, *arguments)
        return json.loads(output(*(group.inside(command) if group else command)))


def retried(why, attempt):
    """Repeats it until it succeeds."""
    until = time.monotonic() + BUSY_S
    while not attempt():
        if time.monotonic() > until:
            fail(why)
        time.sleep(0.1)


class Mounted:
    """A block device with ext4. Its page cache is evicted by a mount that is made again: no other program on the machine loses its cache."""

    def attach(self):
        self.node, self.device = output("findmnt", "-n", "-o", "SOURCE,MAJ:MIN", self.directory).split()
        self.stat_path = pathlib.Path(f"/sys/dev/block/{self.device}/stat")

    def make_cold(self):
        self.settle()
        retried(f"{self.directory} is still used", self.unmount)
        # A copy of the mount table in another mount namespace keeps the file system, and its cache.
        retried(f"{self.node} is still mounted in another mount namespace", self.is_free)
        self.restart()
        run("mount", "-o", "nosuid,nodev", self.node, self.directory)

    def unmount(self):
        return subprocess.run(["umount", str(self.directory)], stderr=subprocess.DEVNULL).returncode == 0

    def is_free(self):
        """Whether no file system has the device: it alone opens it exclusively."""
        try:
            os.close(os.open(self.node, os.O_RDONLY | os.O_EXCL))
        except OSError:
            return False
        return True

    def restart(self):
        pass

    def settle(self):
        """Waits for requests that are still at the device."""
        os.sync()
        inflight = self.stat_path.with_name("inflight")
        for _ in range(600):
            if inflight.read_text().split()[0] == "0":
                return
            time.sleep(0.05)

    def read_bytes(self):
        """What the device has read so far."""
        self.settle()
        return 512 * int(self.stat_path.read_text().split()[2])

    def file(self, name, size_bytes):
        """A file of random bytes, made once."""
        path = self.directory / name
        if not path.exists():
            write_random(path, size_bytes)
        return path


class EmulatedPlace(Mounted, Disk):
    """An emulated disk."""

    def __init__(self, programs, model, size_bytes):
        Disk.__init__(self, programs.ahead, model, size_bytes, "steer")

    def __enter__(self):
        Disk.__enter__(self)
        self.attach()
        return self

    def restart(self):
        Disk.restart(self)


class LoopPlace(Mounted):
    """A file on a disk of this machine, with direct I/O through a loop device, whose window is separate from that of the disk."""

    model = "own"

    def __init__(self, parent, size_bytes):
        self.parent, self.size_bytes, self.loop = parent, size_bytes, None

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ahead-steer.", dir=self.parent))
        self.directory = self.home / "mnt"
        self.directory.mkdir()
        try:
            image = self.home / "image"
            run("fallocate", "-l", self.size_bytes, image)
            run("mkfs.ext4", "-q", "-E", "nodiscard", image)
            self.loop = output("losetup", "--find", "--show", "--direct-io=on", image).strip()
            run("mount", "-o", "nosuid,nodev", self.loop, self.directory)
            self.attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.directory)], stderr=subprocess.DEVNULL)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.home, ignore_errors=True)


class FusePlace:
    """A FUSE file system (slow-fuse.c) with one file, `data`."""

    model = "fuse"

    def __init__(self, programs, size_bytes):
        self.programs, self.size_bytes = programs, size_bytes

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ahead-steer.", dir=MEMORY))
        command = self.programs.command(FUSE, self.directory, self.size_bytes // MIB, FUSE_LATENCY_US, FUSE_MB_PER_S)
        self.server = subprocess.Popen(command)
        self.stat_path = self.directory / "stat"
        for _ in range(100):
            if os.path.ismount(self.directory):
                return self
            time.sleep(0.05)
        self.__exit__()
        fail("slow-fuse did not mount")

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        subprocess.run(["umount", "-l", str(self.directory)], stderr=subprocess.DEVNULL)
        self.directory.rmdir()

    def make_cold(self):
        with open(self.directory / "data", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read_bytes(self):
        return int(self.stat_path.read_text().split()[1])

    def file(self, name, size_bytes):
        """The only file, whatever its name."""
        return self.directory / "data"


def set_window(place, kib):
    """The window of files that are opened from now on."""
    window_path(place.directory).write_text(str(kib))
    if read_ahead_kb(place.directory) != kib:
        fail(f"the window of {place.model} is {read_ahead_kb(place.directory)} KiB instead of {kib}")


def is_locked():
    """Whether a process steers. The list of all locks is read: an attempt to lock would make the start of another process fail."""
    try:
        lock = os.stat(LOCK)
    except FileNotFoundError:
        return False
    name = f" {os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino} "
    return any(name in line for line in pathlib.Path("/proc/locks").read_text().splitlines())


class Watch:
    """Whether another process steers at any time during the block."""

    def __enter__(self):
        self.is_seen, self.end = False, threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def look(self):
        while not self.end.wait(WATCH_S):
            self.is_seen = self.is_seen or is_locked()

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()


def undisturbed(measure):
    """The result of a run without `ahead steer`: measured again if another process steered in the meantime."""
    for _ in range(TRIES):
        wait_for_lock()
        with Watch() as watch:
            result = measure()
        if not watch.is_seen:
            return result
        say("another process steered during this run: measured again")
    fail(f"another process steered during each of {TRIES} runs ({LOCK})")


def wait_for_lock():
    """Until no other process steers: only one can."""
    wait_while(is_locked, OTHER_S, f"another process steers ({LOCK})")


class Steer:
    """`ahead steer` in the background, ended by SIGTERM at the end of the block; then `account` has its summary."""

    def __init__(self, programs, options=()):
        self.command = programs.command("ahead", "steer", "--json", *options)
        self.account = None

    def __enter__(self):
        while True:
            wait_for_lock()
            if self.start():
                return self

    def start(self):
        """False: another process was faster."""
        self.log = tempfile.TemporaryFile("w+", dir=MEMORY)
        self.messages = tempfile.TemporaryFile("w+", dir=MEMORY)
        with ReadySocket() as ready:
            began = time.monotonic()
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.messages, env=ready.environment)
            try:
                is_ready = ready.wait(self.process, START_S)
                if is_ready is None or not (is_ready or is_locked()):
                    why = "is not ready" if is_ready is None else f"ended with status {self.process.returncode}"
                    fail(f"{' '.join(self.command)} {why} after {time.monotonic() - began:.0f} s: {self.text(self.messages)}")
            except BaseException:
                end(self.process)
                raise
        self.start_s = time.monotonic() - began
        return is_ready

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            fail(f"{' '.join(self.command)} did not end within {STOP_S} s of SIGTERM")
        if status != 0:
            fail(f"{' '.join(self.command)} ended with status {status}: {self.text(self.messages)}")
        self.account = self.read_account()

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read().strip()

    def descriptors(self):
        """The text of /proc/PID/fdinfo of each descriptor."""
        for path in pathlib.Path(f"/proc/{self.process.pid}/fdinfo").glob("*"):
            try:
                yield path.read_text()
            except OSError:
                # Closed since it was listed.
                continue

    def read_account(self):
        """Acts by kind and outcome, and the summary, from the log: one JSON object a line."""
        acts, summary = {}, None
        for line in self.text(self.log).splitlines():
            entry = json.loads(line)
            if "act" in entry:
                name = f"{entry['act']} {entry['outcome']}"
                acts[name] = acts.get(name, 0) + 1
            elif "events" in entry.get("summary", entry):
                summary = entry.get("summary", entry)
        if summary is None:
            fail(f"{' '.join(self.command)} printed no summary")
        return {"start_s": round(self.start_s, 3), "acts": acts, "summary": summary}


class Bench:
    """What every suite needs."""

    def __init__(self, programs, options):
        self.programs, self.rounds, self.seconds, self.only = programs, options.rounds, options.seconds, options.only
        self.is_stock_only = options.stock_only
        self.steer_options = ["--rules", options.rules] if options.rules else []

    def ways(self, *ways):
        """Without those that need `ahead steer`, where it must not run."""
        return [way for way in ways if way != "steer" or not self.is_stock_only]

    def is_wanted(self, name):
        return not self.only or name in self.only

    def steered(self, way, measure, prepare=lambda: None):
        """The result of `measure()` after `prepare()`; with `ahead steer` beside it if the way is `steer`, and else without any."""
        def without():
            prepare()
            return measure()

        if way != "steer":
            return undisturbed(without)
        prepare()
        with Steer(self.programs, self.steer_options) as steer:
            result = measure()
        return {**result, "steer": steer.account}

    def cold(self, place, way, window_kib, measure):
        """The same, cold, with this window, which has to be the same afterwards. Adds the bytes that the device has read."""
        before = 0

        def prepare():
            nonlocal before
            place.make_cold()
            set_window(place, window_kib)
            before = place.read_bytes()

        result = self.steered(way, measure, prepare)
        if read_ahead_kb(place.directory) != window_kib:
            fail(f"ahead steer left read_ahead_kb at {read_ahead_kb(place.directory)} instead of {window_kib}")
        return {**result, "device_bytes": place.read_bytes() - before}


def brief(**values):
    """Progress on standard error."""
    say(" ", " ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()))
