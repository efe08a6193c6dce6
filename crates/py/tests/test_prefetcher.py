"""ahead.Prefetcher: the same objects in the same order, in every kind of process and thread."""

import copy
import gc
import itertools
import multiprocessing
import operator
import os
import pathlib
import pickle
import signal
import threading
import weakref

import ahead
import pytest


def same_objects(expected, found):
    """Whether two lists have the same objects, not only equal ones."""
    return len(expected) == len(found) and all(map(operator.is_, expected, found))


@pytest.mark.parametrize(
    "options",
    [{}, {"window": "1M"}, {"window": 65_536}, {"items_ahead": 1}, {"items_ahead": 50}, {"seconds": 0.5}, {"budget": "8K"}, {"threads": 1}],
)
@pytest.mark.parametrize("kind", [str, os.fsencode, pathlib.Path, lambda path: (path, 0, 4096), lambda path: (pathlib.Path(path), 5, 5)])
def test_same_objects_in_the_same_order(files, kind, options):
    items = [kind(path) for path in files]
    assert same_objects(items, list(ahead.Prefetcher(items, **options)))


def test_any_iterable_is_a_source(files):
    for items in [tuple(files), iter(files), (path for path in files), dict.fromkeys(files), map(str, files)]:
        assert list(ahead.Prefetcher(items)) == files
    assert list(ahead.Prefetcher([])) == []
    assert list(ahead.Prefetcher(path for path in [])) == []


def test_files_are_those_of_the_loop_and_are_counted(files):
    with ahead.Prefetcher(files) as paths:
        read = [open(path, "rb").read() for path in paths]
        counters = paths.counters()
    assert read == [open(path, "rb").read() for path in files]
    assert counters["items"] == len(files)
    assert set(counters) >= {"prefetched_items", "prefetched_bytes", "cached_items", "skipped", "late"}
    assert all(isinstance(value, int) for value in counters.values())
    assert paths.counters()["items"] == len(files)


def test_resolve_yields_the_keys(files):
    keys = [(number, {"label": number % 10}) for number in range(len(files))]
    for answer in [lambda key: files[key[0]], lambda key: (files[key[0]], 10, 20), lambda key: None]:
        assert same_objects(keys, list(ahead.Prefetcher(keys, resolve=answer)))


def test_missing_files_are_no_error(files, tmp_path):
    missing = [str(tmp_path / f"missing-{number}") for number in range(100)]
    items = [path for pair in zip(files, missing, strict=False) for path in pair] + [str(tmp_path), "/dev/null", "a\0b", ""]
    assert list(ahead.Prefetcher(items)) == items


def test_names_that_are_not_unicode(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(path, "wb") as file:
        file.write(b"x")
    items = [path, os.fsdecode(path)]
    with ahead.Prefetcher(items) as paths:
        assert list(paths) == items
        assert paths.counters()["skipped"] == 0


@pytest.mark.parametrize("at", [0, 1, 70, 299])
def test_exception_of_a_generator_is_raised_in_its_place(files, at):
    def source():
        for number, path in enumerate(files):
            if number == at:
                raise LookupError(f"item {at}")
            yield path

    paths = ahead.Prefetcher(source())
    assert list(itertools.islice(paths, at)) == files[:at]
    with pytest.raises(LookupError, match=f"item {at}"):
        next(paths)
    assert list(paths) == []


def test_exceptions_of_resolve_and_of_types_are_raised_in_their_places(files):
    def resolve(key):
        if key == 5:
            raise LookupError("key 5")
        return 1.5 if key == 7 else files[key]

    outcomes = []
    keys = ahead.Prefetcher(range(10), resolve=resolve)
    for _ in range(10):
        try:
            outcomes.append(next(keys))
        except (LookupError, TypeError) as error:
            outcomes.append(str(error))
    assert outcomes[:5] + [outcomes[6]] + outcomes[8:] == [0, 1, 2, 3, 4, 6, 8, 9]
    assert "key 5" in outcomes[5]
    assert "expected a path (str, bytes, os.PathLike) or a tuple (path, start, stop), got float" in outcomes[7]


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [
        (5, TypeError, "got int; for other items give resolve="),
        (None, TypeError, "got NoneType"),
        (("a", 1), TypeError, "got tuple"),
        ((5, 1, 2), TypeError, "got tuple"),
        (("a", 5, 2), ValueError, "start 5 is larger than stop 2"),
        (("a", -1, 2), ValueError, "not negative"),
        (("a", None, 2), ValueError, "int offsets"),
    ],
)
def test_bad_item_is_an_error_in_its_place(files, item, kind, message):
    paths = ahead.Prefetcher([files[0], item, files[1]])
    assert next(paths) == files[0]
    with pytest.raises(kind, match=message):
        next(paths)
    assert next(paths) == files[1]
    with pytest.raises(StopIteration):
        next(paths)


def test_bad_arguments_are_named(files):
    for items, options, kind, message in [
        (5, {}, TypeError, "not iterable"),
        ("a/path", {}, TypeError, "items: expected an iterable of paths, got the single path"),
        (pathlib.Path("a"), {}, TypeError, "single path"),
        (files, {"window": "32X"}, ValueError, "window: .*is not a size"),
        (files, {"window": 0}, ValueError, "window: must be larger than 0"),
        (files, {"window": 1.5}, TypeError, 'window: expected an int of bytes or a str such as "32M", got float'),
        (files, {"window": True}, TypeError, "window: .*got bool"),
        (files, {"items_ahead": 0}, ValueError, "items_ahead: must be larger than 0"),
        (files, {"items_ahead": -1}, ValueError, "items_ahead: must be larger than 0"),
        (files, {"seconds": 0}, ValueError, "seconds: must be larger than 0"),
        (files, {"seconds": float("nan")}, ValueError, "seconds"),
        (files, {"seconds": float("inf")}, ValueError, "seconds"),
        (files, {"window": "1M", "seconds": 1}, ValueError, "only one of them"),
        (files, {"threads": -1}, ValueError, "threads: must not be negative"),
        (files, {"budget": []}, TypeError, "budget: expected"),
        (files, {"resolve": "name"}, TypeError, "resolve: expected a callable, got str"),
        (files, {"windows": 5}, TypeError, "windows"),
    ]:
        with pytest.raises(kind, match=message):
            ahead.Prefetcher(items, **options)


def test_nothing_is_taken_before_the_first_next(files):
    taken = []
    paths = ahead.Prefetcher(path for path in files if taken.append(path) is None)
    with paths:
        assert taken == [] and paths.counters()["items"] == 0
        assert next(paths) == files[0]
        assert taken == files[: len(taken)]
    assert len(taken) <= len(files)


def test_endless_generator_is_taken_a_bounded_number_ahead():
    taken = itertools.count()
    keys = ahead.Prefetcher(taken, resolve=lambda key: f"/missing/{key}")
    assert list(itertools.islice(keys, 1000)) == list(range(1000))
    assert next(taken) <= 1000 + 4096 + 1


def test_closed_prefetcher_raises_value_error(files):
    with ahead.Prefetcher(files) as paths:
        assert next(paths) == files[0]
    with pytest.raises(ValueError, match="the Prefetcher is closed"):
        next(paths)
    paths.close()
    for path in ahead.Prefetcher(files):
        if path == files[10]:
            break


def test_length_is_that_of_the_source(files):
    paths = ahead.Prefetcher(files)
    assert len(paths) == len(files) and paths
    assert operator.length_hint(paths) == len(files)
    next(paths)
    assert paths.__length_hint__() == len(files) - 1
    assert ahead.Prefetcher([])
    generator = ahead.Prefetcher(path for path in files)
    assert generator
    with pytest.raises(TypeError, match="has no len"):
        len(generator)
    assert "list" in repr(paths)


def test_urgent_exception_is_raised_at_once_and_loses_nothing(files):
    interrupted = iter([True])

    def resolve(path):
        if path == files[200] and next(interrupted, False):
            raise KeyboardInterrupt
        return path

    paths = ahead.Prefetcher(files, resolve=resolve)
    taken = []
    with pytest.raises(KeyboardInterrupt):
        taken.extend(map(taken.append, paths))
    taken = [path for path in taken if path is not None]
    assert len(taken) <= 200
    assert taken + list(paths) == files


def test_reentrant_next_is_an_error_and_not_a_deadlock(files):
    def source():
        yield files[0]
        yield next(paths)

    paths = ahead.Prefetcher(source())
    assert next(paths) == files[0]
    with pytest.raises(RuntimeError, match="reentrant call"):
        next(paths)


def test_threads_share_the_items(files):
    paths = ahead.Prefetcher(path for path in files * 10)
    taken = [[] for _ in range(4)]
    threads = [threading.Thread(target=mine.extend, args=(paths,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path for mine in taken for path in mine) == sorted(files * 10)


def test_source_that_blocks_does_not_block_other_threads(files):
    may_go = threading.Event()

    def source():
        may_go.wait()
        yield from files

    paths = ahead.Prefetcher(source())
    taken = []
    threads = [threading.Thread(target=taken.extend, args=(paths,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    may_go.set()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(files)


def read_all(paths):
    """The number of files and their bytes: what a worker of a DataLoader does."""
    sizes = [len(open(path, "rb").read()) for path in paths]
    return len(sizes), sum(sizes)


def shard(arguments):
    files, worker, workers = arguments
    return read_all(ahead.Prefetcher(files[worker::workers]))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_kind_read_their_shards(files, method):
    # The parent has read ahead: its threads do not exist in a forked worker.
    expected = read_all(ahead.Prefetcher(files))
    with multiprocessing.get_context(method).Pool(2) as pool:
        parts = pool.map(shard, [(files, worker, 3) for worker in range(3)])
        assert tuple(map(sum, zip(*parts, strict=True))) == expected
        # A whole Prefetcher is sent to the worker, as the data set of a DataLoader is.
        assert pool.apply(read_all, (ahead.Prefetcher(files),)) == expected


def test_child_continues_after_a_fork_in_the_middle(files):
    paths = ahead.Prefetcher(files)
    assert list(itertools.islice(paths, 100)) == files[:100]
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        is_same = list(paths) == files[100:]
        paths.close()
        os._exit(0 if is_same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(paths) == files[100:]


def test_fork_inside_of_the_source(files):
    children = []

    def source():
        for number, path in enumerate(files):
            if number == 150:
                children.append(os.fork())
                if children[0] == 0:
                    signal.alarm(120)
            yield path

    found = list(ahead.Prefetcher(source()))
    if children == [0]:
        os._exit(0 if found == files else 1)
    assert found == files
    assert os.waitpid(children[0], 0)[1] == 0


def test_pickle_continues_behind_the_delivered_items(files):
    paths = ahead.Prefetcher(files, window="1M", threads=2)
    assert list(pickle.loads(pickle.dumps(paths))) == files
    assert list(itertools.islice(paths, 10)) == files[:10]
    again = pickle.loads(pickle.dumps(paths))
    assert again.__length_hint__() == len(files) - 10
    assert list(again) == files[10:]
    assert list(copy.copy(paths)) == files[10:]
    keys = ahead.Prefetcher(range(5), resolve=str, budget=ahead.Budget("1M"))
    assert list(pickle.loads(pickle.dumps(keys))) == [0, 1, 2, 3, 4]
    one_shot = ahead.Prefetcher(iter(files))
    assert list(pickle.loads(pickle.dumps(one_shot))) == files
    next(one_shot)
    with pytest.raises(TypeError, match="an iterator that it has begun"):
        pickle.dumps(one_shot)
    with pytest.raises(TypeError, match="generator"):
        pickle.dumps(ahead.Prefetcher(path for path in files))


def test_garbage_collector_frees_cycles(files):
    class Source:
        def __iter__(self):
            self.paths
            yield from files

    for has_begun in [False, True]:
        source = Source()
        source.paths = ahead.Prefetcher(source)
        if has_begun:
            next(source.paths)
        alive = weakref.ref(source)
        del source
        gc.collect()
        assert alive() is None, has_begun


@pytest.mark.parametrize("taken", [0, 1, 5, 20])
def test_items_that_refer_to_the_prefetcher_are_collected(files, taken):
    class Name(str):
        pass

    # All are pulled by the first next(): only the prefetcher refers to those that were not taken.
    names = [Name(path) for path in files[:20]]
    paths = ahead.Prefetcher(iter(list(names)))
    for name in names:
        name.paths = paths
    for _ in range(taken):
        next(paths)
    alive = [weakref.ref(name) for name in names]
    del names, name, paths
    gc.collect()
    assert not any(name() for name in alive)


def test_exception_that_refers_to_the_prefetcher_is_collected(files):
    class Owner:
        def refuse(self, item):
            raise ValueError(self.paths)

    owner = Owner()
    owner.paths = ahead.Prefetcher(files[:20], resolve=owner.refuse)
    with pytest.raises(ValueError):
        next(owner.paths)
    alive = weakref.ref(owner)
    del owner
    gc.collect()
    assert alive() is None


def test_items_are_released_with_the_prefetcher(files):
    class Name(str):
        pass

    names = [Name(path) for path in files]
    alive = [weakref.ref(name) for name in names]
    paths = ahead.Prefetcher(iter(names))
    next(paths)
    paths.close()
    del names, paths
    gc.collect()
    assert not any(name() for name in alive)


def test_budget_is_given_back(files):
    budget = ahead.Budget("1M")
    with ahead.Prefetcher(files, budget=budget) as paths:
        next(paths)
    assert list(ahead.Prefetcher(files, budget=budget)) == files
