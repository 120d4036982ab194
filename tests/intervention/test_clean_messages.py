"""Mechanisms anchored to clean messages: the paper's notation, layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv

from nicegnn.errors import InterventionError
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import (
    CleanMessages,
    Mechanism,
    Site,
    intervene,
    record_messages,
)
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import MODELS, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, make_graph

CLEAN = {
    "nc": lambda: NoiseCorruption(3, anchor="clean"),
    "em": lambda: ElementMask(anchor="clean"),
}


def model_of(kind: str, *, dtype: torch.dtype = torch.float32, num_layers: int = 3) -> nn.Module:
    """Returns an untrained reference model whose BatchNorm has seen something."""
    torch.manual_seed(5)
    edge_size = NUM_EDGE_FEATURES if MODELS[kind].uses_edges else 0
    model = make_model(
        kind, NUM_FEATURES, 2, hidden_size=8, num_layers=num_layers, edge_size=edge_size
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.to(dtype).eval()


def call(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch.x, batch.edge_index, batch.batch, batch.edge_attr)


def some_gates(batch: Batch) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(batch.num_edges, generator=generator).to(batch.x.dtype)


def recorded(model: nn.Module, batch: Batch) -> CleanMessages:
    return record_messages(model, lambda: call(model, batch), batch.edge_index)


class Scales:
    """Keeps the squared norm of every message that leaves a mechanism, ``[E]`` per layer."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism, self.anchor = mechanism, getattr(mechanism, "anchor", "propagated")
        self.norms: list[Tensor] = []

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        out = self.mechanism(message, gate, site)
        self.norms.append(out.square().sum(1))
        return out


@pytest.mark.parametrize("kind", list(MODELS))
def test_noise_keeps_the_expected_scale_of_every_layer(kind: str, batch: Batch) -> None:
    model, gate = model_of(kind), some_gates(batch)
    clean = Scales(ElementMask())
    noisy = Scales(NoiseCorruption(7, anchor="clean"))
    with torch.no_grad():
        with intervene(model, clean, torch.ones_like(gate)):
            call(model, batch)
        with intervene(model, noisy, gate, clean=recorded(model, batch)):
            for _ in range(200):
                call(model, batch)
    mean = torch.stack(noisy.norms).view(200, 3, -1).mean(0).mean(1)
    torch.testing.assert_close(mean, torch.stack(clean.norms).mean(1), rtol=0.08, atol=0)


@pytest.mark.parametrize("kind", ["gin", "gcn", "gat", "gine"])
def test_masking_contracts_every_layer_as_the_theorem_says(kind: str, batch: Batch) -> None:
    model, gate = model_of(kind), some_gates(batch)
    clean, masked = Scales(ElementMask()), Scales(ElementMask(anchor="clean"))
    with torch.no_grad():
        with intervene(model, clean, torch.ones_like(gate)):
            call(model, batch)
        with intervene(model, masked, gate, clean=recorded(model, batch)):
            call(model, batch)
    total = torch.stack(clean.norms)  # [L, E]
    share = total / total.sum(1, keepdim=True)  # eta
    ratio = torch.stack(masked.norms).sum(1) / total.sum(1)
    torch.testing.assert_close(ratio, 1 - ((1 - gate.square()) * share).sum(1))
    drift = -ratio.log().sum()  # the Corollary: at least that of any single edge in all layers
    bound = -3 * (1 - (1 - gate.square()) * share.min(0).values).log()
    assert bool((drift >= bound).all())


def test_by_hand_on_a_linear_model() -> None:
    """h1 = x0 + sum m, message = sender's state; two layers; every gated message is the clean one.

    Path 0-1 with x = (1, 10). Clean states after layer 1: (11, 11). With all gates 0 under masking,
    layer 1 leaves (1, 10), layer 2 adds nothing: (1, 10). With gate 1/2 on 0->1 alone: layer 1
    gives (11, 10.5), layer 2 adds the clean 11 to node 0 and half the clean 11 to node 1.
    """
    graph = make_graph([(0, 1)], 2, seed=0)
    graph.x = torch.tensor([[1.0], [10.0]])

    class TwoLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GINConv(nn.Identity()), GINConv(nn.Identity())

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index), edge_index)

    model, mask, gate = TwoLayers(), ElementMask(anchor="clean"), torch.zeros(2)
    clean = record_messages(model, lambda: model(graph.x, graph.edge_index), graph.edge_index)
    with intervene(model, mask, gate, clean=clean):
        assert model(graph.x, graph.edge_index).view(-1).tolist() == [1.0, 10.0]
    gate = torch.tensor([0.5, 1.0])  # 0->1, 1->0
    with intervene(model, mask, gate, clean=clean):
        assert model(graph.x, graph.edge_index).view(-1).tolist() == [22.0, 16.0]


def test_messages_of_models_of_one_graph_take_the_places_of_their_edges(batch: Batch) -> None:
    one, other = (
        Query(Target(model_of("gin"), batched=way), make_case(batch), ElementMask())
        for way in (True, False)
    )
    pairs = zip(one.clean_messages.layers, other.clean_messages.layers, strict=True)
    for together, alone in pairs:
        torch.testing.assert_close(together, alone)


def test_added_self_loops_are_sent_from_present_states(path: Data) -> None:
    """With all gates shut a GCN keeps only its self-loops: a linear chain per node."""
    torch.manual_seed(0)
    first, second = GCNConv(NUM_FEATURES, 4), GCNConv(4, 2)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index), edge_index)

    model = Two().eval()
    clean = record_messages(model, lambda: model(path.x, path.edge_index), path.edge_index)
    degree = torch.tensor([2.0, 3.0, 3.0, 2.0])[:, None]  # neighbours and the loop itself
    with torch.no_grad():
        with intervene(model, ElementMask(anchor="clean"), torch.zeros(6), clean=clean):
            out = model(path.x, path.edge_index)
        inner = first.lin(path.x) / degree + first.bias
        wanted = second.lin(inner) / degree + second.bias
    torch.testing.assert_close(out, wanted)


def test_an_anchored_mechanism_needs_clean_messages(batch: Batch) -> None:
    with (
        pytest.raises(InterventionError, match=r"`clean` must hold .*record_messages"),
        intervene(model_of("gin"), ElementMask(anchor="clean"), some_gates(batch)),
    ):
        pass


def test_a_model_whose_layers_change_from_pass_to_pass_is_an_error(batch: Batch) -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GINConv(nn.Identity()), GINConv(nn.Identity())
            self.calls = 0

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.calls += 1
            order = (self.first, self.second) if self.calls % 2 else (self.second, self.first)
            return order[1](order[0](x, edge_index), edge_index)

    model, gate = Moody(), some_gates(batch)
    clean = record_messages(model, lambda: model(batch.x, batch.edge_index), batch.edge_index)
    with (
        pytest.raises(InterventionError, match=r"same messages in the same order.*anchor="),
        intervene(model, ElementMask(anchor="clean"), gate, clean=clean),
    ):
        model(batch.x, batch.edge_index)
