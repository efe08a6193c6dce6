#!/usr/bin/env python3
"""Makes docs/benchmarks.md from what run.py and ../overhead/run.py measured.

    table.py [RESULTS_DIR] > docs/benchmarks.md
"""

import json
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Files of other benchmarks, with a heading where they bring none.
OTHERS = {
    "sim.md": None,
    "speed.md": None,
    "conform.md": None,
    "probe.md": None,
    "tune.md": "## The window that tune recommends",
    "live-cloud.md": "## Policies against the real page cache",
    "live-hdd.md": "## Policies against the real page cache, on a rotating disk",
    "live-emmc.md": "## Policies against the real page cache, on an eMMC",
    "live-ssd.md": "## Policies against the real page cache, on a SATA SSD",
    "fio.md": "## ahead bench beside fio",
}
GOALS = {"hdd": 0.85, "cloud": 0.85, "ssd": 0.80}


def share(value):
    return "–" if value is None else f"{value:.2f}"


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def geometric_mean(values):
    return statistics.geometric_mean([value for value in values if value > 0])


def has_failed(rival):
    return rival.get("status", 0) != 0


def rival_time(rival):
    """What a rival took; the time of one that failed means nothing."""
    return "failed" if has_failed(rival) else f"{rival['median_s']:.2f}"


def best(result):
    """Whether ahead was faster than every rival that took part."""
    rivals = [rival for rival in result["against"] if not has_failed(rival)]
    if not rivals:
        return "–"
    faster = sorted(rival["name"] for rival in rivals if rival["median_s"] <= result["ahead"]["median_s"])
    return "not " + ", ".join(faster) if faster else "yes"


def evicted(result):
    """The most that a run cold, with ahead and warm lost of the cache to the kernel, MiB."""
    lost = [result[kind].get("evicted_bytes") for kind in ("cold", "ahead", "warm")]
    return " / ".join("–" if bytes is None else f"{bytes / (1 << 20):.1f}" for bytes in lost)


def row(program, goal):
    result = program["result"]
    fetched = result["prefetched_bytes"]
    own = result["ahead"]["median_s"]
    reached = result["recovered_share"] is not None and result["recovered_share"] >= goal
    cells = [
        program["program"],
        f"{result['cold']['median_s']:.2f}",
        *[rival_time(rival) for rival in result["against"]],
        f"**{own:.2f}** ({result['ahead']['min_s']:.2f}–{result['ahead']['max_s']:.2f})",
        f"{result['warm']['median_s']:.2f}",
        f"{result['bound_s']:.2f}" if result["bound_s"] is not None else "–",
        share(result["recovered_share"]) + ("" if reached else " ✗"),
        f"{fetched / (1 << 20):.1f}",
        percent(result["wasted_bytes"], fetched),
        percent(result["bridged_bytes"], fetched),
        f"{result['cold']['device']['requests']} → {result['ahead']['device']['requests']}",
        evicted(result),
        best(result),
    ]
    return cells


def table(results):
    programs = results["programs"]
    goal = GOALS.get(results["model"], 0.8)
    names = [rival["name"] for rival in programs[0]["result"]["against"]]
    head = ["program", "cold s", *[f"{name} s" for name in names], "ahead s", "warm s", "bound s", "recovered",
            "prefetched MiB", "wasted", "bridged", "device requests", "evicted MiB", "best"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row(program, goal)) + " |" for program in programs]
    speedup = geometric_mean([program["result"]["speedup"] for program in programs])
    lost = sum(program["profile"]["lost_events"] for program in programs)
    first = programs[0]["result"]
    return "\n".join([
        f"### {results['model']}, {results['fs']}",
        "",
        f"Linux {first['kernel']}, {first['machine']}, `read_ahead_kb` {first['read_ahead_kb']}, {first['runs']} rounds. "
        f"Geometric mean of the speed-ups: **{speedup:.2f}**. Goal for the recovered share: {goal}; ✗ where it is missed. "
        f"Events lost while recording: {lost}."
        + (" **Beyond this rig**: the disk could not serve as its model says." if first["beyond_rig"] else ""),
        "",
        *lines,
    ])


def overhead(results):
    """What ahead costs where it gains nothing."""
    lines = [
        "## Where there is nothing to gain",
        "",
        f"Everything cached, Linux {results['kernel']}, medians of {results['runs']} rounds of plain, run and recorded in turn "
        "(`bench/overhead`). **run**: what `ahead run` takes more than the program alone, loading the profile included; goal: at "
        "most 2 % + 5 ms. **record**: exec to exit under `ahead record`, both timed by the same parent process, set-up apart; "
        "goal: at most 5 %. "
        f"The last row is the hardest case for an observer: {results['loop_reads']:,} reads of 4 KiB that do nothing else.",
        "",
        "| program | warm s | run | record (middle half) | events lost |",
        "|---|---|---|---|---|",
    ]
    for row in results["programs"]:
        more, plain = row["run_more_s"], row["plain_s"]
        low, high = (100 * (ratio - 1) for ratio in row["recorded_ratio_quartiles"])
        run = f"{1e3 * more:+.1f} ms" + ("" if more <= 0.02 * plain + 0.005 else " ✗")
        recorded = 100 * (row["recorded_ratio"] - 1)
        is_loop = row is results["programs"][-1]
        record = f"{recorded:+.1f} % ({low:+.1f} to {high:+.1f})" + ("" if recorded <= 5 or is_loop else " ✗")
        lines.append(f"| {row['program']} | {plain:.3f} | {run} | {record} | {row['lost_events']} |")
    return "\n".join(lines)


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results"
    print((HERE / "about.md").read_text())
    order = {"hdd": 0, "cloud": 1, "ssd": 2}
    files = sorted(directory.glob("coldstart-*.json"), key=lambda f: (order.get(f.stem.split("-")[1], 9), f.name))
    for file in files:
        print(table(json.loads(file.read_text())))
        print()
    print((HERE / "limits.md").read_text())
    measured = directory / "overhead.json"
    if measured.exists():
        print(overhead(json.loads(measured.read_text())))
    # What other benchmarks have written, or was written of them.
    for other, heading in OTHERS.items():
        if (directory / other).exists():
            text = (directory / other).read_text()
            if heading:
                # Their parts lie below the heading that they get here.
                text = f"{heading}\n\n" + text.replace("\n## ", "\n### ")
            print()
            print(text, end="")


if __name__ == "__main__":
    main()
