"""Files for the tests."""

import random

import pytest


@pytest.fixture(scope="session")
def content():
    """3 MiB and a bit of bytes with lines of many lengths."""
    words = random.Random(1996)
    return b"".join(words.randbytes(words.randrange(1, 3000)).replace(b"\n", b".") + b"\n" for _ in range(2100))


@pytest.fixture(scope="session")
def big(tmp_path_factory, content):
    """A file with the content."""
    path = tmp_path_factory.mktemp("big") / "big.bin"
    path.write_bytes(content)
    return path


@pytest.fixture
def files(tmp_path):
    """300 small files, in a shuffled order."""
    order = random.Random(19)
    paths = []
    for number in range(300):
        path = tmp_path / f"{number:03}.bin"
        path.write_bytes(order.randbytes(order.randrange(0, 9000)))
        paths.append(str(path))
    order.shuffle(paths)
    return paths
