"""Risk, objectives and boundaries of single graphs against hand numbers and autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nicegnn.boundary.objective import (
    budget_of_step,
    corrupted_risk,
    find_boundary,
    optimise_logits,
    restoration_risk,
    risk_slope,
    srb_loss,
)
from nicegnn.config import BoundaryConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.query import Query
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


def test_risk_is_per_graph():
    degradation = torch.rand(16, 5, generator=torch.Generator().manual_seed(0))
    together = restoration_risk(degradation, 0.3)
    alone = torch.cat([restoration_risk(degradation[:, k : k + 1], 0.3) for k in range(5)])
    torch.testing.assert_close(together, alone)


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


def test_more_spread_at_equal_mean_is_more_risk():
    calm, wild = torch.tensor([[1.9], [2.1]]), torch.tensor([[0.0], [4.0]])
    assert float(restoration_risk(wild, 0.1)) > float(restoration_risk(calm, 0.1)) > 2


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


def test_corrupted_risk_has_its_own_noise_for_each_seed():
    mechanism = Halves()
    for seed in (0, 0, 1):
        corrupted_risk(two_paths(mechanism), BoundaryConfig(num_draws=2), seed)
    first, again, other = mechanism.streams
    assert first == again != other


@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
def test_objective_of_the_paper_by_hand(penalty):
    """Gates 1/2, 1/2 and 3/4 lose 3/2 + 5/2 and 2/4; lambda weighs the mean gate of each graph."""
    logit = torch.tensor([0.0, 0.0, LOG3], dtype=torch.float64)
    settings = {"objective": "penalty", "penalty": penalty, "normalise_risk": False}
    loss, risk, restored = loss_of(logit, **settings)
    assert risk.tolist() == pytest.approx([4.0, 0.5], abs=1e-5)
    assert restored.tolist() == pytest.approx([0.5, 0.75])
    assert loss.tolist() == pytest.approx([4.0 + 0.5 * penalty, 0.5 + 0.75 * penalty], abs=1e-5)


def test_risk_is_divided_by_that_of_full_corruption():
    settings = {"objective": "penalty", "penalty": 2.0, "normalise_risk": True}
    loss, risk, _ = loss_of(torch.tensor([0.0, 0.0, LOG3], dtype=torch.float64), **settings)
    assert risk.tolist() == pytest.approx([4 / 8, 0.5 / 2], abs=1e-5)
    assert loss.tolist() == pytest.approx([4 / 8 + 2 * 0.5, 0.5 / 2 + 2 * 0.75], abs=1e-5)


def test_spread_over_draws_counts_by_beta():
    """Half restored, the first graph loses 4 and 2 in turn, the second 1 and 1/2."""
    settings = {"objective": "penalty", "penalty": 0.0, "normalise_risk": False, "beta": 0.2}
    loss, _, _ = loss_of(ZEROS, mechanism=Halves(), **settings)
    assert loss.tolist() == pytest.approx([3 + 0.2 * 1, 0.75 + 0.2 * 0.25], abs=1e-5)


@pytest.mark.parametrize("contrast", [0.0, 0.3])
def test_objective_of_budgets_by_hand(contrast):
    """Equal logits restore a quarter of each bond: 3/4 of the risk is left, 1/4 the other way."""
    share = torch.full((2,), 0.25, dtype=torch.float64)
    loss, risk, restored = loss_of(ZEROS, share, contrast=contrast)
    expected = math.log(1 + 4 * 0.75) / math.log(5) - contrast * math.log(1 + 4 * 0.25) / math.log(
        5
    )
    assert loss.tolist() == pytest.approx([expected] * 2, abs=1e-5)
    assert risk.tolist() == pytest.approx([0.75] * 2, abs=1e-5)
    assert torch.equal(restored, share)


def test_order_of_bonds_decides_under_a_budget():
    """Gates 3/4 and 1/4: 3/4 of 3 and 1/4 of 5 are kept, or the other way round."""
    better, worse = torch.tensor([[-LOG3, LOG3, 0.0], [LOG3, -LOG3, 0.0]], dtype=torch.float64)
    for logit, lost in ((better, 3 * 0.75 + 5 * 0.25), (worse, 3 * 0.25 + 5 * 0.75)):
        assert loss_of(logit)[1].tolist() == pytest.approx([lost / 8, 0.5], abs=1e-5)


def test_loss_of_a_graph_does_not_depend_on_its_batch():
    logit = torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)
    for objective in ("penalty", "budget"):
        together = loss_of(logit, objective=objective)[0]
        query = two_paths()
        case = make_case(to_batch(query.case.batch.to_data_list()[1]))
        alone = Query(query.target, case, query.mechanism, degradation="margin")
        config = BoundaryConfig(objective=objective, beta=0.0)
        reference = torch.tensor([2.0], dtype=torch.float64)
        found = srb_loss(alone, logit[2:], reference, config, share=SHARE[:1], stream=0)[0]
        torch.testing.assert_close(found, together[1:])


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


def test_graph_that_needs_everything_is_restored_to_the_last_bond():
    config = BoundaryConfig(risk_target=1e-3, beta=0.0)
    reference = torch.tensor([8.0, 2.0], dtype=torch.float64)
    found = find_boundary(two_paths(), ZEROS, config, 0, reference)
    assert found.gate.tolist() == [1.0, 1.0, 1.0]
    assert found.risk.tolist() == pytest.approx([0, 0], abs=1e-5)


# Adam moves by its rate against the sign of the first slope, whatever its size.
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # slope of a logit: (lambda / bonds - value of the bond) / 4, so 8/2 - 3, 8/2 - 5, 8 - 2
        ({"objective": "penalty", "penalty": 8.0, "start": 0.5}, [-0.1, 0.1, -0.1]),
        (
            {"objective": "penalty", "penalty": 8.0, "start": 0.75},
            [LOG3 - 0.1, LOG3 + 0.1, LOG3 - 0.1],
        ),
        ({"objective": "penalty", "penalty": 1.0, "start": 0.5}, [0.1, 0.1, 0.1]),
        # under a budget the bond of 5 gains what the bond of 3 loses; a single bond has no choice
        ({"objective": "budget"}, [-0.1, 0.1, 0.0]),
    ],
)
def test_first_step_of_optimised_logits_by_hand(settings, expected):
    config = BoundaryConfig(
        beta=0.0, normalise_risk=False, graph_steps=1, graph_learning_rate=0.1, **settings
    )
    found = optimise_logits(two_paths(), torch.ones(2, dtype=torch.float64), config, 0)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert not found.requires_grad


def test_optimised_logits_stay_inside_their_limits():
    config = BoundaryConfig(
        objective="penalty", penalty=8.0, start=0.5, beta=0.0, normalise_risk=False
    ).with_(graph_steps=40, graph_learning_rate=5.0)
    found = optimise_logits(two_paths(), torch.ones(2, dtype=torch.float64), config, 0)
    assert found.tolist() == pytest.approx([-12, 12, -12])


def test_every_step_of_optimised_logits_has_noise_of_its_own():
    mechanism = Halves()
    config = BoundaryConfig(num_draws=2, graph_steps=5)
    optimise_logits(two_paths(mechanism), torch.ones(2, dtype=torch.float64), config, 0)
    assert len(mechanism.streams) == len(set(mechanism.streams)) == 5


def test_logits_stay_at_their_start_where_the_output_ignores_messages():
    query = two_paths()
    query.target.inputs = lambda model, batch: 0 * model(batch.x, batch.edge_index, batch.batch)
    config = BoundaryConfig(objective="penalty", penalty=0.0, start=0.75, graph_steps=3)
    found = optimise_logits(query, torch.ones(2, dtype=torch.float64), config, 0)
    assert found.tolist() == pytest.approx([LOG3] * 3)


def test_budgets_of_steps_fill_the_range_evenly() -> None:
    config = BoundaryConfig(budget_low=0.2, budget_high=0.8)
    budgets = torch.tensor([budget_of_step(step, config) for step in range(90)])
    assert budgets.min() >= 0.2
    assert budgets.max() <= 0.8
    counts = torch.histc(budgets, bins=9, min=0.2, max=0.8)
    assert counts.min() >= 8
    assert counts.max() <= 12
