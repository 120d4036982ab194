"""The table of unseen targets against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.tables.unseen import unseen_tables
from tests.lab.tables.synthetic_rows import with_setting, write_study


def write_unseen(studies: Path) -> None:
    for dataset, target, nice, occlusion in (
        ("benzene", "gcn-4", (0.9, 0.7), (0.5, 0.5)),
        ("morpholine", "gin", (0.6, 0.8), (0.9, 0.9)),
    ):
        blocks = [
            Block("roc_auc", torch.tensor(values), "paper", torch.arange(2), explainer=name)
            for name, values in (("nice", nice), ("occlusion", occlusion))
        ]
        right = Block("accuracy", 0.95, setting="target")
        write_study(studies, "unseen", [*blocks, right], dataset=dataset, target=target)
    graph = torch.arange(2)
    blocks = [Block("r_squared", 0.99, setting="target")]
    for setting in ("atom_score", "atom_loss", "zeroed", "random"):
        protocols = ("positive", "negative") if setting == "zeroed" else ("positive",)
        aucs = [Block("atom_roc_auc", torch.tensor([1.0, 0.5]), p, graph) for p in protocols]
        hits = Block("atom_hits", torch.tensor([1.0, 2.0]), "", graph)
        true = Block("atom_true", torch.tensor([1.0, 3.0]), "", graph)
        blocks += with_setting(setting, *aucs, hits, true)
    write_study(studies, "unseen", blocks, dataset="N", target="gine")


def test_mean_spread_and_lowest_over_targets(tmp_path: Path) -> None:
    write_unseen(tmp_path)
    whole, each, atoms = unseen_tables(tmp_path)
    assert [list(row) for row in whole.rows] == [
        ["nice", "75.0", "7.1", "70.0", "morpholine gin", "1 of 2"],
        ["occlusion", "70.0", "28.3", "50.0", "benzene gcn-4", "1 of 2"],
    ]
    assert [list(row) for row in each.rows] == [
        ["benzene", "gcn-4", "95.0", "80.0", "50.0"],
        ["morpholine", "gin", "95.0", "70.0", "90.0"],
    ]
    cells = {row[1]: list(row[2:]) for row in atoms.rows}
    assert cells["random"] == ["99.0", "75.0", "-", "-", "75.0"]
    assert cells["change without the atom's features"] == ["99.0", "75.0", "75.0", "-", "75.0"]
