"""The result object: selection, splitting and joining, against hand-made numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from nicegnn import Explanation, Flag, Status
from nicegnn.explain.explanation import concatenate
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import find_bonds


def make(scores: list[list[float]]) -> Explanation:
    """Paths with one score per bond; directed edges bond after bond."""
    graphs = []
    for row in scores:
        pairs = [p for k in range(len(row)) for p in ((k, k + 1), (k + 1, k))]
        edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t()
        graphs.append(Data(x=torch.zeros(len(row) + 1, 1), edge_index=edge_index))
    batch = to_batch(graphs)
    score = torch.tensor([s for row in scores for s in row])
    num = len(scores)
    return Explanation(
        edge_index=batch.edge_index,
        bonds=find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]]),
        ptr=batch.ptr,
        bond_score=score,
        bond_loss=score,
        bond_change=score,
        bond_stderr=score.abs() / 10,
        bond_gate=score.sigmoid(),
        bond_reached=torch.ones_like(score, dtype=torch.bool),
        target=torch.arange(num),
        prediction=torch.zeros(num, 2),
        completeness_gap=torch.arange(num) / 10,
        risk_corrupted=torch.ones(num),
        risk_boundary=torch.zeros(num),
        restored=torch.full((num,), 0.5),
        status=Status((Flag.OK,) * num),
    )


def test_top_takes_a_share_of_each_graph_or_a_number_of_bonds() -> None:
    out = make([[3.0, 1.0, 2.0, 0.0], [5.0], [], [-1.0, -3.0, -2.0]])
    assert out.top(0.5).tolist() == [True, False, True, False, True, True, False, True]
    assert out.top(1).tolist() == [True, False, False, False, True, True, False, False]
    assert out.top(0.01).sum() == 3  # at least one of each graph that has any
    assert out.top(1.0).all()
    assert out.top(3).sum() == 7
    for wrong in (0, -1, 1.5, 0.0):
        with pytest.raises(ValueError, match="share in"):
            out.top(wrong)


def test_edge_values_are_those_of_their_bond() -> None:
    out = make([[3.0, 1.0]])
    assert out.edge_score.tolist() == [1.5, 1.5, 0.5, 0.5]
    torch.testing.assert_close(out.bond_gate, torch.tensor([3.0, 1.0]).sigmoid())


def test_edges_rank_as_their_bonds_where_some_have_one_direction() -> None:
    out = make([[0.4, 0.8], [0.2, 0.6]])
    one_way = out.edge_index[:, 1:]  # the first bond loses a direction
    bonds = find_bonds(one_way, torch.tensor([0, 0, 0, 1, 1, 1, 1]))
    assert bonds.count.tolist() == [1, 2, 2, 2]
    mixed = replace(out, edge_index=one_way, bonds=bonds)
    expected = torch.tensor([0.2, 0.4, 0.4, 0.1, 0.1, 0.3, 0.3])
    torch.testing.assert_close(mixed.edge_score, expected)
    torch.testing.assert_close(mixed.split()[0].edge_score, expected[:3])


def test_split_and_concatenate_are_inverse() -> None:
    out = make([[3.0, 1.0, 2.0], [], [7.0], [0.5, 0.1]])
    parts = out.split()
    assert [part.bond_score.tolist() for part in parts] == [
        pytest.approx([3.0, 1.0, 2.0]),
        [],
        [7.0],
        pytest.approx([0.5, 0.1]),
    ]
    assert parts[3].bond_index.tolist() == [[0, 1], [1, 2]]
    assert parts[3].edge_index.max() == 2
    assert parts[2].target.tolist() == [2]
    joined = concatenate(parts)
    for name in ("edge_index", "bond_score", "ptr", "target", "completeness_gap", "edge_score"):
        assert torch.equal(getattr(joined, name), getattr(out, name)), name
    assert torch.equal(joined.bonds.edge_bond, out.bonds.edge_bond)
    assert joined.status.flags == out.status.flags


def test_notes_of_all_parts_are_joined_and_none_is_repeated() -> None:
    one, two = (make([[1.0]]) for _ in range(2))
    one = replace(one, status=replace(one.status, notes=("shared", "of the first")))
    two = replace(two, status=replace(two.status, notes=("shared", "of the second")))
    assert concatenate([one, two]).status.notes == ("shared", "of the first", "of the second")


def test_status_counts_flags_and_gives_advice() -> None:
    status = Status((Flag.OK, Flag.NO_EDGES, Flag.INSENSITIVE | Flag.NOT_RESTORED, Flag.NO_EDGES))
    text = str(status)
    assert "2 x NO_EDGES" in text
    assert "1 x INSENSITIVE" in text
    assert "Fit longer" in text
