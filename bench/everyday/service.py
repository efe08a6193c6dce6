"""`aheadd` while programs are started, and the stores that it begins with."""

import collections
import json
import os
import pathlib
import subprocess
import tempfile
import time

import rig
from shared import MEMORY, ReadySocket, end, fail, output, remove, run

# It loads BPF programs. Unit: seconds.
READY_S = 60
# A start is over with its last process, and the store is written each 10 s. Unit: seconds.
LEARNED_S, LOOK_S = 40, 0.1


class Store:
    """A store of the service, removed at the end of the block."""

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ahead-everyday-store.", dir=MEMORY))
        # Users enter the directory, as that of the package.
        self.home.chmod(0o755)
        self.path = self.home / "apps"
        self.path.mkdir()
        (self.home / "aheadd.toml").touch()
        return self

    def __exit__(self, *_):
        remove(self.home)

    def copy_of(self, other):
        remove(self.path)
        run("cp", "-a", other.path, self.path)
        return self

    def pin(self, programs, start):
        """Records a start by hand, which pins its profile; returns the profile. `ahead record` has no option for the store, and gets this one in a
        mount namespace. The user without rights has no home for profiles: root records, and gives the program away."""
        script = f'mkdir -p /var/lib/ahead && mount --bind {self.home} /var/lib/ahead && exec "$@"'
        command = [programs.ahead, "record", "--cold", "--", *start.command]
        output("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *command,
               env={**start.environment, "XDG_STATE_HOME": str(self.home)})
        (self.path / "0").rename(self.path / str(rig.USER))
        run("chown", "-R", f"{rig.USER}:{rig.USER}", self.path / str(rig.USER))
        profile, = (self.home / "ahead").glob("*.ahead")
        profile.parent.chmod(0o755)
        profile.chmod(0o644)
        return profile

    def known(self, programs):
        """What `ahead apps` says of all users' programs."""
        return json.loads(output(programs.ahead, "apps", "--store", self.path, "--all", "--json"))["apps"]

    def treatments(self, programs):
        """What was done at the last eight starts of each program: numbers by treatment."""
        return dict(collections.Counter(start["treatment"] for app in self.known(programs) for start in app["recent"]))

    def wait_for(self, programs, starts, recordings):
        """Until it knows at least this number of starts of one program, and has this number of recordings of it."""
        until = time.monotonic() + LEARNED_S
        while not any(app["starts"] >= starts and app["recordings"] >= recordings for app in self.known(programs)):
            if time.monotonic() > until:
                found = [(app["name"], app["starts"], app["recordings"], app["state"]) for app in self.known(programs)]
                fail(f"after {LEARNED_S} s aheadd knows no program with {starts} starts and {recordings} recordings: {found}")
            time.sleep(LOOK_S)


class Service:
    """`aheadd` in the background, perhaps in a group, until the end of the block. None if `store` is none."""

    def __init__(self, programs, store, group=None):
        self.programs, self.store, self.group = programs, store, group

    def __enter__(self):
        if self.store is None:
            return self
        self.log = tempfile.TemporaryFile("w+", dir=MEMORY)
        command = [self.programs.service, "--store", self.store.path, "--config", self.store.home / "aheadd.toml"]
        with ReadySocket() as ready:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=ready.environment,
                                            preexec_fn=self.group.enter if self.group else None)
            rig.OWN.add(self.process.pid)
            is_ready = ready.wait(self.process, READY_S)
        if not is_ready:
            end(self.process)
            fail(f"aheadd is not ready: {self.text()}")
        return self

    def text(self):
        self.log.seek(0)
        return self.log.read().strip()

    def cost(self):
        """Processor time, s, and resident memory, MiB, so far."""
        resident = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {"processor_s": rig.processor_seconds(self.process.pid), "resident_mib": resident / 2**20}

    def __exit__(self, *_):
        if self.store is None:
            return
        end(self.process)
        rig.OWN.discard(self.process.pid)
        if self.process.returncode != 0:
            fail(f"aheadd ended with status {self.process.returncode}: {self.text()}")
