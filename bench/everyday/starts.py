"""First and third starts under the launch service.

A program with a profile that was recorded by hand, and one that was only started before; and what the service costs an exec of a program of which it
has no profile.
"""

import statistics

import programs as copies
import rig
from service import Service, Store
from shared import interleaved, output, run, say

PROGRAMS = ["python3 data.py", "git status", "node pack.js", "cc1", "vim.basic"]
KINDS = [copies.python_starts, copies.git_starts, copies.node_starts, copies.other_starts]
RUN, FIRST, THIRD = "`ahead run`", "`aheadd`, recorded by hand", "`aheadd`, third start"
WAYS = ["nothing", RUN, FIRST, THIRD, "warm"]
SERVED = [FIRST, THIRD]
# Shares of the gain of `ahead run`.
GOALS = {FIRST: 0.9, THIRD: 0.8}
EXECS = 2000
# Of an exec without a profile, milliseconds.
GOAL_MEAN_MS, GOAL_MOST_MS = 0.2, 2


class Bench:
    def __init__(self, programs, place, start, recorded, profile):
        self.programs, self.place, self.start, self.recorded, self.profile = programs, place, start, recorded, profile

    def cold_start(self, prefix=()):
        rig.make_cold(self.place, [self.programs.ahead, "--version"])
        before = self.place.reads()
        took_s = rig.started(self.start, prefix=prefix)
        after = self.place.reads()
        return {"s": took_s, "requests": after[0] - before[0], "bytes": after[1] - before[1]}

    def third_start(self):
        with Store() as store, Service(self.programs, store):
            for number in (1, 2):
                self.cold_start()
                store.wait_for(self.programs, number, number - 1)
            return self.cold_start()

    def measure(self, way):
        if way == RUN:
            return self.cold_start([self.programs.ahead, "run", "-p", self.profile, "--"])
        if way == FIRST:
            with Store() as store, Service(self.programs, store.copy_of(self.recorded)):
                return self.cold_start()
        if way == THIRD:
            return self.third_start()
        if way == "warm":
            rig.started(self.start)
            return {"s": rig.started(self.start), "requests": 0, "bytes": 0}
        return self.cold_start()


def execs(programs, program, recorded, way):
    """Times of starts of a program without a profile, us: mean, and the longest."""
    with Store() as store, Service(programs, store.copy_of(recorded) if way == "aheadd" else None):
        times = [float(line) for line in output(program, EXECS).split()]
    return {"mean": statistics.mean(times), "median": statistics.median(times), "most": max(times)}


def measure(programs, model, options):
    rows, wanted = [], [way for way in WAYS if way not in SERVED or programs.service.exists()]
    with rig.disk_of(programs, model) as place:
        starts = [start for start in copies.copy_programs(place.directory, KINDS) if start.name in PROGRAMS]
        for start in starts:
            with Store() as recorded:
                bench = Bench(programs, place, start, recorded, recorded.pin(programs, start))
                ways = interleaved(wanted, options.rounds, bench.measure)
            say(model, start.name, {way: [round(one["s"], 4) for one in all] for way, all in ways.items()})
            rows.append({"program": start.name, "ways": ways})
        program = place.directory / "execs"
        run("cc", "-O2", "-static", "-o", program, rig.HERE / "execs.c")
        with Store() as recorded:
            recorded.pin(programs, starts[0])
            ways = ["nothing", "aheadd"] if programs.service.exists() else ["nothing"]
            rows.append({"execs": interleaved(ways, options.rounds, lambda way: execs(programs, program, recorded, way))})
    return rows


def gain(row, way):
    median = {name: statistics.median(one["s"] for one in all) for name, all in row["ways"].items()}
    return median["nothing"] - median[way]


def lines(results):
    goals = ", ".join(f"{way} {goal}" for way, goal in GOALS.items())
    yield from [f"Cold starts by a user without rights, medians (lowest to highest). Goals, as shares of the gain of `ahead run`: {goals}. The third start",
                "follows two cold ones, of which the service saw the first, and recorded the second.", "",
                "| disk | program | way | ms | gain, ms | of the gain of `ahead run` | requests |", "|---|---|---|---|---|---|---|"]
    for disk, rows in results.items():
        for row in (row for row in rows if "ways" in row):
            for way, all in row["ways"].items():
                share = gain(row, way) / gain(row, RUN) if gain(row, RUN) > 0 else None
                missed = " ✗" if way in GOALS and share is not None and share < GOALS[way] else ""
                of_run = f"{share:.2f}{missed}" if way in GOALS and share is not None else "–"
                yield (f"| `{disk}` | {row['program']} | {way} | {rig.spread_ms(all)} | {gain(row, way) * 1e3:.1f} | {of_run} | "
                       f"{statistics.median(one['requests'] for one in all):.0f} |")
    yield from ["", f"{EXECS} execs of a static program without a profile, one after the other, while the service has a profile of another program. Medians of",
                f"the rounds. Goal: {GOAL_MEAN_MS} ms on average and {GOAL_MOST_MS} ms at most beyond those without it.", "",
                "| disk | service | mean, ms | median, ms | longest, ms |", "|---|---|---|---|---|"]
    for disk, rows in results.items():
        for row in (row for row in rows if "execs" in row):
            value = {way: {key: statistics.median(one[key] for one in all) / 1e3 for key in all[0]} for way, all in row["execs"].items()}
            for way, of in value.items():
                missed = {key: " ✗" if of[key] - value["nothing"][key] > goal else "" for key, goal in (("mean", GOAL_MEAN_MS), ("most", GOAL_MOST_MS))}
                yield f"| `{disk}` | {way} | {of['mean']:.3f}{missed['mean']} | {of['median']:.3f} | {of['most']:.3f}{missed['most']} |"
