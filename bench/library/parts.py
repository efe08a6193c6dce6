"""The measurements of bench/library. Each returns raw figures; table.py judges them.

In each round every way is measured once (interleaved).
"""

import os
import random
import sqlite3
import subprocess
import time

from shared import MIB, drop_caches, interleaved, output, run, say, warm, write_random

RATIOS = [0.25, 0.5, 1, 2, 4]
# Absent from random bytes.
NEEDLE = "a string that is not there"
# Ways of part a: the program with its options.
STREAMS = {
    "ahead": ("checksum", ["--reader", "ahead"]),
    "ahead, direct": ("checksum", ["--reader", "ahead-direct"]),
    "std": ("checksum", ["--reader", "plain"]),
    "fadvise(SEQUENTIAL)": ("checksum", ["--reader", "fadvise"]),
    "tokio": ("tokio", []),
    "mmap, advise": ("grep", ["--advise", "ahead", NEEDLE]),
    "mmap": ("grep", ["--advise", "none", NEEDLE]),
    "mmap, MADV_SEQUENTIAL": ("grep", ["--advise", "kernel-sequential", NEEDLE]),
}
READERS, BUDGET = 64, "64M"
SMALL_FILES, SMALL_DIRECTORIES, SMALL_KIB = 5000, 50, (16, 64)
OPENED_FILES, OPENED_DIRECTORIES = 100_000, 100
SCANNED_ROWS = 4000


def one_reader(bench, place):
    """(a) One reader that computes, for each ratio of processor and device."""
    file = write_random(place.directory / "file", bench.size_bytes)
    ways = [way for way, (program, _) in STREAMS.items() if program != "tokio" or bench.programs.has_tokio]

    def measure(way, us_per_mib):
        program, options = STREAMS[way]
        return bench.programs.report(program, *options, file, "--compute-us-per-mib", us_per_mib)

    def cached(way, us_per_mib):
        warm(file)
        return measure(way, us_per_mib)["cpu_s"]

    device_s = bench.size_bytes / bench.direct.bandwidth(place, [file])
    bases = {program: cached(way, 0) for program, way in (("checksum", "std"), ("grep", "mmap"))}
    rows = []
    for ratio in RATIOS:
        loads = {program: max(0, round((ratio * device_s - base_s) * 1e6 / (bench.size_bytes / MIB))) for program, base_s in bases.items()}
        cpu_s = {"checksum": cached("std", loads["checksum"]), "grep": cached("mmap", loads["grep"])}
        kind_of = {way: "grep" if STREAMS[way][0] == "grep" else "checksum" for way in ways}

        def cold(way, loads=loads, kind_of=kind_of):
            if way == "device":
                return bench.size_bytes / bench.direct.bandwidth(place, [file])
            place.make_cold()
            return measure(way, loads[kind_of[way]])["elapsed_s"]

        elapsed_s = interleaved(["device", *ways], bench.rounds, cold)
        rows.append({"ratio": ratio, "device_s": elapsed_s.pop("device"), "cpu_s": {way: cpu_s[kind_of[way]] for way in ways},
                     "elapsed_s": elapsed_s})
        say(f"a {place.model}: ratio {ratio}", {way: round(min(all_s), 3) for way, all_s in elapsed_s.items()})
    os.unlink(file)
    return rows


def cached_files(bench, place):
    """(b) Files that are cached already: calls, faults and opened files."""
    file = write_random(place.directory / "file", bench.size_bytes)
    reads = {}
    for buffer in ("4K", "64K", "1M"):
        def read(way, buffer=buffer):
            return bench.programs.report("checksum", "--read-only", "--reader", way, "--buffer", buffer, file)["elapsed_s"]
        warm(file)
        reads[buffer] = interleaved(["plain", "ahead"], 5 * bench.rounds, read)
        say(f"b reads of {buffer}", {way: round(min(all_s), 4) for way, all_s in reads[buffer].items()})
    warm(file)
    scans = interleaved(["none", "kernel-sequential", "ahead"], 5 * bench.rounds,
                        lambda way: bench.programs.report("grep", "--advise", way, NEEDLE, file)["elapsed_s"])
    say("b scans", {way: round(min(all_s), 4) for way, all_s in scans.items()})
    os.unlink(file)
    paths, listed = small_files(place, bench.count(OPENED_FILES), OPENED_DIRECTORIES, (1, 1))
    warm(*paths)
    loads = {}
    for what, options in (("open", ["--open-only"]), ("open and read", [])):
        def load(way, options=options):
            return bench.programs.report("loader", *options, *(["--ahead"] if way == "ahead" else []), listed)["elapsed_s"]
        loads[what] = interleaved(["plain", "ahead"], 3 * bench.rounds, load)
        say(f"b small files: {what}", {way: round(min(all_s), 4) for way, all_s in loads[what].items()})
    return {"reads": reads, "scans": scans, "files": len(paths), "loads": loads}


def many_readers(bench, place):
    """(c) 64 readers within 64 MiB."""
    size = max(bench.size_bytes // READERS, MIB)
    paths = [write_random(place.directory / f"file{number:02}", size) for number in range(READERS)]

    def measure(way):
        if way == "direct":
            return bench.direct.bandwidth(place, paths)
        if way == "turns":
            return bench.direct.turns(place, paths)
        place.make_cold()
        report = bench.programs.report("readers", "--reader", way, "--budget", BUDGET, *paths)
        return {key: report[key] for key in ("bytes_per_s", "slowest_by_mean", "cpu_s", "elapsed_s")}

    results = interleaved(["direct", "turns", "ahead", "plain", "fadvise"], bench.rounds, measure)
    say(f"c {place.model}: direct {max(results['direct']) / 1e6:.1f} MB/s",
        {way: round(max(one["bytes_per_s"] for one in results[way]) / 1e6, 1) for way in ("ahead", "plain", "fadvise")})
    return results


def small_files(place, count, directories, kib):
    """Files of random sizes, and the path of their list in random but fixed order."""
    numbers, paths = random.Random(2000), []
    for number in range(count):
        directory = place.directory / f"d{number % directories:03}"
        directory.mkdir(exist_ok=True)
        path = directory / f"f{number // directories:04}"
        path.write_bytes(os.urandom(numbers.randint(kib[0] << 10, kib[1] << 10)))
        paths.append(path)
    numbers.shuffle(paths)
    listed = place.directory / "list"
    listed.write_text("".join(f"{path}\n" for path in paths))
    return paths, listed


def shuffled_files(bench, place):
    """(d) Small files in random but known order."""
    paths, listed = small_files(place, bench.count(SMALL_FILES), SMALL_DIRECTORIES, SMALL_KIB)
    options = {"plain": [], "16 threads": ["--threads", 16], "ahead": ["--ahead"]}

    def measure(way):
        place.make_cold()
        warm(listed)
        report = bench.programs.report("loader", *options[way], listed)
        return {key: report[key] for key in ("files_per_s", "peak_memory_bytes", "cpu_s", "elapsed_s", "checksum")}

    results = interleaved(list(options), bench.rounds, measure)
    if len({one["checksum"] for all_ways in results.values() for one in all_ways}) != 1:
        raise SystemExit("bench/library: the ways of the loader read different bytes")
    say(f"d {place.model}: files/s", {way: round(max(one["files_per_s"] for one in all_of)) for way, all_of in results.items()})
    return {"files": len(paths), "ways": results}


def external_sort(bench, place):
    """(e) External sort: the merge by the device; on the machine's disk the whole by GNU sort."""
    file, sorted_file = place.directory / "lines", place.directory / "sorted"
    # 57 bytes give a line of 76 characters and its end.
    subprocess.run(["sh", "-c", f"head -c {bench.size_bytes * 57 // 77} /dev/urandom | base64 -w 76 >{file}"], check=True)
    memory_bytes = max(bench.size_bytes // 8, MIB)

    def ours(way, *options):
        place.make_cold()
        return bench.programs.report("sort", "--reader", way, "--memory", memory_bytes, *options, "-o", sorted_file, file)

    def merge(way):
        if way == "direct":
            return bench.direct.bandwidth(place, [file])
        report = ours(way, "--evict-runs")
        return {key: report[key] for key in ("merge_bytes_per_s", "merge_s", "runs", "merges", "runs_s", "evict_s", "elapsed_s", "cpu_s")}

    result = {"memory_bytes": memory_bytes, "merge": interleaved(["direct", "ahead", "plain", "fadvise"], bench.rounds, merge)}
    say(f"e {place.model}: direct {max(result['merge']['direct']) / 1e6:.1f} MB/s, merge",
        {way: round(max(one["merge_bytes_per_s"] for one in result["merge"][way]) / 1e6, 1) for way in ("ahead", "plain", "fadvise")})
    if place.model == "own":
        result["whole_s"] = whole_sorts(bench, place, file, sorted_file, memory_bytes, ours)
    for path in (file, sorted_file):
        path.unlink(missing_ok=True)
    return result


def whole_sorts(bench, place, file, sorted_file, memory_bytes, ours):
    gnu = ["sort", "-S", f"{memory_bytes // 1024}K", "-T", place.directory, "-o", sorted_file, file]

    def whole(way):
        if way in ("ahead", "plain"):
            return ours(way)["elapsed_s"]
        place.make_cold()
        output("sort", "--version")
        began = time.monotonic()
        run(*gnu, *(["--parallel=1"] if way == "GNU, 1 thread" else []), env={**os.environ, "LC_ALL": "C"})
        return time.monotonic() - began

    results = interleaved(["ahead", "plain", "GNU", "GNU, 1 thread"], bench.rounds, whole)
    say(f"e {place.model}: whole sort, s", {way: round(min(all_s), 2) for way, all_s in results.items()})
    ours("ahead")
    run("sort", "-c", sorted_file, env={**os.environ, "LC_ALL": "C"})
    return results


def index_scan(bench, place):
    """(f) Rows of a table in the order of an index."""
    path = place.directory / "database"
    numbers = random.Random(1978)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE photos (name TEXT, photo BLOB)")
        rows = ((f"{numbers.getrandbits(64):016x}", os.urandom(2000)) for _ in range(bench.size_bytes // 4096))
        database.executemany("INSERT INTO photos VALUES (?, ?)", rows)
        database.execute("CREATE INDEX by_name ON photos (name)")
    database.close()
    drop_caches()

    def scan(way):
        place.make_cold()
        report = bench.programs.report("index-scan", "--reader", way, "--index", "by_name", "--limit", SCANNED_ROWS, path)
        return {key: report[key] for key in ("rows", "rows_per_s", "keys_s", "elapsed_s", "checksum")}

    results = interleaved(["plain", "ahead"], bench.rounds, scan)
    say(f"f {place.model}: rows/s", {way: round(max(one["rows_per_s"] for one in all_of)) for way, all_of in results.items()})
    path.unlink()
    return results


# Letter: the measurement, and whether it is independent of the device.
PARTS = {"a": one_reader, "b": cached_files, "c": many_readers, "d": shuffled_files, "e": external_sort, "f": index_scan}
ONLY_OWN = {"b"}
