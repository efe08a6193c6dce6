#!/usr/bin/env python3
"""Makes docs/results/steer.md from bench/results/steer.json (run.py).

    table.py [JSON [DOCUMENT]]

The same figures give the same bytes. Ratios are those of the pairs of one round each.
"""

import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stamp  # noqa: E402
from figures import judged, median, ratios, spread, table  # noqa: E402

MIB, PAGE_BYTES = 1 << 20, 4096
DISKS = {"ssd": "SATA SSD", "cloud": "network volume", "hdd": "7200 rpm disk", "fuse": "FUSE server with a latency of 1 ms",
         "own": "loop device with direct I/O on a disk of this machine"}
# Share of what `oracle` gains in the simulator; bytes read by bytes used, less one.
GOAL_GAIN, GOAL_WASTE = 0.9, 0.05
# Bytes read by bytes used; time of a fault by that with MADV_RANDOM.
GOAL_AMPLIFICATION, GOAL_FAULT = 1.5, 1.2
# Throughput by that of the best fixed window; of two programs, each by that with its best window.
GOAL_FIXED, GOAL_BOTH = 0.97, 0.95
# Pages that are read twice, percent; time with `ahead steer` by that without it.
GOAL_STREAMS, GOAL_PROGRAM = 0.15, 1.03
# Runs of BPF programs for each cached read; percent of one processor; µs from decision to effect, and of a held descriptor.
GOAL_RUNS, GOAL_IDLE, GOAL_LATENCY_US, GOAL_HELD_US = 0.001, 0.5, 200, 1000
# A sample of `ahead top`: ms, and µs for each open file.
GOAL_SAMPLE_MS, GOAL_OPEN_FILE_US = 10, 2
NONE = "–"


class Goals:
    """The worst median of each goal, for the summary."""

    def __init__(self):
        self.rows = {}

    def judge(self, name, values, digits=2, most=None, least=None):
        """A cell."""
        if not values:
            return NONE
        value, missed = median(values), False
        missed = (most is not None and value > most) or (least is not None and value < least)
        cells, failed, worst = self.rows.get(name, (0, 0, None))
        worst = value if worst is None else max(worst, value) if most is not None else min(worst, value)
        self.rows[name] = (cells + 1, failed + missed, worst)
        return judged(values, digits, most=most, least=least)

    def table(self):
        rows = [[name, str(cells - failed), str(cells), f"{worst:.3g}" + (" ✗" if failed else "")] for name, (cells, failed, worst) in self.rows.items()]
        return ["## Summary", "", "The worst median of each goal. ✗: the goal is missed.", "",
                *table(["goal", "cells that reach it", "cells", "worst value"], rows)]


def about(model, part):
    windows = ", ".join(map(str, part["read_ahead_kb"]))
    load = f"load average at the start {part['load']:.1f}, " if "load" in part else ""
    return (f"`{model}`, {DISKS[model]}: {part['rounds']} {'round' if part['rounds'] == 1 else 'rounds'} of {part['seconds']} s, `read_ahead_kb` {windows}, "
            f"{part['cache']}, {load}Linux {part['kernel']}, commit {part['commit']}, {part['date']}.")


def headed(title, text, parts):
    lines = [f"## {title}", "", *text, ""]
    for model, part in parts.items():
        lines.append(about(model, part) + "  ")
    return [*lines, ""]


def column(runs, key):
    return [one[key] for one in runs]


def orders(parts, goals):
    lines = headed("Backward, stride and interleaved reads", [
        "One program reads blocks of 16 KiB; stride: 16 KiB of each 64 KiB; interleaved: four readers through one open file. Gain: time of stock by time",
        "with `ahead steer`. Oracle: the gain of the policy `oracle` in the simulator on the same disk with the same file. Share: gain by that of oracle,",
        f"goal at least {GOAL_GAIN}. Waste: bytes read by bytes used, less one, goal at most {GOAL_WASTE}. Simulated: seconds of stock, of the policy `steer` and of",
        "`oracle`. A machine under load has a slower stock, and a larger gain, than the simulator."], parts)
    rows = []
    for model, part in parts.items():
        for order, row in part["figures"].items():
            stock, steer, simulated_s = row["ways"]["stock"], row["ways"].get("steer", []), row["simulated_s"]
            oracle = simulated_s["linux-6.18"] / simulated_s["oracle"]
            gains = ratios(column(stock, "elapsed_s"), column(steer, "elapsed_s"))
            waste = [one["device_bytes"] / one["bytes"] - 1 for one in steer]
            simulated = " / ".join(f"{simulated_s[policy]:.2f}" if policy in simulated_s else NONE for policy in ("linux-6.18", "steer", "oracle"))
            rows.append([f"`{model}`", order, str(row["file_mib"]), spread(column(stock, "elapsed_s")), spread(column(steer, "elapsed_s")) if steer else NONE,
                         simulated, spread(gains) if gains else NONE, f"{oracle:.2f}",
                         goals.judge(f"orders: share of the gain of `oracle`, at least {GOAL_GAIN}", [gain / oracle for gain in gains], least=GOAL_GAIN),
                         goals.judge(f"orders: waste, at most {GOAL_WASTE}", waste, 3, most=GOAL_WASTE)])
    return lines + table(["disk", "order", "file, MiB", "stock, s", "steer, s", "simulated, s", "gain", "oracle", "share", "waste"], rows)


def amplification(runs):
    return [one["counted_bytes"] / (one["faults"] * PAGE_BYTES) for one in runs]


def faults(parts, goals):
    figures = next(iter(parts.values()))["figures"]
    lines = headed("Random faults of a mapping", [
        f"A mapping of {figures['file_mib']} MiB in a control group of {figures['group_mib']} MiB; random pages, each at most once. Counted from the 100th fault on.",
        f"Amplification: bytes read by bytes used, goal at most {GOAL_AMPLIFICATION}. Ratio: time of a fault by that of the same program with MADV_RANDOM,",
        f"goal at most {GOAL_FAULT}."], parts)
    rows = []
    for model, part in parts.items():
        for window, ways in part["figures"]["windows"].items():
            stock, steer, advised = ways["stock"], ways.get("steer", []), ways["MADV_RANDOM"]
            us = {way: column(runs, "us_per_fault") for way, runs in ways.items()}
            rows.append([f"`{model}`", window, spread(amplification(stock), 1), spread(us["stock"], 0),
                         goals.judge(f"faults: amplification, at most {GOAL_AMPLIFICATION}", amplification(steer), most=GOAL_AMPLIFICATION),
                         spread(us["steer"], 0) if steer else NONE, spread(us["MADV_RANDOM"], 0),
                         goals.judge(f"faults: time by that of MADV_RANDOM, at most {GOAL_FAULT}",
                                     ratios(us["steer"], us["MADV_RANDOM"]) if steer else [], most=GOAL_FAULT),
                         spread(amplification(advised))])
    return lines + table(["disk", "`read_ahead_kb`", "stock, amplification", "stock, µs", "steer, amplification", "steer, µs", "MADV_RANDOM, µs", "ratio",
                          "MADV_RANDOM, amplification"], rows)


def rates(runs):
    """MB/s."""
    return [one["bytes"] / one["elapsed_s"] / 1e6 for one in runs]


def fixed(parts, goals):
    lines = headed("A sequential reader and every fixed window", [
        "Reads of 64 KiB, cold. Best: the fixed `read_ahead_kb` with the highest median. Share: throughput by that of the best window in the same round;",
        f"with `ahead steer`, which begins at 128 KiB: goal at least {GOAL_FIXED}."], parts)
    rows = []
    for model, part in parts.items():
        speeds = {way: rates(runs) for way, runs in part["figures"]["ways"].items()}
        steer = speeds.pop("steer", [])
        best = max(speeds, key=lambda way: median(speeds[way]))
        rows.append([f"`{model}`", spread(speeds["128"], 0), spread(speeds[best], 0), best, spread(ratios(speeds["128"], speeds[best])),
                     spread(steer, 0) if steer else NONE,
                     goals.judge(f"fixed: share of the best window, at least {GOAL_FIXED}", ratios(steer, speeds[best]), 3, least=GOAL_FIXED)])
    return lines + table(["disk", "128 KiB, MB/s", "best, MB/s", "best, KiB", "share of 128 KiB", "steer, MB/s", "share of steer"], rows)


def both(parts, goals):
    lines = headed("A sequential and a random program on one disk", [
        "A sequential reader that computes, and random faults of a mapping, at the same time. A pair of windows (the sequential reader's, the random",
        "reader's) is set between the two opens: each program has its best window. Share: throughput by that with the best pair, in the same round;",
        f"goal of both programs with `ahead steer`: at least {GOAL_BOTH}. No single window should give that."], parts)
    for model, part in parts.items():
        ways = part["figures"]["ways"]
        speeds = {way: {"sequential": rates(column(runs, "sequential")), "random": [1e6 / one["random"]["us_per_fault"] for one in runs]}
                  for way, runs in ways.items()}
        pairs = [way for way in speeds if "+" in way]
        best = max(pairs, key=lambda way: math.prod(median(values) for values in speeds[way].values()))
        rows = []
        for way, of in speeds.items():
            shares = {kind: ratios(values, speeds[best][kind]) for kind, values in of.items()}
            cells = [goals.judge(f"both: share of its best window, at least {GOAL_BOTH}", values, least=GOAL_BOTH) if way == "steer" else spread(values)
                     for values in shares.values()]
            rows.append([way.replace("+", " and ") + (" (best pair)" if way == best else ""), spread(of["sequential"], 1), cells[0], spread(of["random"], 0), cells[1]])
        lines += [f"`{model}`:", "", *table(["windows, KiB", "sequential, MB/s", "share", "random, faults/s", "share"], rows)]
    return lines


def streams(parts, goals):
    figures = next(iter(parts.values()))["figures"]
    lines = headed("Slow streams in little memory", [
        f"{figures['streams']} streams of {figures['bytes_per_s'] / 1000:.0f} kB/s each, in reads of 4 KiB, in a control group of {figures['group_mib']} MiB.",
        "`ahead steer` is outside of the group. Read twice: pages that were added to the page cache again, by all pages that were added (tracepoint",
        f"mm_filemap_add_to_page_cache), percent. Goal with `ahead steer`: at most {GOAL_STREAMS}."], parts)
    rows = []
    for model, part in parts.items():
        for way, runs in part["figures"]["ways"].items():
            again = [100 * one["read_again"] / max(one["pages"], 1) for one in runs]
            cell = goals.judge(f"streams: pages that are read twice, at most {GOAL_STREAMS} %", again, 3, most=GOAL_STREAMS) if way == "steer" else spread(again, 3)
            lost = sum(column(runs, "lost_events"))
            rows.append([f"`{model}`", way, cell, f"{median(column(runs, 'pages')):.0f}", f"{median(column(runs, 'reads')):.0f}",
                         spread([100 * one["slow_reads"] / one["reads"] for one in runs], 1), spread(column(runs, "waited_s"), 1), str(lost)])
    return lines + table(["disk", "way", "read twice, %", "pages", "reads", "slow reads, %", "time in reads, s", "lost events"], rows)


def programs(parts, goals):
    lines = headed("Programs", [
        "Time with `ahead steer` by that without it, in pairs; data of SQLite, tar, grep and the Python program are compared, fio verifies checksums. Goal: at",
        f"most {GOAL_PROGRAM}. fio: seconds for each MiB."], parts)
    for model, part in parts.items():
        rows = []
        for name, states in part["figures"].items():
            cells = [name]
            for state in ("cold", "cached"):
                stock, steer = column(states[state]["stock"], "seconds"), column(states[state].get("steer", []), "seconds")
                goal = f"programs: time by that without `ahead steer`, at most {GOAL_PROGRAM}"
                cells += [f"{median(stock):.3g}", goals.judge(goal, ratios(steer, stock), 3, most=GOAL_PROGRAM)]
            rows.append(cells)
        lines += [f"`{model}`:", "", *table(["program", "cold, s", "cold, ratio", "cached, s", "cached, ratio"], rows)]
    return lines


def runs_text(rows):
    return ", ".join(f"{row['program']} {row['runs']}" for row in sorted(rows, key=lambda row: -row["runs"])) or "none"


def cached_cost(figures):
    cached = figures["cached"]
    for key, what in (("ns_per_read", "cached read of 4 KiB"), ("ns_per_fault", "fault on a cached page")):
        stock, steer = column(cached["stock"], key), column(cached.get("steer", []), key)
        yield [what, f"{median(stock):.0f} ns without, ratio with `ahead steer`", "", spread(ratios(steer, stock), 3) if steer else NONE]


def bpf_cost(bpf, goals):
    idle = sum(row["runs"] for row in bpf["idle_runs"]) / bpf["idle_seconds"]
    for what, count, runs, seconds in (("cached reads", bpf["reads"], bpf["runs"], bpf["seconds"]),
                                       ("faults on cached pages", bpf["faults"], bpf["fault_runs"], bpf["fault_seconds"])):
        # Other programs of the machine go on.
        more = max(sum(row["runs"] for row in runs) - idle * seconds, 0) / count
        yield [f"runs of BPF programs for each of {count} {what}, less those of an idle interval", f"{runs_text(runs)}; {seconds:.1f} s; idle {idle:.0f} each second",
               f"{GOAL_RUNS}", goals.judge(f"costs: runs of BPF programs for each access of a cached page, at most {GOAL_RUNS}", [more], 6, most=GOAL_RUNS)]


def latency_cost(rounds, goals):
    kinds = {"latency_us": ("decision to window, µs", "median", GOAL_LATENCY_US), "fetch_latency_us": ("decision to end of the requests of a fetch, µs", "median", None),
             "hold_us": ("descriptor held, µs", "max", GOAL_HELD_US), "exposed_us": ("another value in the setting of a disk, µs", "max", None)}
    for key, (what, of, goal) in kinds.items():
        found = [one["summary"][key] for one in rounds if one["summary"].get(key)]
        if found:
            values, statistic = column(found, of), "longest" if of == "max" else of
            cell = goals.judge(f"costs: {what}, {statistic} at most {goal}", values, 0, most=goal) if goal else spread(values, 0)
            yield [f"{what} ({statistic})", f"{sum(column(found, 'count'))} acts: median {spread(column(found, 'median'), 0)}, 99 % {spread(column(found, 'p99'), 0)}, "
                   f"longest {max(column(found, 'max')):.0f}", str(goal or ""), cell]


def top_cost(top, goals):
    """The longest part of `ahead top --once` is its start."""
    few, many = top["few_ms"], top["many_ms"]
    goal_ms = GOAL_SAMPLE_MS + GOAL_OPEN_FILE_US * top["rows"] / 1000
    return [f"a sample of `ahead top` with {top['rows']} open files, ms", f"median {spread(few, 1)} with {top['few_rows']} open files; `ahead top --once`: "
            f"{1e3 * median(top['once_s']):.0f} ms with its start", f"{goal_ms:.0f}",
            goals.judge(f"costs: a sample of `ahead top` with {top['open_files']} open files, ms, at most {goal_ms:.0f}", many, 1, most=goal_ms)]


def costs(parts, goals):
    lines = headed("Costs", ["Where nothing is gained. The kernel counts the runs of BPF programs (`kernel.bpf_stats_enabled`), whatever process they are for."], parts)
    for model, part in parts.items():
        figures, rows = part["figures"], []
        rows += cached_cost(figures)
        if "bpf" in figures:
            rows += bpf_cost(figures["bpf"], goals)
        if "idle" in figures:
            idle = figures["idle"]
            rows.append([f"idle for {idle['seconds']:.0f} s: percent of one processor", f"of this, BPF programs {100 * idle['bpf_share']:.3f}", f"{GOAL_IDLE}",
                         goals.judge(f"costs: idle, percent of one processor, at most {GOAL_IDLE}", [100 * (idle["cpu_share"] + idle["bpf_share"])], 3, most=GOAL_IDLE)])
        rows += latency_cost(figures.get("latencies", []), goals)
        if "top" in figures:
            rows.append(top_cost(figures["top"], goals))
        lines += [f"`{model}`:", "", *table(["what", "details", "goal", "value"], rows)]
    return lines


SECTIONS = {"orders": orders, "faults": faults, "fixed": fixed, "both": both, "streams": streams, "programs": programs, "costs": costs}


def document(results):
    goals, sections = Goals(), []
    for name, section in SECTIONS.items():
        if name in results:
            sections += section({model: results[name][model] for model in DISKS if model in results[name]}, goals)
    lines = stamp.heading("Read-ahead of running programs", "make bench-steer", results["commit"], results["date"], results["machine"])
    lines += ["Unmodified programs without (`stock`) and with `ahead steer`, in pairs, on emulated disks except `fuse` and `own`. Windows are in KiB",
              "(`read_ahead_kb`). Median (lowest–highest). ✗: the goal is missed.", "", *goals.table(), *sections]
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    raw = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results/steer.json"
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else stamp.ROOT / "docs/results/steer.md"
    path.write_text(document(json.loads(raw.read_text())))


if __name__ == "__main__":
    main()
