"""Tidy tables: bad rows and damaged files are named."""

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


@pytest.mark.parametrize(
    ("row", "column", "cell", "told"),
    [
        (1, "bonds", "0-1:1 1-2:9", "with the type"),
        (3, "atoms", "", "at least one atom"),
        (0, "masks", "[[99]]", "got 99"),  # it marks no bond, yet its atoms give it away
        (1, "label", "2", "must be 0 or 1"),
        (2, "masks", "not json", "Expecting value"),
        (3, "bonds", "0-7:1", "got 0-7:1"),
    ],
)
def test_a_bad_row_is_named_with_line_and_reason(tmp_path, row, column, cell, told):
    rows = tidy_benzene_rows()
    rows[row][column] = cell
    write_csv(tmp_path / TABLE, rows)
    with pytest.raises(DamagedFileError, match=rf"got 1 of 4 rows .*: line {row + 2} .*") as error:
        load("benzene", tmp_path)
    assert told in str(error.value)


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
    assert rings.y.tolist() == [0, 1, 0]
    assert not rings[0].edge_truth.any()  # label 0
    tensors, _, _ = rings.flat()
    assert tensors["rings-max/annotation"][:10].sum() == 6  # yet its largest ring is marked
    assert rings[1].edge_truth.all()
    assert tensors["rings-count/annotation"][:10].all()
    assert indole.part.tolist() == [0, 1, 2]
    assert indole.split == "0"  # the first of five
    assert all(STAND_IN in text for text in (indole.title, repr(indole.test)))
