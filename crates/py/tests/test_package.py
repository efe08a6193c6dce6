"""The package: names, versions, type stubs."""

import importlib.util
import subprocess
import sys

import ahead
import pytest


def test_names_are_documented():
    assert set(ahead.__all__) == {"Advised", "Budget", "Prefetcher", "Reader", "advise", "open"}
    assert ahead.__version__ and "Read-ahead inside a program" in ahead.__doc__
    for name in ahead.__all__:
        assert getattr(ahead, name).__doc__, name
    for kind in [ahead.Advised, ahead.Budget, ahead.Prefetcher, ahead.Reader]:
        for name, method in vars(kind).items():
            if not name.startswith("_"):
                assert method.__doc__, (kind, name)


def test_type_stubs_are_those_of_the_module(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "ahead"]
    tested = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert tested.returncode == 0, tested.stdout
