"""Tables of quality against numbers worked out by hand."""

from __future__ import annotations

from math import nan

import pytest

from nicegnn.errors import MetricError, StoreError
from nicegnn_lab.tables.quality import quality_table
from nicegnn_lab.tables.table import Table
from tests.lab.tables.synthetic_rows import bench_rows

ROWS = bench_rows(
    {
        ("benzene", "pgexplainer+em", 0): [0.8, 0.6],  # 0.7
        ("benzene", "pgexplainer+em", 1): [0.9, nan],  # 0.9: mean 0.8, deviation sqrt(0.02)
        ("benzene", "nice+exchange", 0): [1.0, 0.8],  # 0.9, one seed
        ("benzene", "random+", 0): [1.0, 0.98],  # 0.99, not ranked
        ("benzene", "confexplainer-supervised+em", 0): [0.95, 0.95],  # not ranked
        ("benzene", "pgexplainer+nc", 0): [1.0, 1.0],  # not its own mechanism
        ("indole", "pgexplainer+em", 0): [0.6, 0.6],
        ("indole", "saliency+em", 0): [0.5, 0.5],
        ("indole", "integrated-gradients+em", 0): [nan, nan],
    }
)


def cells(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


def bold(table: Table) -> set[tuple[str, str]]:
    return {(table.rows[r][0], table.columns[c]) for r, c in table.best}


def test_means_deviations_paper_values_ranks_and_bold() -> None:
    table = quality_table(ROWS, "roc_auc")
    assert table.columns == ["method", "group", "benzene", "indole", "mean", "rank (of 4)"]
    assert cells(table) == {
        "saliency": ["rival", "- (64.2)", "50.0 (66.3)", "-", "2.00 (1)"],
        "integrated-gradients": ["rival", "-", "nan", "-", "-"],
        "pgexplainer": ["rival", "80.0 ± 14.1 (76.4)", "60.0 (63.8)", "70.0", "1.50 (2)"],
        "nice": ["ours", "90.0 (86.6)", "- (82.9)", "-", "1.00 (1)"],
        "confexplainer-supervised": ["supervised", "95.0", "-", "-", "-"],
        "random": ["reference", "99.0 (51.9)", "- (49.9)", "-", "-"],
    }
    assert [row[0] for row in table.rows][-2:] == ["confexplainer-supervised", "random"]
    assert bold(table) == {("nice", "benzene"), ("pgexplainer", "indole")}
    assert "1 to 2 seed(s)" in table.notes[0]
    assert "benzene 2, indole 2" in table.notes[1]
    assert "pgexplainer on indole (1)" in table.notes[2]


def test_errors_name_what_there_is() -> None:
    with pytest.raises(StoreError, match="paper"):
        quality_table(ROWS, "roc_auc", protocol="strict")
    with pytest.raises(MetricError, match="roc_auc"):
        quality_table(ROWS, "beauty")
