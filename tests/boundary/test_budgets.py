"""Budgets: gates restore the asked share, with the right slopes, and boundaries are found."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.boundary.budgets import budget_gates, place_boundary
from nicegnn.graph.case import Case, make_case


@pytest.fixture
def case(batch: Batch) -> Case:
    return make_case(batch)


def logits(case: Case, scale: float = 2.0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return scale * torch.randn(case.bonds.index.size(1), generator=generator, dtype=dtype)


def edge_mean(gate: Tensor, case: Case) -> Tensor:
    """Mean gate over the directed edges of each graph, the slow way."""
    per_edge = gate[case.bonds.edge_bond]
    return torch.stack([per_edge[case.edge_batch == g].mean() for g in range(case.num_graphs)])


@pytest.mark.parametrize("scale", [0.0, 0.01, 2.0, 50.0])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.97])
def test_mean_gate_equals_the_asked_share(share, scale, case):
    gate = budget_gates(logits(case, scale), torch.full((5,), share), case)
    torch.testing.assert_close(edge_mean(gate, case), torch.full((5,), share), atol=1e-4, rtol=1e-4)
    assert bool(((gate >= 0) & (gate <= 1)).all())


def test_each_graph_has_its_own_share(case):
    share = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    gate = budget_gates(logits(case, dtype=torch.float64), share, case)
    torch.testing.assert_close(edge_mean(gate, case), share, atol=1e-9, rtol=0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_extreme_shares_close_or_open_every_gate(share, case):
    gate = budget_gates(logits(case), torch.full((5,), share), case)
    torch.testing.assert_close(gate, torch.full_like(gate, share), atol=1e-6, rtol=0)


def test_gates_by_hand():
    """Two bonds with logits log 3 and -log 3 and share 1/2: no shift, gates 3/4 and 1/4."""
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    case = make_case(Batch.from_data_list([Data(x=torch.ones(3, 1), edge_index=edge_index)]))
    gate = budget_gates(torch.tensor([math.log(3), -math.log(3)]), torch.tensor([0.5]), case)
    torch.testing.assert_close(gate, torch.tensor([0.75, 0.25]))


def test_bonds_count_by_their_directed_edges():
    """Bond 0-1 is listed three times, 1-2 once: equal gates q solve any weighing, others not."""
    edge_index = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 2]])
    case = make_case(Batch.from_data_list([Data(x=torch.ones(3, 1), edge_index=edge_index)]))
    gate = budget_gates(torch.tensor([2.0, -1.0]), torch.tensor([0.4]), case)
    assert float(3 * gate[0] + gate[1]) / 4 == pytest.approx(0.4, abs=1e-5)
    assert float((gate[0] / (1 - gate[0])).log() - (gate[1] / (1 - gate[1])).log()) == (
        pytest.approx(3, abs=1e-4)
    )


def test_order_of_gates_is_the_order_of_logits(case):
    logit = logits(case)
    gate = budget_gates(logit, torch.full((5,), 0.4), case)
    for g in range(5):
        mine = case.bonds.batch == g
        assert torch.equal(gate[mine].argsort(), logit[mine].argsort())


def test_a_shift_of_all_logits_of_a_graph_changes_nothing(case):
    logit, share = logits(case, dtype=torch.float64), torch.full((5,), 0.3, dtype=torch.float64)
    shift = torch.tensor([0.0, 5.0, -7.0, 100.0, 1.0], dtype=torch.float64)[case.bonds.batch]
    torch.testing.assert_close(
        budget_gates(logit + shift, share, case), budget_gates(logit, share, case)
    )


def test_gates_rise_with_the_share(case):
    logit = logits(case)
    gates = [budget_gates(logit, torch.full((5,), q), case) for q in (0.1, 0.2, 0.5, 0.9)]
    for low, high in pairwise(gates):
        assert bool((low < high).all())


def test_slope_equals_implicit_differentiation_and_finite_differences(case):
    r"""d rho_e / d a_k = s_e (delta_ek - c_k s_k / sum_j c_j s_j), s = rho (1 - rho)."""
    logit = logits(case, dtype=torch.float64).requires_grad_()
    share = torch.tensor([0.2, 0.4, 0.5, 0.6, 0.8], dtype=torch.float64)
    num = logit.numel()
    gate = budget_gates(logit, share, case)
    got = torch.stack(
        [torch.autograd.grad(gate[k], logit, retain_graph=True)[0] for k in range(num)]
    )

    s, c, graph = (gate * (1 - gate)).detach(), case.bonds.count.double(), case.bonds.batch
    same = graph[:, None] == graph[None, :]
    total = torch.zeros(5, dtype=torch.float64).index_add(0, graph, c * s)[graph]
    implicit = torch.diag(s) - same * s[:, None] * (c * s / total)[None, :]
    torch.testing.assert_close(got, implicit, atol=1e-8, rtol=1e-6)

    base = logit.detach()
    for k in range(num):
        step = torch.zeros_like(base)
        step[k] = 1e-4
        ahead, behind = (budget_gates(base + sign * step, share, case) for sign in (1, -1))
        torch.testing.assert_close(got[:, k], (ahead - behind) / 2e-4, atol=1e-6, rtol=1e-5)


def test_budget_itself_has_no_slope_in_the_logits(case):
    logit = logits(case, dtype=torch.float64).requires_grad_()
    mean = edge_mean(budget_gates(logit, torch.full((5,), 0.3, dtype=torch.float64), case), case)
    (slope,) = torch.autograd.grad(mean.sum(), logit)
    assert float(slope.abs().max()) < 1e-9


@pytest.mark.parametrize("share", [0.0, 1e-6, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("scale", [2.0, 1000.0])
def test_slopes_stay_finite_at_the_extremes(scale, share, case):
    logit = logits(case, scale).requires_grad_()
    gate = budget_gates(logit, torch.full((5,), share), case)
    (slope,) = torch.autograd.grad(gate.square().sum(), logit)
    assert bool(torch.isfinite(gate).all())
    assert bool(torch.isfinite(slope).all())


def test_a_graph_without_bonds_does_not_disturb_the_others(graphs):
    empty = graphs[2].clone()
    empty.edge_index, empty.edge_attr = empty.edge_index[:, :0], empty.edge_attr[:0]
    whole = make_case(Batch.from_data_list([graphs[0], empty, graphs[1]]))
    part = make_case(Batch.from_data_list([graphs[0], graphs[1]]))
    logit = logits(part)
    torch.testing.assert_close(
        budget_gates(logit, torch.full((3,), 0.3), whole),
        budget_gates(logit, torch.full((2,), 0.3), part),
    )


def test_only_bonds_in_reach_count(batch):
    generator = torch.Generator().manual_seed(0)
    near = torch.rand(batch.num_nodes, generator=generator) < 0.7
    case = make_case(batch, reached_edge=near[batch.edge_index].all(0))
    gate = budget_gates(logits(case, dtype=torch.float64), torch.full((5,), 0.3).double(), case)
    per_edge, counted = gate[case.bonds.edge_bond], case.reached[case.bonds.edge_bond]
    assert 0 < int(counted.sum()) < batch.num_edges
    for g in range(5):
        mine = counted & (case.edge_batch == g)
        if mine.any():
            assert float(per_edge[mine].mean()) == pytest.approx(0.3, abs=1e-6)


# --- boundaries --------------------------------------------------------------------------------


def test_boundary_is_found_at_the_known_crossing(case):
    """Risk (1 - q)^2 meets the limit tau at q = 1 - sqrt(tau); 7 halvings leave 0.98 / 2^7."""

    def risk(gate: Tensor) -> Tensor:
        return (1 - edge_mean(gate, case)).square()

    limit = torch.tensor([0.01, 0.04, 0.25, 0.49, 0.81])
    found = place_boundary(risk, logits(case), limit, case)
    crossing = 1 - limit.sqrt()
    assert bool((found >= crossing - 1e-4).all())
    assert bool((found <= crossing + 0.98 / 2**7 + 1e-4).all())
    gate = budget_gates(logits(case), found, case)
    assert bool((risk(gate) <= limit + 1e-4).all())


def test_more_halvings_come_closer(case):
    def risk(gate: Tensor) -> Tensor:
        return 1 - edge_mean(gate, case)

    limit = torch.full((5,), 1 / 3)
    errors = [
        float((place_boundary(risk, logits(case), limit, case, halvings=n) - 2 / 3).abs().max())
        for n in (3, 7, 14)
    ]
    assert errors[0] <= 0.98 / 2**3
    assert errors[1] <= 0.98 / 2**7
    assert errors[2] <= 2e-4


def test_boundary_depends_on_which_bonds_matter():
    """Only the first bond counts: its gate, not the mean, must reach 0.9."""
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    case = make_case(Batch.from_data_list([Data(x=torch.ones(3, 1), edge_index=edge_index)]))

    def share_needed(logit: Tensor) -> float:
        limit = torch.tensor([0.1])
        return float(place_boundary(lambda gate: 1 - gate[:1], logit, limit, case, halvings=20))

    odds = 9.0  # of a gate of 0.9; the other bond's odds are smaller or larger by e^4
    ahead = (0.9 + 1 / (1 + math.exp(4) / odds)) / 2
    behind = (0.9 + 1 / (1 + math.exp(-4) / odds)) / 2
    assert share_needed(torch.tensor([2.0, -2.0])) == pytest.approx(ahead, abs=1e-4)
    assert share_needed(torch.tensor([-2.0, 2.0])) == pytest.approx(behind, abs=1e-4)


def test_graphs_that_need_everything_get_one_and_those_that_need_nothing_the_least(case):
    risk = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    found = place_boundary(lambda _: risk, logits(case), torch.full((5,), 0.5), case, least=0.05)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.05, 1.0, 0.05, 1.0]))


def test_boundary_carries_no_gradient(case):
    logit = logits(case).requires_grad_()
    found = place_boundary(lambda g: 1 - edge_mean(g, case), logit, torch.full((5,), 0.4), case)
    assert not found.requires_grad
