"""Suite `programs`: whole programs, cold and cached, which must not become slower."""

import json
import os
import random
import shlex
import sqlite3
import subprocess
import sys
import time

from figures import median
from rig import brief, set_window
from shared import MIB, fail, interleaved, output, run, warm, write_random

WINDOW_KIB = 128
TOOLS = ["fio", "sqlite3", "db_bench", "grep", "tar"]
FIO_MIB, VERIFY_MIB, MAPPED_MIB, TREE_FILES, TREE_KIB = 256, 64, 256, 1500, (4, 256)
ROWS, LOOKUPS = 40_000, 2000
KEYS, KEY_READS = 300_000, 3000
# Runs of a round: the median of the cold runs counts, and the fastest of the cached runs, which take some milliseconds.
COLD_RUNS, CACHED_RUNS, CACHED_S = 3, 5, 1
NEEDLE = "a string that is not there"


class Program:
    """`files`: makes the input once. `command`: the words of one run. `figure`: seconds from the run's output, or none for its elapsed time."""

    def __init__(self, name, files, command, cached_command=None, figure=None, checks=False):
        self.name, self.files, self.command, self.figure = name, files, command, figure
        self.cached_command = cached_command or command
        # Whether its output has to be the same in every run.
        self.checks = checks


def fio(path, *options):
    # Files that fio writes beside its results belong to the test's directory, and the state of a verification is not needed.
    own = [f"--aux-path={path.parent}", "--verify_state_save=0"]
    return ["fio", "--name=job", "--output-format=json", "--ioengine=psync", "--invalidate=0", *own, f"--filename={path}", *options]


def fio_s(text):
    """Seconds per MiB: a run may be limited by time."""
    read = json.loads(text[text.index("{"):])["jobs"][0]["read"]
    return read["runtime"] / 1000 / (read["io_bytes"] / MIB)


def verified(directory):
    """A file with the checksums of fio."""
    path = directory / "verify"
    if not path.exists():
        output(*fio(path, "--rw=write", "--bs=16k", f"--size={VERIFY_MIB}M", "--verify=crc32c", "--do_verify=0", "--end_fsync=1"))
    return path


def database(directory):
    path = directory / "database"
    if not path.exists():
        numbers = random.Random(1978)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)")
            rows = ((f"{numbers.getrandbits(64):016x}", numbers.randbytes(2000)) for _ in range(ROWS))
            connection.executemany("INSERT INTO photos (name, photo) VALUES (?, ?)", rows)
            connection.execute("CREATE INDEX by_name ON photos (name)")
        connection.close()
    return path


# The scan reads the table in order, the lookups in the order of the index: at random.
QUERY = ("SELECT sum(length(photo) + id) FROM photos; "
         f"SELECT sum(unicode(substr(photo, 1, 1))) FROM (SELECT photo FROM photos INDEXED BY by_name WHERE name > '4' ORDER BY name LIMIT {LOOKUPS});")


def keys(directory):
    path = directory / "rocksdb"
    if not path.exists():
        output(*rocksdb(path, "--benchmarks=fillrandom,compact", f"--num={KEYS}", "--seed=1"))
    return path


def rocksdb(path, *options):
    return ["db_bench", f"--db={path}", "--value_size=400", "--compression_type=none", "--threads=1", "--disable_wal=1", *options]


def tree(directory):
    """Files of random sizes with random text."""
    path, numbers = directory / "tree", random.Random(2000)
    if not path.exists():
        for number in range(TREE_FILES):
            part = path / f"d{number % 40:02}"
            part.mkdir(parents=True, exist_ok=True)
            (part / f"f{number:05}").write_text(numbers.randbytes(numbers.randint(*TREE_KIB) << 9).hex())
    return path


def mapped(directory):
    path = directory / "mapped"
    return path if path.exists() else write_random(path, MAPPED_MIB * MIB)


def sized(directory):
    path = directory / "fio"
    return path if path.exists() else write_random(path, FIO_MIB * MIB)


def shell(template, *words):
    return ["sh", "-c", template.format(*(shlex.quote(str(word)) for word in words))]


def known(bench):
    lookups = [sys.executable, bench.programs.home / "lookups.py"]
    timed = ["--time_based", "--runtime=1"]
    random_read = ["--rw=randread", "--bs=4k", "--fadvise_hint=0", f"--runtime={min(bench.seconds, 3)}"]
    scan = ["--rw=read", "--bs=64k", "--fadvise_hint=0"]
    reads = ["--use_existing_db=1", "--readonly=1", f"--num={KEYS}", f"--reads={KEY_READS}", "--seed=7", "--cache_size=8388608"]
    return [
        Program("fio sequential", sized, lambda path: fio(path, *scan), lambda path: fio(path, *scan, *timed), fio_s),
        Program("fio random", sized, lambda path: fio(path, *random_read, "--time_based"), lambda path: fio(path, *random_read[:-1], *timed), fio_s),
        # With fio's advice (POSIX_FADV_SEQUENTIAL), and checksums of every block.
        Program("fio verify", verified, lambda path: fio(path, "--rw=read", "--bs=16k", "--verify=crc32c", "--verify_fatal=1"), figure=fio_s),
        Program("SQLite", database, lambda path: ["sqlite3", "-readonly", path, QUERY], checks=True),
        Program("SQLite mmap", database, lambda path: ["sqlite3", "-readonly", path, f"PRAGMA mmap_size = {1 << 30}; {QUERY}"], checks=True),
        Program("RocksDB random", keys, lambda path: rocksdb(path, "--benchmarks=readrandom", *reads)),
        Program("RocksDB scan", keys, lambda path: rocksdb(path, "--benchmarks=readseq", *reads[:3], "--cache_size=8388608")),
        Program("grep -r", tree, lambda path: shell("grep -rF {} {} || [ $? = 1 ]", NEEDLE, path), checks=True),
        Program("tar", tree, lambda path: shell("tar -C {} -cf - . | cksum", path), checks=True),
        Program("Python mmap", mapped, lambda path: [*lookups, path, MAPPED_MIB // 2, LOOKUPS], checks=True),
    ]


def timed_run(program, command):
    """Seconds, and the output if it has to be the same in every run."""
    words = [str(word) for word in command]
    began = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
    elapsed_s = time.monotonic() - began
    if done.returncode != 0:
        fail(f"{program.name}: status {done.returncode}: {done.stderr.strip()}")
    return program.figure(done.stdout) if program.figure else elapsed_s, done.stdout if program.checks else None


def every_file(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def compare(bench, place, program):
    path, outputs = program.files(place.directory), set()
    # The program and its libraries are on another disk: this brings them into the page cache.
    timed_run(program, program.command(path))

    def once(command):
        seconds, text = timed_run(program, command)
        outputs.add(text)
        return seconds

    def cold(way):
        def victim():
            times = []
            for number in range(COLD_RUNS):
                if number > 0:
                    place.make_cold()
                times.append(once(program.command(path)))
            return {"seconds": median(times), "runs": times}
        return bench.cold(place, way, WINDOW_KIB, victim)

    def cached(way):
        set_window(place, WINDOW_KIB)
        warm(*every_file(path))

        def victim():
            once(program.cached_command(path))
            times, began = [], time.monotonic()
            while len(times) < CACHED_RUNS or time.monotonic() - began < CACHED_S:
                times.append(once(program.cached_command(path)))
            return {"seconds": min(times), "runs": len(times)}
        return bench.steered(way, victim)

    result = {state: interleaved(bench.ways("stock", "steer"), bench.rounds, measure) for state, measure in (("cold", cold), ("cached", cached))}
    if len(outputs) > 1:
        fail(f"{program.name} on {place.model}: the output differs between runs")
    brief(program=f"{program.name!r} on {place.model}", **{
        f"{state} {way}": min(one["seconds"] for one in all_of) for state, ways in result.items() for way, all_of in ways.items()})
    return result


def measure(bench, place):
    # A mount belongs to root; RocksDB and SQLite write beside their files only when these are made.
    os.chmod(place.directory, 0o755)
    figures = {}
    for program in known(bench):
        if bench.is_wanted(program.name):
            figures[program.name] = compare(bench, place, program)
    run("sync")
    return figures
