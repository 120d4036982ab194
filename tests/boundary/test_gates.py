"""Risk and objective of the boundary against hand numbers and autograd."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.boundary.srb import restoration_risk, risk_slope, sampled_risk, srb_loss
from nicegnn.config import BoundaryConfig
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


# --- the objective -----------------------------------------------------------------------------

LOGIT = torch.tensor([0.0, 0.0, math.log(3)], dtype=torch.float64)  # gates 1/2, 1/2 and 3/4


def test_corrupted_risk_by_hand():
    """Without messages 8 and 2 of log-odds are lost; with halves the draws lose 8, 4 and 2, 1."""
    config, nothing = BoundaryConfig(beta=0.5, num_draws=4), torch.zeros_like(LOGIT)
    masked = sampled_risk(two_paths(), nothing, config, 0)
    assert masked.tolist() == pytest.approx([8, 2], abs=1e-5)
    halved = sampled_risk(two_paths(Halves()), nothing, config, 0)
    assert halved.tolist() == pytest.approx([6 + 0.5 * 2, 1.5 + 0.5 * 0.5], abs=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
def test_objective_of_the_paper_by_hand(penalty):
    """Gates 1/2, 1/2 and 3/4 lose 3/2 + 5/2 and 2/4; lambda weighs the mean gate of each graph."""
    config = BoundaryConfig(beta=0.0, num_draws=2, penalty=penalty)
    loss, risk, restored = srb_loss(two_paths(), LOGIT, config, 0)
    assert risk.tolist() == pytest.approx([4.0, 0.5], abs=1e-5)
    assert restored.tolist() == pytest.approx([0.5, 0.75])
    assert loss.tolist() == pytest.approx([4.0 + 0.5 * penalty, 0.5 + 0.75 * penalty], abs=1e-5)


@pytest.mark.parametrize("penalty", [1.0, 8.0])
def test_slope_of_the_objective_by_hand(penalty):
    """A gate of 1/2 moves by 1/4 of its logit, and loss by (lambda / bonds - value of the bond)."""
    logit = torch.zeros_like(LOGIT).requires_grad_()
    config = BoundaryConfig(beta=0.0, num_draws=1, penalty=penalty)
    loss, _, _ = srb_loss(two_paths(), logit, config, 0)
    (slope,) = torch.autograd.grad(loss.sum(), logit)
    expected = [(penalty / 2 - 3) / 4, (penalty / 2 - 5) / 4, (penalty - 2) / 4]
    assert slope.tolist() == pytest.approx(expected, abs=1e-5)
