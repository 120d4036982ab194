"""Fidelity: hand numbers on a model that adds up messages, and properties on common layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing, global_add_pool

from nicegnn.errors import MetricError, NicegnnError
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GraphClassifier, make_model
from nicegnn_lab.metrics.fidelity import REMOVALS, FidelityCurve, fidelity_curve

FIELDS = ("kept", "prob_kept")


class AddUp(MessagePassing):
    """Class 1 has the logit: all messages of the graph added up, minus a threshold."""

    def __init__(self, threshold: float) -> None:
        super().__init__(aggr="sum")
        self.threshold = threshold

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        total = global_add_pool(self.propagate(edge_index, x=x), batch) - self.threshold
        return torch.cat([torch.zeros_like(total), total], dim=1)

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


def star(worths: list[float]) -> Data:
    """Leaves around atom 0, which is worth nothing: bond k carries the worth of leaf k + 1."""
    pairs = [pair for k in range(len(worths)) for pair in ((0, k + 1), (k + 1, 0))]
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous()
    return Data(x=torch.tensor([[0.0], *([w] for w in worths)]), edge_index=edge_index)


def bonds_of(batch: Batch) -> Bonds:
    return find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])


def classifier(name: str = "gin", **settings: Any) -> GraphClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = make_model(name, 5, 3, hidden_size=16, num_layers=2, edge_size=3, **settings)
        nn.init.normal_(model.head.weight)
    return model.eval()


def curve(
    graphs: list[Data], model: nn.Module, removal: str, seed: int = 0, **settings: Any
) -> FidelityCurve:
    """The curve for scores that are partly equal and depend on the bond's ends alone."""
    batch = Batch.from_data_list(graphs)
    bonds = bonds_of(batch)
    local = bonds.index - batch.ptr[bonds.batch]
    score = ((local[0] * 7 + local[1] * 3) % 4).float()
    target = Target(model)
    return fidelity_curve(
        target, batch, bonds, score, removal=removal, num_draws=5, seed=seed, **settings
    )


@pytest.mark.parametrize("removal", ["em", "delete"])
def test_hand_numbers_of_a_model_that_adds_up(removal: str) -> None:
    worths = [4.0, 3.0, 2.0, 1.0]
    batch = Batch.from_data_list([star(worths), star([1.0, 1.0]), star([])])
    score = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0, 1.0])
    found = fidelity_curve(
        Target(AddUp(5.0)), batch, bonds_of(batch), score, removal=removal, ratios=[0.25, 0.5, 1.0]
    )

    def p(total: float) -> float:
        return 1 / (1 + math.exp(5 - total))

    # classes 1, 0 and 0 are explained: 10 > 5, 2 < 5, 0 < 5
    assert found.kept[:, 0].tolist() == [0, 1, 1]  # 4, 7 and 10 are left
    assert found.prob_kept[:, 0].tolist() == pytest.approx([p(4), p(7), p(10)], abs=1e-6)
    assert float(found.area[0]) == pytest.approx((0.25 * 0.5 + 0.5 * 1) / 0.75)
    assert found.kept[:, 1].tolist() == [1, 1, 1]
    for name in ("kept", "prob_kept"):
        assert torch.isnan(getattr(found, name)[:, 2]).all()  # no bonds, nothing to remove


def test_noise_in_one_dimension_flips_signs() -> None:
    """One removed bond of worth 2: its message is 2 or -2, each half of the time."""
    batch = Batch.from_data_list([star([3.0, 2.0])])
    found = fidelity_curve(
        Target(AddUp(2.0)),
        batch,
        bonds_of(batch),
        torch.tensor([1.0, 0.0]),
        removal="nc",
        ratios=[0.5],
        num_draws=400,
    )
    assert float(found.kept[0, 0]) == pytest.approx(0.5, abs=0.1)  # 3 + 2 or 3 - 2 against 2
    p_up, p_down = 1 / (1 + math.exp(-3)), 1 / (1 + math.exp(1))
    assert float(found.prob_kept[0, 0]) == pytest.approx((p_up + p_down) / 2, abs=0.05)


@pytest.mark.parametrize("name", ["gine", "transformer", "gat"])
def test_deletion_equals_a_graph_built_without_the_bonds(name: str, ring: Data) -> None:
    model, batch = classifier(name), Batch.from_data_list([ring])
    bonds = bonds_of(batch)
    score = torch.tensor([5.0, 1, 6, 2, 7, 3, 4])
    found = fidelity_curve(Target(model), batch, bonds, score, removal="delete", ratios=[0.4])
    kept = score[bonds.edge_bond] >= 5  # 0.4 of seven is three
    part = Data(x=ring.x, edge_index=ring.edge_index[:, kept], edge_attr=ring.edge_attr[kept])
    with torch.no_grad():
        p = model(part.x, part.edge_index, None, part.edge_attr).softmax(1)[0]
        explained = model(ring.x, ring.edge_index, None, ring.edge_attr).argmax(1)
    assert float(found.prob_kept[0, 0]) == pytest.approx(float(p[explained]), abs=1e-5)


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_graph_alone_has_the_curve_it_has_in_a_batch(
    removal: str, graphs: list[Data], isolated: Data
) -> None:
    graphs = [*graphs, isolated, star([]).update({"x": torch.ones(1, 5)})]
    graphs = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    model = classifier()
    together = curve(graphs, model, removal)
    order = [3, 6, 0, 5, 1, 4, 2]
    turned = curve([graphs[g] for g in order], model, removal)
    for g, graph in enumerate(graphs):
        alone = curve([graph], model, removal)
        for field in FIELDS:
            whole = getattr(together, field)[..., g]
            place = order.index(g)
            for other in (getattr(alone, field)[..., 0], getattr(turned, field)[..., place]):
                torch.testing.assert_close(other, whole, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("removal", REMOVALS)
def test_chunks_change_nothing(removal: str, graphs: list[Data]) -> None:
    whole = curve(graphs, classifier("gine"), removal)
    for chunk_edges in (1, 20, 60):
        parts = curve(graphs, classifier("gine"), removal, chunk_edges=chunk_edges)
        for field in FIELDS:
            torch.testing.assert_close(
                getattr(parts, field), getattr(whole, field), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_model_is_left_as_it_was(
    removal: str, graphs: list[Data], snapshot: Callable[[nn.Module], dict[str, Any]]
) -> None:
    model = classifier("gcn").train()
    before = snapshot(model)
    curve(graphs, model, removal)
    assert snapshot(model) == before
    with pytest.raises(MetricError, match="top"):
        curve(graphs, model, removal, ratios=[0.5, 1.2])
    assert snapshot(model) == before


def test_wrong_arguments_are_named(graphs: list[Data]) -> None:
    batch = Batch.from_data_list(graphs)
    bonds = bonds_of(batch)
    score = torch.zeros(bonds.batch.numel())
    target = Target(classifier())
    for settings, text in (
        ({"removal": "mask"}, "removal"),
        ({"ratios": [0.5, 1.5]}, "top"),
    ):
        with pytest.raises(NicegnnError, match=text):
            fidelity_curve(target, batch, bonds, score, **settings)  # type: ignore[arg-type]
    with pytest.raises(MetricError, match="bond_score"):
        fidelity_curve(target, batch, bonds, score[1:])
    with pytest.raises(MetricError, match="find_bonds"):
        fidelity_curve(target, Batch.from_data_list(graphs[:2]), bonds, score)
