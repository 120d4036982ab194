"""Degradation and restoration risk against hand numbers and autograd."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.boundary.objective import restoration_risk, risk_slope
from nicegnn.target.degradation import log_prob_degradation, margin_degradation, squared_degradation


def test_degradation_of_log_probabilities_by_hand():
    """Clean p = (0.8, 0.2) and (0.4, 0.6); explained are classes 0 and 1."""
    clean = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64).log()
    perturbed = torch.tensor(
        [[[0.4, 0.6], [0.7, 0.3]], [[0.9, 0.1], [0.1, 0.9]], [[0.8, 0.2], [0.88, 0.12]]],
        dtype=torch.float64,
    ).log()
    target = torch.tensor([0, 1])
    expected = torch.tensor(
        [[math.log(2), math.log(2)], [0.0, 0.0], [0.0, math.log(5)]], dtype=torch.float64
    )
    torch.testing.assert_close(log_prob_degradation(clean, perturbed, target), expected)


def test_hinge_has_no_slope_where_the_target_gains():
    clean = torch.tensor([[0.5, 0.5]]).log()
    perturbed = torch.tensor([[[0.6, 0.4]], [[0.4, 0.6]]]).log().requires_grad_()
    degradation = log_prob_degradation(clean, perturbed, torch.tensor([0]))
    (slope,) = torch.autograd.grad(degradation.sum(), perturbed)
    assert slope.tolist() == [[[0.0, 0.0]], [[-1.0, 0.0]]]


def test_margin_degradation_by_hand():
    """Odds of the explained class: 4 before; 1/4, 9 and 4 after."""
    clean = torch.tensor([[0.8, 0.15, 0.05]], dtype=torch.float64).log()
    perturbed = torch.tensor(
        [[[0.2, 0.5, 0.3]], [[0.9, 0.05, 0.05]], [[0.8, 0.1, 0.1]]], dtype=torch.float64
    ).log()
    target = torch.tensor([0])
    signed = margin_degradation(clean, perturbed, target, hinge=False)
    expected = torch.tensor([[math.log(16)], [-math.log(9 / 4)], [0.0]], dtype=torch.float64)
    torch.testing.assert_close(signed, expected)
    torch.testing.assert_close(margin_degradation(clean, perturbed, target), expected.clamp(min=0))


def test_margin_degradation_does_not_saturate_on_confident_predictions():
    """Logit gaps of 60 and 50 are both probability 1 in float32; their difference is seen."""
    clean = torch.tensor([[60.0, 0.0]]).log_softmax(1)
    logits = torch.tensor([[[50.0, 0.0]]], requires_grad=True)
    found = margin_degradation(clean, logits.log_softmax(2), torch.tensor([0]))
    assert found.item() == pytest.approx(10, abs=1e-4)
    (slope,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(slope, torch.tensor([[[-1.0, 1.0]]]))


def test_squared_degradation_by_hand():
    """Output 1 of the first row, both outputs of the second."""
    clean = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    perturbed = torch.tensor([[[9.0, 5.0], [4.0, 1.0]], [[1.0, 2.0], [3.0, -4.0]]])
    out = squared_degradation(clean, perturbed, torch.tensor([1, -1]))
    assert out.tolist() == [[9.0, 5.0], [0.0, 9.0]]


def test_squared_degradation_counts_changes_in_both_directions():
    clean = torch.tensor([[2.0]])
    perturbed = torch.tensor([[[5.0]], [[-1.0]]])
    assert squared_degradation(clean, perturbed, torch.tensor([0])).tolist() == [[9.0], [9.0]]


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
