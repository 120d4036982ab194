"""Preparing: the cache follows the content of the files, and no row is lost."""

import hashlib
import json
import logging
import os

import pytest
import torch
from safetensors import safe_open

from nicegnn_lab.datasets.data_files import DamagedFileError, MissingDataError
from nicegnn_lab.datasets.dataset import load_dataset
from nicegnn_lab.datasets.prepare import prepare_dataset
from tests.lab.datasets.small_files import tidy_benzene, tidy_benzene_rows, write_csv

TABLE = "graphxai_benzene.csv.gz"


def cache_files(folder):
    return sorted((folder / "datasets").glob("*.safetensors"))


def test_second_time_reads_the_cache_and_gives_the_same(tmp_path, monkeypatch):
    tidy_benzene(tmp_path)
    first, files = prepare_dataset("benzene", tmp_path, tmp_path / "c")
    monkeypatch.setattr("nicegnn_lab.datasets.prepare._read", lambda *_: pytest.fail("read again"))
    second, again = prepare_dataset("benzene", tmp_path, tmp_path / "c")
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[key]) for key, value in first.items())
    assert files == again


def test_cache_is_rebuilt_when_the_content_changes(tmp_path):
    path = tidy_benzene(tmp_path)
    old = os.stat(path)
    assert len(load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")) == 4
    rows = tidy_benzene_rows()
    rows[3]["smiles"] = "CCN"
    write_csv(path, rows)
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))  # the date alone must not decide
    assert load_dataset("benzene", root=tmp_path, cache=tmp_path / "c").smiles[3] == "CCN"
    assert len(cache_files(tmp_path / "c")) == 2


@pytest.mark.parametrize("content", [b"", b"no tensors", None])
def test_damaged_cache_is_built_anew(content, tmp_path, caplog):
    tidy_benzene(tmp_path)
    prepare_dataset("benzene", tmp_path, tmp_path / "c")
    (path,) = cache_files(tmp_path / "c")
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with caplog.at_level(logging.WARNING):
        assert len(load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")) == 4
    assert "It is built again" in caplog.text


def test_cache_files_keep_their_names(tmp_path):
    """The name is a promise: prepared data must outlive a change of the code that reads files."""
    tidy_benzene(tmp_path)
    prepare_dataset("benzene", tmp_path, tmp_path / "c")
    (path,) = cache_files(tmp_path / "c")
    sums = {TABLE: hashlib.sha256((tmp_path / TABLE).read_bytes()).hexdigest()}
    text = json.dumps([1, "benzene", "tidy", "error", sums], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert path == tmp_path / "c" / "datasets" / f"benzene-tidy-{key}.safetensors"
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["nicegnn"])["kind"] == "molecule-dataset"


def test_missing_files_are_named_with_the_folder(tmp_path):
    with pytest.raises(MissingDataError) as error:
        load_dataset("benzene", root=tmp_path)
    for part in (str(tmp_path), TABLE, "scripts/published_data.py"):
        assert part in str(error.value)


def test_rows_without_atoms_are_an_error(tmp_path):
    write_csv(tmp_path / TABLE, [{**row, "atoms": ""} for row in tidy_benzene_rows()])
    with pytest.raises(
        DamagedFileError, match=r"got 4 of 4 rows .*line 2 \(Cc1ccccc1\): `atoms` must hold"
    ):
        load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
