"""Thirds of confidence against numbers worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from nicegnn.errors import StoreError
from nicegnn.tables.confidence import confidence_table, parts_by_confidence
from tests.tables.synthetic_rows import bench_rows, joined

#: Six graphs; graph 6 was explained too, but its confidence is not known.
GRAPHS = [3, 1, 4, 0, 5, 9, 6]
VALUES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0]
SURE = {3: 0.5, 1: 0.6, 4: 0.9, 0: 0.8, 5: 1.0, 9: 0.95, 7: 0.1}  # 7 was not explained


def confidence(target: str = "gin", setting: str = "clean") -> pd.DataFrame:
    """Rows of study ``mechanisms``."""
    rows = bench_rows(
        {("benzene", "", 0): list(SURE.values())},
        metric="confidence",
        protocol="",
        target=target,
        graph=list(SURE),
    )
    return rows.assign(study="mechanisms", setting=setting)


ROWS = joined(
    bench_rows({("benzene", "saliency+em", 0): VALUES}, graph=GRAPHS),
    bench_rows({("benzene", "saliency+em", 1): [v + 0.2 for v in VALUES]}, graph=GRAPHS),
    bench_rows({("benzene", "random+", 0): VALUES[::-1]}, graph=GRAPHS),
)


def test_thirds_by_hand() -> None:
    """In order of confidence: 3 1, 0 4, 9 5; seeds are averaged first."""
    parts = parts_by_confidence(ROWS, confidence())
    mine = parts[parts["explainer"] == "saliency"].sort_values("part")
    assert mine["value"].tolist() == pytest.approx([0.25, 0.45, 0.65])
    assert mine["confidence"].tolist() == pytest.approx([0.55, 0.85, 0.975])
    assert mine["num_graphs"].tolist() == [2, 2, 2]


def test_table_shows_both_ends_and_the_change() -> None:
    table = confidence_table(ROWS, confidence())
    assert [list(row) for row in table.rows] == [
        ["saliency", "25.0, 65.0", "+40.0"],
        ["random", "30.0, 25.0", "-5.0"],
    ]
    assert "benzene 55.0 and 97.5" in table.notes[0]


def test_other_targets_and_settings_tell_nothing() -> None:
    for wrong in (confidence(target="gcn"), confidence(setting="em/gt")):
        with pytest.raises(StoreError, match="nicegnn experiment mechanisms"):
            parts_by_confidence(ROWS, wrong)
