"""Queries: what the frozen model answers under gates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import TargetError
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.losses import log_prob_degradation
from tests.target.small_models import Batched, C, Core, H, Nodes, Single, Whole, reference


def query64(
    kind: type[Core], graphs: list[Data], mechanism: Any, *, num_out: int = C, **kwargs: Any
) -> Query:
    chunk = kwargs.pop("chunk_edges", 400_000)
    explained = kwargs.pop("explained", None)
    target = Target(kind(num_out).double().eval(), **kwargs)
    case = make_case(Batch.from_data_list(graphs))
    return Query(target, case, mechanism, explained=explained, chunk_edges=chunk)


def bond_gates(query: Query, seed: int = 0) -> Tensor:
    num = query.case.bonds.index.size(1)
    return torch.rand(num, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_clean_answer_and_explained_class(graphs64):
    query = query64(Batched, graphs64, ElementMask())
    batch = query.case.batch
    expected = reference(query.target.model, batch).log_softmax(1)
    torch.testing.assert_close(query.clean, expected)
    assert torch.equal(query.explained, expected.argmax(1))
    h = query.target.model.first(batch.x, batch.edge_index)
    torch.testing.assert_close(query.states[0], h)
    assert [state.shape for state in query.states] == [(batch.num_nodes, H)] * 2


def test_degradation_equals_a_loop_over_single_graphs(graphs64):
    """An independent way: every graph, draw by draw, through one plain intervention."""
    query = query64(Batched, graphs64, NoiseCorruption(3))
    gate = bond_gates(query)
    got = query.degradation(gate, 4, stream=11)
    edge_gate, model = query.case.edge_gate(gate), query.target.model
    for g, graph in enumerate(graphs64):
        mine = edge_gate[query.case.edge_batch == g]
        clean = model(graph.x, graph.edge_index).log_softmax(1)
        for n in range(4):
            draw = torch.full((graph.num_edges,), n)
            with intervene(model, NoiseCorruption(3), mine, draw=draw, stream=11):
                out = model(graph.x, graph.edge_index).log_softmax(1)
            expected = log_prob_degradation(clean, out[None], clean.argmax(1))
            torch.testing.assert_close(got[n, g], expected[0, 0])


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(2)], ids=["em", "nc"])
def test_models_of_one_graph_per_call_agree_with_batched_ones(mechanism, graphs64):
    one, many = (query64(kind, graphs64, mechanism) for kind in (Single, Batched))
    assert (one.target.is_batched, many.target.is_batched) == (False, True)
    gate = bond_gates(one)
    torch.testing.assert_close(one.clean, many.clean)
    for a, b in zip(one.states, many.states, strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(one.slopes(gate, 5, 3), many.slopes(gate, 5, 3), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Batched, {}),
        (Whole, {"explained": 1}),
        (Batched, {"num_out": 1, "mode": "binary"}),
        (Batched, {"num_out": 1, "mode": "regression"}),
        (Batched, {"num_out": 2, "mode": "regression"}),
        (Batched, {"num_out": 2, "mode": "regression", "explained": 1}),
    ],
    ids=["classes", "asked-class", "binary", "regression", "all-outputs", "one-output"],
)
@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(2)], ids=["em", "nc"])
def test_slopes_equal_finite_differences_with_the_same_stream(mechanism, kind, settings, graphs64):
    query = query64(kind, graphs64[:2], mechanism, **settings)
    gate = 0.1 + 0.8 * bond_gates(query)
    values, slopes = query.slopes(gate, 3, stream=5)
    torch.testing.assert_close(values, query.degradation(gate, 3, stream=5))
    assert slopes.shape == (3, gate.numel())
    assert float(slopes.abs().max()) > 1e-4
    for k in range(gate.numel()):
        step = torch.zeros_like(gate)
        step[k] = 1e-6
        with torch.no_grad():
            ahead, behind = (query.degradation(gate + s, 3, stream=5) for s in (step, -step))
        measured = ((ahead - behind) / 2e-6).sum(1)  # a bond acts on its own graph alone
        torch.testing.assert_close(slopes[:, k], measured, rtol=1e-5, atol=1e-8)


def test_bonds_out_of_reach_stay_clean_and_do_not_count(graphs64):
    batch = Batch.from_data_list(graphs64)
    edge_batch = batch.batch[batch.edge_index[0]]
    batch.edge_reached = edge_batch != 1
    case = make_case(batch)
    gate = torch.zeros(case.bonds.index.size(1), dtype=torch.float64)
    query = Query(Target(Batched().double().eval(), mode="regression"), case, ElementMask())
    moved = query.sample(gate, 1, stream=0)[0] > 1e-12
    assert moved.tolist() == [True, False, True, True, True]
    assert bool((case.edge_gate(gate)[edge_batch == 1] == 1).all())
    assert bool((case.edge_gate(gate)[edge_batch != 1] == 0).all())
    ones = torch.ones(case.bonds.index.size(1))
    assert case.per_graph_mean(ones).tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]


def test_rows_per_node_or_of_a_model_of_one_graph_are_refused_with_advice(graphs64):
    with pytest.raises(TargetError, match="pass `index=`"):
        query64(Nodes, graphs64, ElementMask(), batched=True)
    with pytest.raises(TargetError, match="one row per graph, 5"):
        query64(Single, graphs64, ElementMask(), batched=True)
