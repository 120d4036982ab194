"""Graphs with planted motifs: the truth is a house or a cycle, and the seed alone decides."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn_lab.datasets.motifs import ba_2motifs, ba_shapes, preferential_graph


def bonds_of(edge_index: Tensor) -> set[tuple[int, int]]:
    """Returns the bonds of a graph and checks that both directions are there, each once."""
    directed = [(int(u), int(v)) for u, v in edge_index.t()]
    assert len(set(directed)) == len(directed)
    assert {(v, u) for u, v in directed} == set(directed)
    assert all(u != v for u, v in directed)
    return {(u, v) for u, v in directed if u < v}


def degrees(bonds: set[tuple[int, int]]) -> dict[int, int]:
    ends = [end for bond in bonds for end in bond]
    return {node: ends.count(node) for node in set(ends)}


def num_triangles(bonds: set[tuple[int, int]]) -> int:
    nodes = sorted(degrees(bonds))
    return sum(
        {(a, b), (a, c), (b, c)} <= bonds for a in nodes for b in nodes for c in nodes if a < b < c
    )


def is_house(bonds: set[tuple[int, int]]) -> bool:
    """Whether bonds are a square with a triangle on one side."""
    return sorted(degrees(bonds).values()) == [2, 2, 2, 3, 3] and num_triangles(bonds) == 1


def is_connected(bonds: set[tuple[int, int]], num_nodes: int) -> bool:
    seen, new = {0}, {0}
    while new:
        new = {b for u, v in bonds for a, b in ((u, v), (v, u)) if a in new} - seen
        seen |= new
    return len(seen) == num_nodes


def test_truth_of_a_graph_is_its_house_or_cycle() -> None:
    graphs = ba_2motifs(20, seed=3)
    assert [int(graph.y) for graph in graphs] == [0, 1] * 10
    for graph in graphs:
        everything = bonds_of(graph.edge_index)
        true = bonds_of(graph.edge_index[:, graph.edge_truth])
        label = int(graph.y)
        if label == 1:
            assert is_house(true)
        else:
            assert sorted(degrees(true).values()) == [2] * 5
            assert num_triangles(true) == 0
        assert len(everything) == 19 + 1 + len(true)  # a tree and one bond to the motif
        assert is_connected(everything, 25)
        assert graph.x.shape == (25, 10)
        assert bool((graph.x == 1).all())


def test_truth_of_a_node_is_its_own_house() -> None:
    made = ba_shapes(seed=1)
    graph = made.graph
    everything = bonds_of(graph.edge_index)
    assert graph.num_nodes == 700
    assert torch.bincount(graph.y).tolist() == [300, 160, 160, 80]
    assert len(everything) == 5 * 295 + 80 * (6 + 1) + 70
    for node in (300, 417, 699):
        true = bonds_of(graph.edge_index[:, made.truth_of(node)])
        assert is_house(true)
        assert node in degrees(true)
        roles = [int(graph.y[other]) for other in sorted(degrees(true))]
        assert roles == [1, 1, 2, 2, 3]
        top = next(other for other in degrees(true) if int(graph.y[other]) == 3)
        near = {end for bond in true if top in bond for end in bond} - {top}
        assert {int(graph.y[other]) for other in near} == {1}
    assert not made.truth_of(7).any()
    assert int(graph.edge_truth.sum()) == 80 * 12


def test_chance_of_an_earlier_node_is_in_proportion_to_its_degree() -> None:
    generator = torch.Generator().manual_seed(0)
    hits = sum(
        int(0 in preferential_graph(4, 1, generator)[:, 2]) for _ in range(3000)
    )  # bonds 1-0, 2-?, 3-?
    # node 2 joins 0 with chance 2/3 (it stands in the list twice); then node 3 finds node 0 with
    # chance 3/5, else 2/5 (the list has five entries)
    assert abs(hits / 3000 - (2 / 3 * 3 / 5 + 1 / 3 * 2 / 5)) < 0.03


def same(first: Sequence[Data], second: Sequence[Data]) -> bool:
    return all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, second, strict=True))


def test_seed_alone_decides_and_global_randomness_is_untouched() -> None:
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    graphs, shapes = ba_2motifs(6, seed=5), ba_shapes(5)
    after = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    assert before[2] == after[2]
    torch.manual_seed(1)
    assert same(graphs, ba_2motifs(6, seed=5))
    assert not same(graphs, ba_2motifs(6, seed=6))
    assert torch.equal(shapes.graph.edge_index, ba_shapes(5).graph.edge_index)
    assert not torch.equal(shapes.graph.edge_index, ba_shapes(6).graph.edge_index)
