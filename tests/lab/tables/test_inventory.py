"""Lists of all explainers and of the trained targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn_lab.tables import inventory
from nicegnn_lab.tables.inventory import target_table


def test_the_papers_accuracy_stands_beside_its_own_target_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = {"accuracy": 0.93, "interval": (0.91, 0.94), "ece": 0.1, "mean_confidence": 0.9}
    about = {"test": test, "sizes": {"test": 10}, "best_epoch": 1, "epochs": 2}
    found = [
        {**about, "dataset": dataset, "title": dataset, "target": target}
        for dataset, target in (("benzene", "gin"), ("benzene", "gcn"), ("my-own", "gin"))
    ]
    monkeypatch.setattr(inventory, "read_manifests", lambda folder: found)
    table = target_table(Path())
    assert [row[3] for row in table.rows] == ["93.17", "", ""]
    assert table.rows[0][2] == "93.00 (91.00 to 94.00)"
