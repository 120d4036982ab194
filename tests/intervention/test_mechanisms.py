"""Element-wise masking and noise corruption: norms, directions, slopes, and where noise is new."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch_geometric import nn as gnn

from nicegnn.errors import ConfigError
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Site, intervene
from nicegnn.intervention.mechanisms import (
    ElementMask,
    NoiseCorruption,
    directions,
    get_mechanism,
)

BOTH = pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(3)], ids=["em", "nc"])


def make_site(num_edges: int, *, num_draws: int = 1, first: int = 0) -> Site:
    """One row per draw and edge, draw after draw."""
    slot = torch.arange(num_edges).repeat(num_draws)
    draw = torch.arange(first, first + num_draws).repeat_interleave(num_edges)
    return Site(0, "layer", 0, slot, draw)


def messages(num: int, size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- norms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_nc_keeps_expected_squared_norm(rho, size):
    """|out|^2 = |m|^2 (1 + 2 sqrt(rho (1 - rho)) c), c the cosine of two directions.

    c has mean 0 and variance 1 / F, so the mean of n ratios has the standard deviation
    2 sqrt(rho (1 - rho) / (F n)); we allow four of them.
    """
    n = 20_000
    m = messages(n, size) * torch.logspace(-2, 2, n, dtype=torch.float64)[:, None]
    out = NoiseCorruption(4)(m, torch.full((n,), rho, dtype=m.dtype), make_site(n))
    ratio = out.square().sum(1) / m.square().sum(1)
    spread = 2 * math.sqrt(rho * (1 - rho) / size)
    assert abs(float(ratio.mean()) - 1) < 4 * spread / math.sqrt(n)
    assert float(ratio.std()) == pytest.approx(spread, rel=0.05)


@BOTH
def test_gate_of_one_returns_the_message_itself(mechanism):
    m = messages(100, 5, dtype=torch.float32)
    assert torch.equal(mechanism(m, torch.ones(100), make_site(100)), m)


def test_nc_is_the_formula_of_the_paper():
    """Eq. 8 and 9, with eps, of the norm of m, read off at a gate of 0."""
    m, rho, site = messages(9, 4), torch.linspace(0, 1, 9, dtype=torch.float64), make_site(9)
    eps = NoiseCorruption(2)(m, torch.zeros_like(rho), site)
    torch.testing.assert_close(eps.norm(dim=1), m.norm(dim=1), rtol=1e-6, atol=0)
    expected = rho.sqrt()[:, None] * m + (1 - rho).sqrt()[:, None] * eps
    torch.testing.assert_close(NoiseCorruption(2)(m, rho, site), expected)


# --- directions --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 16])
def test_directions_are_uniform_on_the_sphere(size):
    """A squared coordinate of a uniform direction is Beta(1/2, (F - 1)/2), its sign a coin.

    Means of n coordinates deviate by 1 / sqrt(F n), second moments by less than sqrt(2/n) / F.
    """
    n = 20_000
    z = directions(0, make_site(n), torch.zeros(n, size, dtype=torch.float64))
    torch.testing.assert_close(z.norm(dim=1), torch.ones(n, dtype=z.dtype), rtol=1e-6, atol=0)
    assert float(z.mean(0).abs().max()) < 4.5 / math.sqrt(size * n)
    moment = z.t() @ z / n
    assert float((moment - torch.eye(size) / size).abs().max()) < 4.5 * math.sqrt(2 / n) / size
    oblique = z @ nn.functional.normalize(messages(1, size, seed=3)[0], dim=0)
    for one in (z[:, 0], z[:, -1], oblique):
        squared = one.square().clamp(max=1).numpy()
        assert stats.kstest(squared, stats.beta(0.5, (size - 1) / 2).cdf).pvalue > 1e-3
        assert stats.binomtest(int((one > 0).sum()), n).pvalue > 1e-3


def test_noise_follows_the_coordinates_of_an_edge_and_nothing_else():
    """Not its row, how many draws or slots there are, or whether all graphs share a table."""

    def noise(site: Site, size: int = 3) -> Tensor:
        return directions(5, site, torch.zeros(site.slot.numel(), size))

    whole = noise(make_site(150, num_draws=37)).view(37, 150, 3)
    assert torch.unique(whole.flatten(0, 1), dim=0).size(0) == 37 * 150  # none comes twice
    for num_edges, num_draws in ((1, 1), (64, 16), (70, 3)):
        found = noise(make_site(num_edges, num_draws=num_draws))
        assert torch.equal(found.view(num_draws, num_edges, 3), whole[:num_draws, :num_edges])
    late = noise(make_site(150, num_draws=7, first=30)).view(7, 150, 3)
    assert torch.equal(late, whole[30:])
    slot, draw = torch.tensor([5, 0, 5, 90]), torch.tensor([2, 1, 2, 20])
    assert torch.equal(noise(Site(0, "", 0, slot, draw)), whole[draw, slot])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_noise_on_cuda_is_the_noise_on_the_cpu():
    site, like = make_site(100, num_draws=20), torch.zeros(2000, 8)
    moved = Site(0, "layer", 0, site.slot.cuda(), site.draw.cuda())
    expected = directions(0, site, like)
    torch.testing.assert_close(directions(0, moved, like.cuda()).cpu(), expected, atol=1e-5, rtol=0)


# --- slopes ------------------------------------------------------------------------------------


@BOTH
def test_gradients_are_finite_at_messages_of_zero_and_gates_of_zero_and_one(mechanism):
    m = messages(6, 4)
    m[2], m[4] = 0, 0
    m.requires_grad_()
    gate = torch.tensor([0.0, 0.3, 0.3, 1.0, 0.0, 0.7], dtype=m.dtype, requires_grad=True)
    out = mechanism(m, gate, make_site(6))
    assert torch.equal(out[[2, 4]], torch.zeros(2, 4, dtype=m.dtype))
    for slope in torch.autograd.grad(out.pow(3).sum() + out.sum(), (m, gate)):
        assert bool(torch.isfinite(slope).all())


@BOTH
def test_slopes_equal_finite_differences_also_through_the_norm(mechanism):
    site = make_site(5)
    m = messages(5, 4).requires_grad_()
    gate = torch.tensor([0.02, 0.3, 0.5, 0.9, 0.98], dtype=m.dtype, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: mechanism(*given, site), (m, gate), atol=1e-5)


# --- inside a model ----------------------------------------------------------------------------


class Linear(nn.Module):
    """Two layers that add up neighbours; the states after each are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (gnn.SimpleConv(aggr="sum") for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = self.first(x, edge_index)
        return h, self.second(x, edge_index)  # the same messages in both layers


def test_noise_is_fresh_per_layer_edge_draw_and_forward_pass(path):
    model, gate, mechanism = Linear(), torch.zeros(6), NoiseCorruption()
    x = torch.ones(4, 5)
    with intervene(model, mechanism, gate):
        (a, b), (c, _) = model(x, path.edge_index), model(x, path.edge_index)
    with intervene(model, mechanism, gate, draw=torch.ones(6, dtype=torch.long)):
        d, _ = model(x, path.edge_index)
    ends = [state[0] for state in (a, b, c, d)] + [a[3]]  # nodes that receive one message
    for i, left in enumerate(ends):
        assert float(left.norm()) == pytest.approx(math.sqrt(5), rel=1e-5)
        for right in ends[i + 1 :]:
            assert not torch.allclose(left, right, atol=1e-2)
    with intervene(model, mechanism, gate, stream=1):  # the second pass was the next stream
        assert torch.equal(model(x, path.edge_index)[0], c)


def test_mechanisms_are_found_by_name():
    for name, kind in (("em", ElementMask), ("nc", NoiseCorruption), ("exchange", Exchange)):
        found = get_mechanism(name, "clean")
        assert type(found) is kind
        assert found.anchor == "clean"
    with pytest.raises(ConfigError, match="got 'zap'"):
        get_mechanism("zap")
    with pytest.raises(ConfigError, match="`anchor` must be one of"):
        NoiseCorruption(anchor="dirty")
