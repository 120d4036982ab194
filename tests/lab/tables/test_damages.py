"""EM, NC and exchange side by side: means by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from nicegnn_lab.studies.mechanisms import DAMAGES
from nicegnn_lab.tables import damages
from nicegnn_lab.tables.sources import Sources


def scale_rows() -> list[tuple[object, ...]]:
    """Two targets with two layers: EM halves and quarters, NC doubles, exchange keeps."""
    last = {"em": (0.25, 0.15), "nc": (2.0, 2.2), "exchange": (1.0, 1.2)}
    return [
        (metric, name, "benzene", target, layer, 1.0 if layer == 1 else last[name][turn])
        for metric in ("ratio", "ratio_fixed")
        for name in DAMAGES
        for turn, target in enumerate(("gin", "gcn"))
        for layer in (1.0, 2.0)
    ]


def distance_rows() -> list[tuple[object, ...]]:
    """Two datasets: a distance is 1, 2, 3 by damage and 1 more on the second one."""
    settings = [f"{name}{added}/gt" for added in ("", "-clean") for name in DAMAGES]
    rows: list[tuple[object, ...]] = [
        (metric, setting, dataset, "gin", 0.0, 1.0 + turn % 3 + more)
        for metric in ("D_repr", "D_pred")
        for turn, setting in enumerate(settings)
        for more, dataset in enumerate(("benzene", "pains"))
    ]
    for dataset in ("benzene", "pains"):
        rows.append(("confidence", "clean", dataset, "gin", 0.0, 0.9))
        rows += [("confidence", setting, dataset, "gin", 0.0, 0.4) for setting in settings]
    return rows


def test_every_line_is_a_mean_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["metric", "setting", "dataset", "target", "level", "value"]
    studies = {"scale": scale_rows(), "mechanisms": distance_rows()}
    bench = pd.DataFrame(
        [
            ("roc_auc", "nice-paper", "em", seed, dataset, "gin", "paper", value)
            for seed, shift in ((0, 0.0), (1, 0.02))
            for dataset, value in (("benzene", 0.6 + shift), ("pains", 0.8 + shift))
        ],
        columns=[
            *("metric", "explainer", "mechanism", "seed"),
            *("dataset", "target", "protocol", "value"),
        ],
    )
    monkeypatch.setattr(Sources, "bench", lambda self, metrics: bench)
    monkeypatch.setattr(
        damages, "read_study", lambda root, name: pd.DataFrame(studies[name], columns=columns)
    )
    (table,) = damages.damage_table(Sources(Path(), Path()))
    lines = {(row[0], row[1]): list(row[2:]) for row in table.rows}
    assert lines["AUC", "SRB and BIG (the paper's method)"] == ["71.0 ± 1.4", "-", "-"]
    assert lines["message scale, last layer", "clean messages"] == ["0.20", "2.10", "1.10"]
    assert lines["targets that keep the scale", "propagated messages"] == [
        *("0 of 2", "0 of 2", "2 of 2")
    ]
    assert lines["D_repr", "clean messages"] == ["1.50", "2.50", "3.50"]
    assert lines["change of confidence, points", "propagated messages"] == ["50.0"] * 3
