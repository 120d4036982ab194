"""The student network reads bonds as it should."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nicegnn.errors import GraphError
from nicegnn.student.teaching import BondView, StudentNetwork


def some_view() -> BondView:
    """Returns two graphs of three nodes and two bonds each, explained for classes 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    return BondView(
        state=torch.randn(6, 4, generator=generator),
        home=torch.tensor([0, 0, 0, 1, 1, 1]),
        ends=torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]]),
        edge=torch.randn(4, 2, generator=generator),
        label=torch.tensor([1, 2]),
    )


def flipped(view: BondView) -> BondView:
    return replace(view, ends=view.ends.flip(0))


def test_the_two_ends_of_a_bond_are_alike() -> None:
    torch.manual_seed(0)
    net, view = StudentNetwork(4, 2, 3), some_view()
    torch.testing.assert_close(net(view)[0], net(flipped(view))[0], atol=1e-6, rtol=0)


def test_a_graph_is_scored_alike_in_any_company() -> None:
    torch.manual_seed(0)
    net, view = StudentNetwork(4, 2, 3), some_view()
    second = BondView(
        view.state[3:],
        view.home[3:] - 1,
        view.ends[:, 2:] - 3,
        view.edge[2:],
        view.label[1:],
    )
    for whole, alone in zip(net(view), net(second), strict=True):
        torch.testing.assert_close(whole[2:], alone)


def test_other_features_are_named() -> None:
    net = StudentNetwork(4, 0, 3)
    with pytest.raises(GraphError, match="by 4 and 0 numbers \\(got 4 and 2\\)"):
        net(some_view())
