"""Paired comparisons against hand numbers and scipy."""

from __future__ import annotations

from math import nan

import pytest
from scipy.stats import wilcoxon

from nicegnn_lab.paper.methods import Method
from nicegnn_lab.tables.comparison import compare, comparison_table
from tests.lab.tables.synthetic_rows import bench_rows, joined

NICE, SALIENCY = Method("nice", "exchange"), Method("saliency", "em")
EIGHT = [0.1 * k for k in range(1, 9)]


def test_difference_is_over_common_graphs_and_means_over_seeds() -> None:
    rows = joined(
        bench_rows({("benzene", "nice+exchange", 0): [0.9, 0.8, 0.7, nan]}),
        bench_rows(
            {("benzene", "nice+exchange", 1): [0.7, 0.6, 0.7, nan]}
        ),  # means 0.8 0.7 0.7 nan
        bench_rows({("benzene", "saliency+em", 0): [0.6, 0.3, 0.1]}, graph=[0, 1, 3]),
    )
    (found,) = compare(rows, [(NICE, SALIENCY)])
    assert found.test.num == 2  # graphs 0 and 1
    assert found.test.mean == pytest.approx(0.3, abs=1e-6)  # 0.2 and 0.4
    assert found.means == pytest.approx((0.75, 0.45), abs=1e-6)


def test_p_values_are_wilcoxons_after_holm() -> None:
    better = [v + 0.01 * (k + 1) for k, v in enumerate(EIGHT)]
    mixed = [v + d for v, d in zip(EIGHT, (1, -2, 3, -4, 5, -6, 7, -8), strict=True)]
    rows = bench_rows(
        {
            ("benzene", "nice+exchange", 0): EIGHT,
            ("benzene", "saliency+em", 0): better,
            ("benzene", "random+", 0): mixed,
        }
    )
    (table,) = comparison_table(rows)
    p = [wilcoxon(EIGHT, other).pvalue for other in (better, mixed)]
    assert p[0] == pytest.approx(2 / 2**8)
    assert [row[7] for row in table.rows] == [f"{2 * p[0]:.3f}", f"{p[1]:.3f}"]
    assert table.best == {(0, 4)}  # saliency is better; random is not different
