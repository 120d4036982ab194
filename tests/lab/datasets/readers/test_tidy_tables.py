"""Tidy tables: bad rows are reported, damaged files named, and processes keep the order."""

import logging

import pytest

from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.dataset import STAND_IN
from tests.lab.datasets.small_files import (
    load,
    tidy_benzene,
    tidy_benzene_rows,
    tidy_bxaic,
    write_csv,
)

TABLE = "graphxai_benzene.csv.gz"


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
        dataset = load("benzene", tmp_path)
    # a mask outside the molecule marks no bond, yet its atoms give it away
    assert dataset.rows.tolist() == [2]
    assert [item.row for item in dataset.report.rejected] == sorted(bad)
    reasons = " ".join(item.reason for item in dataset.report.rejected)
    for part in ("'Xx'", "have the type", "at least one atom", "got 99", "must be 0 or 1", "JSON"):
        assert part in reasons
    assert (dataset.report.num_rows, dataset.report.num_graphs) == (8, 1)
    assert "7 rows rejected" in caplog.text


@pytest.mark.parametrize("missing", ["masks", "label", "bonds"])
def test_missing_columns_are_named(missing, tmp_path):
    rows = [{k: v for k, v in row.items() if k != missing} for row in tidy_benzene_rows()]
    write_csv(tmp_path / TABLE, rows)
    with pytest.raises(DamagedFileError, match=rf"\(got idx.*; {missing} missing\)"):
        load("benzene", tmp_path)


def test_truncated_table_is_an_error(tmp_path):
    path = tidy_benzene(tmp_path, copies=2000)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DamagedFileError, match=r"got \d+ rows, then EOFError"):
        load("benzene", tmp_path)


def test_ring_tasks_and_parts_by_hand(tmp_path):
    tidy_bxaic(tmp_path)
    indole, rings = load("indole", tmp_path), load("rings-max", tmp_path)
    assert indole.y.tolist() == [1, 0, 0]
    assert indole[0].edge_truth.all()
    assert len(indole[0].edge_alternatives) == 1
    assert not indole[1].edge_truth.any()
    assert "edge_annotation" not in indole[0]
    assert rings.y.tolist() == [0, 1, 0]
    assert not rings[0].edge_truth.any()  # label 0
    assert rings[0].edge_annotation.sum() == 12  # yet its largest ring is marked
    assert rings[1].edge_truth.all()
    assert int(load("rings-count", tmp_path)[0].edge_annotation.sum()) == 20
    assert indole.part.tolist() == [0, 1, 2]
    assert indole.origin.split == "0"  # the first of five
    assert "stand-in" in indole.report.layout
    assert all(STAND_IN in text for text in (indole.title, repr(indole.test)))
