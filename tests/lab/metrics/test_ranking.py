"""Ranks, selections and their metrics: hand numbers, scikit-learn, no influence of the batch."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import (
    average_precision_score,
    roc_auc_score,
)
from torch_geometric.data import Batch

from nicegnn.errors import MetricError
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn_lab.metrics.ranking import (
    average_precision,
    below_and_equal,
    check_scores,
    is_selected,
    mean_ranks,
    random_rank,
    random_ties,
    roc_auc,
    spearman,
)


def test_counts_below_and_equal_by_hand() -> None:
    score = torch.tensor([2.0, 1.0, 2.0, 3.0, 5.0, 5.0])
    batch = torch.tensor([0, 0, 0, 0, 2, 2])
    below, equal = below_and_equal(score, batch, 3)
    assert below.tolist() == [1, 0, 1, 3, 0, 0]
    assert equal.tolist() == [2, 1, 2, 1, 2, 2]
    assert mean_ranks(score, batch, 3).tolist() == [2.5, 1.0, 2.5, 4.0, 1.5, 1.5]


@pytest.mark.parametrize("top", [0.0, -0.1, 1.1])
def test_a_share_outside_its_range_is_an_error(top: float) -> None:
    with pytest.raises(MetricError, match="top"):
        is_selected(torch.arange(5), torch.zeros(5, dtype=torch.long), 1, top)


def test_equal_scores_are_selected_at_random_not_in_order() -> None:
    """Of 400 chains of ten bonds; each has its own order, as its atoms have other numbers."""
    batch = torch.arange(400).repeat_interleave(10)
    start = torch.arange(4000)
    index = torch.stack([start, start + 1 + batch])  # ends apart from each other
    edge_bond, two = start.repeat_interleave(2), torch.full((4000,), 2)
    bonds = Bonds(index=index, batch=batch, edge_bond=edge_bond, count=two)
    rank = random_rank(torch.zeros(4000), batch, 400, random_ties(bonds, batch, 400, 0))
    chosen = is_selected(rank, batch, 400, 0.3).view(400, 10)
    assert chosen.sum(1).tolist() == [3] * 400
    share = chosen.double().mean(0)  # of graphs that select each position
    assert ((share - 0.3).abs() < 4 * (0.3 * 0.7 / 400) ** 0.5).all()


def test_scores_are_checked() -> None:
    with pytest.raises(MetricError, match=r"shape \[3\] or \[6\] \(got \(4,\)\)"):
        check_scores(torch.zeros(4), "score", 3, 6)
    with pytest.raises(MetricError, match="must not hold nan"):
        check_scores(torch.tensor([0.0, torch.nan]), "score", 2)


def test_spearman_equals_scipy_also_with_ties(batch: Batch) -> None:
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, bonds.batch.numel(), generator=generator).mul(2).round()
    found = spearman(first, second, bonds.batch, 5)
    for g in range(5):
        here = bonds.batch == g
        if first[here].unique().numel() > 1 and second[here].unique().numel() > 1:
            expected = spearmanr(first[here].numpy(), second[here].numpy()).statistic
            assert float(found[g]) == pytest.approx(expected)
        else:
            assert math.isnan(found[g])


def random_case(seed: int, ties: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    batch = torch.randint(12, (300,), generator=generator)
    score = torch.randn(300, generator=generator)
    if ties:
        score = score.round()
    return score, torch.rand(300, generator=generator) < 0.3, batch


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_auc_equals_scikit_learn(seed: int, ties: bool) -> None:
    score, truth, batch = random_case(seed, ties)
    found = roc_auc(score, truth, batch, 12)
    for g in range(12):
        here = batch == g
        if 0 < int(truth[here].sum()) < int(here.sum()):
            assert float(found[g]) == pytest.approx(roc_auc_score(truth[here], score[here]))
        else:
            assert math.isnan(found[g])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_average_precision_equals_scikit_learn(seed: int, ties: bool) -> None:
    score, truth, batch = random_case(seed, ties)
    found = average_precision(score, truth, batch, 12)
    for g in range(12):
        here = batch == g
        if truth[here].any():
            expected = average_precision_score(truth[here], score[here])
            assert float(found[g]) == pytest.approx(expected)
        else:
            assert math.isnan(found[g])
