"""Quadrature on the path: hand numbers, exactness, and measured order of convergence."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.attribution.joint_path import QUADRATURES, path_nodes
from nicegnn.errors import ConfigError

NUMBERS = [1, 2, 3, 4, 5, 8, 16, 33]


def integral(rule: str, num: int, function) -> float:
    t, w = path_nodes(rule, num)
    return float((w * function(t)).sum())


@pytest.mark.parametrize("num", NUMBERS)
@pytest.mark.parametrize("rule", QUADRATURES)
def test_weights_sum_to_one(rule, num):
    """So that a constant integrand is integrated exactly, whatever the number of nodes."""
    _, w = path_nodes(rule, num)
    assert float(w.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("num", NUMBERS)
@pytest.mark.parametrize("rule", QUADRATURES)
def test_nodes_rise_inside_the_path_with_positive_weights(rule, num):
    t, w = path_nodes(rule, num)
    assert (t.dtype, w.dtype) == (torch.float64, torch.float64)
    assert t.shape == w.shape == (num,)
    assert bool((t > 0).all())
    assert bool((t <= 1).all())
    assert bool((w > 0).all())
    assert bool((t.diff() > 0).all())


def test_riemann_by_hand():
    t, w = path_nodes("riemann", 4)
    assert t.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert w.tolist() == [0.25] * 4
    assert integral("riemann", 4, torch.square) == 0.46875  # (1 + 4 + 9 + 16) / 64


def test_gauss_of_two_nodes_by_hand():
    """Gauss-Legendre on [0, 1] has u = 1/2 -+ 1/sqrt(12), du = 1/2; t = u^2, w = 2 u du."""
    u = torch.tensor([0.5 - 12**-0.5, 0.5 + 12**-0.5], dtype=torch.float64)
    t, w = path_nodes("gauss", 2)
    torch.testing.assert_close(t, u**2)
    torch.testing.assert_close(w, u)


@pytest.mark.parametrize("num", [1, 2, 4, 8])
def test_gauss_is_exact_on_polynomials_in_u(num):
    """g(t) = u^k with u = sqrt(t): the integrand 2 u^(k+1) is exact up to degree 2n - 1.

    The integral of t^(k/2) over [0, 1] is 2 / (k + 2).
    """
    for k in range(-1, 2 * num - 1):
        got = integral("gauss", num, lambda t, k=k: t ** (k / 2))
        assert got == pytest.approx(2 / (k + 2), rel=1e-12)
    too_high = 2 * num - 1
    got = integral("gauss", num, lambda t: t ** (too_high / 2))
    assert got != pytest.approx(2 / (too_high + 2), rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "num", "tolerance"),
    [("gauss", 1, 1e-12), ("gauss", 8, 1e-12), ("gauss-sine", 8, 1e-6)],
)
def test_slope_of_a_square_root_at_zero_is_integrated(rule, num, tolerance):
    assert integral(rule, num, torch.rsqrt) == pytest.approx(2, abs=tolerance)
    assert integral("riemann", num, torch.rsqrt) < 1.65  # the paper's rule is far off at T <= 8


def test_slopes_of_square_roots_at_both_ends_are_integrated_by_the_sine_rule():
    """The integral of 1 / sqrt(t (1 - t)) is pi; right endpoints cannot even be evaluated."""
    got = integral("gauss-sine", 8, lambda t: (t * (1 - t)).rsqrt())
    assert got == pytest.approx(math.pi, rel=1e-9)
    got = integral("gauss", 8, lambda t: (t * (1 - t)).rsqrt())
    assert got != pytest.approx(math.pi, rel=1e-2)


def order(rule: str, function, exact: float, num: int) -> float:
    """Returns the measured order: how fast the error falls when the nodes are doubled."""
    errors = [abs(integral(rule, n, function) - exact) for n in (num, 2 * num)]
    return math.log2(errors[0] / errors[1])


def test_riemann_has_order_one_on_smooth_and_one_half_on_square_root_slopes():
    assert order("riemann", torch.exp, math.e - 1, 256) == pytest.approx(1, abs=0.01)
    assert order("riemann", torch.rsqrt, 2, 256) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("rule", ["gauss", "gauss-sine"])
def test_gauss_rules_gain_digits_in_proportion_to_their_nodes(rule):
    """On an analytic integrand the error falls geometrically: doubling the nodes squares it."""
    errors = [abs(integral(rule, n, torch.exp) - (math.e - 1)) for n in (4, 8)]
    assert errors[0] < 0.01
    assert errors[1] < errors[0] ** 2


@pytest.mark.parametrize("rule", QUADRATURES)
def test_rules_agree_on_a_smooth_integral(rule):
    assert integral(rule, 512, torch.cos) == pytest.approx(math.sin(1), abs=2e-3)


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match=r"at least 1 \(got 0\)"):
        path_nodes("gauss", 0)
    with pytest.raises(ConfigError, match="got 'simpson'"):
        path_nodes("simpson", 4)
