"""Losses under exchange equal plain passes of the model, whatever path runs the damage.

Messages are replaced by PyG's own hooks, not by `intervene`, and one bond and prototype at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from nicegnn import NICE, NICEConfig
from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention import fused, neighbourhoods, one_part
from nicegnn.intervention.background import Background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import MODELS
from tests.conftest import random_graph
from tests.explain.small_models import make

Change = Callable[[int, Tensor], Tensor]  # number of a layer and its messages


@contextmanager
def hooked(model: nn.Module, change: Change) -> Iterator[None]:
    """Changes the messages of every layer by PyG's hooks; a layer's own self-loops come last."""
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    handles = []
    for number, layer in enumerate(layers):

        def hook(_: Any, __: Any, message: Tensor, number: int = number) -> Tensor:
            return change(number, message)

        handles.append(layer.register_message_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def plain_losses(
    answer: Callable[[], Tensor], model: nn.Module, edges: list[Tensor], known: Background
) -> list[float]:
    """Returns the mean fall of the log-odds of each bond, whose edges are given."""

    def odds() -> Tensor:
        return answer().double().softmax(-1)[label].logit()

    losses = []
    with torch.no_grad():
        label = int(answer().argmax())
        clean = odds()
        for own in edges:
            falls = []
            for k in range(known.messages.num):

                def change(number: int, message: Tensor, own: Tensor = own, k: int = k) -> Tensor:
                    said = known.messages.layers[number][k].view(message[0].shape)
                    out = message.clone()
                    out[own] = said
                    return out

                with hooked(model, change):
                    falls.append(max(0.0, float(clean - odds())))
            losses.append(sum(falls) / len(falls))
    return losses


@pytest.mark.parametrize("path", ["kernel", "differences", "copies"])
@pytest.mark.parametrize("name", MODELS)
def test_losses_of_bonds_are_those_of_plain_passes(
    name: str, path: str, graphs: list[Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features of nodes and bonds are continuous; attention and bond features are among models."""
    if path == "kernel":
        pytest.importorskip("numba")
    number = ("kernel", "differences", "copies").index(path)
    monkeypatch.setattr(one_part, "PATHS", one_part.PATHS[number:])
    for module in (fused, neighbourhoods):
        monkeypatch.setattr(module, "WORTH", 0)
    model = make(name).eval()
    nice = NICE(model, background=[random_graph(9, seed) for seed in range(4)])
    assert nice.background is not None
    for graph, found in zip(graphs[:3], nice.explain(graphs[:3], atoms=False).split(), strict=True):
        batch = to_batch(graph)
        given = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
        if getattr(model, "uses_edges", False):
            given["edge_attr"] = batch.edge_attr
        bond = make_case(batch).bonds.edge_bond
        edges = [(bond == one).nonzero().view(-1) for one in range(int(bond.max()) + 1)]
        expected = plain_losses(lambda: model(**given)[0], model, edges, nice.background)  # noqa: B023
        torch.testing.assert_close(found.bond_loss.tolist(), expected, rtol=1e-3, atol=2e-4)
        assert max(expected) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_whole_graphs_and_coalitions_are_those_of_plain_passes(
    name: str, graphs: list[Data]
) -> None:
    """Every message is exchanged, or those of some edges, with the same prototype in all layers."""
    model, graph = make(name).eval(), graphs[3]
    known = NICE(model, background=graphs).background
    assert known is not None
    batch = to_batch(graph)
    query = Query(Target(model), make_case(batch), Exchange(known.messages))
    given = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
    if getattr(model, "uses_edges", False):
        given["edge_attr"] = batch.edge_attr
    some = torch.arange(graph.num_edges) // 2 % 3 > 0
    for gate in (torch.zeros(graph.num_edges), some.float()):
        with torch.no_grad():
            found = query.outputs(gate.expand(known.messages.num, -1))[:, 0]
            for k, out in enumerate(found):

                def change(number: int, message: Tensor, k: int = k) -> Tensor:
                    said = known.messages.layers[number][k].view(message[0].shape)
                    changed = message.clone()
                    changed[: graph.num_edges][gate == 0] = said  # noqa: B023
                    return changed

                with hooked(model, change):
                    torch.testing.assert_close(out, model(**given)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("anchor", ["clean", "propagated"])
def test_the_papers_method_runs_under_exchange(anchor: Any, graphs: list[Data]) -> None:
    """SRB and BIG with messages of other real edges: scores add up to the risk that is restored."""
    config = NICEConfig.paper(anchor).with_(
        mechanism="exchange",
        boundary__steps=3,
        attribution__num_nodes=64,
        attribution__num_draws=64,
        attribution__quadrature="gauss",
    )
    nice = NICE(make("gin"), config, background=graphs).fit(graphs, progress=False)
    assert bool(nice.explain(graphs).bond_score.isfinite().all())
    assert nice.gates is not None
    query = Query(nice.target.private(), make_case(to_batch(graphs)), nice.mechanism())
    query = query.losing("signed-margin")  # without a kink
    out = boundary_integrated_gradient(query, nice.gates(query).sigmoid().detach(), config, 0)
    assert bool((out.risk_corrupted - out.risk_boundary).abs().max() > 0.02)
    assert bool((out.completeness_gap < 0.02).all())  # draws are new at every node
