"""Interventions reach every message, match every gate, and leave nothing behind."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from nicegnn.errors import InterventionError
from nicegnn.intervention.intervene import Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.target.message_layers import message_flow, message_layers

F, D, H = 5, 3, 8  # features of nodes and edges in conftest, hidden size


class Own(gnn.MessagePassing):
    """A user's layer: messages from both ends and the edge, mean aggregation."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * in_size + D, out_size)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.lin(torch.cat([x_i, x_j, edge_attr], dim=1)).tanh()


class OwnChild(gnn.GINConv):
    """A user's layer derived from one of PyG's."""

    def message(self, x_j: Tensor) -> Tensor:
        return 2 * x_j


def _mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


def _child(a: int, b: int) -> nn.Module:
    gnn.GINConv(_mlp(a, b))  # PyG compiles the parent's propagate() when one is made
    return OwnChild(_mlp(a, b))


PLAIN: dict[str, Callable[[int, int], nn.Module]] = {
    "gin": lambda a, b: gnn.GINConv(_mlp(a, b), train_eps=True),
    "gcn": gnn.GCNConv,
    "gcn-without-loops": lambda a, b: gnn.GCNConv(a, b, add_self_loops=False),
    "gat": lambda a, b: gnn.GATConv(a, b // 2, heads=2),
    "gat-mean-of-heads": lambda a, b: gnn.GATConv(a, b, heads=3, concat=False),
    "gatv2": lambda a, b: gnn.GATv2Conv(a, b // 4, heads=4),
    "sage": gnn.SAGEConv,
    "sage-max": lambda a, b: gnn.SAGEConv(a, b, aggr="max"),
    "graph": gnn.GraphConv,
    "gated": lambda a, b: gnn.GatedGraphConv(b, num_layers=3),
    "cheb": lambda a, b: gnn.ChebConv(a, b, K=3),
    "tag": lambda a, b: gnn.TAGConv(a, b, K=3),
    "pna-like": lambda a, b: gnn.SAGEConv(a, b, aggr=["mean", "max", "std"]),
    "edge": lambda a, b: gnn.EdgeConv(_mlp(2 * a, b)),
    "child": _child,
}
WITH_EDGES: dict[str, Callable[[int, int], nn.Module]] = {
    "gine": lambda a, b: gnn.GINEConv(_mlp(a, b), edge_dim=D),
    "transformer": lambda a, b: gnn.TransformerConv(a, b // 2, heads=2, edge_dim=D, beta=True),
    "gat-edges": lambda a, b: gnn.GATConv(a, b // 2, heads=2, edge_dim=D),
    "gatv2-edges": lambda a, b: gnn.GATv2Conv(a, b // 2, heads=2, edge_dim=D),
    "own": Own,
}
CONVS = {**PLAIN, **WITH_EDGES}
PROPAGATIONS = {"gated": 3, "cheb": 2, "tag": 3}  # per layer, where not 1


class Net(nn.Module):
    """Two layers with something in between, a sum readout and two logits."""

    def __init__(self, conv: str = "gin", middle: nn.Module | None = None) -> None:
        super().__init__()
        self.uses_edges = conv in WITH_EDGES
        self.first = CONVS[conv](F, H)
        self.middle = middle or nn.ReLU()
        self.second = CONVS[conv](H, H)
        self.head = nn.Linear(H, 2)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        extra = (edge_attr,) if self.uses_edges else ()
        h = self.middle(self.first(x, edge_index, *extra))
        h = self.second(h, edge_index, *extra)
        return self.head(gnn.global_add_pool(h, batch))


def make_net(*args: Any, **kwargs: Any) -> Net:
    torch.manual_seed(0)
    return Net(*args, **kwargs).eval()


def call(model: nn.Module, data: Data) -> Tensor:
    return model(data.x, data.edge_index, data.get("batch"), data.edge_attr)


def gates(data: Data, seed: int = 0) -> Tensor:
    return torch.rand(data.num_edges, generator=torch.Generator().manual_seed(seed))


def add_one(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return message + 1


def double(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return 2 * message


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


class Jump(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList([gnn.GINConv(_mlp(F, H)), gnn.GINConv(_mlp(H, H))])
        self.jump = gnn.JumpingKnowledge(mode, channels=H, num_layers=2)
        self.head = nn.Linear(2 * H if mode == "cat" else H, 2)

    def forward(self, x, edge_index, batch=None, edge_attr=None):
        states = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            states.append(x)
        return self.head(gnn.global_mean_pool(self.jump(states), batch))


class VirtualNode(nn.Module):
    """After each layer the readout of a graph is added back to all of its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = gnn.GCNConv(F, H), gnn.GCNConv(H, H)
        self.virtual = _mlp(H, H)
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
    "jump-cat": lambda: Jump("cat"),
    "jump-max": lambda: Jump("max"),
    "jump-lstm": lambda: Jump("lstm"),
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


def test_gates_act_only_on_their_own_graph(batch):
    model = make_net("gat")
    clean = call(model, batch)
    gate = torch.where(batch.batch[batch.edge_index[0]] == 2, 0.2, 1.0)
    with intervene(model, ElementMask(), gate):
        moved = (call(model, batch) - clean).abs().sum(1) > 1e-6
    assert moved.tolist() == [False, False, True, False, False]


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


# --- self-loops --------------------------------------------------------------------------------


def test_self_loops_of_gcn_stay_clean_against_a_dense_computation(isolated):
    """Degrees count clean edges: D^-1/2 (g * A + I) D^-1/2 X W + b."""
    torch.manual_seed(0)
    layer, gate = gnn.GCNConv(F, H), torch.tensor([0.1, 0.2, 0.3, 0.4])
    adjacency, gated = torch.zeros(4, 4), torch.zeros(4, 4)
    for (u, v), g in zip(isolated.edge_index.t().tolist(), gate.tolist(), strict=True):
        adjacency[v, u], gated[v, u] = 1, g
    scale = (adjacency + torch.eye(4)).sum(1).rsqrt()
    expected = scale[:, None] * (gated + torch.eye(4)) * scale @ (isolated.x @ layer.lin.weight.t())
    with intervene(layer, ElementMask(), gate) as report:
        out = layer(isolated.x, isolated.edge_index)
    torch.testing.assert_close(out, expected + layer.bias)
    assert report.clean_loops == {"": 4}  # one per node, also for the node without bonds


@pytest.mark.parametrize(
    ("conv", "loops_per_node"),
    [("gin", 0), ("sage", 0), ("tag", 0), ("gcn-without-loops", 0), ("gcn", 1), ("gatv2", 1)],
)
def test_report_counts_the_loops_a_layer_adds(conv, loops_per_node, batch):
    model = make_net(conv)
    with intervene(model, ElementMask(), gates(batch)) as report:
        call(model, batch)
    added = loops_per_node * batch.num_nodes
    assert report.clean_loops == ({"first": added, "second": added} if added else {})


def with_loops(graph: Data, nodes: list[int], at: int) -> tuple[Tensor, Tensor]:
    """Inserts self-loops into an edge list at column `at`; returns it and which edges are loops."""
    loops = torch.tensor([nodes, nodes])
    edge_index = torch.cat([graph.edge_index[:, :at], loops, graph.edge_index[:, at:]], dim=1)
    return edge_index, edge_index[0] == edge_index[1]


def test_own_self_loops_under_gin_carry_a_gate(path):
    layer = gnn.GINConv(nn.Identity())
    edge_index, _ = with_loops(path, [0, 2], at=2)
    gate = torch.rand(8, generator=torch.Generator().manual_seed(0))
    with intervene(layer, ElementMask(), gate) as report:
        out = layer(path.x, edge_index)
    expected = path.x.clone()
    for (u, v), g in zip(edge_index.t().tolist(), gate, strict=True):
        expected[v] += g * path.x[u]
    torch.testing.assert_close(out, expected)
    assert report.clean_loops == {}


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.parametrize("nodes", [[1], [0, 2], [0, 1, 2, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize("conv", ["gcn", "gatv2"])
def test_own_self_loops_under_a_looping_layer_stay_clean_wherever_they_are_listed(
    conv, nodes, at, path
):
    """Such a layer replaces the graph's loops by its own, so their gates must not matter."""
    torch.manual_seed(0)
    layer = CONVS[conv](F, H)
    edge_index, is_loop = with_loops(path, nodes, at)
    gate = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(0))
    with intervene(layer, ElementMask(), torch.where(is_loop, 0.0, gate)) as report:
        closed = layer(path.x, edge_index)
    with intervene(layer, ElementMask(), torch.where(is_loop, 1.0, gate)):
        opened = layer(path.x, edge_index)
    torch.testing.assert_close(closed, opened)
    assert report.clean_loops == {"": 4}


# --- composition -------------------------------------------------------------------------------


def test_nested_em_multiplies(ring):
    model, a, b = make_net("gat"), gates(ring, 1), gates(ring, 2)
    mechanism = ElementMask()
    with intervene(model, mechanism, a), intervene(model, mechanism, b):
        nested = call(model, ring)
    with intervene(model, mechanism, a * b):
        torch.testing.assert_close(nested, call(model, ring))


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


def test_inner_exit_leaves_the_outer_intervention_active(ring):
    model, gate = make_net("gcn"), gates(ring)
    with intervene(model, ElementMask(), gate):
        once = call(model, ring)
        with intervene(model, ElementMask(), gate):
            twice = call(model, ring)
        again = call(model, ring)
    assert torch.equal(once, again)
    assert not torch.allclose(once, twice)


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


def test_intervening_on_a_part_leaves_the_other_layers_clean(ring):
    model, gate = make_net("gcn"), gates(ring)
    with intervene(model.second, ElementMask(), gate) as report:
        out = call(model, ring)
    h = model.middle(model.first(ring.x, ring.edge_index))
    with intervene(model.second, ElementMask(), gate):
        h = model.second(h, ring.edge_index)
    assert torch.equal(out, model.head(gnn.global_add_pool(h, None)))
    assert report.layers == [""]


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


def test_unused_layer_is_no_error(ring):
    model = make_net("gin")
    model.spare = gnn.GCNConv(F, H)
    with intervene(model, ElementMask(), gates(ring)) as report:
        call(model, ring)
    assert report.layers == ["first", "second"]


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


def test_graph_without_edges_runs_clean():
    x, edge_index = torch.randn(3, F), torch.zeros(2, 0, dtype=torch.long)
    for conv in ("gin", "gcn", "gat"):
        model = make_net(conv)
        with intervene(model, NoiseCorruption(), torch.zeros(0)):
            assert torch.equal(model(x, edge_index), make_net(conv)(x, edge_index))


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
            self.conv = gnn.GINConv(_mlp(F, F))
            self.deep = gnn.DeepGCNLayer(
                gnn.GINConv(_mlp(F, F)), nn.LayerNorm(F), nn.Tanh(), block="res+", ckpt_grad=1
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


# --- the model is as before --------------------------------------------------------------------


class Interrupting(nn.Module):
    """Stands between two layers and raises once it is armed."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error
        self.armed = [False]

    def forward(self, x: Tensor) -> Tensor:
        if self.armed[0]:
            raise self.error("half-way")
        return x


def _normal(model: Net, data: Data) -> None:
    with intervene(model, NoiseCorruption(), gates(data)):
        call(model, data)
        call(model, data)


def _nested(model: Net, data: Data) -> None:
    with intervene(model, ElementMask(), gates(data)), intervene(model, add_one, gates(data)):
        call(model, data)


def _error_in_model(model: Net, data: Data) -> None:
    model.middle.armed[0] = True
    try:
        with pytest.raises(model.middle.error), intervene(model, ElementMask(), gates(data)):
            call(model, data)
    finally:
        model.middle.armed[0] = False


def _error_in_body(model: Net, data: Data) -> None:
    with pytest.raises(KeyboardInterrupt), intervene(model, ElementMask(), gates(data)):
        raise KeyboardInterrupt


def _error_in_mechanism(model: Net, data: Data) -> None:
    def broken(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        if site.layer == 1:
            raise ZeroDivisionError
        return message

    with pytest.raises(ZeroDivisionError), intervene(model, broken, gates(data)):
        call(model, data)


def _wrong_shape(model: Net, data: Data) -> None:
    with (
        pytest.raises(InterventionError, match="keep the shape"),
        intervene(model, lambda message, gate, site: message[:, :1], gates(data)),
    ):
        call(model, data)


def _never_called(model: Net, data: Data) -> None:
    with (
        pytest.raises(InterventionError, match="did not run"),
        intervene(model, ElementMask(), gates(data)),
    ):
        pass


def _wrong_graph(model: Net, data: Data) -> None:
    with pytest.raises(InterventionError), intervene(model, ElementMask(), gates(data)[:-1]):
        call(model, data)


def _error_while_binding(model: Net, data: Data) -> None:
    """The second layer has an explain_message() of the user's that cannot be combined."""
    layer = model.second
    before = dict(vars(layer))

    def explain_message(self: nn.Module, inputs: Tensor, x_j: Tensor) -> Tensor:
        return inputs

    layer.explain_message = explain_message.__get__(layer)
    layer.explain = True
    with (
        pytest.raises(InterventionError, match="custom explain_message"),
        intervene(model, ElementMask(), gates(data)),
    ):
        call(model, data)
    layer.explain = None
    layer.inspector.remove_signature("explain_message")
    vars(layer).clear()
    vars(layer).update(before)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt], ids=lambda e: e.__name__)
@pytest.mark.parametrize(
    "use",
    [
        _normal,
        _nested,
        _error_in_model,
        _error_in_body,
        _error_in_mechanism,
        _wrong_shape,
        _never_called,
        _wrong_graph,
        _error_while_binding,
    ],
    ids=lambda f: f.__name__.strip("_"),
)
def test_model_is_exactly_as_before(use, error, ring, snapshot):
    model = make_net("gcn", Interrupting(error))
    call(model, ring).sum().backward()  # some gradients to be kept
    model.head.bias.requires_grad_(False)
    model.second.train()  # a mode of its own
    kept = [
        model.register_forward_hook(lambda *_: None),
        model.first.register_message_forward_hook(lambda *_: None),
    ]
    clean, before, randomness = call(model, ring), snapshot(model), torch.get_rng_state()
    use(model, ring)
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), randomness)
    assert torch.equal(call(model, ring), clean)
    assert all(handle.id in handle.hooks_dict_ref() for handle in kept)


def test_snapshot_notices_what_it_must(ring, snapshot):
    """The check above is worth as much as this one."""
    model = make_net("gcn")
    changes: list[Callable[[], object]] = [
        lambda: model.second.train(),
        lambda: model.first.register_message_forward_hook(lambda *_: None),
        lambda: model.register_forward_pre_hook(lambda *_: None),
        lambda: model.head.bias.requires_grad_(False),
        lambda: call(model, ring).sum().backward(),
        lambda: setattr(model.first, "explain", True),
        lambda: model.first.inspector._signature_dict.pop("explain_message"),
        lambda: setattr(model.first, "_user_args", list(model.first._user_args)),
        lambda: model.first.lin.weight.data.mul_(1.5),
    ]
    for change in changes:
        before = snapshot(model)
        assert snapshot(model) == before
        change()
        assert snapshot(model) != before


def test_compile_stance_is_restored_after_an_error(ring):
    assert "torch._dynamo" in sys.modules or torch.compile(nn.Identity(), backend="eager")
    stance = torch._dynamo.eval_frame._stance
    _error_in_mechanism(make_net("gin"), ring)
    assert torch._dynamo.eval_frame._stance == stance


# --- beside PyG's own explainers ---------------------------------------------------------------


def explain_with(algorithm: Any, model: nn.Module, data: Data) -> Tensor:
    explainer = Explainer(
        model,
        algorithm,
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "graph",
            "return_type": "raw",
        },
    )
    return explainer(data.x, data.edge_index).edge_mask


def test_works_on_a_model_that_gnn_explainer_left_its_masks_in(ring, snapshot):
    model, gate = make_net("gcn"), gates(ring)
    clean = call(model, ring)
    explain_with(GNNExplainer(epochs=2), model, ring)
    assert "_edge_mask" in model.first._parameters  # this is what it leaves behind
    before = snapshot(model)
    with intervene(model, ElementMask(), torch.ones(ring.num_edges)):
        assert torch.equal(call(model, ring), clean)
    with intervene(model, ElementMask(), gate):
        out = call(model, ring)
    assert snapshot(model) == before
    fresh = make_net("gcn")
    with intervene(fresh, ElementMask(), gate):
        assert torch.equal(call(fresh, ring), out)


def test_captum_gives_the_same_before_and_after_an_intervention(ring):
    model, gate = make_net("gcn"), gates(ring)
    with intervene(model, ElementMask(), gate):
        expected = call(model, ring)
    before = explain_with(CaptumExplainer("Saliency"), model, ring)
    with intervene(model, ElementMask(), gate):
        assert torch.equal(call(model, ring), expected)
    after = explain_with(CaptumExplainer("Saliency"), model, ring)
    assert torch.equal(before, after)
    assert before.abs().sum() > 0


# --- errors are loud ---------------------------------------------------------------------------


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


@pytest.mark.parametrize("num", [0, 1, 7, 13, 15, 21])
@pytest.mark.parametrize("conv", ["gin", "gcn"])
@pytest.mark.parametrize("make_call", [call, lambda m, d: m(d.x, d.edge_index)])
def test_wrong_number_of_gates_is_refused(num, conv, make_call, ring):
    model = make_net(conv)
    with (
        pytest.raises(InterventionError, match=r"one value per edge \(got \d+ gates, 14 edges\)"),
        intervene(model, ElementMask(), torch.ones(num)),
    ):
        make_call(model, ring)


@pytest.mark.parametrize("name", ["edge_index", "slot", "draw"])
def test_coordinates_must_match_the_gates(name, ring):
    value = torch.zeros(2, 3, dtype=torch.long) if name == "edge_index" else torch.arange(3)
    model = make_net("gin")
    with (
        pytest.raises(InterventionError, match=f"`{name}` must match the 14 gates"),
        intervene(model, ElementMask(), torch.ones(14), **{name: value}),
    ):
        call(model, ring)


def test_gates_of_another_graph_are_refused(ring):
    model = make_net("gin")
    other = ring.edge_index.roll(2, dims=1)
    with (
        pytest.raises(InterventionError, match="other edges"),
        intervene(model, ElementMask(), torch.ones(14), edge_index=other),
    ):
        call(model, ring)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:Converting sparse:UserWarning")
@pytest.mark.parametrize("convert", [to_torch_csr_tensor, to_torch_coo_tensor])
@pytest.mark.parametrize("conv", ["gin", "gcn", "sage"])
def test_sparse_adjacency_is_refused(conv, convert, ring):
    model = make_net(conv)
    adjacency = convert(ring.edge_index, size=7)
    model(ring.x, adjacency)  # the model itself can do it
    with (
        pytest.raises(InterventionError, match="sparse adjacency"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        model(ring.x, adjacency)


class OwnPropagate(gnn.MessagePassing):
    """Sums neighbours without ever calling message()."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def propagate(self, edge_index: Tensor, size: Any = None, **kwargs: Tensor) -> Tensor:
        x = kwargs["x"]
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


class Partly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.good, self.bad = gnn.GINConv(_mlp(F, F)), OwnPropagate()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.bad(self.good(x, edge_index), edge_index)


@pytest.mark.parametrize("make", [OwnPropagate, Partly])
def test_layer_that_never_shows_its_messages_is_refused(make, ring):
    model = make()
    with (
        pytest.raises(InterventionError, match="without showing its messages"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
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
    with (
        pytest.raises(InterventionError, match=r"'second' passes .* other edges"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        model(ring.x, ring.edge_index)
    model.second.explain = False
    with intervene(model, ElementMask(), torch.ones(14)) as report:
        model(ring.x, ring.edge_index)
    assert (report.layers, report.excluded) == (["first"], ["second"])


def test_relations_with_edges_of_their_own_are_refused(ring):
    layer = gnn.RGCNConv(F, H, num_relations=2)
    kinds = torch.arange(14) % 2
    with (
        pytest.raises(InterventionError, match="other edges"),
        intervene(layer, ElementMask(), torch.ones(14)),
    ):
        layer(ring.x, ring.edge_index, kinds)


def test_dropped_edges_are_refused(ring):
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GINConv(_mlp(F, H))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index[:, :-2])

    model = Dropping()
    with (
        pytest.raises(InterventionError, match="other edges"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        model(ring.x, ring.edge_index)


@pytest.mark.parametrize("kind", [gnn.GCNConv, gnn.ARMAConv])
def test_edges_need_not_be_the_first_dimension_of_messages(kind, ring):
    """Static graphs have messages [B, E, F], ARMA's stacks [K, E, F]."""
    layer = kind(F, H)
    x = ring.x.expand(2, -1, -1) if kind is gnn.GCNConv else ring.x
    clean = layer(x, ring.edge_index)
    with intervene(layer, ElementMask(), torch.ones(14)):
        assert torch.equal(layer(x, ring.edge_index), clean)
    gate = torch.rand(14, generator=torch.Generator().manual_seed(0))
    with intervene(layer, ElementMask(), gate):
        masked = layer(x, ring.edge_index)
    set_masks(layer, gate, ring.edge_index, apply_sigmoid=False)
    torch.testing.assert_close(masked, layer(x, ring.edge_index))
    clear_masks(layer)


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_layer_inside_a_model_is_not_skipped_silently(ring):
    model = make_net("gcn")
    model.second = torch.jit.script(model.second)
    with (
        pytest.raises(InterventionError, match="scripted"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        call(model, ring)


def test_all_layers_excluded_is_refused():
    model = make_net("gin")
    model.first.explain = model.second.explain = False
    with (
        pytest.raises(InterventionError, match="explain = False"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        raise AssertionError("the context must not open")


def test_forward_pass_that_reaches_no_layer_is_refused(ring):
    class Bypass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.GINConv(_mlp(F, H))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

    model = Bypass()
    with (
        pytest.raises(InterventionError, match="No message passed"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
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
    with (
        pytest.raises(InterventionError, match="one floating point tensor"),
        intervene(layer, ElementMask(), torch.ones(14)),
    ):
        layer(ring.x, ring.edge_index)


def test_clearing_the_masks_inside_does_not_disarm_silently(ring):
    """A PyG explainer used inside the context switches `explain` off when it is done."""
    model = make_net("gin")

    def explain_and_call() -> None:
        clear_masks(model)
        call(model, ring)

    with (
        pytest.raises(InterventionError, match="without showing its messages"),
        intervene(model, ElementMask(), torch.ones(14)),
    ):
        explain_and_call()


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
