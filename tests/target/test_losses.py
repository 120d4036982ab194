"""What damage costs, against hand numbers."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.target.losses import (
    log_odds,
    log_prob_degradation,
    margin_degradation,
    other_log_prob,
    squared_degradation,
)


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
    """Output 1 of the first row, both outputs of the second; rises and falls count alike."""
    clean = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    perturbed = torch.tensor([[[9.0, 5.0], [4.0, 1.0]], [[1.0, -1.0], [3.0, -4.0]]])
    out = squared_degradation(clean, perturbed, torch.tensor([1, -1]))
    assert out.tolist() == [[9.0, 5.0], [9.0, 9.0]]


def test_log_probability_and_odds_of_the_other_classes_by_hand():
    answer = torch.tensor([[[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]]]).log()
    target = torch.tensor([0, 2])
    torch.testing.assert_close(other_log_prob(answer, target), torch.tensor([[0.3, 0.75]]).log())
    odds = torch.tensor([[0.7 / 0.3, 0.25 / 0.75]])
    torch.testing.assert_close(log_odds(answer, target), odds.log())
    confident = torch.tensor([[[0.0, -200.0]]])  # 1 - p is 0 in floating point
    assert other_log_prob(confident, torch.tensor([0])).tolist() == [[-200.0]]
