"""Graphs as matrices, and the target's answers on weighted node pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Batch

from nicegnn.target.frozen_model import Target
from nicegnn_lab.rivals.dense import (
    join_all_pairs,
    pair_answers,
    to_dense,
)
from tests.conftest import make_graph, random_graph
from tests.explain.score_properties import gin


def some_batch() -> Batch:
    return Batch.from_data_list([random_graph(size, seed) for seed, size in enumerate((4, 7, 3))])


def settled(model: torch.nn.Module, **settings: Any) -> Target:
    target = Target(model.eval(), **settings)
    target.mode, target.return_type = "multiclass", "raw"
    return target


def test_matrices_of_a_path_by_hand():
    path, pair = make_graph([(0, 1), (1, 2)], 3, seed=1), make_graph([(0, 1)], 2, seed=2)
    dense = to_dense(Batch.from_data_list([path, pair]))
    first = torch.tensor([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    second = torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert torch.equal(dense.adjacency, torch.stack([first, second]))
    assert dense.present.tolist() == [[True, True, True], [True, True, False]]
    assert dense.pair.sum((1, 2)).tolist() == [6, 2]
    assert torch.equal(dense.x[1, :2], pair.x)
    assert float(dense.x[1, 2].abs().sum()) == 0


def test_all_pairs_are_joined_once_without_bond_features():
    batch = some_batch()
    batch.edge_weight = torch.rand(batch.num_edges)
    joined = join_all_pairs(batch)
    assert joined.num_edges == 4 * 3 + 7 * 6 + 3 * 2
    assert torch.unique(joined.edge_index, dim=1).size(1) == joined.num_edges
    assert torch.equal(joined.edge_index[:, : batch.num_edges], batch.edge_index)
    assert torch.equal(joined.edge_attr[: batch.num_edges], batch.edge_attr)
    assert float(joined.edge_attr[batch.num_edges :].abs().sum()) == 0
    assert bool((joined.edge_weight[batch.num_edges :] == 1).all())
    assert torch.equal(joined.x, batch.x)


@pytest.mark.parametrize("pairs", ["all", "bonds"])
@pytest.mark.parametrize("name", ["gin", "gine"])
def test_weights_of_the_graph_itself_give_its_answer(name, pairs):
    batch, model = some_batch(), gin(name=name)
    target = settled(model)
    expected = model(batch.x, batch.edge_index, batch.batch, batch.edge_attr).log_softmax(1)
    found = pair_answers(target, batch, to_dense(batch).adjacency, pairs)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
