"""Stability: scipy's rank correlation, overlaps by hand, and copies in other orders."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.metrics import MetricError, agreement, permutation_agreement, permute_batch, spearman
from nicegnn.target.zoo import make_model


def bonds_of(batch: Batch) -> Bonds:
    return find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])


def scores_for(num_rows: int, num: int, seed: int = 0) -> Tensor:
    return torch.randn(num_rows, num, generator=torch.Generator().manual_seed(seed))


def test_spearman_equals_scipy_also_with_ties(batch: Batch) -> None:
    bonds = bonds_of(batch)
    first, second = scores_for(2, bonds.batch.numel()).mul(2).round()
    found = spearman(first, second, bonds.batch, 5)
    for g in range(5):
        here = bonds.batch == g
        if first[here].unique().numel() > 1 and second[here].unique().numel() > 1:
            expected = spearmanr(first[here].numpy(), second[here].numpy()).statistic
            assert float(found[g]) == pytest.approx(expected)
        else:
            assert math.isnan(found[g])


def test_agreement_is_the_mean_over_pairs(batch: Batch) -> None:
    bonds = bonds_of(batch)
    scores = scores_for(4, bonds.batch.numel())
    found = agreement(scores, bonds, 5)
    for g in range(5):
        here = scores[:, bonds.batch == g]
        number = max(1, round(0.3 * here.size(1)))
        tops = [set(row.topk(number).indices.tolist()) for row in here]
        pairs = list(combinations(range(4), 2))
        rank = [spearmanr(here[i].numpy(), here[j].numpy()).statistic for i, j in pairs]
        overlap = [len(tops[i] & tops[j]) / len(tops[i] | tops[j]) for i, j in pairs]
        assert float(found.spearman[g]) == pytest.approx(sum(rank) / 6)
        assert float(found.jaccard[g]) == pytest.approx(sum(overlap) / 6)


def test_equal_scorings_agree_fully_and_opposite_ones_not_at_all(batch: Batch) -> None:
    bonds = bonds_of(batch)
    score = torch.arange(bonds.batch.numel()).float()
    same = agreement(torch.stack([score, 2 * score + 1]), bonds, 5)
    assert same.spearman.tolist() == pytest.approx([1.0] * 5)
    assert same.jaccard.tolist() == [1.0] * 5
    opposite = agreement(torch.stack([score, -score]), bonds, 5)
    assert opposite.spearman.tolist() == pytest.approx([-1.0] * 5)
    assert opposite.jaccard.tolist() == [0.0] * 5


def test_undefined_agreement_is_nan() -> None:
    graphs = [Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))]
    graphs.append(Data(x=torch.ones(1, 1), edge_index=torch.zeros(2, 0, dtype=torch.long)))
    batch = Batch.from_data_list(graphs)
    found = agreement(torch.ones(2, 1), bonds_of(batch), 2)
    assert torch.isnan(found.spearman).all()  # one bond has no ranking
    assert found.jaccard[0] == 1
    assert math.isnan(found.jaccard[1])
    with pytest.raises(MetricError, match="at least two"):
        agreement(torch.ones(1, 1), bonds_of(batch), 2)


def test_a_permuted_batch_holds_the_same_graphs(graphs: list[Data]) -> None:
    for number, graph in enumerate(graphs):
        graph.root_index = torch.tensor([number % 3])  # PyG renumbers what ends in index
        graph.edge_alternatives = [[0, 1]]
    batch = Batch.from_data_list(graphs)
    permuted = permute_batch(batch, seed=4)
    new = permuted.batch
    assert "edge_alternatives" not in new
    assert torch.equal(new.x[permuted.node], batch.x)
    assert torch.equal(new.edge_index[:, permuted.edge], permuted.node[batch.edge_index])
    assert torch.equal(new.edge_attr[permuted.edge], batch.edge_attr)
    assert torch.equal(new.x[new.root_index], batch.x[batch.root_index])
    assert torch.equal(new.batch[permuted.node], batch.batch)
    assert torch.equal(new.y, batch.y)
    assert not torch.equal(new.x, batch.x)
    assert not torch.equal(new.edge_attr, batch.edge_attr)
    model = make_model("gine", 5, 2, edge_size=3).eval()
    with torch.no_grad():
        before = model(batch.x, batch.edge_index, batch.batch, batch.edge_attr)
        after = model(new.x, new.edge_index, new.batch, new.edge_attr)
    torch.testing.assert_close(after, before)


def test_the_permutation_does_not_hang_on_the_batch(graphs: list[Data]) -> None:
    together = permute_batch(Batch.from_data_list(graphs)).batch.to_data_list()
    for graph, copy in zip(graphs, together, strict=True):
        alone = permute_batch(Batch.from_data_list([graph])).batch
        assert torch.equal(alone.x, copy.x)
        assert torch.equal(alone.edge_index, copy.edge_index)


def test_scores_come_back_to_their_edges_and_bonds(batch: Batch) -> None:
    permuted = permute_batch(batch)
    old, new = bonds_of(batch), bonds_of(permuted.batch)
    first = permuted.batch.edge_attr[:, 0]
    assert torch.equal(permuted.edge_back(first), batch.edge_attr[:, 0])
    back = permuted.bond_back(new.mean(first), new, old)
    torch.testing.assert_close(back, old.mean(batch.edge_attr[:, 0]))


def test_an_explainer_that_sees_order_is_found_out(batch: Batch) -> None:
    def equivariant(graphs: Batch) -> Tensor:
        return graphs.edge_attr[:, 0]

    def by_position(graphs: Batch) -> Tensor:
        return torch.arange(graphs.num_edges).float()

    steady = permutation_agreement(equivariant, batch)
    torch.testing.assert_close(steady.spearman, torch.ones(5, dtype=torch.double))
    assert steady.jaccard.tolist() == [1.0] * 5
    assert float(permutation_agreement(by_position, batch).spearman.mean()) < 0.6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_permutation_and_agreement_are_the_same_on_a_gpu(graphs: list[Data]) -> None:
    batch = Batch.from_data_list(graphs)
    moved = Batch.from_data_list([graph.clone().cuda() for graph in graphs])
    assert torch.equal(permute_batch(moved).batch.x.cpu(), permute_batch(batch).batch.x)
    scores = scores_for(3, bonds_of(batch).batch.numel()).round()
    found, other = (
        agreement(scores, bonds_of(batch), 5),
        agreement(scores.cuda(), bonds_of(moved), 5),
    )
    torch.testing.assert_close(other.spearman.cpu(), found.spearman, equal_nan=True)
    torch.testing.assert_close(other.jaccard.cpu(), found.jaccard)
