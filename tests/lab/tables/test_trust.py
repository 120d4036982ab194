"""Tables of trust against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from nicegnn import Flag
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.tables.trust import trust_tables
from tests.lab.tables.synthetic_rows import write_study


def blocks(**values: list[float]) -> list[Block]:
    count = torch.arange(4)
    given = {"share": [0.5, 0.7, 0.5, 0.7], "kept_random": [0.1] * 4, "needed": [0.7] * 4}
    given |= {"random_better": [0.0, 1.0, 2.0, torch.nan], "random_warned": [1.0, 1.0, 1.0, 0.0]}
    given |= values
    return [Block(name, torch.tensor(value), graph=count) for name, value in given.items()]


def test_warnings_overlaps_and_random_bonds(tmp_path: Path) -> None:
    worse, both = float(Flag.UNSTABLE), float(Flag.UNSTABLE | Flag.NO_BETTER_THAN_RANDOM)
    rows = blocks(
        roc_auc=[1.0, 0.5, 0.7, 0.8],
        flags=[0.0, worse, both, 0.0],
        overlap=[0.9, 0.4, 0.45, 1.0],
        overlap_seen=[0.8, 0.5, 0.5, 1.0],
        kept=[0.5, 0.7, 0.5, 0.7],
    )
    write_study(tmp_path, "trust", rows, variant=Variant("instant"))
    warnings, overlaps, random = trust_tables(tmp_path)
    assert list(warnings.columns) == [
        *("explained", "dataset", "target", "graphs", "ROC-AUC"),
        *("any warning", "UNSTABLE", "NO_BETTER_THAN_RANDOM"),
    ]
    cells = ["4", "75.0", "2: 60.0 / 90.0", "2: 60.0 / 90.0", "1: 70.0 / 76.7"]
    assert list(warnings.rows[0])[3:] == cells
    assert list(warnings.rows[1]) == ["instant", "all", "", *cells]
    assert [list(row) for row in overlaps.rows] == [
        ["instant", "all", "4", "68.8", "70.0"],
        ["instant", "0 to 0.5", "2", "42.5", "50.0"],
        ["instant", "0.9 to 0.95", "1", "90.0", "80.0"],
        ["instant", "1", "1", "100.0", "100.0"],
    ]
    assert list(random.rows[0])[3:] == ["4", "60.0", "60.0", "10.0", "70.0", "1.0", "75.0"]


def test_a_line_of_all_compares_within_targets(tmp_path: Path) -> None:
    """A target without the warning says nothing about it."""
    same = {"overlap": [1.0] * 4, "overlap_seen": [1.0] * 4, "kept": [1.0] * 4}
    flag = float(Flag.INSENSITIVE)
    mixed = blocks(roc_auc=[0.6, 0.8, 0.8, 0.8], flags=[flag, 0.0, 0.0, 0.0], **same)
    free = blocks(roc_auc=[0.2] * 4, flags=[0.0] * 4, **same)
    for target, some in (("gin", mixed), ("gcn", free)):
        write_study(tmp_path, "trust", some, target=target, variant=Variant("quick"))
    warnings = trust_tables(tmp_path)[0]
    assert [row[-1] for row in warnings.rows] == ["1: 60.0 / 80.0", "0: - / 20.0", "1: 60.0 / 80.0"]
