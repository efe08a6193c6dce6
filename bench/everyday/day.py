"""A day of starts in memory that holds a third of the programs.

The programs, and what prefetches for them, are in one control group: what a service brings takes the place of other pages there.
"""

import contextlib
import json
import random
import shutil
import subprocess
import time

import programs as copies
import rig
import table
from service import Service, Store
from shared import MIB, Group, end, interleaved, output, say

PROGRAMS, SHARE, SEED = 40, 1 / 3, 39
# Programs that are started once, and updates in the course of a day: files that are replaced by newer ones of the same content.
ONCE, UPDATES = 3, 5
# Between two starts, seconds.
PAUSE_S = 0.2
# The interval of preload, seconds: its shortest one, because this day is shorter.
CYCLE_S = 2
NOTHING, FIRST_DAY, SECOND_DAY, PRELOAD, VMTOUCH = "nothing", "`aheadd`, first day", "`aheadd`, second day", "preload, second day", "vmtouch"
WAYS = [NOTHING, FIRST_DAY, SECOND_DAY, PRELOAD, VMTOUCH]
# Of the sum of all starts, and beyond the spread of a start.
GOALS = {"hdd": 0.25, "cloud": 0.15}
SLOWER = 1.03


def draw(number, starts):
    """Which program is started, and whether it is updated before: some programs often, most seldom."""
    chance = random.Random(SEED)
    names = list(range(number))
    chance.shuffle(names)
    once, often = names[:ONCE], names[ONCE:]
    weights = [1 / (rank + 1) ** 0.7 for rank in range(len(often))]
    # Each at least once.
    steps = often + chance.choices(often, weights, k=starts - number)
    chance.shuffle(steps)
    for program in once:
        steps.insert(chance.randrange(len(steps)), program)
    updated = set(chance.sample(range(starts // 4, starts), UPDATES))
    return [(program, at in updated) for at, program in enumerate(steps)]


def update(start):
    """Another file with the same content, as of a package with an update."""
    copy = start.main.with_name(start.main.name + ".new")
    shutil.copy(start.main, copy)
    copy.chmod(start.main.stat().st_mode & 0o777)
    copy.rename(start.main)


class Preload:
    """Debian's preload with its settings, except for its interval, paths, and the memory of the group as that of the machine."""

    def __init__(self, place, group, home, limit_bytes):
        self.group, self.home = group, home
        kib = limit_bytes // 1024
        (home / "meminfo").write_text("".join(f"{name}: {kib} kB\n" for name in ("MemTotal", "MemFree")) + "Buffers: 0 kB\nCached: 0 kB\n")
        prefix = f"{place.directory};!/"
        model = f"[model]\ncycle = {CYCLE_S}\nusecorrelation = true\nminsize = 2000000\nmemtotal = -10\nmemfree = 50\nmemcached = 0\n"
        (home / "preload.conf").write_text(model + f"[system]\ndoscan = true\ndopredict = true\nautosave = 3600\nmapprefix = {prefix}\n"
                                           f"exeprefix = {prefix}\nprocesses = 30\nsortstrategy = 3\n")

    def __enter__(self):
        script = f'mount --bind {self.home}/meminfo /proc/meminfo && exec "$@"'
        command = [rig.debian_program("preload"), "-f", "-c", self.home / "preload.conf", "-s", self.home / "state", "-l", self.home / "log"]
        self.process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *map(str, command)],
                                        preexec_fn=self.group.enter)
        return self

    def __exit__(self, *_):
        end(self.process)


class Bench:
    def __init__(self, programs, place, starts, steps):
        self.programs, self.place, self.starts, self.steps = programs, place, starts, steps
        self.limit_bytes, self.all_bytes = self.memory()
        self.files = [self.files_of(start) for start in starts]

    def memory(self):
        """The limit of the group: a third of the pages of all programs, and what the processes of the largest one need."""
        processes = 0
        with Group("everyday-one") as group:
            for start in self.starts:
                (group.path / "memory.force_empty").write_text("0")
                (group.path / "memory.max_usage_in_bytes").write_text("0")
                rig.started(start, group)
                most = int((group.path / "memory.max_usage_in_bytes").read_text())
                processes = max(processes, most - group.stat()["total_cache"])
        rig.make_cold(self.place)
        with Group("everyday-all") as group:
            for start in self.starts:
                rig.started(start, group)
            pages = group.stat()["total_cache"]
        return int(SHARE * pages) + processes, pages

    def files_of(self, start):
        """The files that it reads, of this disk: whole ones are what vmtouch brings."""
        profile = self.programs.home / "day.ahead"
        output(self.programs.ahead, "record", "--cold", "--runs", 1, "--user", rig.USER_NAME, "-o", profile, "--", *start.command,
               env=start.environment)
        shown = json.loads(output(self.programs.ahead, "show", "--json", profile))
        return [one["path"] for one in shown["file_list"] if one["path"].startswith(f"{self.place.directory}/")]

    def one(self, number, group, way):
        touched_s = 0
        if way == VMTOUCH:
            began = time.monotonic()
            command = [str(rig.debian_program("vmtouch")), "-q", "-t", *self.files[number]]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=group.enter)
            touched_s = time.monotonic() - began
        return touched_s + rig.started(self.starts[number], group)

    def day(self, group, way, helper=None):
        rig.make_cold(self.place, [self.programs.ahead, "--version"])
        rig.wait_until_alone()
        before, times, disturbed = self.place.reads(), [], 0
        for program, is_updated in self.steps:
            if is_updated:
                update(self.starts[program])
            times.append(self.one(program, group, way))
            disturbed += bool(rig.others())
            time.sleep(PAUSE_S)
        after = self.place.reads()
        found = {"s": sum(times), "requests": after[0] - before[0], "bytes": after[1] - before[1], "disturbed": disturbed,
                 "starts_ms": " ".join(f"{1e3 * one:.1f}" for one in times)}
        return {**found, "cost": helper.cost()} if isinstance(helper, Service) else found

    def round(self, way):
        """One day, or two days of which the second one uses what was learned on the first; by way."""
        with contextlib.ExitStack() as stack:
            group = stack.enter_context(Group("everyday"))
            group.limit(self.limit_bytes)
            if way == FIRST_DAY:
                store, days = stack.enter_context(Store()), {}
                for of in (FIRST_DAY, SECOND_DAY):
                    with Service(self.programs, store, group) as service:
                        days[of] = self.day(group, of, service)
                    days[of]["treatments"] = store.treatments(self.programs)
                return days
            if way == PRELOAD:
                home = stack.enter_context(Store()).home
                for _ in range(2):
                    with Preload(self.place, group, home, self.limit_bytes):
                        last = self.day(group, way)
                return {way: last}
            return {way: self.day(group, way)}


def measure(programs, model, options):
    with rig.disk_of(programs, model) as place:
        starts = copies.copy_programs(place.directory)[:PROGRAMS]
        bench = Bench(programs, place, starts, draw(len(starts), options.starts))
        needed = {NOTHING: place.directory, FIRST_DAY: programs.service}
        needed |= {PRELOAD: rig.debian_program("preload"), VMTOUCH: rig.debian_program("vmtouch")}
        wanted = [way for way, path in needed.items() if path and path.exists()]
        say(f"{model}: pages of all programs {bench.all_bytes / MIB:.0f} MiB, group {bench.limit_bytes / MIB:.0f} MiB; ways: {', '.join(wanted)}")
        ways = {}
        for rounds in interleaved(wanted, options.rounds, bench.round).values():
            for one in rounds:
                for way, day in one.items():
                    ways.setdefault(way, []).append(day)
        say(model, {way: [round(one["s"], 2) for one in all] for way, all in ways.items()})
        return [{"programs": [start.name for start in starts], "steps": bench.steps, "all_mib": bench.all_bytes / MIB,
                 "limit_mib": bench.limit_bytes / MIB, "ways": ways}]


def starts_ms(all):
    """The times of each start of the day, one for each round."""
    return list(zip(*([float(ms) for ms in one["starts_ms"].split()] for one in all)))


def slower(row, way):
    """Starts whose shortest time is more than 3 % above the longest one without a service: number, and the worst ratio."""
    pairs = zip(starts_ms(row["ways"][NOTHING]), starts_ms(row["ways"][way]))
    ratios = [min(with_it) / max(without) for without, with_it in pairs]
    return sum(ratio > SLOWER for ratio in ratios), max(ratios)


def lines(results):
    yield from table.paragraph(f"""Each day has the same starts, drawn with repetition; {ONCE} programs are started once, and {UPDATES} times
        a program is updated. The programs, and what prefetches for them, share one control group, which holds a third of the pages of all
        programs. {PAUSE_S} s between starts. preload has its own settings, but an interval of {CYCLE_S} s, and has learned on such a day
        before; vmtouch reads the whole files of a program before its start, and that time counts. Goals: the sum 25 % shorter on `hdd`, 15 %
        on `cloud`; no start more than 3 % slower than without a service beyond its spread (its shortest time of all rounds above the longest
        one without).""")
    for disk, (row,) in results.items():
        yield (f"- `{disk}`: {len(row['steps'])} starts of {len(row['programs'])} programs, {row['all_mib']:.0f} MiB of pages in a group of "
               f"{row['limit_mib']:.0f} MiB")
        disturbed = sum(one["disturbed"] for all in row["ways"].values() for one in all)
        if disturbed:
            yield f"- `{disk}`: {disturbed} of all starts beside another service: these figures are disturbed"
        for way, all in ((way, row["ways"][way][-1]) for way in (FIRST_DAY, SECOND_DAY) if way in row["ways"]):
            yield f"- `{disk}`, {way}: last eight starts of each program {', '.join(f'{of} {number}' for of, number in all['treatments'].items())}"
    yield ""
    yield from table.head("disk", "way", "sum of the starts, s", "shorter", "slower starts", "worst", "requests", "read, MiB",
                          "service: processor, s", "resident, MiB")
    for disk, (row,) in results.items():
        for way in (way for way in WAYS if way in row["ways"]):
            all = row["ways"][way]
            shorter = 1 - table.median(all, "s") / table.median(row["ways"][NOTHING], "s")
            is_missed = way in (FIRST_DAY, SECOND_DAY) and shorter < GOALS.get(disk, 0)
            count, worst = slower(row, way)
            costs = [one["cost"] for one in all if "cost" in one]
            yield table.row(f"`{disk}`", way, table.spread([one["s"] for one in all]), table.marked(f"{100 * shorter:.0f} %", is_missed),
                            *(["–", "–"] if way == NOTHING else [count, f"{worst:.2f}"]), f"{table.median(all, 'requests'):.0f}",
                            f"{table.median(all, 'bytes') / MIB:.0f}",
                            *([f"{table.median(costs, key):.1f}" for key in ("processor_s", "resident_mib")] if costs else ["–", "–"]))
