"""Cold and warm, by `ahead cold` and by `ahead compare`."""

import functools
import json
import statistics

import rig
import table
from shared import interleaved, output, say

WAYS = ["compare", "cold", "cold without root"]


def measure_way(ahead, way, command, profile, runs):
    """Medians of cold and warm, s, and what stayed cached."""
    if way == "compare":
        result = json.loads(output(ahead, "compare", "--json", "--no-reference", "--runs", runs, "-p", profile, "--", *command))
        return result["cold"]["median_s"], result["warm"]["median_s"], result["cold_state"]
    user = rig.NO_RIGHTS if way == "cold without root" else []
    result = json.loads(output(*user, ahead, "cold", "--json", "--runs", runs, "--", *command))
    cold, warm = result["results"]
    return cold["median"], warm["median"], result["cold_state"]


def measure(programs, model, options):
    rows = []
    with rig.disk_of(programs, model) as place:
        commands = {"python3 -c 'import json'": [*rig.copy_python(place.directory), "-c", "import json"],
                    "git status": [*rig.make_repository(place.directory), "status", "--short"]}
        rig.readable_to_all(place.directory)
        for name, command in commands.items():
            profile = programs.home / "cold.ahead"
            output(programs.ahead, "record", "--cold", "-o", profile, "--", *command)
            once = functools.partial(measure_way, programs.ahead, command=command, profile=profile, runs=options.runs)
            ways = interleaved(WAYS, options.rounds, lambda way: rig.undisturbed(lambda: once(way)))
            say(model, name, {way: [[round(s, 4) for s in one[:2]] for one in all] for way, all in ways.items()})
            rows.append({"command": name, "runs": options.runs, "ways": ways})
    return rows


def lines(results):
    runs = " or ".join(sorted({str(row["runs"]) for rows in results.values() for row in rows}))
    yield from table.paragraph(f"""Each round measures each way by {runs} cold and as many warm starts, in turn; medians of their medians
        (lowest to highest): a difference within that range is none. Goal: `cold` within 3 % of `compare`; without root within 5 %, or a
        reason. Without root it cannot evict names and inodes.""")
    yield from table.head("disk", "command", "by", "cold, ms", "to compare", "warm, ms", "to compare", "stayed cached")
    for disk, rows in results.items():
        for row in rows:
            medians = {way: [statistics.median(one[index] for one in all) for index in (0, 1)] for way, all in row["ways"].items()}
            for way, all in row["ways"].items():
                times = [table.spread([one[index] * 1e3 for one in all]) for index in (0, 1)]
                to_compare = [f"{100 * (own / base - 1):+.1f} %" for own, base in zip(medians[way], medians["compare"])]
                state = all[-1][2]
                kept = f"{state['kept_bytes'] / 2**20:.1f} MiB"
                kept += f", {state['unknown_bytes'] / 2**20:.1f} MiB unknown" if state["unknown_bytes"] else ""
                yield table.row(f"`{disk}`", f"`{row['command']}`", way, times[0], to_compare[0], times[1], to_compare[1], kept)
