"""What the parts of bench/library share beside bench/shared.py: the example programs and direct reads."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from shared import MEMORY, MIB, fail, output, run, say

NAMES = ["checksum", "grep", "index-scan", "loader", "readers", "sort"]


class Programs:
    """The example programs, copied into memory: their pages stay when caches are dropped."""

    def __init__(self, directory, tokio):
        self.directory, self.tokio = pathlib.Path(directory), pathlib.Path(tokio)

    def __enter__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="ahead-library-programs.", dir=MEMORY))
        for name in NAMES:
            shutil.copy(self.directory / f"ahead-{name}", self.home / name)
        self.has_tokio = self.tokio.exists()
        if self.has_tokio:
            shutil.copy(self.tokio, self.home / "tokio")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home, ignore_errors=True)

    def report(self, name, *arguments):
        """Runs a program whose libraries are cached, and returns its JSON."""
        output(self.home / name, "--help")
        json_option = [] if name == "tokio" else ["--json"]
        return json.loads(output(self.home / name, *arguments, *json_option))


class Direct:
    """The bandwidth of direct reads: fio with io_uring at its best request size and queue depth, or dd."""

    SETTINGS = [("256k", 1), ("256k", 4), ("256k", 16), ("256k", 32), ("1M", 1), ("1M", 2), ("1M", 4), ("1M", 8), ("1M", 32)]
    # Bytes of each attempt in the search for the best setting.
    ATTEMPT_BYTES = 256 * MIB

    def __init__(self):
        self.has_fio, self.engine = shutil.which("fio") is not None, "io_uring"
        self.best = {}

    def describe(self):
        return f"fio ({self.engine})" if self.has_fio else "dd iflag=direct"

    def bandwidth(self, place, paths):
        """Bytes per second of the files one after the other, cold, at the best setting of this disk."""
        if not self.has_fio:
            return self.dd(place, paths)
        if place.model not in self.best:
            rates = {setting: self.fio(place, paths, setting, size_bytes=self.ATTEMPT_BYTES) for setting in self.SETTINGS}
            self.best[place.model] = max(rates, key=rates.get)
            size, depth = self.best[place.model]
            say(f"{place.model}: direct reads are fastest with {size}, depth {depth}: {rates[size, depth] / 1e6:.1f} MB/s")
        return self.fio(place, paths, self.best[place.model])

    def turns(self, place, paths):
        """The same with turns of 1 MiB between the files, with two requests in the queue; none without fio."""
        return self.fio(place, paths, ("1M", 2), "--file_service_type=roundrobin:1") if self.has_fio else None

    def fio(self, place, paths, setting, *options, size_bytes=None):
        request_bytes, depth = setting
        size = sum(os.path.getsize(path) for path in paths)
        if size_bytes is not None and size_bytes < size:
            options = [*options, f"--io_size={size_bytes}"]
        service = [] if any("service" in option for option in options) else ["--file_service_type=sequential"]
        command = ["fio", "--name=direct", "--output-format=json", "--readonly", "--thread", "--direct=1", "--rw=read",
                   f"--bs={request_bytes}", f"--iodepth={depth}", *service, f"--filename={':'.join(map(str, paths))}", *options]
        place.make_cold()
        done = subprocess.run([*command, f"--ioengine={self.engine}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0 and self.engine == "io_uring":
            self.engine = "libaio"
            return self.fio(place, paths, setting, *options, size_bytes=size_bytes)
        if done.returncode != 0:
            fail(f"fio: {done.stderr.strip()}")
        read = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
        return read["io_bytes"] / (read["runtime"] / 1000)

    def dd(self, place, paths):
        place.make_cold()
        began = time.monotonic()
        for path in paths:
            run("dd", f"if={path}", "of=/dev/null", "bs=1M", "iflag=direct", stderr=subprocess.DEVNULL)
        return sum(os.path.getsize(path) for path in paths) / (time.monotonic() - began)
