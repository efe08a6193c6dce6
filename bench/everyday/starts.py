"""First and third starts under the launch service.

A program with a profile that was recorded by hand, and one that was only started before; and what the service costs an exec of a program of which it
has no profile.
"""

import statistics

import programs as copies
import rig
import table
from service import Service, Store
from shared import interleaved, output, run, say

PROGRAMS = ["python3 data.py", "git status", "node pack.js", "cc1", "vim.basic"]
KINDS = [copies.python_starts, copies.git_starts, copies.node_starts, copies.other_starts]
NOTHING, RUN, WARM = "nothing", "`ahead run`", "warm"
FIRST, THIRD = "`aheadd`, recorded by hand", "`aheadd`, third start"
WAYS = [NOTHING, RUN, FIRST, THIRD, WARM]
SERVED = "`aheadd`"
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
        rig.check_alone()
        return {"s": took_s, "requests": after[0] - before[0], "bytes": after[1] - before[1]}

    def first_start(self):
        with Store() as store, Service(self.programs, store.copy_of(self.recorded)):
            return self.cold_start()

    def third_start(self):
        with Store() as store, Service(self.programs, store):
            for number in (1, 2):
                self.cold_start()
                store.wait_for(self.programs, number, number - 1)
            return self.cold_start()

    def warm_start(self):
        rig.started(self.start)
        return {"s": rig.started(self.start), "requests": 0, "bytes": 0}

    def measure(self, way):
        by_run = [self.programs.ahead, "run", "-p", self.profile, "--"]
        ways = {NOTHING: self.cold_start, RUN: lambda: self.cold_start(by_run), FIRST: self.first_start, THIRD: self.third_start,
                WARM: self.warm_start}
        return rig.undisturbed(ways[way])


def execs(programs, program, recorded, way):
    """Times of starts of a program without a profile, us: mean, and the longest."""
    with Store() as store, Service(programs, store.copy_of(recorded) if way == SERVED else None):
        times = [float(line) for line in output(program, EXECS).split()]
    return {"mean": statistics.mean(times), "median": statistics.median(times), "most": max(times)}


def measure(programs, model, options):
    rows, wanted = [], [way for way in WAYS if way not in GOALS or programs.service.exists()]
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
            ways = [NOTHING, SERVED] if programs.service.exists() else [NOTHING]
            rows.append({"execs": interleaved(ways, options.rounds,
                                               lambda way: rig.undisturbed(lambda: execs(programs, program, recorded, way)))})
    return rows


def gain(row, way):
    return table.median(row["ways"][NOTHING], "s") - table.median(row["ways"][way], "s")


def lines(results):
    goals = ", ".join(f"{way} {goal}" for way, goal in GOALS.items())
    yield from table.paragraph(f"""Cold starts by a user without rights, medians (lowest to highest). Goals, as shares of the gain of `ahead
        run`: {goals}. The third start follows two cold ones, of which the service saw the first, and recorded the second.""")
    yield from table.head("disk", "program", "way", "ms", "gain, ms", "of the gain of `ahead run`", "requests")
    for disk, rows in results.items():
        for row in (row for row in rows if "ways" in row):
            of_run = gain(row, RUN)
            for way, all in row["ways"].items():
                is_compared = way in GOALS and of_run > 0
                share = table.marked(f"{gain(row, way) / of_run:.2f}", gain(row, way) / of_run < GOALS[way]) if is_compared else "–"
                yield table.row(f"`{disk}`", row["program"], way, table.spread_ms(all), f"{gain(row, way) * 1e3:.1f}", share,
                                f"{table.median(all, 'requests'):.0f}")
    yield ""
    yield from table.paragraph(f"""{EXECS} execs of a static program without a profile, one after the other, while the service has a profile
        of another program. Medians of the rounds. Goal: {GOAL_MEAN_MS} ms on average and {GOAL_MOST_MS} ms at most beyond those without it.""")
    yield from table.head("disk", "service", "mean, ms", "median, ms", "longest, ms")
    for disk, rows in results.items():
        for row in (row for row in rows if "execs" in row):
            ms = {way: {key: table.median(all, key) / 1e3 for key in all[0]} for way, all in row["execs"].items()}
            for way, of in ms.items():
                beyond = {key: of[key] - ms[NOTHING][key] for key in of}
                yield table.row(f"`{disk}`", way, table.marked(f"{of['mean']:.3f}", beyond["mean"] > GOAL_MEAN_MS), f"{of['median']:.3f}",
                                table.marked(f"{of['most']:.3f}", beyond["most"] > GOAL_MOST_MS))
