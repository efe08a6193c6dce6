"""A tree on an emulated disk, and its boots in a container."""

import contextlib
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import time

from trees import run

# The permission that a container needs, in the environment of its PID 1.
PERMITTED = "AHEAD_CONTAINER=1"
# A boot that takes longer has failed.
LONGEST_S = 300
PROMPT = b"login:"
# What systemd prints when the default target is reached: the name is in bold.
TARGET = b"graphical.target\x1b[0m - "


class Boot:
    """What one boot took, in seconds from the start of the container: to the prompt, and to the default target."""

    def __init__(self, boot_s, target_s, idle_s, requests, kib, replay=None):
        self.boot_s, self.target_s, self.idle_s = boot_s, target_s, idle_s
        self.requests, self.kib, self.replay = requests, kib, replay


class Machine:
    """The image of a tree on an emulated disk."""

    def __init__(self, ahead, image, directory, model):
        self.ahead, self.image, self.directory, self.model = ahead, image, directory, model

    def __enter__(self):
        self.name = f"boot-{os.getpid()}"
        run(self.ahead, "disk", "attach", self.image, "--name", self.name, "--model", self.model, "--mount", self.directory,
            "--read-ahead-kb", 128)
        self.device, self.node = run("findmnt", "-n", "-o", "MAJ:MIN,SOURCE", self.directory).stdout.split()
        return self

    def __exit__(self, *_):
        # Another program that has copied the mount table may keep the file system for a moment.
        for tries_left in range(30, -1, -1):
            if run(self.ahead, "disk", "detach", self.name, check=tries_left == 0).returncode == 0:
                break
            time.sleep(1)

    def reads(self):
        """Requests and KiB that the disk has read."""
        fields = pathlib.Path(f"/sys/dev/block/{self.device}/stat").read_text().split()
        return int(fields[0]), int(fields[2]) // 2

    def boot(self, words=(), permitted=False, init=None, drop=True, before=None, until=None):
        """One boot. `words`: for the kernel's command line; `init`: PID 1 instead of systemd; `before`: a command that runs beside it, with
        its standard input; `until`: what has to be true before the machine is switched off."""
        if drop:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
            # Loads systemd-nspawn into the page cache: the host's disk must not count.
            run("systemd-nspawn", "--version")
        reads, idle, began = self.reads(), idle_s(), time.monotonic()
        replay = Replay(*before) if before else None
        with console(self.command(words, permitted, init)) as (process, screen):
            times = wait_for(process, screen, [TARGET, PROMPT], LONGEST_S, replay)
            if PROMPT not in times:
                sys.exit("bench-boot: the tree did not boot to its login prompt")
            took_s, idle, after = times[PROMPT] - began, idle_s() - idle, self.reads()
            target_s = times.get(TARGET, times[PROMPT]) - began
            # The screen is read on, so that the machine does not block.
            end = time.monotonic() + LONGEST_S
            while until and not until():
                if time.monotonic() > end:
                    sys.exit("bench-boot: what this boot was for did not happen: see journalctl --directory of the tree")
                wait_for(process, screen, [], 0.2)
        figures = replay.end() if replay else None
        return Boot(took_s, target_s, idle, after[0] - reads[0], after[1] - reads[1], figures)

    def command(self, words, permitted, init):
        # With ahead=off systemd does not even start our program.
        mode, words = ([f"--setenv={PERMITTED}"], words) if permitted else ([], ["ahead=off", *words])
        start = [init] if init else []
        return ["systemd-nspawn", "--quiet", f"--directory={self.directory}", "--machine=ahead-boot", "--register=no", "--keep-unit",
                "--link-journal=no", "--console=interactive", "--private-network", f"--bind={self.node}", "--kill-signal=SIGRTMIN+3",
                "--capability=CAP_SYS_ADMIN,CAP_BPF,CAP_PERFMON", *mode, *([] if init else ["--boot"]), *start, *words]


class Replay:
    """A replay beside the boot: when it ended, and its memory."""

    def __init__(self, command, listed):
        self.began = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], stdin=listed or subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.figures = None

    def poll(self):
        if self.figures is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            self.note(pid, status, usage)

    def end(self):
        if self.figures is None:
            self.note(*os.wait4(self.process.pid, 0))
        return self.figures

    def note(self, pid, status, usage):
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            if self.process.returncode != 0:
                sys.exit(f"bench-boot: {self.process.args[0]} failed with status {self.process.returncode}")
            self.figures = {"replay_s": time.monotonic() - self.began, "cpu_s": usage.ru_utime + usage.ru_stime, "rss_kib": usage.ru_maxrss}


def idle_s():
    """Idle and waiting time of a processor, as the second figure of /proc/uptime, divided by their number."""
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
        wait_for(process, screen, [], 60)
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(screen)


def wait_for(process, screen, texts, limit_s, replay=None):
    """Reads the screen until the last text appears; without texts, until the machine has ended. The times at which texts appeared."""
    seen, end, times = b"", time.monotonic() + limit_s, {}
    while (left := end - time.monotonic()) > 0 and process.poll() is None:
        if select.select([screen], [], [], min(left, 0.01))[0]:
            try:
                seen += os.read(screen, 1 << 16)
            except OSError:
                break
        if replay:
            replay.poll()
        for text in texts:
            if text in seen:
                times.setdefault(text, time.monotonic())
        if texts and texts[-1] in times:
            break
    return times
