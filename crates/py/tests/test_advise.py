"""ahead.advise: memory of mapped files, with the same bytes."""

import gc
import mmap
import os
import signal
import weakref

import ahead
import pytest

BEHAVIOURS = ["normal", "sequential", "random", "willneed", "dontneed", "backward"]


@pytest.fixture
def mapped(big):
    """The whole file as a private, read-only mapping."""
    with open(big, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize("pages", [0, 1, 64])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_mapping_has_the_same_bytes(mapped, content, behaviour, pages):
    with ahead.advise(mapped, behaviour, pages):
        assert mapped[:] == content
    mapped.close()


def test_stride_has_the_same_bytes(mapped, content):
    with ahead.advise(mapped, "stride", stride=100_000) as advised:
        for offset in range(0, len(content), 100_000):
            assert mapped[offset] == content[offset]
            advised.progress(offset)


def test_memmap_has_the_same_values(big, content):
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    for array in [
        numpy.memmap(big, dtype="u1", mode="r"),
        numpy.memmap(big, dtype="<f4", mode="r", shape=(100, 100)),
        numpy.memmap(big, dtype="<i8", mode="c", shape=(20, 30), order="F"),
    ]:
        with ahead.advise(array) as advised:
            assert array.tobytes(order="A") == content[: array.nbytes]
            assert advised.counters()["requested_bytes"] >= 0
        # A part of a mapping, at any address.
        with ahead.advise(array[5:10] if array.flags.c_contiguous else array.T[5:10], "willneed", 4):
            pass


def test_advice_holds_the_object_until_it_ends(mapped):
    advised = ahead.advise(mapped)
    with pytest.raises(BufferError):
        mapped.close()
    assert not advised.closed
    advised.close()
    advised.close()
    assert advised.closed
    mapped.close()


def test_end_of_the_with_block_and_deletion_end_the_advice(big):
    for end in ["with", "delete"]:
        with open(big, "rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        advised = ahead.advise(memory, "sequential")
        if end == "with":
            with advised:
                memory.read(10_000)
        alive = weakref.ref(advised)
        del advised
        gc.collect()
        assert alive() is None
        memory.close()


def test_mapping_that_refers_to_its_advice_is_collected(big):
    class Map(mmap.mmap):
        pass

    with open(big, "rb") as file:
        memory = Map(file.fileno(), 0, access=mmap.ACCESS_READ)
    memory.advised = ahead.advise(memory, "sequential")
    memory.view = ahead.advise(memoryview(memory), "sequential")
    alive = weakref.ref(memory)
    del memory
    gc.collect()
    assert alive() is None


def test_object_lives_as_long_as_its_advice(big):
    numpy = pytest.importorskip("numpy", reason="needs NumPy")
    array = numpy.memmap(big, dtype="u1", mode="r")
    with ahead.advise(array) as advised:
        alive = weakref.ref(array)
        del array
        gc.collect()
        assert alive() is not None
        advised.progress(5000)
    gc.collect()
    assert alive() is None


def test_progress_and_counters(mapped, content):
    with ahead.advise(mapped, "sequential", 16) as advised:
        for offset in range(0, len(content), 65_536):
            assert mapped[offset] == content[offset]
            advised.progress(offset)
        with pytest.raises(ValueError, match="beyond the end of the buffer"):
            advised.progress(len(content) + 1)
        with pytest.raises(OverflowError):
            advised.progress(-1)
        counters = advised.counters()
        assert set(counters) >= {"groups", "cached_groups", "requested_bytes", "waits", "distance_bytes"}
    assert set(advised.counters()) == set(counters)
    with pytest.raises(ValueError, match="the advice has ended"):
        advised.progress(0)


def test_bad_arguments_are_named(mapped):
    for arguments, kind, message in [
        ({"buffer": 5}, TypeError, "buffer: expected an object with memory.*got int"),
        ({"buffer": "text"}, TypeError, "buffer: .*got str"),
        ({"buffer": memoryview(mapped)[::2]}, ValueError, "buffer: not contiguous"),
        ({"behaviour": "sideways"}, ValueError, 'behaviour: expected .*, got "sideways"'),
        ({"behaviour": 5}, TypeError, "behaviour"),
        ({"behaviour": "stride"}, ValueError, "needs stride="),
        ({"behaviour": "stride", "stride": 0}, ValueError, "stride: must not be 0"),
        ({"stride": 100}, ValueError, "stride: only with"),
        ({"pages": -1}, ValueError, "pages: must not be negative"),
    ]:
        with pytest.raises(kind, match=message):
            ahead.advise(**{"buffer": mapped, **arguments})


def test_shared_memory_keeps_its_content():
    # Its pages belong to a file without a name.
    shared = mmap.mmap(-1, 1 << 20)
    shared[:] = b"data" * (1 << 18)
    for behaviour in BEHAVIOURS:
        with ahead.advise(shared, behaviour):
            assert shared[:] == b"data" * (1 << 18)
    shared.close()


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_memory_without_a_file_is_refused_and_unchanged(behaviour):
    memory = bytearray(b"data" * 100_000)
    anonymous = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    anonymous[:4] = b"data"
    for buffer in [memory, anonymous]:
        with pytest.raises(ValueError, match="memory without a file|not mapped"):
            ahead.advise(buffer, behaviour)
    assert memory == b"data" * 100_000 and anonymous[:4] == b"data"
    # The failed call has released the objects.
    memory.append(0)
    anonymous.close()


def test_changes_of_a_private_mapping_are_kept(big, content):
    with open(big, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    memory[:5] = b"dirty"
    for behaviour in BEHAVIOURS:
        with ahead.advise(memory, behaviour):
            assert memory[:5] == b"dirty" and memory[5:] == content[5:]
    memory.close()


def test_child_of_a_fork_reads_on(mapped, content):
    with ahead.advise(mapped) as advised:
        assert mapped[:100_000] == content[:100_000]
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            is_same = mapped[:] == content
            advised.progress(200_000)
            advised.close()
            os._exit(0 if is_same else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert mapped[:] == content
