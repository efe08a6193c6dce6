#!/usr/bin/env python3
"""Makes docs/results/library.md from bench/results/library.json (run.py).

    table.py [JSON [DOCUMENT]]

The same figures give the same bytes.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stamp  # noqa: E402
from figures import judged, median, ratios, spread, table  # noqa: E402

MIB = 1 << 20
DISKS = {"hdd": "7200 rpm disk", "ssd": "SATA SSD", "emmc": "eMMC", "cloud": "network volume", "own": "a disk of this machine"}
# Elapsed time by max(processor, device), for the ways of the library.
GOAL_ONE = 1 / 0.98
# Ways of part a that belong to the library, and have the goal.
OURS = {"ahead", "ahead, direct", "mmap, advise"}
# Time by that of the plain way: a Reader, an advised scan (at least as fast, to the second digit), opened files.
GOAL_READ, GOAL_SCAN, GOAL_OPEN = 1.03, 1.005, 1.05
# Share of the device's bandwidth; on a rotating disk of what turns of 1 MiB allow. Slowest reader by the mean.
GOAL_MANY, GOAL_TURNS, GOAL_SLOWEST = 0.95, 0.9, 0.5
# Files per second by one thread and by 16, memory by that of 16 threads.
GOAL_LOADER, GOAL_THREADS, GOAL_MEMORY = 3, 1, 0.1
# Share of the device's bandwidth in a merge; time by that of GNU sort.
GOAL_MERGE, GOAL_SORT = {"cloud": 0.95, "hdd": 0.85}, 1


def about(model, part):
    window = part["read_ahead_kb"]
    kernel = f"kernel's window {window} KiB" if window is not None else "no kernel's window"
    return (f"`{model}`, {DISKS[model]}: {part['size_bytes'] // MIB} MiB, {part['rounds']} rounds, {kernel}, direct reads by {part['direct']}, "
            f"commit {part['commit']}, {part['date']}.")


def one_reader(results):
    lines = ["## One reader that computes", "",
             "Elapsed time by the larger of the device's time (direct reads of the same file in the same round) and the processor's time (the same",
             f"program on the cached file: plain reads, and a plain mapping for `mmap`). Goal of the library's ways: at most {GOAL_ONE:.3f}. Idle: the",
             "share of the elapsed time in which neither limits `ahead`; O'Connor and Tracy had 10 %. `cpu/device` is measured; the request is in",
             "parentheses. Median (lowest–highest).", ""]  # fmt: skip
    for model, part in results.items():
        rows = []
        for row in part["figures"]:
            bounds = {way: [max(cpu_s, device_s) for device_s in row["device_s"]] for way, cpu_s in row["cpu_s"].items()}
            cells = {way: ratios(all_s, bounds[way]) for way, all_s in row["elapsed_s"].items()}
            cpu_s = row["cpu_s"]["ahead"]
            idle = 100 * (1 - 1 / median(cells["ahead"]))
            rows.append([f"{cpu_s / median(row['device_s']):.2f} ({row['ratio']})", f"{median(row['device_s']):.2f}", f"{cpu_s:.2f}",
                         f"{idle:.1f} %",
                         *(judged(values, 3, most=GOAL_ONE if way in OURS else None) for way, values in cells.items())])
        ways = list(part["figures"][0]["elapsed_s"])
        lines += [about(model, part), "", *table(["cpu/device", "device, s", "cpu, s", "idle", *ways], rows)]
    return lines


def cached_files(results):
    lines = ["## Already cached", "", "Time with the library by that without it, in pairs. Median (lowest–highest).", ""]
    for model, part in results.items():
        figures = part["figures"]
        rows = [[f"`Reader`, reads of {buffer}", f"{1e3 * median(all_of['plain']):.0f} ms", judged(ratios(all_of["ahead"], all_of["plain"]), 3, most=GOAL_READ),
                 f"≤ {GOAL_READ}"] for buffer, all_of in figures["reads"].items()]  # fmt: skip
        scans = figures["scans"]
        plain = f"{1e3 * median(scans['none']):.0f} ms"
        rows.append(["`advise`, scan", plain, judged(ratios(scans["ahead"], scans["none"]), 3, most=GOAL_SCAN), "≤ 1.00"])
        rows.append(["`MADV_SEQUENTIAL`, scan", plain, spread(ratios(scans["kernel-sequential"], scans["none"]), 3), ""])
        for what, all_of in figures["loads"].items():
            goal = GOAL_OPEN if what == "open" else None
            rows.append([f"`Prefetcher`, {what} {figures['files']} files", f"{1e3 * median(all_of['plain']):.0f} ms",
                         judged(ratios(all_of["ahead"], all_of["plain"]), 3, most=goal), f"≤ {goal}" if goal else ""])
        lines += [about(model, part), "", *table(["what", "without", "ratio", "goal"], rows)]
    return lines


def many_readers(results):
    lines = ["## 64 readers within 64 MiB", "",
             f"Bandwidth of all readers by direct reads of the same files one after the other (goal {GOAL_MANY}), and by direct reads that take turns of",
             f"1 MiB between the files (goal on `hdd`: {GOAL_TURNS}); the slowest reader by the mean (goal {GOAL_SLOWEST}). Median (lowest–highest).", ""]  # fmt: skip
    rows = []
    for model, part in results.items():
        figures = part["figures"]
        turns = figures["turns"] if None not in figures["turns"] else None
        for way in ("ahead", "fadvise", "plain"):
            rates = [one["bytes_per_s"] for one in figures[way]]
            ours = way == "ahead"
            by_direct = judged(ratios(rates, figures["direct"]), 3, least=GOAL_MANY if ours and model in ("cloud", "ssd", "emmc") else None)
            by_turns = judged(ratios(rates, turns), 3, least=GOAL_TURNS if ours and model == "hdd" else None) if turns else "–"
            slowest = judged([one["slowest_by_mean"] for one in figures[way]], least=GOAL_SLOWEST if ours else None)
            rows.append([f"`{model}`", way, f"{median(figures['direct']) / 1e6:.1f}", f"{median(turns) / 1e6:.1f}" if turns else "–",
                         f"{median(rates) / 1e6:.1f}", by_direct, by_turns, slowest])
    head = ["disk", "way", "direct, MB/s", "turns, MB/s", "readers, MB/s", "by direct", "by turns", "slowest"]
    return lines + [about(model, part) + "  " for model, part in results.items()] + ["", *table(head, rows)]


def shuffled_files(results):
    low, high = 16, 64
    lines = ["## Small files in random but known order", "",
             f"Files of {low} to {high} KiB, read whole. Goals on `hdd` and `cloud`: {GOAL_LOADER} × the plain loop, as many files per second as 16 threads,",
             f"and {GOAL_MEMORY} of their memory (the peak of resident memory above that of the plain loop). Median (lowest–highest).", ""]  # fmt: skip
    rows = []
    for model, part in results.items():
        ways = part["figures"]["ways"]
        rates = {way: [one["files_per_s"] for one in all_of] for way, all_of in ways.items()}
        memory = {way: [one["peak_memory_bytes"] / MIB for one in all_of] for way, all_of in ways.items()}
        above = {way: [max(0, used - base) for used, base in zip(values, memory["plain"])] for way, values in memory.items()}
        goal = model in ("hdd", "cloud")
        by_threads = [ours / max(theirs, 1e-3) for ours, theirs in zip(above["ahead"], above["16 threads"])]
        rows.append([f"`{model}`", str(part["figures"]["files"]), *(f"{median(values):.0f}" for values in rates.values()),
                     judged(ratios(rates["ahead"], rates["plain"]), least=GOAL_LOADER if goal else None),
                     judged(ratios(rates["ahead"], rates["16 threads"]), least=GOAL_THREADS if goal else None),
                     " / ".join(f"{median(values):.1f}" for values in memory.values()), judged(by_threads, most=GOAL_MEMORY if goal else None)])
    head = ["disk", "files", "plain, files/s", "16 threads", "ahead", "by plain", "by threads", "peak memory, MiB: plain / 16 threads / ahead",
            "memory by threads"]
    return lines + [about(model, part) + "  " for model, part in results.items()] + ["", *table(head, rows)]


def external_sort(results):
    lines = ["## External sort", "",
             "Bytes per second that the merge reads, from evicted runs, by direct reads of the input. Goals: "
             + ", ".join(f"`{model}` {goal}" for model, goal in GOAL_MERGE.items()) + ". Median (lowest–highest).", ""]  # fmt: skip
    rows = []
    for model, part in results.items():
        merge = part["figures"]["merge"]
        shares = {way: ratios([one["merge_bytes_per_s"] for one in merge[way]], merge["direct"]) for way in ("ahead", "fadvise", "plain")}
        rows.append([f"`{model}`", f"{part['figures']['memory_bytes'] // MIB}", str(merge["ahead"][0]["runs"]), f"{median(merge['direct']) / 1e6:.1f}",
                     judged(shares["ahead"], 3, least=GOAL_MERGE.get(model)), spread(shares["fadvise"], 3), spread(shares["plain"], 3)])
    lines += [about(model, part) + "  " for model, part in results.items()]
    lines += ["", *table(["disk", "memory, MiB", "runs", "direct, MB/s", "ahead", "fadvise", "plain"], rows)]
    for model, part in results.items():
        whole_s = part["figures"].get("whole_s")
        if whole_s:
            rows = [[way, spread(all_s), judged(ratios(whole_s["ahead"], all_s), most=GOAL_SORT) if way.startswith("GNU") else ""] for way, all_s in whole_s.items()]
            lines += [f"The whole sort on `{model}`, with the same memory (`sort -S`, LC_ALL=C). Goal of the ratio: at most {GOAL_SORT}.", "",
                      *table(["way", "time, s", "ahead by it"], rows)]
    return lines


def index_scan(results):
    lines = ["## Index scan", "", "Rows of an SQLite table in the order of an index: rows per second after the index was read. Median (lowest–highest).", ""]
    rows = []
    for model, part in results.items():
        rates = {way: [one["rows_per_s"] for one in all_of] for way, all_of in part["figures"].items()}
        rows.append([f"`{model}`", str(part["figures"]["ahead"][0]["rows"]), spread(rates["plain"], 0), spread(rates["ahead"], 0),
                     spread(ratios(rates["ahead"], rates["plain"]))])
    return lines + [about(model, part) + "  " for model, part in results.items()] + [
        "", *table(["disk", "rows", "plain, rows/s", "ahead, rows/s", "ratio"], rows)]


SECTIONS = {"a": one_reader, "b": cached_files, "c": many_readers, "d": shuffled_files, "e": external_sort, "f": index_scan}


def document(results):
    lines = stamp.heading("Read-ahead as a library", "make bench-library", results["commit"], results["date"], results["machine"])
    lines += ["The programs of [examples/rust](../../examples/rust), each with plain reads, with the kernel's advice and with the library: `ahead` is",
              "`Reader` or `Prefetcher`. Disks are emulated except `own`. Every run is cold except those of cached files. ✗: the goal is missed.", ""]
    for letter, section in SECTIONS.items():
        if letter in results:
            lines += section({model: results[letter][model] for model in DISKS if model in results[letter]})
    return "\n".join(lines).rstrip("\n") + "\n"


def main():
    raw = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results/library.json"
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else stamp.ROOT / "docs/results/library.md"
    path.write_text(document(json.loads(raw.read_text())))


if __name__ == "__main__":
    main()
