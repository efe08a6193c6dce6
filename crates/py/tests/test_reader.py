"""ahead.open: the same bytes, positions and errors as open()."""

import ctypes
import errno
import gc
import io
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import weakref

import ahead
import pytest


def random_step(rng, length):
    """A method with arguments, for two files."""
    size = rng.choice([0, 1, 10, 4096, 8192, 100_000, 1 << 20, rng.randrange(2 * length)])
    return rng.choice(
        [
            ("read", (size,)),
            ("read", (rng.choice([None, -1]),) if rng.random() < 0.1 else (size,)),
            ("readline", ()),
            ("readline", (rng.randrange(100),)),
            ("tell", ()),
            ("seek", (rng.randrange(length + 100),)),
            ("seek", (rng.randrange(length), 0)),
            ("seek", (-rng.randrange(length), 2)),
            ("seek", (0, 2)),
            ("seek", (rng.randrange(10_000), 1)),
        ]
    )


@pytest.mark.parametrize("options", [{}, {"pattern": "random"}, {"pattern": "backward"}, {"budget": "4K"}, {"direct": True}])
def test_any_sequence_of_calls_gives_the_same_as_open(big, content, options):
    rng = random.Random(f"reader {options}")
    for _ in range(20):
        with open(big, "rb") as expected, ahead.open(big, **options) as reader:
            for _ in range(40):
                name, arguments = random_step(rng, len(content))
                wanted = getattr(expected, name)(*arguments)
                assert getattr(reader, name)(*arguments) == wanted, (name, arguments)
                assert reader.tell() == expected.tell()


def test_lines_are_those_of_open(big, content):
    lines = io.BytesIO(content).readlines()
    with ahead.open(big) as reader:
        assert list(reader) == lines
    with ahead.open(big) as reader:
        assert reader.readlines() == lines
    with ahead.open(big) as reader, open(big, "rb") as expected:
        assert reader.readlines(10_000) == expected.readlines(10_000)
        assert next(reader) == next(expected)


def test_stride_reads_the_same(big, content):
    with ahead.open(big, pattern="stride", stride=65_536) as reader:
        for offset in range(0, len(content), 65_536):
            reader.seek(offset)
            assert reader.read(100) == content[offset : offset + 100]


@pytest.mark.parametrize("size", [1, 5000, 200_000, 10_000_000])
def test_readinto_fills_any_writable_memory(big, content, size):
    with ahead.open(big) as reader:
        memory = bytearray(size)
        assert reader.readinto(memory) == min(size, len(content))
        assert memory[: len(content)] == content[:size]
        assert reader.readinto(bytearray()) == 0
        reader.seek(0)
        numbers = memoryview(bytearray(16)).cast("d")
        assert reader.readinto(numbers) == 16 and bytes(numbers) == content[:16]


def test_read1_and_peek_read_once(big, content):
    with ahead.open(big) as reader:
        first = reader.peek()
        assert first and content.startswith(first) and reader.tell() == 0
        assert reader.read1(3) == content[:3]
        part = reader.read1()
        assert part and content[3:].startswith(part)
        memory = bytearray(1 << 20)
        start, filled = reader.tell(), reader.readinto1(memory)
        assert 0 < filled and memory[:filled] == content[start : start + filled]
        reader.seek(0, 2)
        assert reader.read1() == b"" == reader.peek() and reader.readinto1(memory) == 0


def test_is_a_file_object_for_other_layers(big, content, tmp_path):
    with io.BufferedReader(ahead.open(big)) as file:
        file.seek(1000)
        assert file.read(5000) == content[1000:6000]
    text = tmp_path / "text"
    text.write_text("eins\nzwei äöü\n", encoding="utf-8")
    with io.TextIOWrapper(ahead.open(text), encoding="utf-8") as file:
        assert list(file) == ["eins\n", "zwei äöü\n"]
    pickled = tmp_path / "pickle"
    value = {"a": list(range(10_000)), "b": b"x" * 300_000}
    pickled.write_bytes(pickle.dumps(value, protocol=5))
    with ahead.open(pickled) as file:
        assert pickle.load(file) == value
        assert isinstance(file, io.BufferedIOBase)


def test_numpy_reads_through_it(tmp_path):
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    array = numpy.arange(100_000, dtype="f8").reshape(100, 1000)
    numpy.save(tmp_path / "array.npy", array)
    with ahead.open(tmp_path / "array.npy") as file:
        assert (numpy.load(file) == array).all()
    array.tofile(tmp_path / "plain")
    with ahead.open(tmp_path / "plain") as file:
        read = numpy.empty_like(array)
        assert file.readinto(read) == array.nbytes and (read == array).all()
        file.seek(80)
        assert (numpy.fromfile(file, dtype="f8", count=10) == array.ravel()[10:20]).all()


def test_closed_file_raises_value_error(big):
    with ahead.open(big) as reader:
        reader.read(10)
        assert not reader.closed
        assert reader.readable() and reader.seekable() and not reader.writable() and not reader.isatty()
        assert reader.mode == "rb" and reader.name == big and os.fstat(reader.fileno()).st_size > 0
    assert reader.closed
    reader.close()
    for call in [reader.read, reader.readline, reader.tell, reader.fileno, reader.seekable, reader.readable, reader.peek, reader.__enter__]:
        with pytest.raises(ValueError, match="closed file"):
            call()
    with pytest.raises(ValueError, match="closed file"):
        iter(reader)
    assert reader.counters()["bytes"] >= 10
    assert str(big) in repr(reader)


def test_errors_have_errno_and_filename(tmp_path):
    for path in [tmp_path / "missing", str(tmp_path / "missing"), bytes(tmp_path / "missing")]:
        with pytest.raises(FileNotFoundError) as error:
            ahead.open(path)
        assert (error.value.errno, error.value.filename) == (errno.ENOENT, path)
        assert error.value.strerror == os.strerror(errno.ENOENT)
    with pytest.raises(IsADirectoryError) as error:
        ahead.open(tmp_path)
    assert (error.value.errno, error.value.filename) == (errno.EISDIR, tmp_path)


def test_bad_arguments_are_named(big):
    for arguments, kind, message in [
        ({"path": 5}, TypeError, "path: expected str, bytes or os.PathLike, got int"),
        ({"path": "a\0b"}, ValueError, "null"),
        ({"budget": 1.5}, TypeError, "budget: expected an ahead.Budget"),
        ({"budget": "32X"}, ValueError, "budget: .*is not a size"),
        ({"budget": 0}, ValueError, "budget: must be larger than 0"),
        ({"budget": -1}, ValueError, "budget: -1 is not between"),
        ({"pattern": "sideways"}, ValueError, 'pattern: expected .*, got "sideways"'),
        ({"pattern": 3}, TypeError, "pattern"),
        ({"pattern": "stride"}, ValueError, "needs stride="),
        ({"pattern": "random", "stride": 5}, ValueError, "stride: only with"),
        ({"stride": 0}, ValueError, "stride: must not be 0"),
    ]:
        with pytest.raises(kind, match=message):
            ahead.open(**{"path": big, **arguments})
    with ahead.open(big) as reader:
        for offset, whence in [(-1, 0), (-1, 1)]:
            with pytest.raises(OSError) as error:
                reader.seek(offset, whence)
            assert error.value.errno == errno.EINVAL
        with pytest.raises(ValueError, match="whence: expected 0"):
            reader.seek(0, 7)
        for memory in [b"read-only", "text", 5]:
            with pytest.raises(TypeError, match="writable bytes-like object"):
                reader.readinto(memory)
        with pytest.raises(ValueError, match="not contiguous"):
            reader.readinto(memoryview(bytearray(10))[::2])
        with pytest.raises(TypeError):
            pickle.dumps(reader)


def test_files_without_a_length_are_read_to_their_end():
    with ahead.open("/proc/self/maps") as reader:
        assert b"[stack]" in reader.read()
    with ahead.open("/dev/null") as reader:
        assert reader.read() == b"" and not reader.seekable()
        with pytest.raises(io.UnsupportedOperation):
            reader.seek(0)


def test_changes_of_the_length_are_seen(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100_000)
    with ahead.open(path) as reader:
        assert len(reader.read(50_000)) == 50_000
        with open(path, "ab") as file:
            file.write(b"b" * 100_000)
        assert reader.read().endswith(b"b" * 100_000)
        os.truncate(path, 10)
        assert reader.read() == b""
        reader.seek(0)
        assert reader.read() == b"a" * 10


def test_threads_share_a_reader(tmp_path):
    records = [b"%063d\n" % number for number in range(20_000)]
    path = tmp_path / "records"
    path.write_bytes(b"".join(records))
    taken = [[] for _ in range(4)]
    with ahead.open(path) as reader:

        def take(mine):
            while record := reader.read(64):
                mine.append(record)

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(record for mine in taken for record in mine) == records


def test_parent_and_child_have_their_positions_after_fork(big, content):
    with ahead.open(big) as reader:
        assert reader.read(100_000) == content[:100_000]
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            is_same = reader.read() == content[100_000:]
            os._exit(0 if is_same else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert reader.read() == content[100_000:]


def test_fork_during_a_read_of_another_thread_is_an_error_in_the_child(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = open_fifo(fifo)
    thread = threading.Thread(target=reader[0].read)
    thread.start()
    # The thread holds the reader as soon as it waits in the kernel.
    wait_until_blocked(thread)
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        try:
            reader[0].read(1)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(reader[1])
    thread.join()


def test_fork_after_a_waiting_thread_has_taken_the_reader_does_not_hang_the_child(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader, writer = open_fifo(fifo)
    is_next = threading.Event()

    def wait_for_main():
        wait_until_blocked(threading.main_thread())
        is_next.set()
        reader.tell()

    def write_to_main():
        is_next.wait()
        while not is_blocked(waiting, in_calls=FUTEX):
            pass
        os.write(writer, b"x" * 10)

    waiting = threading.Thread(target=wait_for_main)
    writing = threading.Thread(target=write_to_main)
    # The waiting thread takes the reader as soon as it is free, and then needs the interpreter, which this thread keeps until the fork.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    waiting.start()
    writing.start()
    reader.read(10)
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            reader.tell()
        except RuntimeError:
            pass
        os._exit(0)
    sys.setswitchinterval(interval)
    assert os.waitpid(child, 0)[1] == 0
    waiting.join()
    writing.join()
    os.close(writer)


@pytest.mark.parametrize(
    "call",
    [
        "ahead.open('/dev/zero').readline()",
        "ahead.open('/dev/zero').readlines()",
        "ahead.open('/dev/zero').read()",
        "next(ahead.open('/dev/zero'))",
        "ahead.open(huge).read()",
        "ahead.open(huge).readline()",
        "ahead.open(huge).read(1 << 35)",
        "ahead.open(huge, direct=True).read()",
        "ahead.open('x' * (100 << 20))",
    ],
)
def test_more_than_there_is_memory_for_is_a_memory_error(call, tmp_path):
    program = """if True:
        import ahead, errno, resource, sys
        huge = sys.argv[1]
        with open(huge, "wb") as file:
            file.truncate(1 << 40)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
        try:
            CALL
        except (MemoryError, OSError) as error:
            sys.exit(not isinstance(error, MemoryError) and error.errno != errno.ENAMETOOLONG)
        sys.exit("no error")
    """
    program = program.replace("CALL", call)
    assert subprocess.run([sys.executable, "-c", program, tmp_path / "huge"]).returncode == 0


def open_fifo(fifo):
    """A reader of the FIFO, and the descriptor of its writer."""
    opened = []
    thread = threading.Thread(target=lambda: opened.append(ahead.open(fifo)))
    thread.start()
    # Returns when the thread opens the FIFO, too: it does not hold the GIL in open().
    writer = os.open(fifo, os.O_WRONLY)
    thread.join()
    return opened[0], writer


def wait_until_blocked(thread):
    """Waits until the thread sleeps in a read of a pipe."""
    while not is_blocked(thread):
        time.sleep(0)


# Numbers of read(2) and futex(2) on x86-64, and on aarch64 and riscv64.
READ = (b"0", b"63")
FUTEX = (b"202", b"98")


def is_blocked(thread, in_calls=READ):
    """Whether the thread sleeps in one of these system calls."""
    with open(f"/proc/self/task/{thread.native_id}/syscall", "rb") as file:
        return file.read().split()[0] in in_calls


def test_gil_is_released_while_a_read_blocks(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader, writer = open_fifo(fifo)
    read = []
    thread = threading.Thread(target=lambda: read.append(reader.read(10)))
    thread.start()
    # This thread runs on while the other one waits for these bytes, in two parts.
    wait_until_blocked(thread)
    os.write(writer, b"01234")
    os.write(writer, b"56789abc")
    thread.join()
    assert read == [b"0123456789"]
    assert reader.read1(2) == b"ab"
    os.close(writer)
    assert reader.read() == b"c" and reader.read() == b""
    with pytest.raises(io.UnsupportedOperation):
        reader.seek(0)


INTERRUPTED = """
import ahead, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
try:
    file = ahead.open(sys.argv[1])
    print("open", flush=True)
    file.read()
except KeyboardInterrupt:
    os._exit(7)
"""


@pytest.mark.parametrize("has_writer", [False, True])
def test_ctrl_c_interrupts_open_and_read(tmp_path, has_writer):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, fifo], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        writer = os.open(fifo, os.O_WRONLY) if has_writer else None
        if has_writer:
            assert child.stdout.readline() == b"open\n"
        # A signal just before the system call is lost until the next one: Python's files have the same gap.
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
        # Not 7: another signal came before the end.
        assert child.returncode in (7, 130, -signal.SIGINT)
        if has_writer:
            os.close(writer)


def test_budget_is_shared_and_given_back(big):
    budget = ahead.Budget("8M")
    assert (budget.bytes, budget.readers) == (8 << 20, 0)
    readers = [ahead.open(big, budget=budget) for _ in range(3)]
    for reader in readers:
        reader.read(1 << 20)
    assert budget.readers <= 3
    for reader in readers:
        reader.close()
    assert (budget.readers, budget.used_bytes) == (0, 0)
    assert pickle.loads(pickle.dumps(budget)).bytes == 8 << 20
    assert repr(budget) == "ahead.Budget(8388608)"
    with pytest.raises(TypeError, match="size: expected"):
        ahead.Budget(None)


def test_deleted_reader_closes_its_file(big):
    reader = ahead.open(big)
    descriptor, alive = reader.fileno(), weakref.ref(reader)
    reader.read(10)
    del reader
    gc.collect()
    assert alive() is None
    assert ctypes.CDLL(None).fcntl(descriptor, 1) == -1


def test_reader_that_its_path_refers_to_is_collected(big):
    class Path:
        def __fspath__(self):
            return str(big)

    path = Path()
    path.reader = ahead.open(path)
    alive = weakref.ref(path)
    del path
    gc.collect()
    assert alive() is None


def test_path_like_objects_are_paths(big, content):
    class Path:
        def __fspath__(self):
            return bytes(big)

    for path in [big, str(big), bytes(big), Path(), pathlib.PurePosixPath(big)]:
        with ahead.open(path) as reader:
            assert reader.read(10) == content[:10]


def test_signal_handler_may_not_use_the_reader_that_it_interrupts(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader, writer = open_fifo(fifo)
    errors = []

    def handle(_number, _frame):
        try:
            reader.read(1)
        except RuntimeError as error:
            errors.append(str(error))
            if len(errors) == 1:
                os.write(writer, b"x")

    main = threading.main_thread()
    before = signal.signal(signal.SIGUSR1, handle)
    try:

        def interrupt():
            while not errors:
                if is_blocked(main):
                    signal.pthread_kill(main.ident, signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        assert reader.read(1) == b"x"
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "reentrant call" in errors[0]
    os.close(writer)
