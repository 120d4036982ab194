"""Random numbers with an address: stored results can be repeated only if they never change."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv

from nicegnn.seeding import SeededWeights, mix, normal_rows


def test_addresses_give_the_numbers_they_always_gave() -> None:
    assert mix(0) == 4246866556266386882
    assert mix(0, "fit", 3) == 4206452721704187242


def test_addresses_tell_parts_apart() -> None:
    addresses = [(0,), (1,), (0, 1), (1, 0), (10,), (1, "0"), ("a", "b"), ("ab",), ("a", "b", "")]
    numbers = {mix(*address) for address in addresses}
    assert len(numbers) == len(addresses) - 1  # 1 and "1" are the same word
    assert all(0 <= number < 2**63 for number in numbers)


def test_numbers_of_rows_are_normal_and_unrelated() -> None:
    draw, slot = torch.arange(60).repeat_interleave(300), torch.arange(300).repeat(60)
    numbers = normal_rows(7, draw, slot, 9).double()  # an odd width
    assert numbers.shape == (18000, 9)
    flat = numbers.flatten()
    moments = [float((flat**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.06)
    related = torch.corrcoef(numbers.T) - torch.eye(9)
    assert float(related.abs().max()) < 5 / 18000**0.5
    table = numbers.view(60, 300, 9)
    for lag in (1, 2, 4, 8, 16):
        assert float((table[lag:] * table[:-lag]).mean().abs()) < 0.015
        assert float((table[:, lag:] * table[:, :-lag]).mean().abs()) < 0.015
    other = normal_rows(8, draw, slot, 9).double()
    assert float((other * numbers).mean().abs()) < 0.015


def test_a_row_has_the_same_numbers_alone() -> None:
    draw, slot = torch.arange(6).repeat_interleave(50), torch.arange(50).repeat(6)
    whole = normal_rows(3, draw, slot, 8)
    assert torch.equal(normal_rows(3, draw[77:78], slot[77:78], 8), whole[77:78])
    assert torch.equal(normal_rows(3, draw, slot, 7)[:, :4], whole[:, :4])  # the first of each pair


def test_layers_draw_the_same_weights_as_after_a_global_seed() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Conv1d(2, 2, 2), nn.GRU(2, 3), GATConv(3, 2))

    state = torch.get_rng_state()
    with SeededWeights(11):
        found = make()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(11)
    expected = make()
    torch.set_rng_state(state)
    for a, b in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)
