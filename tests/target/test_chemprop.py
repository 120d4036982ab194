"""Chemprop's models: the same numbers, bonds that are gone, and kinds that are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nicegnn import NICE, ElementMask, NICEConfig
from nicegnn.errors import GraphError, NotFittedError, TargetError
from nicegnn.graph.batch import to_batch
from nicegnn.intervention.intervene import intervene
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.frozen_model import Target
from tests.conftest import take_snapshot
from tests.target.chemprop_models import (
    MPNN,
    SMILES,
    MoleculeDataset,
    batch_of,
    datapoints,
    make_mpnn,
    parts,
)

BOND, ATOM = parts.BondMessagePassing, parts.AtomMessagePassing
SCALE = parts.UnscaleTransform([2.0], [10.0])
BLOCKS: list[dict[str, Any]] = [
    {"passing": BOND},
    {"passing": ATOM},
    {"passing": BOND, "undirected": True, "depth": 4},
    {"passing": ATOM, "extra": True, "activation": "tanh"},
    {"passing": BOND, "extra": True, "depth": 1},
]
blocks = pytest.mark.parametrize("block", BLOCKS, ids=str)


def opened(mpnn: MPNN, points: list[Any]) -> tuple[Target, Any]:
    """Returns a private target and a batch."""
    target = Target(mpnn).private()
    return target, to_batch(target.model.read_graphs(points))


@blocks
def test_output_is_chemprops_to_the_last_bit(block: dict[str, Any]) -> None:
    mpnn, points = make_mpnn(**block), datapoints(extra=block.get("extra", False))
    target, batch = opened(mpnn, points)
    mpnn.eval()
    wanted = mpnn.predictor.train_step(mpnn.fingerprint(*batch_of(points)))
    assert torch.equal(target.call(batch), wanted)


@blocks
def test_a_bond_without_messages_is_a_bond_that_is_not_there(block: dict[str, Any]) -> None:
    mpnn, points = make_mpnn(**block), datapoints(SMILES[:3], extra=block.get("extra", False))
    target, batch = opened(mpnn, points)
    low, high = batch.edge_index.min(0).values, batch.edge_index.max(0).values
    pairs = torch.unique(torch.stack([low, high]), dim=1).t()
    for gone in [*((low == a) & (high == b) for a, b in pairs), torch.ones_like(low).bool()]:
        rest = batch.clone()
        rest.edge_index, rest.edge_attr = batch.edge_index[:, ~gone], batch.edge_attr[~gone]
        with intervene(target.model, ElementMask(), (~gone).float(), edge_index=batch.edge_index):
            masked = target.call(batch)
        assert torch.equal(masked, target.call(rest))


def test_each_bond_sends_as_often_as_the_model_is_deep() -> None:
    target, batch = opened(make_mpnn(ATOM, depth=5), datapoints())
    gate = torch.ones(batch.num_edges)
    with intervene(target.model, ElementMask(), gate, edge_index=batch.edge_index) as report:
        target.call(batch)
    assert report.layers == ["message_passing"] * 5


@pytest.mark.parametrize("passing", [BOND, ATOM])
def test_a_molecule_does_not_depend_on_its_batch(passing: type) -> None:
    points, mpnn = datapoints(extra=True), make_mpnn(passing, extra=True)
    explainer = NICE(mpnn, background=points)
    together = explainer.explain(points)
    alone = [explainer.explain(point) for point in points]
    for name in ("bond_score", "atom_score", "bond_stderr"):
        torch.testing.assert_close(
            getattr(together, name),
            torch.cat([getattr(one, name) for one in alone]),
            rtol=1e-4,
            atol=1e-4,
        )
    assert float(together.bond_score.max()) > 0
    assert not together.status.notes


def test_a_dataset_its_datapoints_and_their_smiles_give_the_same_graphs() -> None:
    model, data = ChempropModel(make_mpnn()), MoleculeDataset(datapoints())
    for graphs in zip(*map(model.read_graphs, (data, data.data, SMILES)), strict=True):
        for key in ("x", "edge_index", "edge_attr"):
            assert all(torch.equal(graphs[0][key], other[key]) for other in graphs)
        assert len({graph.smiles for graph in graphs}) == 1


def test_the_other_direction_is_found_in_any_order_of_edges() -> None:
    mpnn, points = make_mpnn(), datapoints(SMILES[:2])
    target, batch = opened(mpnn, points)
    shuffled, order = batch.clone(), torch.randperm(batch.num_edges)
    shuffled.edge_index, shuffled.edge_attr = batch.edge_index[:, order], batch.edge_attr[order]
    torch.testing.assert_close(target.call(shuffled), target.call(batch))


@pytest.mark.parametrize("atoms", ["v1", "v2", "organic", "rigr"])
def test_the_featuriser_is_that_of_the_weights(atoms: str) -> None:
    from chemprop.featurizers.atom import get_multi_hot_atom_featurizer

    width = len(get_multi_hot_atom_featurizer(atoms))
    mpnn = make_mpnn(d_v=width, d_e=2 if atoms == "rigr" else 14)
    assert NICE(mpnn).explain(SMILES[0]).atom_score.isfinite().all()


# --- heads ---------------------------------------------------------------------------------------


def test_classes_are_explained_by_logits_not_by_saturated_probabilities() -> None:
    mpnn = make_mpnn(norm=False)
    with torch.no_grad():
        mpnn.predictor.ffn[-1][-1].bias.fill_(50.0)  # the probability is 1, whatever the bond
    out = NICE(mpnn, background=SMILES).explain(SMILES[0], target=1)
    assert float(out.bond_change.abs().max()) > 1e-3


def test_values_are_in_their_own_unit() -> None:
    words = {"output_transform": SCALE}
    plain, scaled = (
        NICE(make_mpnn(predictor=parts.RegressionFFN, words=one), background=SMILES).explain(SMILES)
        for one in ({}, words)
    )
    torch.testing.assert_close(scaled.bond_score, 10 * plain.bond_score, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(scaled.prediction, 10 * plain.prediction + 2, rtol=1e-5, atol=1e-4)
    assert scaled.unit == "value"


@pytest.mark.parametrize("predictor", [parts.BinaryClassificationFFN, parts.RegressionFFN])
def test_each_task_has_its_own_explanation(predictor: type) -> None:
    explainer = NICE(make_mpnn(predictor=predictor, words={"n_tasks": 3}), background=SMILES)
    first, second = (explainer.explain(SMILES[0], target=task) for task in (0, 2))
    assert not torch.allclose(first.bond_score, second.bond_score)
    with pytest.raises(TargetError, match="target"):
        explainer.explain(SMILES[0])


@pytest.mark.parametrize(
    ("predictor", "words"),
    [
        (parts.BinaryDirichletFFN, {}),
        (parts.MulticlassClassificationFFN, {"n_classes": 4}),
        (parts.MulticlassDirichletFFN, {"n_classes": 4}),
    ],
)
def test_log_probabilities_are_those_of_chemprop(predictor: type, words: dict[str, Any]) -> None:
    mpnn = make_mpnn(predictor=predictor, words=words)
    out = NICE(mpnn, background=SMILES).explain(SMILES)
    mpnn.eval()
    wanted = mpnn(*batch_of(datapoints())).detach()
    wanted = wanted[:, :, 0] if predictor is parts.BinaryDirichletFFN else wanted[:, 0]
    torch.testing.assert_close(out.prediction.exp()[:, -wanted.size(1) :], wanted)


@pytest.mark.parametrize(
    "predictor", [parts.MveFFN, parts.EvidentialFFN, parts.predictors.QuantileFFN]
)
def test_an_uncertain_value_is_explained_without_its_uncertainty(predictor: type) -> None:
    mpnn = make_mpnn(predictor=predictor, words={"output_transform": SCALE})
    out = NICE(mpnn, background=SMILES).explain(SMILES)
    mpnn.eval()
    torch.testing.assert_close(out.prediction, mpnn(*batch_of(datapoints()))[..., 0].detach())


# --- what is refused -----------------------------------------------------------------------------


class OwnPass(BOND):
    def forward(self, bmg: Any, V_d: Tensor | None = None) -> Tensor:
        return super().forward(bmg, V_d) * 2


class OwnModel(MPNN):
    def fingerprint(self, bmg: Any, V_d: Any = None, X_d: Any = None) -> Tensor:
        return super().fingerprint(bmg, V_d, X_d) * 2


def several_components() -> Any:
    from chemprop.models import MulticomponentMPNN
    from chemprop.nn import MulticomponentMessagePassing

    passing = MulticomponentMessagePassing([BOND(d_h=8), BOND(d_h=8)], 2)
    return MulticomponentMPNN(
        passing, parts.MeanAggregation(), parts.RegressionFFN(input_dim=16), batch_norm=False
    )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (several_components, "Train an MPNN on one component"),
        (lambda: make_mpnn(OwnPass), "OwnPass"),
        (
            lambda: OwnModel(BOND(), parts.MeanAggregation(), parts.RegressionFFN()),
            "must keep fingerprint",
        ),
        (
            lambda: make_mpnn(
                predictor=parts.MulticlassClassificationFFN, words={"n_classes": 3, "n_tasks": 2}
            ),
            "2 tasks of 3 classes",
        ),
    ],
)
def test_other_kinds_are_refused_with_the_way_out(make: Any, told: str) -> None:
    with pytest.raises(TargetError, match=told):
        NICE(make())


def test_missing_descriptors_are_named() -> None:
    with pytest.raises(GraphError, match="V_f, E_f"):
        NICE(make_mpnn(extra=True)).explain(SMILES)
    points = datapoints(extra=True)
    for point in points:
        point.x_d = None
    with pytest.raises(GraphError, match=r"5 descriptors of molecules \(x_d\) \(got 0\)"):
        NICE(make_mpnn(extra=True)).explain(points)
    with pytest.raises(GraphError, match="MoleculeDatapoint"):
        NICE(make_mpnn()).explain([3])


# --- the model stays as it was -------------------------------------------------------------------


def test_the_model_is_never_changed_also_after_an_error() -> None:
    mpnn = make_mpnn()
    kept, keys = take_snapshot(mpnn), set(vars(mpnn.message_passing))
    explainer = NICE(mpnn, background=SMILES)
    explainer.explain(SMILES)
    with pytest.raises(GraphError):
        explainer.explain(datapoints(extra=True))
    assert take_snapshot(mpnn) == kept
    assert set(vars(mpnn.message_passing)) == keys
    assert "forward" not in vars(mpnn.message_passing)
    assert all(module.training for module in mpnn.modules())


def test_an_explainer_is_saved_and_belongs_to_these_weights(tmp_path: Path) -> None:
    mpnn, file = make_mpnn(), tmp_path / "one.safetensors"
    explainer = NICE(mpnn, background=SMILES)
    explainer.save(file)
    loaded = NICE.load(file, make_mpnn())
    assert torch.equal(loaded.explain(SMILES).bond_score, explainer.explain(SMILES).bond_score)
    mpnn.load_state_dict(make_mpnn(seed=1).state_dict())
    with pytest.raises(NotFittedError, match="weights"):
        explainer.explain(SMILES)


def test_only_a_damaged_bond_is_anchored_to_the_clean_pass() -> None:
    mpnn, points = make_mpnn(), datapoints(SMILES[:1])
    config = NICEConfig().with_(anchor="clean")
    scores = [
        NICE(mpnn, config=one, mechanism="em").explain(points).bond_score
        for one in (config, NICEConfig())
    ]
    torch.testing.assert_close(scores[0], scores[1])  # masking has the same value in both
    assert np.count_nonzero(scores[0]) > 0
