"""Preparing: the cache follows the content of the files, and no row is lost without a word."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from nicegnn.datasets import DamagedFileError, MissingDataError, load_dataset, prepare_dataset
from nicegnn.datasets.parallel import ordered_map
from nicegnn.errors import ConfigError
from tests.datasets.small_files import (
    published_benzene,
    published_bxaic,
    tidy_benzene,
    tidy_benzene_rows,
    tidy_bxaic,
    tu_folder,
    tu_texts,
    tu_zip,
    write_csv,
)

TABLE = "graphxai_benzene.csv.gz"


def cache_files(folder):
    return sorted((folder / "datasets").glob("*.safetensors"))


def test_second_time_reads_the_cache_and_gives_the_same(tmp_path, monkeypatch):
    tidy_benzene(tmp_path)
    first = prepare_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    monkeypatch.setattr("nicegnn.datasets.prepare._read", lambda *_: pytest.fail("read again"))
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
    assert "Building it anew" in caplog.text


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
from nicegnn.datasets import load_dataset
for _ in range(2):
    for name in ("benzene", "rings-max"):
        assert len(list(load_dataset(name, root={str(tmp_path)!r}, cache={str(tmp_path / "c")!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_missing_files_are_named_with_the_folder(tmp_path):
    with pytest.raises(MissingDataError) as error:
        load_dataset("benzene", root=tmp_path)
    for part in (str(tmp_path), TABLE, "benzene/y_true.npz", "nicegnn data download benzene"):
        assert part in str(error.value)


def test_half_a_layout_says_which_file_is_there(tmp_path):
    (published_benzene(tmp_path) / "y_true.npz").unlink()
    with pytest.raises(MissingDataError, match=r"benzene_smiles\.csv \(there\), benzene/y_true"):
        load_dataset("benzene", root=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "benzen"}, "name: expected one of mutagenicity, benzene.*got 'benzen'"),
        ({"layout": "other"}, "layout: expected one of tidy, published, got 'other'"),
        ({"subset": "half"}, "subset: expected 'paper' or 'all', got 'half'"),
        ({"on_damage": "ignore"}, "on_damage: expected 'error' or 'keep', got 'ignore'"),
        ({"name": "mutagenicity", "subset": "all"}, "subset: expected 'paper' for mutagenicity"),
    ],
)
def test_unknown_settings_name_the_known_ones(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        load_dataset(**{"name": "benzene", "root": tmp_path, **settings})


def test_bad_rows_are_reported_and_the_good_ones_kept(tmp_path, caplog):
    rows = tidy_benzene_rows() * 2
    bad = {
        0: ("atoms", "C C C C C C Xx"),
        1: ("bonds", "0-1:1 1-2:9"),
        3: ("atoms", ""),
        4: ("masks", "[[99]]"),
        5: ("label", "2"),
        6: ("masks", "not json"),
        7: ("bonds", "0-7:1"),
    }
    for index, row in enumerate(rows):
        rows[index] = {**row, "idx": index}
        if index in bad:
            rows[index][bad[index][0]] = bad[index][1]
    write_csv(tmp_path / TABLE, rows)
    with caplog.at_level(logging.WARNING):
        dataset = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    # a mask outside the molecule marks no bond, yet its atoms give it away
    assert dataset.rows.tolist() == [2]
    assert [item.row for item in dataset.report.rejected] == sorted(bad)
    reasons = " ".join(item.reason for item in dataset.report.rejected)
    for part in ("'Xx'", "bond type", "at least one atom", "got 99", "label 0 or 1", "JSON"):
        assert part in reasons
    assert (dataset.report.num_rows, dataset.report.num_graphs) == (8, 1)
    assert "7 rows rejected" in caplog.text


def test_no_usable_row_is_an_error(tmp_path):
    write_csv(tmp_path / TABLE, [{**row, "atoms": ""} for row in tidy_benzene_rows()])
    with pytest.raises(DamagedFileError, match="none can be used"):
        load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")


@pytest.mark.parametrize("missing", ["masks", "label", "bonds"])
def test_missing_columns_are_named(missing, tmp_path):
    rows = [{k: v for k, v in row.items() if k != missing} for row in tidy_benzene_rows()]
    write_csv(tmp_path / TABLE, rows)
    with pytest.raises(DamagedFileError, match=f"{missing} missing among idx"):
        load_dataset("benzene", root=tmp_path)


def test_truncated_table_is_an_error_or_keeps_what_came_before(tmp_path):
    path = tidy_benzene(tmp_path, copies=2000)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DamagedFileError, match=r"stopped after \d+ rows.*on_damage='keep'"):
        load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    dataset = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c", on_damage="keep")
    assert 0 < len(dataset) < 8000
    assert any("reading stopped" in note for note in dataset.report.notes)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"plain text, no gzip"])
def test_files_of_another_kind_are_named(content, tmp_path):
    (tmp_path / TABLE).write_bytes(content)
    with pytest.raises(DamagedFileError, match=TABLE):
        load_dataset("benzene", root=tmp_path)


def test_a_file_we_do_not_know_is_noted(tmp_path):
    tidy_benzene(tmp_path)
    report = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c").report
    assert any("is not the one we know" in note for note in report.notes)


def test_molecules_without_a_graph_row_are_rejected(tmp_path):
    import csv
    import gzip

    tidy_bxaic(tmp_path)
    path = tmp_path / "bxaic_like_graphs.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    write_csv(path, rows[:2])
    dataset = load_dataset("indole", root=tmp_path, cache=tmp_path / "c")
    assert len(dataset) == 2
    assert "no row with id 2" in dataset.report.rejected[0].reason


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("node_labels", lambda text: text[:-4], "lines in Mutagenicity_node_labels.txt"),
        ("A", lambda text: text + "7\n", "two numbers in each line"),
        ("A", lambda text: text.replace("2, 3", "2, 999"), "atom numbers from 1 to"),
        ("graph_labels", lambda text: text + "x\n", "whole numbers in Mutagenicity_graph_labels"),
        ("edge_labels", lambda text: "", "lines in Mutagenicity_edge_labels.txt"),
    ],
)
@pytest.mark.parametrize("write", [tu_folder, tu_zip])
def test_damaged_tu_files_are_named(write, part, change, message, tmp_path):
    texts = tu_texts()
    write(tmp_path, {**texts, part: change(texts[part])})
    with pytest.raises(DamagedFileError, match=message):
        load_dataset("mutagenicity", root=tmp_path)


def test_damaged_or_incomplete_zip_is_named(tmp_path):
    path = tu_zip(tmp_path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DamagedFileError, match=r"Mutagenicity_raw\.zip: expected a zip file"):
        load_dataset("mutagenicity", root=tmp_path)
    tu_zip(tmp_path, {key: text for key, text in tu_texts().items() if key != "A"})
    with pytest.raises(DamagedFileError, match=r"expected Mutagenicity_A\.txt inside"):
        load_dataset("mutagenicity", root=tmp_path)


def test_published_molecules_that_rdkit_rejects_are_reported(tmp_path):
    pytest.importorskip("rdkit")
    folder = published_benzene(tmp_path)
    path = folder / "benzene_smiles.csv"
    path.write_text(path.read_text().replace("C1CCCCC1", "C1CC(").replace("CCO", ""))
    dataset = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    assert dataset.rows.tolist() == [0, 2]
    assert [item.row for item in dataset.report.rejected] == [1, 3]
    assert "C1CC(" in dataset.report.rejected[0].reason
    assert "empty string" in dataset.report.rejected[1].reason


def test_labels_against_the_rule_are_kept_and_noted(tmp_path):
    import numpy as np

    pytest.importorskip("rdkit")
    folder = published_benzene(tmp_path)
    np.savez(folder / "y_true.npz", y=np.array([[0.0], [1.0], [1.0], [0.0]]))
    dataset = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    assert dataset.y.tolist() == [0, 1, 1, 0]
    assert not dataset[0].edge_truth.any()
    notes = " ".join(dataset.report.notes)
    assert "row 0: published label 0, but the rule 'benzene' gives 1" in notes
    assert "1 positives have no true bond" in notes


def test_labels_of_another_length_are_damage(tmp_path):
    import numpy as np

    pytest.importorskip("rdkit")
    folder = published_benzene(tmp_path)
    np.savez(folder / "y_true.npz", y=np.array([[0.0], [1.0], [1.0]]))
    with pytest.raises(DamagedFileError, match="expected 4 labels"):
        load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")


def test_truncated_sdf_is_an_error_or_keeps_what_came_before(tmp_path):
    pytest.importorskip("rdkit")
    path = published_bxaic(tmp_path) / "explanations.sdf"
    path.write_text(path.read_text()[:-60])
    with pytest.raises(DamagedFileError, match=r"ends in the middle of molecule 2"):
        load_dataset("indole", root=tmp_path, cache=tmp_path / "c")
    dataset = load_dataset("indole", root=tmp_path, cache=tmp_path / "c", on_damage="keep")
    assert len(dataset) == 2


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<rings_edge>", "<other>", "property 'rings_edge'"),
        ("M  END", "M  ???", "RDKit cannot read"),
        ("0#1", "0#4", "KeyError"),
    ],
)
def test_bad_sdf_molecules_are_reported(old, new, reason, tmp_path):
    pytest.importorskip("rdkit")
    path = published_bxaic(tmp_path, order="as written") / "explanations.sdf"
    path.write_text(path.read_text().replace(old, new, 1))
    report = load_dataset("rings-count", root=tmp_path, cache=tmp_path / "c").report
    assert [item.row for item in report.rejected] == [0]
    assert reason in report.rejected[0].reason


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_keep_the_order(workers):
    assert list(ordered_map(abs, range(-450, 0), workers)) == list(range(450, 0, -1))
