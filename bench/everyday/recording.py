"""Recordings without root.

The same program is recorded by root and by its user, and started cold with each profile by the user.
"""

import subprocess

import programs as copies
import rig
import table
from shared import fail, interleaved, run, say, temporary_directory

PROGRAMS = ["python3 data.py", "git status", "node pack.js"]
KINDS = [copies.python_starts, copies.git_starts, copies.node_starts]
NOTHING, ROOT, USER = "nothing", "recorded by root", "recorded by its user"
GOAL_SHARE, GOAL_COST = 0.8, 2
# What `record` answers where a user cannot.
UNAVAILABLE = 77


class Bench:
    def __init__(self, programs, place, start, home):
        self.programs, self.place, self.start, self.home = programs, place, start, home
        self.timed, self.took = home / "timed", home / "took"
        run("cc", "-O2", "-o", self.timed, rig.HERE.parent / "overhead/timed.c")

    def profile(self, way):
        return self.home / ("root.ahead" if way == ROOT else "user.ahead")

    def record(self, way):
        """Time of the program inside of its recording, s; none where that is not possible."""
        rig.make_cold(self.place, [self.programs.ahead, "--version"])
        self.profile(way).unlink(missing_ok=True)
        user = rig.NO_RIGHTS if way == USER else []
        options = ["--cold", "--user", rig.USER_NAME] if way == ROOT else []
        command = [*user, self.programs.ahead, "record", *options, "-o", self.profile(way), "--", self.timed, self.took, *self.start.command]
        command = [str(word) for word in command]
        done = subprocess.run(command, env=self.start.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode == UNAVAILABLE:
            return None
        if done.returncode != 0:
            fail(f"{' '.join(command)}: {done.stderr.strip()}")
        self.profile(way).chmod(0o644)
        return int(self.took.read_text()) / 1e9

    def plain_inside(self):
        """The same without a recording."""
        rig.make_cold(self.place)
        run(*rig.NO_RIGHTS, self.timed, self.took, *self.start.command, env=self.start.environment, stdout=subprocess.DEVNULL)
        return int(self.took.read_text()) / 1e9

    def measure(self, way):
        prefix, recorded_s = [], self.plain_inside() if way == NOTHING else self.record(way)
        if recorded_s is None:
            return None
        if way != NOTHING:
            # The profile of a recording of the timed program is for that command.
            prefix = [self.programs.ahead, "run", "-p", self.profile(way), "--"]
        rig.make_cold(self.place, [self.programs.ahead, "--version"])
        before = self.place.reads()[0]
        took_s = rig.started(self.start, prefix=prefix)
        return {"s": took_s, "requests": self.place.reads()[0] - before, "recorded_s": recorded_s}


def measure(programs, model, options):
    rows = []
    with rig.disk_of(programs, model) as place, temporary_directory("everyday-recording") as home:
        # A user writes the profile there.
        home.chmod(0o777)
        for start in (start for start in copies.copy_programs(place.directory, KINDS) if start.name in PROGRAMS):
            bench = Bench(programs, place, start, home)
            ways = interleaved([NOTHING, ROOT, USER], options.rounds, lambda way: rig.undisturbed(lambda: bench.measure(way)))
            say(model, start.name, {way: [one and round(one["s"], 4) for one in all] for way, all in ways.items()})
            rows.append({"program": start.name, "ways": {way: all for way, all in ways.items() if None not in all}})
    return rows


def lines(results):
    yield from table.paragraph(f"""Medians (lowest to highest); each round makes its own recordings. Goals: at least {GOAL_SHARE} of the gain
        of a recording by root, and a recorded run of at most {GOAL_COST} × the cold one. The recorded run is timed inside of the recording,
        without its set-up.""")
    yield from table.head("disk", "program", "profile", "start, ms", "gain, ms", "of root's", "requests", "recorded run, ms", "to cold")
    for disk, rows in results.items():
        for row in rows:
            middle = {way: {key: table.median(all, key) for key in all[0]} for way, all in row["ways"].items()}
            gain = {way: middle[NOTHING]["s"] - of["s"] for way, of in middle.items()}
            for way, of in middle.items():
                share, cost = gain[way] / gain[ROOT] if gain[ROOT] > 0 else 0, of["recorded_s"] / middle[NOTHING]["recorded_s"]
                yield table.row(f"`{disk}`", row["program"], way, table.spread_ms(row["ways"][way]), f"{gain[way] * 1e3:.1f}",
                                table.marked(f"{share:.2f}", way == USER and share < GOAL_SHARE), f"{of['requests']:.0f}",
                                f"{of['recorded_s'] * 1e3:.1f}", table.marked(f"{cost:.2f}", way == USER and cost > GOAL_COST))
            if USER not in middle:
                yield table.row(f"`{disk}`", row["program"], USER, "not possible with this build", "", "", "", "", "")
