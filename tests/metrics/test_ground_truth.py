"""Agreement with the truth, against scikit-learn and hand numbers."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from nicegnn.metrics import average_precision, ground_truth_scores, roc_auc


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


def test_average_precision_by_hand() -> None:
    score = torch.tensor([4.0, 3.0, 2.0, 1.0, 1.0, 1.0])
    truth = torch.tensor([True, False, True, False, True, False])
    batch = torch.tensor([0, 0, 0, 0, 1, 1])
    found = average_precision(score, truth, batch, 3)
    assert found[:2].tolist() == pytest.approx([(1 / 1 + 2 / 3) / 2, 1 / 2])
    assert math.isnan(found[2])


def test_order_of_graphs_and_items_is_of_no_account() -> None:
    score, truth, batch = random_case(3, ties=False)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    number = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    plain = ground_truth_scores(score, truth, batch, 12)
    moved = ground_truth_scores(score[order], truth[order], number[batch][order], 12)
    for name in ("roc_auc", "average_precision", "precision", "recall", "f1"):
        torch.testing.assert_close(
            getattr(moved, name)[number], getattr(plain, name), equal_nan=True
        )


@pytest.mark.parametrize("top", [0.1, 0.3, 0.5])
def test_selection_scores_equal_scikit_learn(top: float) -> None:
    score, truth, batch = random_case(7, ties=False)
    found = ground_truth_scores(score, truth, batch, 12, top=top)
    for g in range(12):
        here = batch == g
        number = max(1, round(top * int(here.sum())))
        chosen = torch.zeros(int(here.sum()), dtype=torch.bool)
        chosen[score[here].topk(number).indices] = True
        expected = {
            "precision": precision_score(truth[here], chosen, zero_division=0),
            "recall": recall_score(truth[here], chosen, zero_division=0),
            "f1": f1_score(truth[here], chosen, zero_division=0),
        }
        for name, value in expected.items():
            assert float(getattr(found, name)[g]) == pytest.approx(value), name


def test_hand_numbers_and_undefined_cases() -> None:
    score = torch.tensor([4.0, 3.0, 2.0, 1.0, 1.0, 2.0, 5.0])
    truth = torch.tensor([True, False, True, False, False, False, True])
    batch = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    found = ground_truth_scores(score, truth, batch, 4, top=0.5)
    assert found.roc_auc[0] == 0.75  # of four pairs one is the wrong way round
    assert found.precision[:3].tolist() == [0.5, 0.0, 1.0]
    assert found.recall[0] == 0.5
    assert found.f1[0] == 0.5
    assert torch.isnan(found.roc_auc[1:]).all()  # only false, only true, no items
    assert torch.isnan(found.recall[1])
    assert torch.isnan(found.f1[1])
    assert torch.isnan(found.precision[3])


def test_graphs_with_unknown_scores_have_no_value():
    score = torch.tensor([0.9, 0.1, torch.nan, 0.5])
    truth, batch = torch.tensor([True, False, True, False]), torch.tensor([0, 0, 1, 1])
    for metric in (roc_auc, average_precision):
        value = metric(score, truth, batch, 2)
        assert value[0] == 1
        assert value[1].isnan()
