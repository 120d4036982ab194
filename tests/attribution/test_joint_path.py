"""Attribution along the joint path, and its quadrature: hand numbers, exactness, convergence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import ElementMask, NICEConfig, NoiseCorruption
from nicegnn.attribution.joint_path import boundary_integrated_gradient, path_nodes
from nicegnn.config import Quadrature
from nicegnn.errors import ConfigError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Site
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from tests.boundary.small_models import two_paths
from tests.conftest import random_graph
from tests.explain.small_models import Smooth

NUMBERS = [1, 2, 3, 4, 5, 8, 16, 33]


def integral(rule: str, num: int, function) -> float:
    t, w = path_nodes(rule, num)
    return float((w * function(t)).sum())


@pytest.mark.parametrize("num", NUMBERS)
@pytest.mark.parametrize("rule", get_args(Quadrature))
def test_weights_sum_to_one(rule, num):
    """So that a constant integrand is integrated exactly, whatever the number of nodes."""
    _, w = path_nodes(rule, num)
    assert float(w.sum()) == pytest.approx(1, abs=1e-12)


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


def test_bad_settings_are_refused():
    with pytest.raises(ConfigError, match=r"at least 1 \(got 0\)"):
        path_nodes("gauss", 0)
    with pytest.raises(ConfigError, match="got 'simpson'"):
        path_nodes("simpson", 4)


# --- attribution -------------------------------------------------------------------------------


def settings(**path: Any) -> NICEConfig:
    """A path with Gauss nodes, where the spread over draws does not count."""
    changes = {f"attribution__{name}": value for name, value in path.items()}
    return NICEConfig().with_(boundary__beta=0.0, **changes)


def test_completeness_is_exact_without_chance_and_with_enough_nodes() -> None:
    torch.manual_seed(1)
    graphs = to_batch([random_graph(n, seed=n, dtype=torch.float64) for n in (4, 6, 8)])
    target = Target(Smooth(scale=3.0).double().eval())
    query = Query(target, make_case(graphs), ElementMask(), degradation="signed-margin")
    boundary = torch.linspace(0.2, 0.9, graphs.num_edges // 2, dtype=torch.float64)
    found = boundary_integrated_gradient(query, boundary, settings(num_nodes=400), 0)
    assert (found.risk_corrupted.abs() > 0.03).all()  # there is something to explain
    assert (found.completeness_gap < 1e-9).all(), found.completeness_gap
    total = torch.zeros(3, dtype=torch.float64)
    total = total.index_add(0, query.case.bonds.batch, found.bond_loss)
    torch.testing.assert_close(total, found.risk_corrupted - found.risk_boundary)


class SameNoise(NoiseCorruption):
    """Noise that does not depend on the node of the path."""

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        return super().__call__(message, gate, replace(site, stream=0))


def attribution_error(quadrature: str, num_nodes: int, gate: float = 0.7) -> float:
    """Completeness gap of a smooth regression: no hinge, so the quadrature rule alone matters."""
    torch.manual_seed(1)
    config = settings(num_draws=4, num_nodes=num_nodes, quadrature=quadrature)
    target = Target(Smooth(num_classes=1).double().eval(), mode="regression")
    graph = to_batch(random_graph(6, seed=6, dtype=torch.float64))
    noise = SameNoise(9)  # no draw passes the clean value, where the loss has a kink
    query = Query(target, make_case(graph), noise, degradation="margin")
    boundary = torch.full((graph.num_edges // 2,), gate, dtype=torch.float64)
    return float(boundary_integrated_gradient(query, boundary, config, 0).completeness_gap)


def test_more_nodes_reduce_the_error_at_the_expected_rate() -> None:
    coarse, fine = (attribution_error("riemann", t) for t in (64, 1024))
    rate = float(torch.tensor(coarse / fine).log() / torch.tensor(16.0).log())
    assert rate == pytest.approx(0.5, abs=0.15)  # the slope grows like t^-1/2 at the start
    assert attribution_error("gauss", 16) < 1e-9 < fine  # in u, with t = u^2, it is smooth


def test_standard_error_tells_the_spread_over_seeds(ring: Data) -> None:
    torch.manual_seed(0)
    config = settings(num_draws=32, num_nodes=4)
    target, case = Target(Smooth(scale=3.0).eval()), make_case(to_batch(ring))
    query = Query(target, case, NoiseCorruption(), degradation="margin")
    boundary = torch.full((7,), 0.7)
    runs = [boundary_integrated_gradient(query, boundary, config, seed) for seed in range(32)]
    spread = torch.stack([run.bond_loss for run in runs]).std(0)
    claimed = torch.stack([run.bond_stderr for run in runs]).square().mean(0).sqrt()
    assert (claimed / spread > 0.6).all()
    assert (claimed / spread < 1.7).all()


def test_scores_of_a_linear_model_by_hand() -> None:
    """Bonds of 3, 5 and 2 restored to 1/2, 1 and 1/4 score their value times their gate."""
    boundary = torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)
    query = two_paths().losing("signed-margin")
    found = boundary_integrated_gradient(query, boundary, settings(num_draws=1, num_nodes=3), 0)
    assert found.bond_loss.tolist() == pytest.approx([1.5, 5.0, 0.5])
    assert found.risk_corrupted.tolist() == pytest.approx([8.0, 2.0])
    assert found.risk_boundary.tolist() == pytest.approx([1.5, 1.5])
    assert found.completeness_gap.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
