"""Mean ranks against numbers worked out by hand."""

from __future__ import annotations

import pandas as pd

from nicegnn_lab.tables.quality import QUANTITIES, SIDE_BY_SIDE, backbones_table
from nicegnn_lab.tables.table import Table
from tests.lab.tables.synthetic_rows import bench_rows, joined

#: Values on benzene and indole by method; the same for every metric unless said otherwise.
VALUES = {
    "nice+exchange": (0.9, 0.5),
    "occlusion+em": (0.8, 0.6),
    "saliency+em": (0.1, 0.1),
    "random+": (1.0, 1.0),  # not ranked
    "confexplainer-supervised+em": (1.0, 1.0),  # not ranked
}


def rows_with(**changed: dict[str, tuple[float, float]]) -> pd.DataFrame:
    """Rows of all that is ranked; ``kept_area_nc={"nice+exchange": ...}`` changes one metric."""
    parts = []
    for metric, protocol in (pair for pairs in QUANTITIES.values() for pair in pairs):
        values = VALUES | changed.get(f"{metric}_{protocol}", {})
        cells = {
            (dataset, name, 0): [value]
            for name, both in values.items()
            for dataset, value in zip(("benzene", "indole"), both, strict=True)
        }
        parts.append(bench_rows(cells, metric=metric, protocol=protocol))
    return joined(*parts)


def lines(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


def test_quantities_weigh_the_same_and_halves_of_fidelity_share_one() -> None:
    """Under NC alone nice is last: its fidelity rank is the mean of 1.5 and 3."""
    table = backbones_table(rows_with(kept_area_nc={"nice+exchange": (0.0, 0.0)}))
    assert table.columns == ["method", *(f"gin {name}" for name in SIDE_BY_SIDE), "mean"]
    assert lines(table) == {  # agreement, fidelity, and a quarter of it beside three of agreement
        "occlusion": ["1.50", "1.25", "1.44", "1.44"],
        "nice": ["1.50", "2.25", "1.69", "1.69"],
        "saliency": ["3.00", "2.50", "2.88", "2.88"],
    }
    assert [row[0] for row in table.rows] == ["occlusion", "nice", "saliency"]  # best first
    assert table.best == {(0, 1), (1, 1), (0, 2), (0, 3), (0, 4)}
