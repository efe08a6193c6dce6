"""The data loader of examples/python on a few files."""

import json
import pathlib
import subprocess
import sys

import pytest

LOADER = pathlib.Path(__file__).resolve().parents[3] / "examples/python/loader.py"


def load(directory, *options):
    command = [sys.executable, LOADER, directory, "--batch", "16", *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def test_all_ways_of_loading_give_the_same_bytes_in_the_same_order(files, tmp_path):
    results = [load(tmp_path, *way) for way in [["--plain"], ["--threads", "4"], ["--ahead"], ["--ahead", "--window", "1M"]]]
    total = sum(pathlib.Path(path).stat().st_size for path in files)
    assert [(result["files"], result["bytes"]) for result in results] == 4 * [(len(files), total)]
    assert len({result["checksum"] for result in results}) == 1
    assert all(result["elapsed_s"] > 0 and result["max_rss_bytes"] > 0 for result in results)
    assert load(tmp_path, "--plain", "--seed", "2")["checksum"] != results[0]["checksum"]


def test_wrong_usage_is_refused(tmp_path):
    for options in [["--plain", "--ahead"], ["--threads", "0"], ["--batch", "0"]]:
        command = [sys.executable, LOADER, tmp_path, *options]
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 2
    missing = subprocess.run([sys.executable, LOADER, tmp_path / "missing"], stderr=subprocess.PIPE, text=True)
    assert missing.returncode == 1 and "missing" in missing.stderr


@pytest.mark.parametrize("way", [["--plain"], ["--threads", "2"], ["--ahead"]])
def test_empty_directory_is_loaded(tmp_path, way):
    assert load(tmp_path, *way)["files"] == 0
