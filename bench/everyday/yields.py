"""A reader beside a late prefetch.

`ahead replay` fetches files that no program needs now, and a reader of other files of the same disk begins when a part has arrived.
"""

import functools
import json
import signal
import subprocess
import time

import rig
import table
from shared import MIB, fail, interleaved, say, write_random

WAYS = {"alone": None, "beside replay --yield": ["--yield"], "beside replay": []}
SCHEDULERS = ["mq-deadline", "none", "bfq"]
# What is prefetched lasts longer than the reader on each disk. Files of one request and more.
PREFETCHED, FILE_BYTES = 700, MIB
READ_BYTES = 64 * MIB
# The reader begins when this share has arrived, or after this time: BFQ may give an idle process nothing.
BEGUN_SHARE, BEGUN_S = 0.02, 2
MODULES = "json, email.parser, http.client, unittest, asyncio, xml.dom.minidom, decimal"
GOAL = 1.1


class LateReplay:
    """`ahead replay` in the background, ended by SIGTERM; then `account` is what it did, and `was_running` whether it ran until then."""

    def __init__(self, programs, place, options, files):
        self.programs, self.place, self.options, self.files = programs, place, options, files
        self.account, self.was_running = None, None

    def __enter__(self):
        if self.options is None:
            return self
        before, until = self.place.reads()[1], time.monotonic() + BEGUN_S
        self.process = subprocess.Popen([self.programs.ahead, "replay", "--json", "--wait", *self.options, "-"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdin.write("\n".join(map(str, self.files)))
        self.process.stdin.close()
        while self.place.reads()[1] - before < BEGUN_SHARE * PREFETCHED * FILE_BYTES and time.monotonic() < until:
            time.sleep(0.002)
        return self

    def processor_seconds(self):
        """So far; 0 where there is none, or none any more."""
        return rig.processor_seconds(self.process.pid) if self.options is not None and self.process.poll() is None else 0

    def __exit__(self, *_):
        if self.options is None:
            return
        self.was_running = self.process.poll() is None
        self.process.send_signal(signal.SIGTERM)
        self.account = json.loads(self.process.stdout.read() or "null")
        self.process.wait()


def measure_way(programs, place, files, reader, way):
    """Time of the reader, what the disk read in that time, and whether the prefetch lasted."""
    rig.make_cold(place, [programs.ahead, "--version"], ["dd", "--version"])
    with LateReplay(programs, place, WAYS[way], files) as replay:
        before, processor_s = place.reads(), replay.processor_seconds()
        took_s = rig.seconds(reader, stderr=subprocess.DEVNULL)
        after, processor_s = place.reads(), max(replay.processor_seconds() - processor_s, 0)
    return {"s": took_s, "requests": after[0] - before[0], "bytes": after[1] - before[1], "processor_s": processor_s, "lasted": replay.was_running}


def measure(programs, model, options):
    rows = []
    with rig.disk_of(programs, model) as place:
        # The reader's file lies before, and the program behind what is prefetched.
        data = write_random(place.directory / "data", READ_BYTES)
        bulk = place.directory / "bulk"
        bulk.mkdir()
        files = [write_random(bulk / f"{number:03}", FILE_BYTES) for number in range(PREFETCHED)]
        readers = {"dd": ["dd", f"if={data}", "of=/dev/null", "bs=128K"],
                   "cold start of Python": [*rig.copy_python(place.directory), "-c", f"import {MODULES}"]}
        known, used = place.schedulers()
        # The scheduler of the machine's own disk belongs to its other users.
        for scheduler in [used] if model == "own" else [one for one in SCHEDULERS if one in known]:
            if scheduler != used:
                place.set_scheduler(scheduler)
            for name, reader in readers.items():
                once = functools.partial(measure_way, programs, place, files, reader)
                ways = interleaved(list(WAYS), options.rounds, lambda way: rig.undisturbed(lambda: once(way)))
                say(model, scheduler, name, {way: [round(one["s"], 4) for one in all] for way, all in ways.items()})
                if any(one["lasted"] is False for one in ways["beside replay --yield"]):
                    fail(f"{name} on {model}: the prefetch ended before the reader")
                rows.append({"scheduler": scheduler, "reader": name, "ways": ways})
    return rows


def lines(results):
    yield from table.paragraph(f"""`ahead replay` of {PREFETCHED} files of 1 MiB; the reader begins when {100 * BEGUN_SHARE:.0f} % have
        arrived, at most {BEGUN_S} s later. Medians (lowest to highest). Goal: at most {GOAL} × the time alone with `--yield`. Further reads
        are those of the disk during the reader beyond those of the reader alone: they are the prefetch's. On the machine's own disk only its
        own scheduler is measured.""")
    yield from table.head("disk", "scheduler", "reader", "way", "ms", "to alone", "further reads, MiB", "further requests",
                          "processor of the prefetch, ms")
    for disk, rows in results.items():
        for row in rows:
            alone = row["ways"]["alone"]
            for way, all in row["ways"].items():
                ratio = table.median(all, "s") / table.median(alone, "s")
                further = [table.median(all, key) - table.median(alone, key) for key in ("bytes", "requests")]
                ended = ", ended before the reader" if any(one["lasted"] is False for one in all) else ""
                yield table.row(f"`{disk}`", row["scheduler"], row["reader"], way + ended, table.spread_ms(all),
                                table.marked(f"{ratio:.2f}", "--yield" in way and ratio > GOAL), f"{further[0] / MIB:.1f}", f"{further[1]:.0f}",
                                f"{table.median(all, 'processor_s') * 1e3:.0f}")
