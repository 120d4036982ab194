"""Interventions reach every message, compose, and find the graph however the model is called."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

from nicegnn.intervention.intervene import Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from tests.intervention.small_models import (
    CONVS,
    PROPAGATIONS,
    F,
    H,
    add_one,
    call,
    double,
    gates,
    make_net,
)

# --- what reaches the messages -----------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(1)], ids=["em", "nc"])
@pytest.mark.parametrize("conv", CONVS)
def test_gate_of_one_reproduces_clean_output_bit_for_bit(conv, mechanism, batch):
    model = make_net(conv)
    clean = call(model, batch)
    with intervene(model, mechanism, torch.ones(batch.num_edges)) as report:
        out = call(model, batch)
    assert torch.equal(out, clean)
    repeats = PROPAGATIONS.get(conv, 1)
    assert report.layers == ["first"] * repeats + ["second"] * repeats


@pytest.mark.parametrize("conv", [name for name in CONVS if name != "child"])  # PyG misses it
def test_em_equals_the_masks_of_pyg(conv, batch):
    model, gate = make_net(conv), gates(batch)
    set_masks(model, gate, batch.edge_index, apply_sigmoid=False)
    masked = call(model, batch)
    clear_masks(model)
    with intervene(model, ElementMask(), gate):
        out = call(model, batch)
    torch.testing.assert_close(out, masked, rtol=0, atol=0)
    assert not torch.allclose(out, call(model, batch))


# --- composition -------------------------------------------------------------------------------


def test_outer_intervention_acts_first(path):
    layer, one = gnn.GINConv(nn.Identity()), torch.ones(6)
    plain = layer(path.x, path.edge_index) - path.x  # sum of the messages
    degree = torch.tensor([1.0, 2.0, 2.0, 1.0])[:, None]
    with intervene(layer, add_one, one), intervene(layer, double, one):
        out = layer(path.x, path.edge_index) - path.x
    torch.testing.assert_close(out, 2 * (plain + degree))
    with intervene(layer, double, one), intervene(layer, add_one, one):
        out = layer(path.x, path.edge_index) - path.x
    torch.testing.assert_close(out, 2 * plain + degree)


def test_intervention_composes_with_the_masks_of_pyg_around_it(ring, snapshot):
    model, a, b = make_net("gcn"), gates(ring, 1), gates(ring, 2)
    with intervene(model, ElementMask(), a * b):
        expected = call(model, ring)
    set_masks(model, a, ring.edge_index, apply_sigmoid=False)
    before, masked = snapshot(model), call(model, ring)
    with intervene(model, ElementMask(), b):
        torch.testing.assert_close(call(model, ring), expected)
    assert snapshot(model) == before
    assert torch.equal(call(model, ring), masked)
    clear_masks(model)
    assert torch.equal(call(model, ring), call(make_net("gcn"), ring))


def test_excluded_layer_stays_clean_and_is_reported(ring):
    model, gate = make_net("gin"), gates(ring)
    model.first.explain = False
    with intervene(model, ElementMask(), gate) as report:
        out = call(model, ring)
    assert (report.excluded, report.layers) == (["first"], ["second"])
    other = make_net("gin")
    h = other.middle(other.first(ring.x, ring.edge_index))
    with intervene(other.second, ElementMask(), gate):
        expected = other.head(gnn.global_add_pool(other.second(h, ring.edge_index), None))
    assert torch.equal(out, expected)
    assert model.first.explain is False


def test_layer_used_twice_is_reached_twice(ring):
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GINConv(nn.Identity())

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.conv(x, edge_index), edge_index)

    shared, gate = Shared(), gates(ring)
    dense = torch.eye(7)
    for (u, v), g in zip(ring.edge_index.t().tolist(), gate.tolist(), strict=True):
        dense[v, u] += g
    with intervene(shared, ElementMask(), gate) as report:
        torch.testing.assert_close(shared(ring.x, ring.edge_index), dense @ dense @ ring.x)
    assert report.layers == ["conv", "conv"]


def test_each_layer_sees_its_running_number_and_the_stream_counts_forward_passes(ring):
    seen: list[tuple[int, str, int]] = []

    def record(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        seen.append((site.layer, site.name, site.stream))
        return message

    model = make_net("gated")
    with intervene(model, record, torch.ones(ring.num_edges), stream=7) as report:
        call(model, ring)
        call(model, ring)
    names = ["first"] * 3 + ["second"] * 3
    once = list(enumerate(names))
    assert seen == [(k, name, stream) for stream in (7, 8) for k, name in once]
    assert (report.forwards, report.layers) == (2, names)


def test_decomposed_layers_are_intervened_on_and_restored(ring, snapshot):
    torch.manual_seed(0)
    layer, plain = gnn.GCNConv(F, H, decomposed_layers=2), gnn.GCNConv(F, H)
    plain.load_state_dict(layer.state_dict())
    clean, gate, before = layer(ring.x, ring.edge_index), gates(ring), snapshot(layer)
    with intervene(layer, NoiseCorruption(), gate):
        out = layer(ring.x, ring.edge_index)
    with intervene(plain, NoiseCorruption(), gate):
        torch.testing.assert_close(out, plain(ring.x, ring.edge_index))
    assert snapshot(layer) == before
    assert layer.decomposed_layers == 2
    assert torch.equal(layer(ring.x, ring.edge_index), clean)


# --- ways to call the model --------------------------------------------------------------------


class Renamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.GCNConv(F, 2)

    def forward(self, features: Tensor, links: Tensor) -> Tensor:
        return self.conv(features, links)


def _by_keyword(model: nn.Module, data: Data, edges: Tensor) -> Tensor:
    return model(links=edges, features=data.x)


@pytest.mark.parametrize(
    ("make", "run"),
    [
        (Renamed, lambda model, data, edges: model(data.x, edges)),
        (Renamed, _by_keyword),
        (Renamed, lambda model, data, edges: model(data.x, EdgeIndex(edges, sparse_size=(7, 7)))),
    ],
    ids=["by-shape", "by-keyword", "edge-index-class"],
)
def test_the_graph_is_found_however_it_is_passed(make, run, ring):
    torch.manual_seed(0)
    model, gate = make(), gates(ring)
    with intervene(model.conv, ElementMask(), gate):
        expected = model.conv(ring.x, ring.edge_index)
    with intervene(model, ElementMask(), gate):
        assert torch.equal(run(model, ring, ring.edge_index), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # from torch.compile itself
@pytest.mark.parametrize("wrap", ["whole", "in-place", "layer"])
def test_compiled_model_gets_the_intervention(wrap, ring):
    torch._dynamo.reset()
    plain, gate = make_net("gin"), gates(ring)
    with intervene(plain, ElementMask(), gate):
        expected = call(plain, ring)
    model: Any = make_net("gin")
    if wrap == "whole":
        model = torch.compile(model, backend="eager")
    elif wrap == "in-place":
        model.compile(backend="eager")
    else:
        model.second = torch.compile(model.second, backend="eager")
    clean = call(model, ring)  # compiled before the intervention
    compiling = []

    def mask(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        compiling.append(torch.compiler.is_compiling())
        return gate.unsqueeze(1) * message

    with intervene(model, mask, gate) as report:
        out = call(model, ring)
    assert len(report.layers) == 2
    assert compiling == [False, False]  # eagerly, as the docstring says
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(call(model, ring), clean)


# --- devices ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(1)], ids=["em", "nc"])
@pytest.mark.parametrize("conv", ["gin", "gcn", "gat"])
def test_cuda_equals_cpu(conv, mechanism, batch: Batch):
    model, gate = make_net(conv), gates(batch)
    with intervene(model, mechanism, gate):
        expected = call(model, batch)
    model, moved = model.cuda(), batch.to("cuda")
    with intervene(model, mechanism, gate.cuda()):
        torch.testing.assert_close(call(model, moved).cpu(), expected, rtol=1e-4, atol=1e-4)
