"""What several benchmarks share: commands, cold caches, disks, windows, control groups."""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
UNITS = {"K": 10, "M": 20, "G": 30}
# A drop of all caches must not evict images and programs.
MEMORY = "/dev/shm"
# A process that takes longer to end is killed.
END_S = 60
# The memory controller of version 1.
MEMORY_GROUPS = pathlib.Path("/sys/fs/cgroup/memory")


def run(*command, **options):
    """Runs a command, which must succeed. An interruption ends it by SIGTERM, so that it ends what it has started."""
    command = [str(word) for word in command]
    process = subprocess.Popen(command, **options)
    try:
        text, message = process.communicate()
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, text, message)
    return subprocess.CompletedProcess(command, 0, text, message)


def fail(why):
    sys.exit(f"{pathlib.Path(sys.argv[0])}: {why}")


def unavailable(why):
    """It cannot run here."""
    print(f"{pathlib.Path(sys.argv[0])}: {why}", file=sys.stderr)
    sys.exit(77)


def output(*command, **options):
    """Standard output; a failure ends the benchmark with the message of the command."""
    try:
        return run(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options).stdout
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(error.cmd[:12])}: {error.stderr.strip()}")


def end(process):
    """Ends a process by SIGTERM, on which `ahead` undoes what it has done so far."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def remove(directory):
    """Removes a directory. What is still mounted in it stays: it may be another file system's only copy."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(directory)], stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def temporary_directory(purpose, parent=MEMORY):
    """A directory until the end of the block, by default on a tmpfs: an image there stays in memory when caches are dropped."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"ahead-{purpose}.", dir=parent))
    try:
        yield directory
    finally:
        remove(directory)


def wait_while(is_busy, limit_s, what, look_s=0.2):
    """Until it is not busy any more; `what` keeps it busy."""
    until, is_said = time.monotonic() + limit_s, False
    while is_busy():
        if time.monotonic() > until:
            fail(f"{what} still after {limit_s} s")
        if not is_said:
            say(f"{what}: waiting for the end")
        is_said = True
        time.sleep(look_s)


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def end_on_signals():
    """SIGTERM and SIGINT unwind the stack, so that disks are detached and files removed. A further signal does not interrupt that."""
    def unwind(number, _):
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, unwind)


def size_of(text):
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "")
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write a number with K, M or G")
    return int(number) << UNITS.get(unit, 0)


def names_of(known):
    """A parser of comma-separated names, in the order of `known`."""
    def parse(text):
        names = [name for name in text.split(",") if name]
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)} (there are {', '.join(known)})")
        return [name for name in known if name in names]
    return parse


def interleaved(ways, rounds, measure):
    """Results of each way, one for each round. The order alternates, so that a drift of the machine affects all ways alike."""
    results = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 == 0 else reversed(ways):
            results[way].append(measure(way))
    return results


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def warm(*paths):
    """Reads files into the page cache."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(MIB):
                pass


def write_random(path, size_bytes):
    """A file that no file system or drive can compress."""
    with open(path, "wb") as file:
        for start in range(0, size_bytes, MIB):
            file.write(os.urandom(min(MIB, size_bytes - start)))
    return path


def device_of(directory):
    """The device numbers of the file system, as in sysfs."""
    device = os.stat(directory).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def window_path(directory):
    return pathlib.Path(f"/sys/class/bdi/{device_of(directory)}/read_ahead_kb")


def read_ahead_kb(directory):
    """The window of the device of a directory, KiB; none for a file system without a device."""
    path = window_path(directory)
    return int(path.read_text()) if path.exists() else None


def restart(name):
    """Empties the buffer of an emulated drive, which eviction does not reach."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.connect(f"/run/ahead/disk/{name}.sock")
        daemon.sendall(b'{"ask":"restart"}\n')
        answer = daemon.makefile().readline().strip()
    if answer != '"done"':
        fail(f"the disk {name} did not restart: {answer}")


class Disk:
    """An emulated disk with ext4, detached at the end of the block."""

    def __init__(self, ahead, model, size_bytes, purpose="library"):
        self.ahead, self.model, self.size_bytes = ahead, model, size_bytes
        self.name = f"{purpose}-{os.getpid()}"

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix=f"ahead-{self.name}.", dir=MEMORY))
        self.directory = self.home / "mnt"
        self.directory.mkdir()
        try:
            # Read-ahead 128: the kernel's default window.
            output(self.ahead, "disk", "create", self.home / "disk.img", "--size", f"{self.size_bytes >> 10}K", "--model", self.model,
                   "--name", self.name, "--mount", self.directory, "--read-ahead-kb", 128)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run([self.ahead, "disk", "detach", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        remove(self.home)

    def make_cold(self):
        """Evicts everything."""
        drop_caches()
        self.restart()

    def restart(self):
        restart(self.name)


class OwnDisk:
    """A directory on a disk of this machine, removed at the end of the block. The host of a virtual machine may cache its content."""

    model = "own"

    def __init__(self, directory):
        self.parent = directory

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ahead-library.", dir=self.parent))
        return self

    def __exit__(self, *_):
        remove(self.directory)

    def make_cold(self):
        drop_caches()


class ReadySocket:
    """As a service manager: a program reports there when it is ready (sd_notify). `environment` names the socket."""

    def __enter__(self):
        self.home = tempfile.mkdtemp(prefix="ahead-ready.", dir=MEMORY)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{self.home}/socket")
        self.socket.settimeout(0.1)
        self.environment = os.environ | {"NOTIFY_SOCKET": f"{self.home}/socket"}
        return self

    def wait(self, process, limit_s):
        """True: it is ready. False: it has ended. None: neither in this time."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if process.poll() is not None:
                return False
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self.socket.recv(4096):
                    return True
        return None

    def __exit__(self, *_):
        self.socket.close()
        remove(self.home)


class Group:
    """A control group with a memory limit, removed at the end of the block."""

    def __init__(self, purpose):
        self.path = MEMORY_GROUPS / f"ahead-{purpose}-{os.getpid()}"

    def __enter__(self):
        self.path.mkdir()
        return self

    def __exit__(self, *_):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)

    def limit(self, limit_bytes):
        (self.path / "memory.limit_in_bytes").write_text(str(limit_bytes))

    def enter(self):
        """The calling process is in the group from now on."""
        (self.path / "cgroup.procs").write_text("0")

    def inside(self, command):
        """The command, started in the group."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs; exec "$@"', "sh", *[str(word) for word in command]]

    def stat(self):
        return {name: int(value) for name, value in (line.split() for line in (self.path / "memory.stat").read_text().splitlines())}

    def used_by_processes(self):
        """Memory without the page cache, bytes."""
        stat = self.stat()
        return int((self.path / "memory.usage_in_bytes").read_text()) - stat["total_cache"] + stat["total_shmem"]
