"""Calibration of a classifier against hand numbers."""

from __future__ import annotations

import pytest
import torch

from nicegnn.target.calibration import calibration, wilson_interval


def test_calibration_by_hand() -> None:
    probability = torch.tensor([[0.9, 0.1], [0.05, 0.95], [0.45, 0.55], [0.4, 0.6]])
    label = torch.tensor([0, 1, 0, 1])
    found = calibration(probability, label, num_bins=5)  # bins of 0.1 from 0.5
    assert found.accuracy == 0.75
    assert found.mean_confidence == pytest.approx(0.75)
    assert found.histogram == pytest.approx([0.25, 0.25, 0.0, 0.25, 0.25])
    # the gaps of the bins: 0.55 though wrong, 0.40, 0.10 and 0.05 too modest
    assert found.ece == pytest.approx((0.55 + 0.40 + 0.10 + 0.05) / 4)
    assert found.interval[0] < 0.75 < found.interval[1]


def test_wilson_interval_equals_its_known_values() -> None:
    low, high = wilson_interval(8, 10)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson_interval(0, 20)[0] == 0.0
