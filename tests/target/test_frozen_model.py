"""How the frozen model is called and read, and what it answers under gates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data

from nicegnn.errors import InterventionError, TargetError
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.target.degradation import log_prob_degradation
from nicegnn.target.frozen_model import Target
from nicegnn.target.inner_states import capture_readout, capture_states

F, D, H, C = 5, 3, 8, 3


class Core(nn.Module):
    """Two smooth layers and a readout; subclasses say how they are called."""

    def __init__(self, num_out: int = C) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = gnn.GraphConv(F, H), gnn.GraphConv(H, H)
        self.head = nn.Linear(H, num_out)

    def run(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, weight=None):
        h = self.first(x, edge_index, weight).tanh()
        h = self.second(h, edge_index, weight).tanh()
        return self.head(gnn.global_mean_pool(h, batch))


class Single(Core):
    def forward(self, x, edge_index):
        return self.run(x, edge_index)


class Batched(Core):
    def forward(self, x, edge_index, batch=None):
        return self.run(x, edge_index, batch)


class Weighted(Core):
    def forward(self, x, edge_index, edge_weight, batch):
        return self.run(x, edge_index, batch, edge_weight)


class Featured(Core):
    def forward(self, x, edge_index, edge_attr, batch):
        return self.run(x, edge_index, batch, edge_attr[:, 0])


class Sized(Core):
    """Asks for the number of graphs as well."""

    def forward(self, x, edge_index, batch, batch_size):
        out = self.run(x, edge_index, batch)
        assert out.size(0) == batch_size
        return out


class Whole(Core):
    def forward(self, data):
        return self.run(data.x, data.edge_index, data.batch)


class Odd(Core):
    """Names nothing as PyG does."""

    def forward(self, features, links, member):
        return self.run(features, links, member)


class Pairs(Core):
    """Returns more than the logits."""

    def forward(self, x, edge_index, batch):
        return self.run(x, edge_index, batch), {"loss": 0.0}


class Nodes(Core):
    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index).tanh(), edge_index).tanh())


def reference(model: Core, batch: Batch, weight: Tensor | None = None) -> Tensor:
    return model.run(batch.x, batch.edge_index, batch.batch, weight)


# --- calling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "inputs", "is_batched"),
    [
        (Batched, None, True),
        (Sized, None, True),
        (Whole, None, True),
        (Pairs, None, True),
        (Single, None, False),
        (Odd, ["x", "edge_index", "batch"], True),
        (Odd, lambda model, data: model(data.x, data.edge_index, data.batch), True),
        (Batched, ["x", "edge_index"], False),
        (Sized, ["x", "edge_index", "batch", "batch_size"], True),
    ],
)
def test_model_is_called_as_its_signature_or_inputs_say(kind, inputs, is_batched, graphs, batch):
    model = kind()
    target = Target(model, inputs=inputs)
    assert target.is_batched is is_batched
    if is_batched:
        torch.testing.assert_close(target.call(batch), reference(model, batch))
    else:
        out = [target.call(Batch.from_data_list([graph])) for graph in graphs]
        torch.testing.assert_close(torch.cat(out), reference(model, batch))


def test_edge_weight_and_edge_features_are_passed(batch):
    batch.edge_weight = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0))
    model: Core = Weighted()
    torch.testing.assert_close(
        Target(model).call(batch), reference(model, batch, batch.edge_weight)
    )
    model = Featured()
    torch.testing.assert_close(
        Target(model).call(batch), reference(model, batch, batch.edge_attr[:, 0])
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # from torch.compile itself
def test_compiled_model_is_called_by_the_signature_behind_it(batch):
    model = Batched()
    target = Target(torch.compile(model, backend="eager"))
    assert target.is_batched
    torch.testing.assert_close(target.call(batch), reference(model, batch))


def test_missing_inputs_are_named(batch):
    with pytest.raises(TargetError, match=r"needs `edge_weight`, which the graph does not have"):
        Target(Weighted()).call(batch)
    with pytest.raises(TargetError, match=r"`inputs` names 'weight'"):
        Target(Batched(), inputs=["x", "weight"]).call(batch)


def test_model_that_names_no_inputs_is_refused_with_advice(batch):
    """Nothing can be read off such a signature; the error must say so, not the model's own."""

    class Anything(Core):
        def forward(self, *args, **kwargs):
            return self.run(*args, **kwargs)

    with pytest.raises(TargetError, match="inputs="):
        Target(Anything()).call(batch)


@pytest.mark.parametrize("out", [None, {"a": 1}, torch.ones(5, dtype=torch.long)])
def test_output_that_is_no_float_tensor_is_refused(out, batch):
    target = Target(Batched(), inputs=lambda model, data: out)
    with pytest.raises(TargetError, match="floating point tensor"):
        target.call(batch)


@pytest.mark.parametrize(
    ("name", "value"), [("mode", "ranking"), ("return_type", "logit"), ("level", "edge")]
)
def test_unknown_settings_are_refused(name, value):
    with pytest.raises(TargetError, match=f"`{name}` must be one of .*got '{value}'"):
        Target(Batched(), **{name: value})


def test_model_without_message_passing_is_refused_at_once():
    with pytest.raises(InterventionError, match="no torch_geometric MessagePassing"):
        Target(nn.Linear(2, 2))


def test_frozen_puts_every_module_back_in_its_own_mode(snapshot):
    model = Batched()
    model.drop = nn.Dropout()
    model.train()
    model.second.eval()
    before, target = snapshot(model), Target(model)
    with target.frozen():
        assert not any(module.training for module in model.modules())
    assert snapshot(model) == before

    def fail() -> None:
        with target.frozen():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert snapshot(model) == before


# --- reading -----------------------------------------------------------------------------------


def settled(out: Tensor, **kwargs: Any) -> Target:
    target = Target(Batched(), **kwargs)
    target.settle(out)
    return target


PROBS = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("out", "settings"),
    [
        (PROBS.log() + 3, {}),
        (PROBS.log() - 7, {"return_type": "raw"}),
        (PROBS.log(), {"return_type": "log_probs"}),
        (PROBS.log(), {}),  # a softmax changes nothing about log-probabilities
        (PROBS, {}),
        (PROBS, {"return_type": "probs"}),
    ],
    ids=["logits", "raw", "log-probs", "log-probs-auto", "probs-auto", "probs"],
)
def test_classes_are_read_as_log_probabilities(out, settings):
    target = settled(out, **settings)
    torch.testing.assert_close(target.read(out), PROBS.log())
    assert target.mode == "multiclass"


@pytest.mark.parametrize("return_type", ["raw", "probs", "log_probs", "auto"])
def test_one_column_of_a_binary_model_is_read_as_two_classes(return_type):
    p = torch.tensor([[0.8], [0.3], [0.5]], dtype=torch.float64)
    out = {"probs": p, "log_probs": p.log()}.get(return_type, (p / (1 - p)).log())
    read = settled(out, mode="binary", return_type=return_type).read(out)
    torch.testing.assert_close(read, torch.cat([1 - p, p], dim=1).log())


def test_sure_answers_stay_finite_with_finite_gradients():
    out = torch.tensor([[1.0], [0.0]], requires_grad=True)
    target = settled(out.detach(), mode="binary", return_type="probs")
    (slope,) = torch.autograd.grad(target.read(out).sum(), out)
    assert bool(torch.isfinite(target.read(out)).all())
    assert bool(torch.isfinite(slope).all())
    out = torch.tensor([[1.0, 0.0]], requires_grad=True)
    target = settled(out.detach())
    (slope,) = torch.autograd.grad(target.read(out).sum(), out)
    assert bool(torch.isfinite(target.read(out)).all())
    assert bool(torch.isfinite(slope).all())


def test_regression_is_read_as_it_is():
    out = torch.tensor([[0.3, 0.7], [-5.0, 6.0]])
    assert torch.equal(settled(out, mode="regression").read(out), out)


def test_one_column_must_be_explained_by_the_user():
    with pytest.raises(TargetError, match="mode='binary' or mode='regression'"):
        settled(torch.tensor([[0.3], [2.0]]))


@pytest.mark.parametrize(
    ("out", "settings"),
    [
        (torch.tensor([[0.3], [2.0]]), {"mode": "multiclass"}),
        (torch.tensor([[0.3, 0.7]]), {"mode": "binary"}),
        (torch.tensor([[-2.0, 3.0]]), {"return_type": "probs"}),
        (torch.tensor([[-2.0], [3.0]]), {"mode": "binary", "return_type": "probs"}),
        (torch.tensor([[2.0, 3.0]]), {"return_type": "log_probs"}),
        (torch.tensor([[float("nan"), 0.0]]), {}),
        (torch.tensor([[float("inf"), 0.0]]), {"mode": "regression"}),
    ],
    ids=["one-class", "two-columns", "no-probs", "no-binary-probs", "no-log-probs", "nan", "inf"],
)
def test_output_that_does_not_fit_the_settings_is_refused(out, settings):
    """`settle` promises to check that the settings fit a first clean output."""
    target = Target(Batched(), **settings)

    def settle_and_read() -> None:
        target.settle(out)
        target.read(out)

    with pytest.raises(TargetError):
        settle_and_read()


# --- choosing ----------------------------------------------------------------------------------

CLEAN = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]).log()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, [1, 0]),
        (2, [2, 2]),
        (torch.tensor(0), [0, 0]),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.tensor([2], dtype=torch.int32), [2, 2]),
        ([0, 1], [0, 1]),
    ],
)
def test_explained_class_is_the_predicted_or_the_asked_one(target, expected):
    chosen = Target(Batched(), mode="multiclass").choose(CLEAN, target)
    assert chosen.tolist() == expected
    assert chosen.dtype == torch.long


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (3, "between 0 and 2"),
        (-1, "between 0 and 2"),
        (torch.tensor([0, 7]), r"got 0 to 7"),
        (torch.tensor([0, 1, 2]), r"one per explained output, 2 \(got 3\)"),
        (1.0, "class numbers"),
        (torch.tensor([True, False]), "class numbers"),
    ],
)
def test_bad_targets_are_refused(target, words):
    with pytest.raises(TargetError, match=words):
        Target(Batched(), mode="multiclass").choose(CLEAN, target)


def test_regression_explains_all_outputs_unless_one_is_asked_for():
    target = Target(Batched(), mode="regression")
    assert target.choose(torch.ones(2, 1), None).tolist() == [0, 0]
    assert target.choose(torch.ones(2, 3), None).tolist() == [-1, -1]
    assert target.choose(torch.ones(2, 3), 2).tolist() == [2, 2]


# --- queries -----------------------------------------------------------------------------------


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


def test_gates_of_one_do_not_degrade(graphs64):
    query = query64(Batched, graphs64, NoiseCorruption())
    ones = torch.ones(query.case.bonds.index.size(1), dtype=torch.float64)
    assert float(query.sample(ones, 3, stream=0).abs().max()) < 1e-12


def test_both_directions_of_a_bond_share_its_gate(graphs64):
    query = query64(Batched, graphs64, ElementMask())
    edge_gate = query.case.edge_gate(bond_gates(query))
    s, t = query.case.batch.edge_index
    size = query.case.batch.num_nodes
    dense = torch.zeros(size, size, dtype=torch.float64)
    dense[s, t] = edge_gate
    assert torch.equal(dense, dense.t())


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


@pytest.mark.parametrize("kind", [Batched, Single])
@pytest.mark.parametrize("antithetic", [False, True])
def test_chunks_of_draws_change_nothing(antithetic, kind, graphs64):
    mechanism = NoiseCorruption(1, antithetic=antithetic)
    whole = query64(kind, graphs64, mechanism)
    num_edges = whole.case.num_edges
    gate = bond_gates(whole)
    expected, slopes = whole.slopes(gate, 7, stream=2)
    for draws in (1, 2, 3):
        query = query64(kind, graphs64, mechanism, chunk_edges=draws * num_edges + 1)
        assert query.chunk_draws == draws
        got = query.slopes(gate, 7, stream=2)
        torch.testing.assert_close(got[0], expected)
        torch.testing.assert_close(got[1], slopes)
        torch.testing.assert_close(query.sample(gate, 7, stream=2), expected)


def test_more_draws_begin_with_the_same_draws(graphs64):
    query = query64(Batched, graphs64, NoiseCorruption())
    gate = bond_gates(query)
    few, many = query.sample(gate, 3, stream=0), query.sample(gate, 20, stream=0)
    torch.testing.assert_close(many[:3], few)
    assert float((many - many[0]).abs().max()) > 1e-3


def test_one_row_of_gates_per_draw(graphs64):
    query = query64(Batched, graphs64, NoiseCorruption())
    rows = torch.stack([bond_gates(query, seed) for seed in range(3)])
    got = query.degradation(rows, 3, stream=1)
    for n in range(3):
        torch.testing.assert_close(got[n], query.degradation(rows[n], 3, stream=1)[n])


def test_bonds_out_of_reach_stay_clean_and_do_not_count(graphs64):
    batch = Batch.from_data_list(graphs64)
    edge_batch = batch.batch[batch.edge_index[0]]
    case = make_case(batch, reached_edge=edge_batch != 1)
    gate = torch.zeros(case.bonds.index.size(1), dtype=torch.float64)
    query = Query(Target(Batched().double().eval(), mode="regression"), case, ElementMask())
    moved = query.sample(gate, 1, stream=0)[0] > 1e-12
    assert moved.tolist() == [True, False, True, True, True]
    assert bool((case.edge_gate(gate)[edge_batch == 1] == 1).all())
    assert bool((case.edge_gate(gate)[edge_batch != 1] == 0).all())
    ones = torch.ones(case.bonds.index.size(1))
    assert case.per_graph_mean(ones).tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]


def test_mean_gate_of_a_graph_weighs_bonds_by_their_directed_edges():
    edge_index = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 2, 1, 3]])  # 0-1 three times, two one-way
    case = make_case(Batch.from_data_list([Data(x=torch.ones(4, F), edge_index=edge_index)]))
    mean = case.per_graph_mean(torch.tensor([1.0, 0.5, 0.0]))
    assert mean.tolist() == pytest.approx([(3 * 1 + 0.5 + 0) / 5])


def test_graph_without_edges_has_no_slopes_and_no_degradation(graphs64):
    empty = graphs64[2].clone()
    empty.edge_index, empty.edge_attr = empty.edge_index[:, :0], empty.edge_attr[:0]
    for kind in (Batched, Single):
        alone = query64(kind, [empty], NoiseCorruption())
        values, slopes = alone.slopes(torch.zeros(0, dtype=torch.float64), 3, stream=0)
        assert (values.tolist(), slopes.shape) == ([[0.0]] * 3, (3, 0))
        query = query64(kind, [graphs64[0], empty, graphs64[1]], NoiseCorruption())
        values, _ = query.slopes(bond_gates(query), 3, stream=0)
        assert values[:, 1].tolist() == [0.0] * 3
        assert float(values[:, [0, 2]].max()) > 1e-4


def test_query_leaves_the_model_as_it_was(graphs64, snapshot):
    target = Target(Batched().double())
    before = snapshot(target.model)
    with target.frozen():
        query = Query(target, make_case(Batch.from_data_list(graphs64)), NoiseCorruption())
        query.slopes(bond_gates(query), 2, stream=0)
    assert snapshot(target.model) == before


def test_rows_per_node_or_of_a_model_of_one_graph_are_refused_with_advice(graphs64):
    with pytest.raises(TargetError, match="pass `index=`"):
        query64(Nodes, graphs64, ElementMask(), batched=True)
    with pytest.raises(TargetError, match="one row per graph, 5"):
        query64(Single, graphs64, ElementMask(), batched=True)


# --- inner states ------------------------------------------------------------------------------


def test_states_are_those_of_the_last_forward_pass_and_hooks_go(batch, snapshot):
    model = Batched().eval()
    before = snapshot(model)
    with capture_states(model) as states:
        model(batch.x, batch.edge_index, batch.batch)
        model(2 * batch.x, batch.edge_index, batch.batch)
        first = model.first(2 * batch.x, batch.edge_index)
    torch.testing.assert_close(states[0], first)
    assert snapshot(model) == before


def test_readout_is_the_input_of_the_head(batch, snapshot):
    model = Batched().eval()
    before = snapshot(model)
    h = model.second(model.first(batch.x, batch.edge_index).tanh(), batch.edge_index).tanh()
    expected = gnn.global_mean_pool(h, batch.batch)
    for name in (None, "head"):
        with capture_readout(model, 5, name) as readout:
            model(batch.x, batch.edge_index, batch.batch)
            torch.testing.assert_close(readout.value, expected)
    assert snapshot(model) == before


def test_readout_that_cannot_be_found_is_refused_with_advice(batch):
    model = Batched()
    with pytest.raises(TargetError, match="got 'tail'"), capture_readout(model, 5, "tail"):
        raise AssertionError("the context must not open")
    with capture_readout(model, 6) as readout:
        model(batch.x, batch.edge_index, batch.batch)
        with pytest.raises(TargetError, match=r"representation='module\.name'"):
            _ = readout.value


def test_log_probability_loss_by_hand_through_a_whole_query():
    """One edge 0 -> 1 and features 2: the message is 2, its EM gate g, the logits (2 g, 0)."""

    class Tiny(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = gnn.SimpleConv(aggr="sum")

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            total = gnn.global_add_pool(self.conv(x, edge_index), batch)
            return torch.cat([total, torch.zeros_like(total)], dim=1)

    graph = Data(x=torch.full((2, 1), 2.0), edge_index=torch.tensor([[0], [1]]))
    query = Query(Target(Tiny()), make_case(Batch.from_data_list([graph])), ElementMask())
    value, slope = query.slopes(torch.tensor([0.25]), 1, stream=0)
    log_p = [-math.log1p(math.exp(-g)) for g in (2.0, 0.5)]
    assert float(value) == pytest.approx(log_p[0] - log_p[1], rel=1e-5)
    assert float(slope) == pytest.approx(-2 / (1 + math.exp(0.5)), rel=1e-5)
