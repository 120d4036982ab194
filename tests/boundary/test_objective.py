"""Risk, budgets, objectives and boundaries against hand numbers and autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.boundary.objective import (
    budget_gates,
    corrupted_risk,
    find_boundary,
    optimise_logits,
    place_boundary,
    restoration_risk,
    risk_slope,
    srb_loss,
)
from nicegnn.config import BoundaryConfig
from nicegnn.graph.case import Case, make_case
from tests.boundary.small_models import Halves, two_paths


@pytest.mark.parametrize(
    ("draws", "beta", "expected"),
    [
        ([1.0, 3.0], 0.5, 2.5),  # mean 2, population deviation 1
        ([0.0, 0.0, 0.0, 4.0], 0.1, 1 + 0.1 * math.sqrt(3)),
        ([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 1.0, 7.0),  # the textbook's deviation of 2
        ([1.0, 3.0], 0.0, 2.0),
    ],
)
def test_risk_by_hand(draws, beta, expected):
    degradation = torch.tensor(draws, dtype=torch.float64).unsqueeze(1)
    assert restoration_risk(degradation, beta).tolist() == pytest.approx([expected], abs=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.1, 2.0])
def test_risk_slope_equals_autograd_of_the_risk(beta):
    degradation = torch.rand(
        16, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    (slope,) = torch.autograd.grad(restoration_risk(degradation, beta).sum(), degradation)
    torch.testing.assert_close(risk_slope(degradation.detach(), beta), 16 * slope)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_draws", [1, 8])
@pytest.mark.parametrize("value", [0.0, 3.7])
def test_identical_draws_have_finite_gradient_and_no_spread(value, num_draws, dtype):
    degradation = torch.full((num_draws, 2), value, dtype=dtype, requires_grad=True)
    risk = restoration_risk(degradation, 0.1)
    (slope,) = torch.autograd.grad(risk.sum(), degradation)
    torch.testing.assert_close(risk, torch.full_like(risk, value), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(slope, torch.full_like(slope, 1 / num_draws))
    torch.testing.assert_close(risk_slope(degradation, 0.1), torch.ones_like(degradation))


# --- objectives and boundaries -----------------------------------------------------------------

LOG3 = math.log(3)
ZEROS = torch.zeros(3, dtype=torch.float64)
SHARE = torch.full((2,), 0.5, dtype=torch.float64)


def loss_of(logit: Tensor, share: Tensor = SHARE, mechanism=None, **settings) -> list[Tensor]:
    """Returns loss, risk and restored share; the risk at full corruption is 8 and 2."""
    config = BoundaryConfig(**({"beta": 0.0, "num_draws": 2} | settings))
    reference = torch.tensor([8.0, 2.0], dtype=torch.float64)
    return list(srb_loss(two_paths(mechanism), logit, reference, config, share=share, stream=0))


def test_corrupted_risk_by_hand():
    """Without messages 8 and 2 of log-odds are lost; with halves the draws lose 8, 4 and 2, 1."""
    config = BoundaryConfig(beta=0.5, num_draws=4)
    masked = corrupted_risk(two_paths(), config, 0)
    assert masked.tolist() == pytest.approx([8, 2], abs=1e-5)
    halved = corrupted_risk(two_paths(Halves()), config, 0)
    assert halved.tolist() == pytest.approx([6 + 0.5 * 2, 1.5 + 0.5 * 0.5], abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
def test_objective_of_the_paper_by_hand(penalty):
    """Gates 1/2, 1/2 and 3/4 lose 3/2 + 5/2 and 2/4; lambda weighs the mean gate of each graph."""
    logit = torch.tensor([0.0, 0.0, LOG3], dtype=torch.float64)
    loss, risk, restored = loss_of(logit, objective="penalty", penalty=penalty)
    assert risk.tolist() == pytest.approx([4.0, 0.5], abs=1e-5)
    assert restored.tolist() == pytest.approx([0.5, 0.75])
    assert loss.tolist() == pytest.approx([4.0 + 0.5 * penalty, 0.5 + 0.75 * penalty], abs=1e-5)


def test_objective_of_budgets_by_hand():
    """Equal logits restore a quarter of each bond: 3/4 of the risk is left."""
    share = torch.full((2,), 0.25, dtype=torch.float64)
    loss, risk, restored = loss_of(ZEROS, share)
    expected = math.log(1 + 4 * 0.75) / math.log(5)
    assert loss.tolist() == pytest.approx([expected] * 2, abs=1e-5)
    assert risk.tolist() == pytest.approx([0.75] * 2, abs=1e-5)
    assert torch.equal(restored, share)


def test_order_of_bonds_decides_under_a_budget():
    """Gates 3/4 and 1/4: 3/4 of 3 and 1/4 of 5 are kept, or the other way round."""
    better, worse = torch.tensor([[-LOG3, LOG3, 0.0], [LOG3, -LOG3, 0.0]], dtype=torch.float64)
    for logit, lost in ((better, 3 * 0.75 + 5 * 0.25), (worse, 3 * 0.25 + 5 * 0.75)):
        assert loss_of(logit)[1].tolist() == pytest.approx([lost / 8, 0.5], abs=1e-5)


def test_boundary_of_the_paper_is_where_the_gates_are():
    config = BoundaryConfig(objective="penalty", beta=0.0)
    logit = torch.tensor([0.0, 0.0, LOG3], dtype=torch.float64)
    reference = torch.tensor([8.0, 2.0], dtype=torch.float64)
    found = find_boundary(two_paths(), logit, config, 0, reference)
    assert found.gate.tolist() == pytest.approx([0.5, 0.5, 0.75])
    assert found.restored.tolist() == pytest.approx([0.5, 0.75])
    assert found.risk.tolist() == pytest.approx([4.0, 0.5], abs=1e-5)
    assert found.logit is logit
    assert found.risk_corrupted is reference


def test_boundary_is_placed_at_the_risk_that_is_asked_for():
    """Equal logits leave the share 1 - q of the risk, so that q must be 3/4 for a quarter."""
    config = BoundaryConfig(risk_target=0.25, beta=0.0)
    reference = torch.tensor([8.0, 2.0], dtype=torch.float64)
    found = find_boundary(two_paths(), ZEROS, config, 0, reference)
    for q, risk, most in zip(found.restored.tolist(), found.risk.tolist(), (2.0, 0.5), strict=True):
        assert 0.75 - 1e-6 <= q <= 0.75 + 0.98 / 2**7
        assert most * (1 - 4 * 0.98 / 2**7) <= risk <= most + 1e-5
    torch.testing.assert_close(found.gate, found.restored[[0, 0, 1]])


# Adam moves by its rate against the sign of the first slope, whatever its size.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # slope of a logit: (lambda / bonds - value of the bond) / 4, so 8/2 - 3, 8/2 - 5, 8 - 2
        ({"objective": "penalty", "penalty": 8.0}, [-0.2, 0.2, -0.2]),
        (
            {"objective": "penalty", "penalty": 8.0, "start": 0.75},
            [LOG3 - 0.2, LOG3 + 0.2, LOG3 - 0.2],
        ),
        ({"objective": "penalty", "penalty": 1.0}, [0.2, 0.2, 0.2]),
        # under a budget the bond of 5 gains what the bond of 3 loses; a single bond has no choice
        ({"objective": "budget"}, [-0.2, 0.2, 0.0]),
    ],
)
def test_first_step_of_optimised_logits_by_hand(settings, expected):
    config = BoundaryConfig(beta=0.0, graph_steps=1, **settings)
    found = optimise_logits(two_paths(), torch.ones(2, dtype=torch.float64), config, 0)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert not found.requires_grad


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


def test_graphs_that_need_everything_get_one_and_those_that_need_nothing_the_least(case):
    risk = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    found = place_boundary(lambda _: risk, logits(case), torch.full((5,), 0.5), case)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.02, 1.0, 0.02, 1.0]))
