"""Two places of a graph: whether either of them suffices for the class, or both are needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool

from nicegnn import NICE
from nicegnn.explain.explanation import Explanation

PLAIN = Data(x=torch.tensor([[1.0, 0.0]] * 3), edge_index=torch.tensor([[0, 1], [1, 0]]))


class Count(nn.Module):
    """Class 1 where at least ``least`` atoms are marked by their second feature, by 5 log-odds."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.conv, self.least = GraphConv(2, 1), least
        nn.init.zeros_(self.conv.lin_rel.weight)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        marked = global_add_pool(x[:, 1:] + 0 * self.conv(x, edge_index), batch)
        side = 5 * torch.sign(marked - self.least + 0.5) + 0.1 * marked  # [B, 1]
        return torch.cat([-side / 2, side / 2], dim=1)


def chain(marked: set[int], size: int = 7) -> Data:
    x = torch.tensor([[0.0, 1.0] if node in marked else [1.0, 0.0] for node in range(size)])
    ends = torch.arange(size - 1)
    return Data(x=x, edge_index=torch.stack([ends, ends + 1]))


def explained(least: float, *graphs: Data) -> Explanation:
    return NICE(Count(least).eval(), background=[PLAIN]).explain(list(graphs), target=1)


def places(out: Explanation) -> list[int]:
    assert out.atom_place is not None
    return out.atom_place.tolist()


@pytest.mark.parametrize(
    ("least", "marked", "wanted"),
    [
        (1, {1, 5}, [0, 1, 0, 0, 0, 2, 0]),  # either suffices
        (1, {0, 1, 5, 6}, [1, 1, 0, 0, 0, 2, 2]),  # what is joined is one place
        (2, {1, 5}, [0, -1, 0, 0, 0, -2, 0]),  # both are needed
        (1, {3}, [0] * 7),  # one place alone
        (1, {1, 3, 5}, [0] * 7),  # a third one suffices without both
        (3, {1, 3, 5}, [0] * 7),  # three are needed, none of them before another
        (3, {1, 5}, [0] * 7),  # another class is predicted
    ],
)
def test_what_two_places_do_together(least: float, marked: set[int], wanted: list[int]) -> None:
    assert places(explained(least, chain(marked))) == wanted


def test_places_do_not_depend_on_the_batch() -> None:
    graphs = [chain({1, 5}), chain({3}), chain({0, 6})]
    alone = [place for graph in graphs for place in places(explained(1, graph))]
    assert places(explained(1, *graphs)) == alone


def test_words_name_both_places() -> None:
    assert (
        "Either of two groups of atoms suffices: 1, or 5." in explained(1, chain({1, 5})).summary()
    )
    assert "Two groups of atoms are both needed: 1, and 5." in explained(2, chain({1, 5})).summary()


def test_values_and_classes_near_even_odds_have_none() -> None:
    class Value(Count):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return super().forward(x, edge_index, batch)[:, 1:]

    out = NICE(Value(1).eval(), background=[PLAIN], mode="regression").explain(chain({1, 5}))
    assert places(out) == [0] * 7

    class Unsure(Count):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return 0.1 * super().forward(x, edge_index, batch)

    out = NICE(Unsure(1).eval(), background=[PLAIN]).explain(chain({1, 5}), target=1)
    assert places(out) == [0] * 7
