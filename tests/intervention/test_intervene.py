"""Interventions reach every message, compose, and find the graph however the model is called."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
from nicegnn.target.message_layers import message_flow, message_layers
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
    mlp,
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


class VirtualNode(nn.Module):
    """After each layer the readout of a graph is added back to all of its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = gnn.GCNConv(F, H), gnn.GCNConv(H, H)
        self.virtual = mlp(H, H)
        self.head = nn.Linear(H, 2)

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        h = self.first(x, edge_index).relu()
        batch = edge_index.new_zeros(x.size(0)) if batch is None else batch
        h = h + self.virtual(gnn.global_add_pool(h, batch))[batch]
        return self.head(gnn.global_add_pool(self.second(h, edge_index), batch))


class Normed(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.second = gnn.SAGEConv(F, H), norm, gnn.SAGEConv(H, 2)

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        h = self.first(x, edge_index)
        h = self.norm(h) if isinstance(self.norm, nn.BatchNorm1d) else self.norm(h, batch)
        return gnn.global_mean_pool(self.second(h.relu(), edge_index), batch)


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "batch-norm": lambda: Normed(nn.BatchNorm1d(H)),
    "graph-norm": lambda: Normed(gnn.GraphNorm(H)),
    "virtual-node": VirtualNode,
}


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(1)], ids=["em", "nc"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gate_of_one_reproduces_clean_output_of_whole_architectures(name, mechanism, batch):
    torch.manual_seed(0)
    model = ARCHITECTURES[name]()
    call(model.train(), batch)  # fills running statistics
    clean = call(model.eval(), batch)
    with intervene(model, mechanism, torch.ones(batch.num_edges)):
        assert torch.equal(call(model, batch), clean)
    with intervene(model, mechanism, torch.full((batch.num_edges,), 0.3)):
        assert not torch.allclose(call(model, batch), clean)


def test_layer_derived_from_one_that_was_made_before_is_reached(ring):
    """PyG's own case: FastRGCNConv derives from RGCNConv and sends other messages."""
    gnn.RGCNConv(F, H, num_relations=2)
    layer, kinds = gnn.FastRGCNConv(F, H, num_relations=2), torch.arange(14) % 2
    clean = layer(ring.x, ring.edge_index, kinds)
    with intervene(layer, ElementMask(), torch.ones(14)):
        assert torch.equal(layer(ring.x, ring.edge_index, kinds), clean)


def test_em_of_zero_and_one_on_gin_equals_deleting_the_edges(batch):
    model = make_net("gin")
    gate = (gates(batch) > 0.4).float()
    with intervene(model, ElementMask(), gate):
        out = call(model, batch)
    kept = batch.clone()
    kept.edge_index, kept.edge_attr = batch.edge_index[:, gate > 0], batch.edge_attr[gate > 0]
    torch.testing.assert_close(out, call(model, kept))


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(3)], ids=["em", "nc"])
def test_batch_equals_loop(mechanism, graphs, batch):
    """With the slot of each edge in its own graph, also the noise is the same."""
    model, gate = make_net("gcn"), gates(batch)
    edge_graph = batch.batch[batch.edge_index[0]]
    slot = torch.cat([torch.arange(g.num_edges) for g in graphs])
    with intervene(model, mechanism, gate, slot=slot):
        together = call(model, batch)
    for k, graph in enumerate(graphs):
        with intervene(model, mechanism, gate[edge_graph == k]):
            alone = call(model, graph)
        torch.testing.assert_close(alone[0], together[k])


def test_edge_order_does_not_matter_if_slots_move_along(ring):
    model, gate = make_net("gat-edges"), gates(ring)
    order = torch.randperm(ring.num_edges, generator=torch.Generator().manual_seed(5))
    with intervene(model, NoiseCorruption(), gate):
        expected = call(model, ring)
    with intervene(model, NoiseCorruption(), gate[order], slot=order):
        out = model(ring.x, ring.edge_index[:, order], None, ring.edge_attr[order])
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("conv", ["gin", "gcn", "gat"])
def test_target_to_source_flow_equals_flipped_edges(conv, ring):
    model, gate = make_net(conv), gates(ring)
    backward = copy.deepcopy(model)
    for _, layer in message_layers(backward):
        layer.flow = "target_to_source"
    assert message_flow(backward) == "target_to_source"
    with intervene(model, NoiseCorruption(), gate):
        expected = model(ring.x, ring.edge_index.flip(0))
    with intervene(backward, NoiseCorruption(), gate) as report:
        out = backward(ring.x, ring.edge_index)
    torch.testing.assert_close(out, expected)
    assert report.layers == ["first", "second"]


def test_layer_that_walks_edges_backwards_gets_the_same_gates(path):
    layer = gnn.DirGNNConv(gnn.SAGEConv(F, H), alpha=0.5)
    gate = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5, 1.0])
    with intervene(layer, ElementMask(), gate) as report:
        out = layer(path.x, path.edge_index)
    x, (s, t) = path.x, path.edge_index
    ahead, back = torch.zeros(4, F), torch.zeros(4, F)
    ahead.index_add_(0, t, gate[:, None] * x[s])
    back.index_add_(0, s, gate[:, None] * x[t])
    degree = torch.tensor([1.0, 2.0, 2.0, 1.0])[:, None]
    expected = 0.5 * layer.conv_in.lin_l(ahead / degree) + 0.5 * layer.conv_out.lin_l(back / degree)
    torch.testing.assert_close(out, expected + layer.lin(x))
    assert len(report.layers) == 2


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


def test_mechanism_receives_flat_messages_of_all_heads(ring):
    shapes: list[tuple[int, ...]] = []

    def record(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        shapes.append((*message.shape, gate.numel(), site.slot.numel()))
        return message

    layer = gnn.GATConv(F, 6, heads=4)
    with intervene(layer, record, torch.ones(ring.num_edges)):
        layer(ring.x, ring.edge_index)
    assert shapes == [(14, 24, 14, 14)]  # the seven loops are not shown


def test_decomposed_layers_are_intervened_on_and_restored(ring, snapshot):
    torch.manual_seed(0)
    layer = gnn.GCNConv(F, H, decomposed_layers=2)
    plain = gnn.GCNConv(F, H)
    plain.load_state_dict(layer.state_dict())
    clean, gate, before = layer(ring.x, ring.edge_index), gates(ring), snapshot(layer)
    with intervene(layer, ElementMask(), torch.ones(ring.num_edges)):
        torch.testing.assert_close(layer(ring.x, ring.edge_index), clean)
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


class WholeData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.GCNConv(F, 2)

    def forward(self, data: Data) -> Tensor:
        return self.conv(data.x, data.edge_index)


def _by_keyword(model: nn.Module, data: Data, edges: Tensor) -> Tensor:
    return model(links=edges, features=data.x)


def _whole(model: nn.Module, data: Data, edges: Tensor) -> Tensor:
    return model(Data(x=data.x, edge_index=edges))


@pytest.mark.parametrize(
    ("make", "run"),
    [
        (Renamed, lambda model, data, edges: model(data.x, edges)),
        (Renamed, _by_keyword),
        (Renamed, lambda model, data, edges: model(data.x, EdgeIndex(edges, sparse_size=(7, 7)))),
        (WholeData, _whole),
    ],
    ids=["by-shape", "by-keyword", "edge-index-class", "whole-data"],
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


def test_gradients_through_a_checkpointed_layer_are_right_or_refused(ring):
    """Such a layer runs again during backward(), when the intervention is over."""

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GINConv(mlp(F, F))
            self.deep = gnn.DeepGCNLayer(
                gnn.GINConv(mlp(F, F)), nn.LayerNorm(F), nn.Tanh(), block="res+", ckpt_grad=1
            )

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.deep(self.conv(x, edge_index), edge_index).sum()

    torch.manual_seed(0)
    model = Checkpointed().double().eval()
    x, gate = ring.x.double(), gates(ring).double().requires_grad_()
    try:
        with intervene(model, ElementMask(), gate):
            out = model(x, ring.edge_index)
        (slope,) = torch.autograd.grad(out, gate)
    except RuntimeError:  # InterventionError is one, too
        return

    def value(shift: Tensor) -> Tensor:
        with torch.no_grad(), intervene(model, ElementMask(), gate.detach() + shift):
            return model(x, ring.edge_index)

    steps = 1e-6 * torch.eye(ring.num_edges, dtype=torch.float64)
    measured = torch.stack([(value(s) - value(-s)) / 2e-6 for s in steps])
    torch.testing.assert_close(slope, measured, rtol=1e-5, atol=1e-7)


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
