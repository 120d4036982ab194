"""Unseen targets: agreement of atoms by hand, no gate in scores of atoms, a small run."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool

from nicegnn import NICE, NICEConfig
from nicegnn.target.training import TrainConfig
from nicegnn.target.zoo import make_model
from nicegnn_lab.bench import run_study
from nicegnn_lab.datasets import MissingDataError
from nicegnn_lab.studies.unseen import (
    METHODS,
    RECIPES,
    SUBJECTS,
    PlainGIN,
    UnseenStudy,
    agreement_of_atoms,
    change_without_features,
)
from tests.conftest import random_graph
from tests.lab.datasets.readers.test_ibenchmark import write_table
from tests.lab.studies.small_runs import rows_of_run

QUICK = UnseenStudy(
    training=TrainConfig(batch_size=32, epochs=2),
    settings={"boundary__steps": 2, "boundary__batch_size": 16},
)


def test_agreement_of_atoms_by_hand() -> None:
    score = torch.tensor([3.0, 1.0, -2.0, 0.5, 0.2, 0.9])
    truth = torch.tensor([1, 0, -1, 0, 1, 0])
    batch = torch.tensor([0, 0, 0, 0, 1, 1])
    found = {
        (metric, protocol): value.tolist()
        for metric, protocol, value in agreement_of_atoms(score, truth, batch, 0)
    }
    assert found["atom_roc_auc", "positive"] == [1.0, 0.0]
    assert found["atom_roc_auc", "negative"][0] == 1.0  # the second molecule has none
    assert found["atom_roc_auc", "either"] == [1.0, 0.0]
    assert found["atom_hits", ""] == [1.0, 0.0]
    assert found["atom_true", ""] == [1.0, 1.0]
    without = agreement_of_atoms(score.abs(), truth, batch, 0, is_signed=False)
    assert "negative" not in {protocol for _, protocol, _ in without}


class Weighted(nn.Module):
    """The sum of weighted features, or this and its negative as two logits."""

    def __init__(self, num_features: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, num_features + 1))
        self.outputs = outputs

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor) -> Tensor:
        value = global_add_pool(x @ self.weight.view(-1, 1), batch)
        return value if self.outputs == 1 else torch.cat([-value, value], dim=1)


@pytest.mark.parametrize(("outputs", "factor"), [(1, 1.0), (2, 2.0)])
def test_change_of_a_linear_model_is_each_atom_s_term(outputs: int, factor: float) -> None:
    graph = random_graph(5, seed=0)
    model = Weighted(graph.num_node_features, outputs)
    found = change_without_features(model, graph)  # type: ignore[arg-type]
    assert torch.allclose(found, factor * graph.x @ model.weight.detach(), atol=1e-5)


def test_scores_of_atoms_need_no_fit() -> None:
    graphs = [random_graph(6, seed=seed) for seed in range(4)]
    model = make_model("gin", graphs[0].num_node_features, 2).eval()
    settings = QUICK.settings
    fitted = NICE(model, NICEConfig().with_(**settings)).fit(graphs, progress=False)
    given = {"target": 1, "atoms": True, "seed": 0}
    default = fitted.explain(graphs, **given)
    instant = NICE(model, NICEConfig.instant()).explain(graphs, **given)
    assert torch.equal(default.atom_score, instant.atom_score)
    assert torch.equal(default.atom_loss, instant.atom_loss)


def test_recipes_differ_from_stored_targets() -> None:
    assert not any(isinstance(one, nn.BatchNorm1d) for one in PlainGIN(4, 2).modules())
    assert len(RECIPES["gcn-4"](4, 2).convs) == 4
    assert {name for names in SUBJECTS.values() for name in names} == set(RECIPES)


def write_molecules(folder: Path) -> None:
    """Writes molecules with nitrogen, oxygen and, in half of them, morpholine."""
    ends = [("C1COCCN1", "0 0 -1 0 0 1"), ("C1CCCCN1", "0 0 0 0 0 1")]
    rows = []
    for number, (length, halogen, (ring, truth)) in enumerate(
        product(range(1, 21), ("F", "Cl"), ends)
    ):
        part = "test" if number % 4 < 2 else "train"
        chain = " ".join("0" * (length + 1))
        smiles = f"{ring}{'C' * length}{halogen}"
        rows.append(("N_minus_O", part, smiles, str(1 - ring.count("O")), f"{truth} {chain}"))
    write_table(folder, *rows)


def test_a_small_run_has_all_rows_and_a_repeat_computes_nothing(
    tmp_path: Path, monkeypatch
) -> None:
    write_molecules(tmp_path)
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path))
    given = {"datasets": ["morpholine", "N_minus_O"], "out": tmp_path, "device": "cpu"}
    report = run_study(QUICK, **given, max_graphs=4)
    assert not report.failed, [one.text for one in report.outcomes]
    rows = rows_of_run(tmp_path, "unseen")
    bonds = rows[rows["metric"] == "roc_auc"]
    assert set(bonds["explainer"]) == set(METHODS)
    assert set(bonds["target"]) == set(SUBJECTS["morpholine"])
    assert bonds.groupby(["target", "explainer"]).size().eq(4).all()
    atoms = rows[rows["metric"] == "atom_roc_auc"]
    signed = set(atoms.loc[atoms["protocol"] == "negative", "setting"])
    assert signed == {"atom_loss", "zeroed", "random"}  # `atom_score` has no direction
    assert set(atoms["setting"]) == {"atom_score", "atom_loss", "zeroed", "random"}
    assert set(rows.loc[rows["setting"] == "target", "metric"]) == {"accuracy", "r_squared"}
    assert run_study(QUICK, **given, max_graphs=4).outcomes == ()


def test_missing_table_is_said_before_anything_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="NICEGNN_DATA"):
        run_study(QUICK, ["N"], out=tmp_path, device="cpu")
