"""Messages that cannot be reached are an error that says so; none is skipped silently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from nicegnn.errors import InterventionError
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask
from tests.intervention.small_models import F, H, call, double, make_net, mlp


@contextmanager
def refused(
    words: str, model: nn.Module, gate: Tensor | None = None, **where: Tensor
) -> Iterator[None]:
    """Expects an error while the model runs with gates, by default 14 open ones."""
    gate = torch.ones(14) if gate is None else gate
    with (
        pytest.raises(InterventionError, match=words),
        intervene(model, ElementMask(), gate, **where),
    ):
        yield


@pytest.mark.parametrize(
    "gate",
    [
        torch.full((14,), 1.0001),
        torch.full((14,), -0.1),
        torch.full((14,), float("nan")),
        torch.full((14,), float("inf")),
        torch.ones(14, dtype=torch.long),
        torch.ones(14, dtype=torch.bool),
        torch.ones(14, 1),
        torch.ones(()),
        [1.0] * 14,
    ],
    ids=["above", "below", "nan", "inf", "long", "bool", "column", "scalar", "list"],
)
def test_bad_gates_are_refused(gate, ring):
    model = make_net("gin")
    with pytest.raises(InterventionError, match="`gate` must"), intervene(model, double, gate):
        call(model, ring)


@pytest.mark.parametrize("name", ["edge_index", "slot", "draw"])
def test_coordinates_must_match_the_gates(name):
    value = torch.zeros(2, 3, dtype=torch.long) if name == "edge_index" else torch.arange(3)
    passing = intervene(make_net("gin"), ElementMask(), torch.ones(14), **{name: value})
    with pytest.raises(InterventionError, match=f"`{name}` must match the 14 gates"), passing:
        raise AssertionError("the context must not open")


def test_gates_of_another_graph_are_refused(ring):
    model = make_net("gin")
    other = ring.edge_index.roll(2, dims=1)
    with refused("other edges", model, torch.ones(14), edge_index=other):
        call(model, ring)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:Converting sparse:UserWarning")
@pytest.mark.parametrize("convert", [to_torch_csr_tensor, to_torch_coo_tensor])
@pytest.mark.parametrize("conv", ["gin", "gcn", "sage"])
def test_sparse_adjacency_is_refused(conv, convert, ring):
    model = make_net(conv)
    adjacency = convert(ring.edge_index, size=7)
    model(ring.x, adjacency)  # the model itself can do it
    with refused("sparse adjacency", model):
        model(ring.x, adjacency)


class OwnPropagate(gnn.MessagePassing):
    """Sums neighbours without ever calling message()."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def propagate(self, edge_index: Tensor, size: Any = None, **kwargs: Tensor) -> Tensor:
        x = kwargs["x"]
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


def test_layer_that_never_shows_its_messages_is_refused(ring):
    model = OwnPropagate()
    with refused("without showing its messages", model):
        model(ring.x, ring.edge_index)


class Pooled(nn.Module):
    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.first, self.pool = gnn.GCNConv(F, H), gnn.TopKPooling(H, ratio)
        self.second = gnn.GCNConv(H, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, edge_index, *_ = self.pool(self.first(x, edge_index), edge_index)
        return self.second(h, edge_index)


@pytest.mark.parametrize("ratio", [0.5, 1.0])  # 1.0 keeps every node, in another order
def test_pooling_is_refused_unless_later_layers_are_excluded(ratio, ring):
    torch.manual_seed(0)
    model = Pooled(ratio)
    with refused(r"'second' passes .* other edges", model):
        model(ring.x, ring.edge_index)
    model.second.explain = False
    with intervene(model, ElementMask(), torch.ones(14)) as report:
        model(ring.x, ring.edge_index)
    assert (report.layers, report.excluded) == (["first"], ["second"])


def test_the_edges_of_another_graph_in_a_cache_are_named(ring, path):
    layer = gnn.GCNConv(F, H, cached=True)
    layer(path.x, path.edge_index)
    with refused("an earlier one, because of cached=True", layer, edge_index=ring.edge_index):
        layer(torch.ones(4, F), ring.edge_index)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.jit.script(gnn.GCNConv(F, H)), "scripted"),
        (lambda: nn.DataParallel(make_net("gin")), "DataParallel"),
        (lambda: nn.Sequential(nn.Linear(F, H), nn.ReLU()), "no torch_geometric MessagePassing"),
    ],
    ids=["scripted", "data-parallel", "no-layer"],
)
def test_models_out_of_reach_are_refused(make, words):
    with (
        pytest.raises(InterventionError, match=words),
        intervene(make(), ElementMask(), torch.ones(14)),
    ):
        raise AssertionError("the context must not open")


def test_forward_pass_that_reaches_no_layer_is_refused(ring):
    class Bypass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GINConv(mlp(F, H))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

    model = Bypass()
    with refused("No MessagePassing layer ran", model):
        model(ring.x, ring.edge_index)


def test_message_that_is_no_float_tensor_is_refused(ring):
    class Pairs(gnn.MessagePassing):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x)

        def message(self, x_j: Tensor) -> tuple[Tensor, Tensor]:
            return x_j, x_j

        def aggregate(self, inputs: tuple[Tensor, Tensor], index: Tensor) -> Tensor:
            return torch.zeros(7, F).index_add(0, index, inputs[0])

    layer = Pairs()
    with refused("one floating point tensor", layer):
        layer(ring.x, ring.edge_index)


def test_a_layer_that_replaces_loops_must_be_told_the_edges(path):
    edges = torch.cat([path.edge_index, torch.tensor([[1], [1]])], dim=1)
    layer = gnn.GCNConv(F, H)
    with refused("`edge_index` must be given for layer ''", layer, torch.ones(7)):
        layer(path.x, edges)
