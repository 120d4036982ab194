"""The table of claims: verdicts by hand-made rows, and claims that nobody measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.paper.methods import own_mechanism
from nicegnn_lab.paper.numbers import PAPER_RESULTS
from nicegnn_lab.tables.claims import CLAIMS, claim_table
from nicegnn_lab.tables.sources import Sources
from tests.lab.tables.synthetic_rows import bench_rows, joined, with_setting, write_study


def verdicts(sources: Sources) -> dict[str, tuple[str, str, str]]:
    """Both verdicts and the numbers by the beginning of a claim."""
    return {row[0][:24]: (row[2], row[3], row[4]) for row in claim_table(sources)[0].rows}


def test_verdicts_follow_from_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = [name for name in PAPER_RESULTS["f1"] if name != "nice"]
    values = {("benzene", f"{name}+{own_mechanism(name)}", 0): [0.5] for name in rivals}
    values |= {("benzene", "nice-paper+nc", 0): [0.9], ("benzene", "nice-propagated+nc", 0): [0.1]}
    rows = joined(*(bench_rows(values, metric=metric) for metric in PAPER_RESULTS))
    monkeypatch.setattr(Sources, "bench", lambda self, metrics=(): rows)
    ratios = {"em": (0.5, 0.25), "nc": (0.9, 1.1)}
    blocks = [
        block
        for setting, by_layer in ratios.items()
        for layer, ratio in enumerate(by_layer, start=1)
        for block in with_setting(
            setting,
            Block("ratio_fixed", torch.tensor([ratio]), graph=torch.tensor([0])),
            level=layer,
        )
    ]
    write_study(tmp_path, "scale", blocks)
    found = verdicts(Sources(tmp_path, tmp_path))
    first = found["NICE ranks first in F1, "]
    assert first[:2] == ("holds", "does not hold")
    assert first[2] == "mean ranks of 10: F1 1.00, Recall 1.00, AUC 1.00"
    ahead = found["NICE is ahead of the str"]
    assert ahead[2] == "points ahead: F1 +40.0, Recall +40.0, AUC +40.0"
    assert found["EM shrinks message scale"] == ("holds", "not measured", "1 of 1 targets; 1 of 1")


def test_without_rows_nothing_is_judged(tmp_path: Path) -> None:
    (table,) = claim_table(Sources(tmp_path / "bench", tmp_path / "studies"))
    assert len(table.rows) == len(CLAIMS)
    assert {cell for row in table.rows for cell in row[2:4]} == {"not measured"}
    assert all(row[0].endswith((".", ").")) for row in table.rows)
