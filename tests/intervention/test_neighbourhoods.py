"""Differences sent through a model: the same answers as whole graphs, from fewer nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, GraphNorm, TAGConv, global_add_pool

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention import one_bond
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.neighbourhoods import find_follower
from nicegnn.intervention.one_bond import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import make_model

MECHANISMS = {
    "em": ElementMask(),
    "nc": NoiseCorruption(3, antithetic=True),
    "nc-clean": NoiseCorruption(anchor="clean"),
}


def chain(size: int, seed: int) -> Data:
    """Returns a chain with a few extra bonds."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [(n, n + 1) for n in range(size - 1)] + [(n, n + 5) for n in range(0, size - 5, 11)]
    both = torch.tensor(pairs + [(b, a) for a, b in pairs]).t()
    both = both[:, torch.randperm(both.size(1), generator=generator)]
    x = torch.randn(size, 4, generator=generator)
    return Data(x=x, edge_index=both, edge_attr=torch.randn(both.size(1), 3, generator=generator))


class Hops(nn.Module):
    """A layer that sends messages several times in one call, then one that adds self-loops."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = TAGConv(4, 8, K=2), APPNP(K=2, alpha=0.1)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(x, edge_index).relu(), edge_index)
        return self.head(global_add_pool(x, batch))


class Normed(nn.Module):
    """A normalisation over the nodes of a graph, so that damage reaches all of them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(4, 8), GCNConv(8, 8)])
        self.norm, self.head = GraphNorm(8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.norm(self.convs[0](x, edge_index), batch).relu()
        return self.head(global_add_pool(self.convs[1](x, edge_index), batch))


def model_of(name: str, readout: str = "sum") -> nn.Module:
    torch.manual_seed(0)
    if name in ("hops", "normed"):
        return {"hops": Hops, "normed": Normed}[name]().eval()
    return make_model(name, 4, 2, readout=readout, edge_size=3).eval()


def answers(model: nn.Module, mechanism: object, *, whole: bool) -> tuple[Tensor, Target]:
    batch = to_batch([chain(n, seed=n) for n in (30, 7, 18)])
    query = Query(Target(model), make_case(batch), mechanism)  # type: ignore[arg-type]
    if whole:
        query.target.not_followed, query.target.followed_for = "told", query.target.weights()
    out = query.clean.new_zeros(2, query.case.bonds.batch.numel(), query.clean.size(1))
    for some in damage_each_bond(query, 2, 5, fresh=True):
        out[some.draw, some.bond] = some.output
    return out, query.target


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("name", "readout"),
    [
        ("gin", "sum"),
        ("gin", "mean"),
        ("gcn", "sum"),
        ("sage", "mean"),
        ("gine", "sum"),
        ("hops", ""),
    ],
)
def test_answers_are_those_of_whole_graphs(name: str, readout: str, mechanism: str) -> None:
    model = model_of(name, readout)
    expected, _ = answers(model, MECHANISMS[mechanism], whole=True)
    found, target = answers(model, MECHANISMS[mechanism], whole=False)
    assert target.not_followed == ""
    assert target.followed_for is not None
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert float((expected[0] - expected[0].mean(0)).abs().max()) > 0.01  # bonds differ


@pytest.mark.parametrize(
    ("name", "readout", "reason"),
    [
        ("gat", "sum", "attends to neighbours"),
        ("gin", "max", "takes a maximum"),
        ("normed", "", "not made of sums"),
    ],
)
def test_other_models_are_run_whole_and_say_why(name: str, readout: str, reason: str) -> None:
    model = model_of(name, readout)
    expected, _ = answers(model, MECHANISMS["em"], whole=True)
    found, target = answers(model, MECHANISMS["em"], whole=False)
    assert reason in target.not_followed
    assert torch.equal(found, expected)


def test_work_does_not_grow_with_the_graph() -> None:
    sizes = []
    for size in (50, 400):
        graph = chain(size, seed=1)
        query = Query(Target(model_of("gin")), make_case(to_batch(graph)), ElementMask())
        follower = find_follower(query)
        assert follower is not None
        pieces = follower.pieces(torch.arange(query.case.bonds.batch.numel()))
        sizes.append(pieces.node.numel() / pieces.bond.numel())
    assert sizes[1] < 1.2 * sizes[0] < 15


def test_changed_weights_are_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gin")
    query = Query(Target(model), make_case(to_batch(chain(12, seed=1))), ElementMask())
    compared = []
    plain = one_bond.find_follower.__globals__["_agrees"]

    def counting(*args: object) -> bool:
        compared.append(1)
        return bool(plain(*args))

    monkeypatch.setattr("nicegnn.intervention.neighbourhoods._agrees", counting)
    for _ in range(2):
        list(damage_each_bond(query, 1, 0))
    assert len(compared) == 1
    with torch.no_grad():
        model.head.weight.mul_(2)
    again = Query(query.target, query.case, ElementMask())
    list(damage_each_bond(again, 1, 0))
    assert len(compared) == 2
