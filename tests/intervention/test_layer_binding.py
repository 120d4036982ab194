"""Every gate meets its own edge, and the layers are left as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

from nicegnn import NICE, NICEConfig
from nicegnn.errors import InterventionError
from nicegnn.intervention.intervene import Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.target.message_layers import register_layer
from tests.intervention.small_models import CONVS, F, H, Net, add_one, call, gates, make_net

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
    closing, opening = (torch.where(is_loop, value, gate) for value in (0.0, 1.0))
    with intervene(layer, ElementMask(), closing, edge_index=edge_index) as report:
        closed = layer(path.x, edge_index)
    with intervene(layer, ElementMask(), opening, edge_index=edge_index):
        opened = layer(path.x, edge_index)
    torch.testing.assert_close(closed, opened)
    assert report.clean_loops == {"": 4}


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


# --- layers written by hand ----------------------------------------------------------------------


class Plain(nn.Module):
    """Adds up what neighbours send; ``turns`` times in one call."""

    def __init__(self, linear: nn.Linear, turns: int = 1) -> None:
        super().__init__()
        self.linear, self.turns = linear, turns

    def send(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(x)[edge_index[0]]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for _ in range(self.turns):
            message = self.send(x, edge_index)
            x = torch.zeros(x.size(0), message.size(1)).index_add(0, edge_index[1], message)
        return x


class Twin(gnn.MessagePassing):
    """The same by PyG."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(aggr="sum")
        self.linear = linear

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.linear(x))


class Pooled(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index)
        return gnn.global_add_pool(x, batch)


def test_a_registered_layer_is_explained_as_its_twin_of_pyg(graphs: list[Data]) -> None:
    register_layer(Plain, "send")
    torch.manual_seed(0)
    wide, same = nn.Linear(F, 2), nn.Linear(F, F)
    ours = Pooled(Plain(same, 2), Plain(wide))
    twins = Pooled(Twin(same), Twin(same), Twin(wide))
    before = vars(ours.layers[0]).copy()
    for config in (NICEConfig(), NICEConfig().with_(anchor="clean")):
        first, second = (
            NICE(one, config, background=graphs).explain(graphs) for one in (ours, twins)
        )
        assert float(second.bond_score.max()) > 0
        for name in ("bond_score", "atom_score", "bond_stderr"):
            torch.testing.assert_close(getattr(first, name), getattr(second, name))
    assert vars(ours.layers[0]) == before


def test_a_registered_layer_must_send_one_message_per_edge(ring: Data) -> None:
    class Loops(Plain):
        def send(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.cat([super().send(x, edge_index), x])

    register_layer(Loops, "send")
    layer, gate = Loops(nn.Linear(F, F)), torch.ones(14)
    with (
        pytest.raises(InterventionError, match="one message per edge, 14 rows"),
        intervene(layer, ElementMask(), gate),
    ):
        layer(ring.x, ring.edge_index)


def test_only_a_layer_with_that_method_can_be_registered() -> None:
    for kind, method in ((Plain, "nosuch"), (3, "send"), (Data, "keys")):
        with pytest.raises(InterventionError, match="register_layer"):
            register_layer(kind, method)
