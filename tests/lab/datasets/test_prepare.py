"""Preparing: the cache follows the content of the files, and no row is lost without a word."""

import hashlib
import json
import logging
import os
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open

from nicegnn.errors import ConfigError
from nicegnn_lab.datasets import DamagedFileError, MissingDataError, load_dataset, prepare_dataset
from tests.lab.datasets.small_files import (
    published_benzene,
    tidy_benzene,
    tidy_benzene_rows,
    tidy_bxaic,
    write_csv,
)

TABLE = "graphxai_benzene.csv.gz"


def cache_files(folder):
    return sorted((folder / "datasets").glob("*.safetensors"))


def test_second_time_reads_the_cache_and_gives_the_same(tmp_path, monkeypatch):
    tidy_benzene(tmp_path)
    first = prepare_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    monkeypatch.setattr("nicegnn_lab.datasets.prepare._read", lambda *_: pytest.fail("read again"))
    second = prepare_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    assert first.tensors.keys() == second.tensors.keys()
    assert all(torch.equal(value, second.tensors[key]) for key, value in first.tensors.items())
    assert str(first.report) == str(second.report)


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
    path = prepare_dataset("benzene", root=tmp_path, cache=tmp_path / "c").path
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with caplog.at_level(logging.WARNING):
        assert len(load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")) == 4
    assert "It is built again" in caplog.text


def test_cache_files_keep_their_names(tmp_path):
    """The name is a promise: prepared data must outlive a change of the code that reads files."""
    tidy_benzene(tmp_path)
    prepared = prepare_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    sums = {TABLE: hashlib.sha256((tmp_path / TABLE).read_bytes()).hexdigest()}
    text = json.dumps([1, "benzene", "tidy", "error", sums], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert prepared.path == tmp_path / "c" / "datasets" / f"benzene-tidy-{key}.safetensors"
    with safe_open(prepared.path, framework="pt") as file:
        assert json.loads(file.metadata()["nicegnn"])["kind"] == "molecule-dataset"


def test_data_folder_is_only_read(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    tidy_benzene(root)
    load_dataset("benzene", root=root, cache=tmp_path / "c")
    assert [path.name for path in root.iterdir()] == [TABLE]


def test_unwritable_cache_is_no_obstacle(tmp_path, caplog):
    tidy_benzene(tmp_path)
    (tmp_path / "c").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert len(load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")) == 4
    assert "NICEGNN_CACHE" in caplog.text


def test_folders_come_from_the_environment(tmp_path, monkeypatch):
    tidy_benzene(tmp_path)
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path))
    monkeypatch.setenv("NICEGNN_CACHE", str(tmp_path / "elsewhere"))
    assert len(load_dataset("benzene")) == 4
    assert cache_files(tmp_path / "elsewhere")


def test_tidy_tables_and_the_cache_need_no_rdkit(tmp_path):
    tidy_benzene(tmp_path)
    tidy_bxaic(tmp_path)
    code = f"""
import sys
sys.modules["rdkit"] = None
from nicegnn_lab.datasets import load_dataset
for _ in range(2):
    for name in ("benzene", "rings-max"):
        assert len(list(load_dataset(name, root={str(tmp_path)!r}, cache={str(tmp_path / "c")!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_files_are_named_with_the_folder(tmp_path):
    with pytest.raises(MissingDataError) as error:
        load_dataset("benzene", root=tmp_path)
    for part in (str(tmp_path), TABLE, "benzene/y_true.npz", "nicegnn lab data download benzene"):
        assert part in str(error.value)


def test_half_a_layout_says_which_file_is_there(tmp_path):
    (published_benzene(tmp_path) / "y_true.npz").unlink()
    with pytest.raises(MissingDataError, match=r"benzene_smiles\.csv \(there\), benzene/y_true"):
        load_dataset("benzene", root=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "benzen"}, r"`name` must be one of \('mutagenicity', 'benzene'.*got 'benzen'"),
        ({"layout": "other"}, r"`layout` must be one of \('tidy', 'published'\) \(got 'other'"),
        ({"subset": "half"}, r"`subset` must be one of \('paper', 'all'\) \(got 'half'"),
        ({"on_damage": "ignore"}, r"`on_damage` must be one of \('error', 'keep'\) \(got 'ignore'"),
        ({"name": "mutagenicity", "subset": "all"}, "`subset` must be 'paper' for mutagenicity"),
    ],
)
def test_unknown_settings_name_the_known_ones(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        load_dataset(**{"name": "benzene", "root": tmp_path, **settings})


def test_no_usable_row_is_an_error(tmp_path):
    write_csv(tmp_path / TABLE, [{**row, "atoms": ""} for row in tidy_benzene_rows()])
    with pytest.raises(DamagedFileError, match="got none that can be used: `atoms` must hold"):
        load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")


def test_a_file_we_do_not_know_is_noted(tmp_path):
    tidy_benzene(tmp_path)
    report = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c").report
    assert any("has unknown content" in note for note in report.notes)
