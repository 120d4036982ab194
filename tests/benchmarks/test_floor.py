"""Counts of the floor, by hand."""

from __future__ import annotations

from floor import layers_of, reached_nodes
from torch_geometric.data import Data

from nicegnn.target.zoo import GIN


def test_damage_spreads_by_one_neighbour_per_layer(path: Data) -> None:
    """On 0-1-2-3 the bonds reach 2, 2, 2, then 3, 4, 3, then 4, 4, 4 nodes."""
    nodes, received = reached_nodes(path, 3)
    assert nodes == [6, 10, 12]
    assert received == [3 + 4 + 3, 5 + 6 + 5, 18]


def test_gin_layers_have_two_linear_maps() -> None:
    first, second = layers_of(GIN(14, 2, hidden_size=32, num_layers=2))
    assert first.node_madds == 14 * 32 + 32 * 32
    assert second.node_numbers == 32 + 64 + 64
