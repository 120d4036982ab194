"""Element-wise masking and noise corruption: norms, directions, slopes, and where noise is new."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch_geometric import nn as gnn

from nicegnn.errors import ConfigError
from nicegnn.intervention.intervene import Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import (
    DirectionTable,
    ElementMask,
    NoiseCorruption,
    get_mechanism,
)
from nicegnn.seeding import mix, normal_rows


def make_site(
    num_edges: int, *, num_draws: int = 1, layer: int = 0, stream: int = 0, num_slots: int = 0
) -> Site:
    """One row per draw and edge, draw after draw."""
    slot = torch.arange(num_edges).repeat(num_draws)
    draw = torch.arange(num_draws).repeat_interleave(num_edges)
    return Site(layer, "layer", stream, slot, draw, max(num_slots, num_edges), num_draws)


def messages(num: int, size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def numerical_slope(function, at: Tensor, step: float = 1e-6) -> Tensor:
    """Central differences of a scalar function, one input after the other."""
    out = torch.zeros_like(at)
    for k in range(at.numel()):
        shift = torch.zeros_like(at).view(-1)
        shift[k] = step
        shift = shift.view_as(at)
        out.view(-1)[k] = (function(at + shift) - function(at - shift)) / (2 * step)
    return out


# --- norms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_em_contracts_squared_norm_by_exactly_rho_squared(rho):
    m = messages(50, 7)
    out = ElementMask()(m, torch.full((50,), rho, dtype=m.dtype), make_site(50))
    torch.testing.assert_close(out.square().sum(1), rho**2 * m.square().sum(1), rtol=1e-14, atol=0)


@pytest.mark.parametrize("size", [1, 2, 8, 32])
@pytest.mark.parametrize("rho", [0.05, 0.5, 0.8])
def test_nc_keeps_expected_squared_norm(rho, size):
    """|out|^2 = |m|^2 (1 + 2 sqrt(rho (1 - rho)) c), c the cosine of two directions.

    c has mean 0 and variance 1 / F, so the mean of n ratios has the standard deviation
    2 sqrt(rho (1 - rho) / (F n)); we allow four of them.
    """
    n = 20_000
    m = messages(n, size) * torch.logspace(-2, 2, n, dtype=torch.float64)[:, None]
    out = NoiseCorruption(4)(m, torch.full((n,), rho, dtype=m.dtype), make_site(n))
    ratio = out.square().sum(1) / m.square().sum(1)
    allowed = 4 * 2 * math.sqrt(rho * (1 - rho) / (size * n))
    assert abs(float(ratio.mean()) - 1) < allowed
    spread = 2 * math.sqrt(rho * (1 - rho) / size)
    assert float(ratio.std()) == pytest.approx(spread, rel=0.05)


def test_nc_of_zero_keeps_each_norm_and_forgets_the_direction():
    n, size = 20_000, 6
    m = messages(n, size)
    out = NoiseCorruption(4)(m, torch.zeros(n, dtype=m.dtype), make_site(n))
    torch.testing.assert_close(out.norm(dim=1), m.norm(dim=1), rtol=1e-6, atol=0)
    cosine = nn.functional.cosine_similarity(out, m)
    assert abs(float(cosine.mean())) < 4 / math.sqrt(size * n)


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption()], ids=["em", "nc"])
def test_gate_of_one_returns_the_message_itself(mechanism):
    m = messages(100, 5, dtype=torch.float32)
    assert torch.equal(mechanism(m, torch.ones(100), make_site(100)), m)


def test_nc_is_the_formula_of_the_paper():
    """Eq. 8 and 9, with eps read off at a gate of 0."""
    m, rho, site = messages(9, 4), torch.linspace(0, 1, 9, dtype=torch.float64), make_site(9)
    mechanism = NoiseCorruption(2)
    eps = mechanism(m, torch.zeros_like(rho), site)
    expected = rho.sqrt()[:, None] * m + (1 - rho).sqrt()[:, None] * eps
    torch.testing.assert_close(mechanism(m, rho, site), expected)


# --- directions --------------------------------------------------------------------------------


def directions(num: int, size: int, seed: int = 0, **coordinates: int) -> Tensor:
    site = make_site(num, **coordinates)
    return DirectionTable(seed)(site, torch.zeros(site.slot.numel(), size, dtype=torch.float64))


@pytest.mark.parametrize("size", [2, 3, 16])
def test_directions_are_uniform_on_the_sphere(size):
    """A squared coordinate of a uniform direction is Beta(1/2, (F - 1)/2), its sign a coin.

    Means of n coordinates deviate by 1 / sqrt(F n), second moments by less than sqrt(2/n) / F.
    """
    n = 20_000
    z = directions(n, size)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(n, dtype=z.dtype), rtol=1e-6, atol=0)
    assert float(z.mean(0).abs().max()) < 4.5 / math.sqrt(size * n)
    moment = z.t() @ z / n
    assert float((moment - torch.eye(size) / size).abs().max()) < 4.5 * math.sqrt(2 / n) / size
    for k in (0, size - 1):
        squared = z[:, k].square().clamp(max=1).numpy()
        assert stats.kstest(squared, stats.beta(0.5, (size - 1) / 2).cdf).pvalue > 1e-3
    oblique = z @ nn.functional.normalize(messages(1, size, seed=3)[0], dim=0)
    positive = int((oblique > 0).sum())
    assert stats.binomtest(positive, n).pvalue > 1e-3
    assert (
        stats.kstest(
            oblique.square().clamp(max=1).numpy(), stats.beta(0.5, (size - 1) / 2).cdf
        ).pvalue
        > 1e-3
    )


def test_one_dimensional_directions_are_fair_signs():
    z = directions(10_000, 1)
    assert torch.equal(z.abs(), torch.ones_like(z))
    assert stats.binomtest(int((z > 0).sum()), 10_000).pvalue > 1e-3


@pytest.mark.parametrize("coordinate", ["seed", "stream", "layer", "edge", "draw"])
def test_noise_is_independent_along_each_coordinate(coordinate):
    """Cosines of independent directions have variance 1 / F; four deviations of their mean."""
    n, size = 4096, 8
    a = directions(n, size)
    if coordinate == "edge":
        b = a.roll(1, 0)
    elif coordinate == "draw":
        both = directions(n, size, num_draws=2)
        assert torch.equal(both[:n], a)
        b = both[n:]
    else:
        b = directions(n, size, **{coordinate: 1})
    cosine = (a * b).sum(1)
    assert abs(float(cosine.mean())) < 4 / math.sqrt(size * n)
    assert float(cosine.square().mean()) == pytest.approx(1 / size, rel=0.1)
    assert float(cosine.abs().max()) < 1 - 1e-3  # no direction comes twice


def test_no_direction_repeats_across_block_borders():
    z = directions(200, 3, num_draws=40)  # several blocks of draws and of slots
    assert torch.unique(z, dim=0).size(0) == 200 * 40


@pytest.mark.parametrize("antithetic", [False, True])
def test_noise_of_a_draw_does_not_depend_on_how_many_are_drawn(antithetic):
    def noise(num_edges: int, num_draws: int, num_slots: int = 0) -> Tensor:
        site = make_site(num_edges, num_draws=num_draws, num_slots=num_slots)
        like = torch.zeros(site.slot.numel(), 3)
        return DirectionTable(5, antithetic=antithetic)(site, like).view(num_draws, num_edges, 3)

    large = noise(150, 37)
    for num_edges, num_draws in ((1, 1), (64, 16), (65, 17), (149, 36), (70, 3)):
        assert torch.equal(noise(num_edges, num_draws), large[:num_draws, :num_edges])
    assert torch.equal(noise(10, 5, num_slots=500), large[:5, :10])


def test_noise_follows_the_coordinates_of_an_edge_not_its_row():
    table = DirectionTable(1)
    slot, draw = torch.tensor([5, 0, 5, 90]), torch.tensor([2, 1, 2, 20])
    z = table(Site(0, "", 0, slot, draw, 91, 21), torch.zeros(4, 6))
    full = table(make_site(91, num_draws=21), torch.zeros(91 * 21, 6)).view(21, 91, 6)
    assert torch.equal(z, full[draw, slot])
    assert torch.equal(z[0], z[2])


def test_antithetic_pairs_are_opposite_and_pairs_differ():
    site = make_site(30, num_draws=7)
    z = DirectionTable(0, antithetic=True)(site, torch.zeros(210, 5)).view(7, 30, 5)
    for k in range(3):
        assert torch.equal(z[2 * k], -z[2 * k + 1])
    assert not torch.equal(z[0], z[2])
    plain = DirectionTable(0)(make_site(30), torch.zeros(30, 5))
    assert torch.equal(z[0], plain)


def test_antithetic_noise_averages_out_exactly():
    m, rho = messages(10, 4).repeat(2, 1), torch.full((20,), 0.3, dtype=torch.float64)
    out = NoiseCorruption(antithetic=True)(m, rho, make_site(10, num_draws=2))
    torch.testing.assert_close(out.view(2, 10, 4).mean(0), math.sqrt(0.3) * m[:10])


def test_same_seed_gives_same_noise_in_separate_objects_and_global_state_is_left_alone():
    m, gate, site = messages(20, 4), torch.full((20,), 0.5, dtype=torch.float64), make_site(20)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = NoiseCorruption(7)(m, gate, site)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(NoiseCorruption(7)(m, gate, site), first)
    assert not torch.allclose(NoiseCorruption(8)(m, gate, site), first)


def test_directions_are_the_same_in_every_dtype():
    table, site = DirectionTable(0), make_site(10)
    low, high = (table(site, torch.zeros(10, 4, dtype=t)) for t in (torch.float32, torch.float64))
    assert (low.dtype, high.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(low.double(), high, rtol=0, atol=1e-7)


def test_old_noise_comes_back_after_the_cache_has_dropped_it(monkeypatch):
    monkeypatch.setattr("nicegnn.intervention.mechanisms._KEPT_BYTES", 2 * 64 * 3 * 4)
    table, like = DirectionTable(0), torch.zeros(5, 3)
    first = table(make_site(5), like)
    for stream in range(1, 6):
        table(make_site(5, stream=stream), like)
    assert len(table._tables) == 2
    assert torch.equal(table(make_site(5), like), first)


def test_late_draws_need_no_more_random_numbers_than_early_ones(monkeypatch):
    """Draws are asked for in chunks to bound memory; a chunk must not remake those before it."""
    made: list[int] = []

    def counting(seed: int, draw: Tensor, slot: Tensor, width: int) -> Tensor:
        made.append(draw.numel())
        return normal_rows(seed, draw, slot, width)

    monkeypatch.setattr("nicegnn.intervention.mechanisms.normal_rows", counting)
    for first in (0, 480):
        draw = torch.arange(first, first + 4).repeat_interleave(10)
        site = Site(0, "layer", 0, torch.arange(10).repeat(4), draw, 10, first + 4, first)
        DirectionTable(0)(site, torch.zeros(40, 3))
    assert made[1] == made[0] > 0


def test_few_messages_of_a_large_graph_get_the_noise_of_its_whole_table():
    slot, draw = torch.tensor([3, 999]), torch.tensor([0, 5])
    few = Site(1, "layer", 2, slot, draw, 1000, 6, 0)
    every = Site(
        1,
        "layer",
        2,
        torch.arange(1000).repeat(6),
        torch.arange(6).repeat_interleave(1000),
        1000,
        6,
        0,
    )
    table = DirectionTable(4)
    whole = table(every, torch.zeros(6000, 5)).view(6, 1000, 5)
    assert torch.equal(table(few, torch.zeros(2, 5)), whole[draw, slot])


def test_mix_separates_neighbouring_arguments():
    values = {mix(a, b) for a in range(50) for b in range(50)} | {mix(1, "a"), mix("1a"), mix(11)}
    assert len(values) == 2503
    assert all(0 <= value < 2**63 for value in values)
    assert mix(1, 23) != mix(12, 3)


# --- slopes ------------------------------------------------------------------------------------


def test_zero_messages_stay_zero_with_finite_gradients():
    m = messages(6, 4)
    m[2] = 0
    m[4] = 0
    m.requires_grad_()
    gate = torch.tensor([0.0, 0.3, 0.3, 1.0, 0.0, 0.7], dtype=m.dtype, requires_grad=True)
    out = NoiseCorruption()(m, gate, make_site(6))
    assert torch.equal(out[[2, 4]], torch.zeros(2, 4, dtype=m.dtype))
    for slope in torch.autograd.grad(out.square().sum() + out.sum(), (m, gate)):
        assert bool(torch.isfinite(slope).all())


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption()], ids=["em", "nc"])
def test_gradients_are_finite_at_gates_of_zero_and_one(mechanism):
    m = messages(2, 4).requires_grad_()
    gate = torch.tensor([0.0, 1.0], dtype=m.dtype, requires_grad=True)
    out = mechanism(m, gate, make_site(2))
    for slope in torch.autograd.grad(out.pow(3).sum(), (m, gate)):
        assert bool(torch.isfinite(slope).all())


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(3)], ids=["em", "nc"])
def test_slopes_equal_finite_differences_also_through_the_norm(mechanism):
    site, weight = make_site(5), messages(5, 4, seed=9)

    def value(m: Tensor, gate: Tensor) -> Tensor:
        return (weight * mechanism(m, gate, site)).tanh().sum()

    m = messages(5, 4).requires_grad_()
    gate = torch.tensor([0.02, 0.3, 0.5, 0.9, 0.98], dtype=m.dtype, requires_grad=True)
    by_message, by_gate = torch.autograd.grad(value(m, gate), (m, gate))
    fixed_m, fixed_gate = m.detach(), gate.detach()
    expected = numerical_slope(lambda at: value(fixed_m, at), fixed_gate)
    torch.testing.assert_close(by_gate, expected, rtol=1e-6, atol=1e-8)
    expected = numerical_slope(lambda at: value(at, fixed_gate), fixed_m)
    torch.testing.assert_close(by_message, expected, rtol=1e-6, atol=1e-8)


def test_gradient_of_nc_includes_the_norm_of_the_message():
    """At a gate of 0 the output is |m| z: its slope in m is z m^T / |m|, not zero."""
    m = torch.tensor([[3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    out = NoiseCorruption()(m, torch.zeros(1, dtype=torch.float64), make_site(1))
    (slope,) = torch.autograd.grad(out[0, 0], m)
    z = (out / 5)[0].detach()
    torch.testing.assert_close(slope[0], z[0] * torch.tensor([0.6, 0.8], dtype=torch.float64))


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


def test_equal_streams_draw_equal_noise_and_the_second_pass_is_the_next_stream(ring):
    model, gate, mechanism = Linear(), torch.full((14,), 0.4), NoiseCorruption(1)

    def passes(num: int, stream: int) -> list[Tensor]:
        with intervene(model, mechanism, gate, stream=stream):
            return [model(ring.x, ring.edge_index)[1] for _ in range(num)]

    first, second = passes(2, 0)
    assert torch.equal(passes(1, 0)[0], first)
    assert torch.equal(passes(1, 1)[0], second)
    assert not torch.allclose(first, second)


class Dropout:
    """A third mechanism, as a user would write one: keeps messages with probability rho."""

    is_random = True

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        generator = torch.Generator().manual_seed(mix("dropout", site.stream, site.layer))
        kept = torch.rand(gate.shape, generator=generator) < gate
        return message * kept.to(message.dtype).unsqueeze(1)


def test_a_third_mechanism_works(ring):
    model, x = Linear(), torch.ones(7, 5)
    mechanism: Mechanism = Dropout()
    with intervene(model, mechanism, torch.ones(14)):
        assert torch.equal(model(x, ring.edge_index)[0], model.first(x, ring.edge_index))
    with intervene(model, mechanism, torch.full((14,), 0.5)):
        sums = torch.stack([model(x, ring.edge_index)[0] for _ in range(400)])
    received = sums[:, :, 0].mean(0)  # mean number of kept messages
    degree = torch.tensor([2.0, 2, 2, 2, 3, 2, 1])
    assert float((received - 0.5 * degree).abs().max()) < 4 * math.sqrt(3 * 0.25 / 400)


def test_mechanisms_are_found_by_name():
    assert isinstance(get_mechanism("em"), ElementMask)
    nc = get_mechanism("nc", antithetic=True)
    assert isinstance(nc, NoiseCorruption)
    assert nc.antithetic
    with pytest.raises(ConfigError, match="got 'zap'"):
        get_mechanism("zap")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_noise_on_cuda_is_the_noise_on_the_cpu():
    site = make_site(100, num_draws=20)
    table, like = DirectionTable(0), torch.zeros(2000, 8)
    moved = Site(0, "layer", 0, site.slot.cuda(), site.draw.cuda(), 100, 20)
    torch.testing.assert_close(
        table(moved, like.cuda()).cpu(), table(site, like), atol=1e-5, rtol=0
    )
