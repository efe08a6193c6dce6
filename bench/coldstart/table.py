#!/usr/bin/env python3
"""Makes docs/results/coldstart.md, its pictures and docs/results/overhead.md from what run.py and ../overhead/run.py measured.

    table.py            writes them
    table.py --check    compares them with the committed ones; status 1 if one differs

The same raw figures (bench/results/*.json) give the same bytes.
"""

import json
import pathlib
import statistics
import sys

import picture

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import stamp  # noqa: E402

RAW = HERE.parent / "results"
RESULTS = stamp.ROOT / "docs/results"
# Of the recovered share, by disk on ext4; on other file systems OTHER_GOAL.
GOALS = {"hdd": 0.9, "cloud": 0.9, "ssd": 0.85}
OTHER_GOAL = 0.8
# Of the programs of others.toml.
UNSEEN_GOAL = 0.85
# A result this near the bound reaches the goal, too, seconds.
NEAR_S = 0.010
DISKS = {"hdd": "7200 rpm disk", "cloud": "network volume", "ssd": "SATA SSD"}
ABOUT = """\
Each round runs every program cold, with each prefetcher, and warm, in turn. Before every run but the warm one all caches are
dropped. Times include loading the list or profile, the head start, the prefetch, and the program to its end.

| column | meaning |
|---|---|
| cold, warm | median without a prefetcher: nothing cached, everything cached |
| vmtouch | `vmtouch -t` on the files of the profile |
| list | one `readahead()` for each whole file, in order of first use (BusyBox `readahead`) |
| sorted | the same, sorted by device, first block and inode (Ubuntu `readahead-list`) |
| ahead | `ahead run`: median (minimum–maximum) |
| bound | a lower bound for every schedule (docs/decisions/0079-bound.md); no schedule may reach it |
| recovered | (cold − ahead) / (cold − bound); ✗: below the goal, and more than 10 ms above the bound |
| wasted, bridged | shares of the prefetched bytes, from one more recorded run that is not timed |
| device requests | reads of the device: cold → with `ahead` |
| evicted | largest amount that the kernel evicted during one run cold / with `ahead` / warm |
| best | `ahead` is faster than every other prefetcher |

[Missed goals](missed.md#cold-start) names the cause of each goal that is missed.
"""


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


def below_bound(result):
    """The ways whose fastest run is below the lower bound: that is a fault of the bound."""
    bound = result["bound_s"]
    return [kind for kind in ("cold", "ahead") if bound is not None and result[kind]["min_s"] < bound]


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
    is_near = result["bound_s"] is not None and own <= result["bound_s"] + NEAR_S
    reached = is_near or result["recovered_share"] is not None and result["recovered_share"] >= goal
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


def goal_of(results):
    if is_unseen(results):
        return UNSEEN_GOAL
    return GOALS.get(results["model"], OTHER_GOAL) if results["fs"] == "ext4" else OTHER_GOAL


def is_unseen(results):
    return results.get("suite") == "others"


def title_of(results):
    return f"{results['model']}, {results['fs']}" + (", other programs" if is_unseen(results) else "")


def table(results):
    programs = results["programs"]
    goal = goal_of(results)
    names = [rival["name"] for rival in programs[0]["result"]["against"]]
    head = ["program", "cold s", *[f"{name} s" for name in names], "ahead s", "warm s", "bound s", "recovered",
            "prefetched MiB", "wasted", "bridged", "device requests", "evicted MiB", "best"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row(program, goal)) + " |" for program in programs]
    speedups = [program["result"]["speedup"] for program in programs]
    speedup = geometric_mean([speedup for speedup in speedups if speedup is not None])
    lost = sum(program["profile"]["lost_events"] for program in programs)
    first = programs[0]["result"]
    name = stem(results)
    return [
        f"## {title_of(results)}",
        "",
        f"Commit {results['commit']}, {results['date']}, {first['machine']}, Linux {first['kernel']}, "
        f"`read_ahead_kb` {first['read_ahead_kb']}, {first['runs']} rounds. Geometric mean of the speed-ups: **{speedup:.2f}**. "
        f"Goal for the recovered share: {goal}. Events lost while recording: {lost}."
        + (" **Beyond this rig**: the emulated disk could not serve every request in the model's time." if first["beyond_rig"] else ""),
        "",
        *picture_of(name, f"Cold start on {title_of(results)}"),
        "",
        *lines,
        "",
    ]


def stem(results):
    suite = "others-" if is_unseen(results) else ""
    return f"coldstart-{suite}{results['model']}-{results['fs']}"


def picture_of(name, text, path=""):
    """The picture for light and dark pages."""
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{path}{name}-dark.svg">',
        f'  <img src="{path}{name}-light.svg" alt="{text}" width="420">',
        "</picture>",
    ]


def pictures(results):
    """The pictures of one disk, by file name."""
    programs = []
    for program in results["programs"]:
        result = program["result"]
        programs.append({
            "name": program["program"],
            "cold": result["cold"]["median_s"],
            "ahead": result["ahead"]["median_s"],
            "bound": result["bound_s"],
            "rivals": {rival["name"]: rival["median_s"] for rival in result["against"] if not has_failed(rival)},
        })
    title = f"Cold start, {DISKS.get(results['model'], results['model'])}, {results['fs']}" + (", other programs" if is_unseen(results) else "")
    return {f"{stem(results)}-{theme}.svg": picture.draw(title, programs, theme) for theme in ("light", "dark")}


def overhead(results):
    """What `ahead` costs where it gains nothing."""
    machine = f"Linux {results['kernel']}"
    lines = [
        *stamp.heading("Overhead where nothing is gained", "bench/overhead/run.py; bench/coldstart/table.py", results["commit"],
                       results["date"], machine),
        f"Everything is cached. Medians of {results['runs']} rounds of plain, run and recorded, in turn.",
        "",
        "- run: additional time of `ahead run`, loading the profile included. Goal: at most 1 % + 3 ms.",
        "- record: exec to exit under `ahead record`, timed by the same parent process, without the set-up. Goal: at most 5 %.",
        f"- 4 KiB reads: a loop of {results['loop_reads']:,} reads of 4 KiB and nothing else; no goal.",
        "",
        "| program | warm s | run | record (quartiles) | events lost |",
        "|---|---|---|---|---|",
    ]
    for row in results["programs"]:
        more, plain = row["run_more_s"], row["plain_s"]
        low, high = (100 * (ratio - 1) for ratio in row["recorded_ratio_quartiles"])
        run = f"{1e3 * more:+.1f} ms" + ("" if more <= 0.01 * plain + 0.003 else " ✗")
        recorded = 100 * (row["recorded_ratio"] - 1)
        is_loop = row is results["programs"][-1]
        record = f"{recorded:+.1f} % ({low:+.1f} to {high:+.1f})" + ("" if recorded <= 5 or is_loop else " ✗")
        lines.append(f"| {row['program']} | {plain:.3f} | {run} | {record} | {row['lost_events']} |")
    return "\n".join(lines) + "\n"


def summary(every):
    """Geometric mean of cold time by each prefetcher's time, for each disk."""
    names = list(dict.fromkeys(rival["name"] for results in every for rival in results["programs"][0]["result"]["against"]))
    lines = [
        "## Summary",
        "",
        "Geometric mean over the programs of the cold time by the time with each prefetcher (above 1: faster than cold).",
        "",
        "| disk | " + " | ".join([*names, "ahead"]) + " | most wasted |",
        "|---" * (len(names) + 3) + "|",
    ]
    for results in every:
        cells = []
        for name in [*names, None]:
            ratios = []
            for program in results["programs"]:
                result = program["result"]
                rivals = [rival for rival in result["against"] if rival["name"] == name and not has_failed(rival)]
                other = result["ahead"] if name is None else rivals[0] if rivals else None
                if other:
                    ratios.append(result["cold"]["median_s"] / other["median_s"])
            cells.append(f"{geometric_mean(ratios):.2f}" if ratios else "–")
        waste = max(one["result"]["wasted_bytes"] / max(1, one["result"]["prefetched_bytes"]) for one in results["programs"])
        lines.append(f"| {title_of(results)} | " + " | ".join(cells) + f" | {100 * waste:.1f} % |")
    return [*lines, ""]


def documents():
    """Every document and picture, by file name."""
    order = {"hdd": 0, "cloud": 1, "ssd": 2}
    every = [json.loads(file.read_text()) for file in RAW.glob("coldstart-*.json")]
    every.sort(key=lambda results: (is_unseen(results), order.get(results["model"], 9), results["fs"]))
    made, lines = {}, []
    for results in every:
        wrong = [program["program"] for program in results["programs"] if below_bound(program["result"])]
        if wrong:
            sys.exit(f"table.py: {title_of(results)}: faster than the lower bound: {', '.join(wrong)}")
        made.update(pictures(results))
        lines += table(results)
    head = [
        "# Cold start of nine programs",
        "",
        "Generated by `make bench-coldstart` (bench/coldstart/run.py, table.py) from bench/results/coldstart-\\*.json; do not edit.",
        "",
        "Nine programs in a Debian tree on an emulated disk (bench/README.md). \"Other programs\" are recorded once, at their first start "
        "(bench/coldstart/others.toml). They were chosen after the plans were developed, with one exception: gitlog on hdd was slower than without "
        "a prefetch, the cause was removed, and its figures on hdd are from after that.",
        ABOUT,
    ]
    made["coldstart.md"] = "\n".join([*head, *summary(every), *lines]).rstrip() + "\n"
    made["overhead.md"] = overhead(json.loads((RAW / "overhead.json").read_text()))
    return made


def main():
    is_check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not is_check:
        sys.exit(f"usage: {pathlib.Path(sys.argv[0]).name} [--check]")
    made, differ = documents(), []
    for name, text in made.items():
        path = RESULTS / name
        if not is_check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            differ.append(str(path.relative_to(stamp.ROOT)))
    if is_check:
        differ += [str(path.relative_to(stamp.ROOT)) for path in RESULTS.glob("coldstart-*.svg") if path.name not in made]
    if differ:
        sys.exit(f"bench/coldstart/table.py --check: not generated from bench/results: {', '.join(differ)}; run bench/coldstart/table.py")


if __name__ == "__main__":
    main()
