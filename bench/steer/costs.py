"""Suite `costs`: what `ahead steer` and `ahead top` cost where nothing is gained."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from rig import Steer, brief, set_window
from shared import MIB, fail, interleaved, output, warm

WINDOW_KIB, FILE_MIB = 128, 256
# Passes over the file in reads of 4 KiB: some seconds.
PASSES = 40
STATISTICS = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")
OPEN_FILES, SAMPLES, INTERVAL_MS = 10_000, 10, 100
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def bpf_statistics():
    """The kernel counts the runs of BPF programs during the block."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def bpf_programs(steer):
    """Runs and nanoseconds of each BPF program of the process, by its number."""
    programs = {}
    for text in steer.descriptors():
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if "prog_type" in fields and "run_cnt" in fields:
            programs[int(fields["prog_id"])] = (int(fields["run_cnt"]), int(fields["run_time_ns"]))
    return programs


def names_of_programs():
    """Names by number, if bpftool is installed."""
    try:
        return {one["id"]: one.get("name", "") for one in json.loads(output("bpftool", "prog", "show", "-j"))}
    except FileNotFoundError:
        return {}


def difference(before, after, names):
    """Programs that ran in between."""
    rows = []
    for number, (runs, ns) in sorted(after.items()):
        old_runs, old_ns = before.get(number, (0, 0))
        if runs > old_runs:
            rows.append({"program": names.get(number) or str(number), "runs": runs - old_runs, "ns": ns - old_ns})
    return rows


def cpu_s(process):
    """Processor time of a process."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cached_reads(bench, file):
    """Time of a cached read and of a fault on a cached page."""
    def measure(way):
        def victim():
            warm(file)
            reads = bench.programs.report("orders", "sequential", file, 4, "--passes", PASSES)
            faults = bench.programs.report("faults", file, FILE_MIB * MIB // 4096)
            return {"ns_per_read": 1e9 * reads["elapsed_s"] / reads["reads"], "ns_per_fault": 1000 * faults["us_per_fault"]}
        return bench.steered(way, victim)
    return interleaved(bench.ways("stock", "steer"), bench.rounds, measure)


def runs_on_cached_reads(bench, file):
    """Runs of BPF programs while a program reads cached pages, beside an interval of the same length without it."""
    warm(file)
    with bpf_statistics(), Steer(bench.programs, bench.steer_options) as steer:
        names = names_of_programs()
        before = bpf_programs(steer)
        if not before:
            fail("the BPF programs of ahead steer are not in its fdinfo")
        began = time.monotonic()
        reads = bench.programs.report("orders", "sequential", file, 4, "--passes", PASSES)
        took_s, middle = time.monotonic() - began, bpf_programs(steer)
        time.sleep(took_s)
        end = bpf_programs(steer)
        began = time.monotonic()
        faults = bench.programs.report("faults", file, FILE_MIB * MIB // 4096)
        return {"reads": reads["reads"], "seconds": took_s, "programs": len(before), "runs": difference(before, middle, names),
                "idle_seconds": took_s, "idle_runs": difference(middle, end, names), "faults": faults["faults"], "fault_seconds": time.monotonic() - began,
                "fault_runs": difference(end, bpf_programs(steer), names)}


def idle(bench):
    """Processor time of `ahead steer` and of its BPF programs, without a program to steer."""
    with bpf_statistics(), Steer(bench.programs, bench.steer_options) as steer:
        time.sleep(1)
        before, began, programs = cpu_s(steer.process), time.monotonic(), bpf_programs(steer)
        time.sleep(3 * bench.seconds)
        seconds = time.monotonic() - began
        bpf_ns = sum(row["ns"] for row in difference(programs, bpf_programs(steer), {}))
        return {"seconds": seconds, "cpu_share": (cpu_s(steer.process) - before) / seconds, "bpf_share": bpf_ns / 1e9 / seconds}


def latencies(bench, place):
    """The summary of `ahead steer` after programs of several kinds: decision to effect, and how long descriptors were held."""
    backward, mapped = place.file("backward", FILE_MIB * MIB), place.file("mapped", FILE_MIB * MIB)
    place.make_cold()
    set_window(place, WINDOW_KIB)

    def victims():
        bench.programs.report("orders", "sequential", backward, 16, "--seconds", 2)
        bench.programs.report("orders", "stride", mapped, 16, "--seconds", 2)
        bench.programs.report("faults", mapped, 20_000, "--seconds", 2)
        return {}
    return [bench.steered("steer", victims)["steer"] for _ in range(bench.rounds)]


# Opens a file many times, says so, and waits for the end of its input.
OPENER = """
import resource, sys
count = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, max(count + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
files = [open(sys.argv[1], "rb") for _ in range(count)]
print("open", flush=True)
sys.stdin.read()
"""


def samples_of_top(bench, file):
    """Times of samples of `ahead top` without and with 10,000 more open files: what an interval takes longer than requested. Loading is apart."""
    def samples():
        lines = output(bench.programs.ahead, "top", "--json", "--interval", f"{INTERVAL_MS}ms", "--count", SAMPLES + 1, "--limit", 1).splitlines()
        # The first interval contains the start.
        return [json.loads(line) for line in lines[1:]]

    def ms(lines):
        return [1000 * line["interval_s"] - INTERVAL_MS for line in lines]

    few = samples()
    opener = subprocess.Popen([sys.executable, "-c", OPENER, file, str(OPEN_FILES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if opener.stdout.readline().strip() != "open":
            fail(f"{OPEN_FILES} files could not be opened")
        many, once_s = samples(), []
        for _ in range(SAMPLES):
            began = time.monotonic()
            output(bench.programs.ahead, "top", "--once", "--json")
            once_s.append(time.monotonic() - began)
    finally:
        opener.kill()
        opener.wait()
    return {"open_files": OPEN_FILES, "few_rows": few[-1]["totals"]["open_files"], "few_ms": ms(few), "rows": many[-1]["totals"]["open_files"],
            "many_ms": ms(many), "once_s": once_s}


def measure(bench, place):
    file, figures = place.file("cached", FILE_MIB * MIB), {}
    figures["cached"] = cached_reads(bench, file)
    brief(costs="cached", **{
        way: f"{all_of[-1]['ns_per_read']:.0f} ns, fault {all_of[-1]['ns_per_fault']:.0f} ns" for way, all_of in figures["cached"].items()})
    if bench.is_stock_only:
        return figures
    figures["bpf"] = runs_on_cached_reads(bench, file)
    figures["idle"] = idle(bench)
    figures["latencies"] = latencies(bench, place)
    figures["top"] = samples_of_top(bench, file)
    for name in ("bpf", "idle", "latencies", "top"):
        brief(costs=name, figures=json.dumps(figures[name])[:400])
    return figures
