"""Suite `streams`: 800 slow streams in a control group of 64 MiB, and the pages that the disk reads twice for them."""

import collections
import contextlib
import os
import pathlib
import subprocess
import tempfile
import time

from rig import brief
from shared import MEMORY, MIB, Group, interleaved, run, say, write_random

STREAMS, THREADS, FILE_MIB, GROUP_MIB, WINDOW_KIB = 800, 8, 1, 64, 128
# 16 MB/s for all: no disk but a rotating one limits them.
BYTES_PER_S = 20_000
# Of --seconds, so that a stream reads some windows; and at most its file.
LONGER = 4
# Each processor's part of the trace. All events of a run go through it.
BUFFER_KIB = 16 << 10
EVENT = "events/filemap/mm_filemap_add_to_page_cache"


class AddedPages:
    """The pages of a device that are added to the page cache during the block, by a private instance of tracefs."""

    def __init__(self, device):
        self.major, self.minor = map(int, device.split(":"))

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            tracefs = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ahead-steer-trace.", dir=MEMORY)))
            run("mount", "-t", "tracefs", "tracefs", tracefs)
            stack.callback(run, "umount", tracefs)
            self.instance = tracefs / f"instances/ahead-steer-{os.getpid()}"
            self.instance.mkdir()
            stack.callback(self.instance.rmdir)
            (self.instance / "buffer_size_kb").write_text(str(BUFFER_KIB))
            # The device number of the kernel has 20 bits for the minor part.
            (self.instance / EVENT / "filter").write_text(f"s_dev == {self.major << 20 | self.minor}")
            self.lines = stack.enter_context(tempfile.TemporaryFile("w+", dir=MEMORY))
            with open(self.instance / "trace_pipe") as pipe:
                self.reader = subprocess.Popen(["cat"], stdin=pipe, stdout=self.lines)
            stack.callback(self.stop)
            (self.instance / EVENT / "enable").write_text("1")
            self.stack = stack.pop_all()
        return self

    def stop(self):
        (self.instance / EVENT / "enable").write_text("0")
        # The reader has to empty the buffer: its output no longer grows.
        size = -1
        while size != os.fstat(self.lines.fileno()).st_size:
            size = os.fstat(self.lines.fileno()).st_size
            time.sleep(0.3)
        self.reader.terminate()
        self.reader.wait()

    def __exit__(self, *_):
        self.stack.close()

    def count(self):
        """Pages, pages that were added again, and lost events; ends the trace."""
        self.stop()
        self.lines.seek(0)
        times = collections.Counter()
        for line in self.lines:
            if " ino " not in line:
                continue
            words = line.rsplit("ino ", 1)[1].split()
            inode, fields = words[0], dict(word.split("=") for word in words[1:])
            first = int(fields["ofs"]) >> 12
            for page in range(first, first + (1 << int(fields["order"]))):
                times[inode, page] += 1
        lost = sum(int(line.split(": ")[1]) for path in self.instance.glob("per_cpu/cpu*/stats") for line in path.read_text().splitlines()
                   if line.startswith(("overrun", "dropped events")))
        pages = sum(times.values())
        return {"pages": pages, "read_again": pages - len(times), "lost_events": lost}


def measure(bench, place):
    seconds = min(LONGER * bench.seconds, FILE_MIB * MIB // BYTES_PER_S)
    directory = place.directory / "streams"
    if not directory.exists():
        directory.mkdir()
        for number in range(STREAMS):
            write_random(directory / f"{number:04}", FILE_MIB * MIB)
    with Group("steer-streams") as group:
        group.limit(GROUP_MIB * MIB)

        def streams(_way):
            def victim():
                with AddedPages(place.device) as added:
                    report = bench.programs.report("streams", directory, STREAMS, BYTES_PER_S, seconds, THREADS, group=group)
                    return {**report, **added.count()}
            return bench.cold(place, _way, WINDOW_KIB, victim)

        done = interleaved(bench.ways("stock", "steer"), bench.rounds, streams)
    for way, all_of in done.items():
        brief(streams=place.model, way=way, share=f"{100 * all_of[-1]['read_again'] / all_of[-1]['pages']:.3f} %", **all_of[-1])
        if any(one["lost_events"] for one in all_of):
            say("  events were lost: the share is too small")
    return {"streams": STREAMS, "bytes_per_s": BYTES_PER_S, "seconds": seconds, "group_mib": GROUP_MIB, "ways": done}
