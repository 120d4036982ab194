"""Differences sent through a model: the same answers as whole graphs, from fewer nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, GraphNorm, TAGConv, global_add_pool

from nicegnn.errors import ShortCutEnds
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention import neighbourhoods, one_part
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.neighbourhoods import Follower, in_pieces
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.parts import BondDamage, Kind, in_copies
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import make_model

MECHANISMS = {
    "em": ElementMask(),
    "nc": NoiseCorruption(3),
    "nc-clean": NoiseCorruption(anchor="clean"),
    "exchange": Exchange(),
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


def query_of(model: nn.Module, mechanism: object, *, level: str = "graph") -> Query:
    """Asks for three graphs, or for one node of each."""
    batch = to_batch([chain(n, seed=n) for n in (30, 7, 18)])
    if level == "node":
        batch.root_index = batch.ptr[:-1] + 3
    target = Target(model, level=level)  # type: ignore[arg-type]
    return Query(target, make_case(batch), mechanism)  # type: ignore[arg-type]


def answers(query: Query) -> Tensor:
    """Returns the answers for all draws and bonds, ``[N, M, C]``."""
    out = query.clean.new_zeros(2, query.case.bonds.batch.numel(), query.clean.size(1))
    for some in damage_each_bond(query, 2, 5):
        out[some.draw, some.item] = some.output
    return out


def whole_answers(query: Query) -> Tensor:
    """Returns the answers of whole graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_part, "PATHS", (in_copies,))
        return answers(query)


def why_not(query: Query) -> str:
    """Returns why bonds of a query are not damaged in pieces."""
    bond = torch.arange(query.case.bonds.batch.numel())
    with pytest.raises(ShortCutEnds) as refused:
        list(in_pieces(query, BondDamage(0), bond, 1))
    return str(refused.value)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes pieces run however small the work is, and no kernels."""
    monkeypatch.setattr(neighbourhoods, "WORTH", 0)
    monkeypatch.setattr(one_part, "PATHS", (in_pieces, in_copies))


def check_same(model: nn.Module, mechanism: object, *, level: str = "graph") -> None:
    query = query_of(model, mechanism, level=level)
    found, expected = answers(query), whole_answers(query)
    assert query.shared.follower is not None
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert float((expected[0] - expected[0].mean(0)).abs().max()) > 0.01  # bonds differ


FOLLOWED = [
    *(("gin", "sum"), ("gin", "mean"), ("gcn", "sum")),
    *(("sage", "mean"), ("gine", "sum"), ("hops", "")),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "readout"), FOLLOWED)
def test_answers_are_those_of_whole_graphs(name: str, readout: str, mechanism: str) -> None:
    check_same(model_of(name, readout), MECHANISMS[mechanism])


class OfNodes(nn.Module):
    """A model of graphs that answers for each node instead."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.inner = model_of(name)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv, act in zip(self.inner.convs, self.inner.acts, strict=True):  # type: ignore[arg-type]
            x = act(conv(x, edge_index))
        return self.inner.head(x)  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize("name", ["gin", "gcn", "sage"])
def test_answers_for_nodes_are_those_of_whole_graphs(name: str) -> None:
    check_same(OfNodes(name), MECHANISMS["nc"], level="node")


def test_a_node_is_asked_only_what_can_arrive_there() -> None:
    """Four steps away from node 3, three layers bring nothing; two steps away, one node counts."""
    query = query_of(OfNodes("gin"), ElementMask(), level="node")
    follower = Follower(query)
    (bond,) = ((query.case.bonds.index == torch.tensor([[5], [6]])).all(0)).nonzero().view(-1)
    pieces = follower.reach.pieces(bond.view(1), "bond")
    assert pieces.node.tolist() == [3, 4, 5, 6]  # a message from 6 to 5, then 4, then 3
    (far,) = ((query.case.bonds.index == torch.tensor([[8], [9]])).all(0)).nonzero().view(-1)
    assert follower.reach.pieces(far.view(1), "bond").node.numel() == 0


@pytest.mark.parametrize(
    ("name", "readout", "reason"),
    [
        ("gat", "sum", "attends"),
        ("gin", "max", "takes a maximum"),
        ("normed", "", "not made of sums"),
    ],
)
def test_other_models_are_run_whole_and_say_why(name: str, readout: str, reason: str) -> None:
    query = query_of(model_of(name, readout), ElementMask())
    assert reason in why_not(query)
    assert torch.equal(answers(query), whole_answers(query))


def test_graphs_with_loops_are_run_whole_where_layers_replace_them() -> None:
    graph = chain(9, seed=1)
    graph.edge_index = torch.cat([graph.edge_index, torch.tensor([[4], [4]])], dim=1)
    del graph.edge_attr
    looped = Query(Target(model_of("gcn")), make_case(to_batch(graph)), ElementMask())
    assert "other things than edges" in why_not(looped)
    assert torch.equal(answers(looped), whole_answers(looped))


@pytest.mark.parametrize("kind", ["bond", "atom"])
def test_messages_grow_with_the_bonds_alone(kind: Kind) -> None:
    """Eight times the bonds, or atoms, send eight times the messages."""
    sent = []
    for size in (100, 800):
        query = Query(Target(model_of("gcn")), make_case(to_batch(chain(size, 1))), ElementMask())
        follower = Follower(query)
        reach, items = follower.reach, torch.arange(follower.reach.sizes[kind].numel())
        number = reach.pieces(items, kind).edge.numel()
        sent.append(number / items.numel())
        bound = reach.sizes[kind]
        assert number <= float(bound.sum()) <= 12 * number
    assert sent[1] < 1.2 * sent[0] < 50


def test_a_batch_that_cannot_be_followed_half_way_is_finished_by_whole_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = query_of(model_of("gin"), MECHANISMS["exchange"])
    query.chunk_edges = 40
    plain, calls = Follower.outputs, []

    def fails_later(*args: object) -> Tensor:
        calls.append(1)
        if len(calls) > 2:  # the first compares
            raise ShortCutEnds("something that no graph before had.")
        return plain(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Follower, "outputs", fails_later)
    torch.testing.assert_close(answers(query), whole_answers(query), rtol=1e-4, atol=1e-4)
    assert len(calls) == 3


def test_a_bond_of_one_direction_is_damaged_though_its_sender_is_not_reached() -> None:
    graph = Data(x=torch.randn(4, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    query = Query(Target(model_of("gin")), make_case(to_batch(graph)), ElementMask())
    found, whole = answers(query), whole_answers(query)
    assert query.shared.follower is not None
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-4)
