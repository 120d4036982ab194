"""Metrics of atom scores against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import kendalltau

from nicegnn_lab.metrics import atoms

ONE = torch.zeros(4, dtype=torch.long)
SCORE = torch.tensor([2.0, 1.0, 0.0, -1.0])


def test_areas_of_both_signs() -> None:
    truth = torch.tensor([0.0, 1.0, -1.0, 0.0])
    # the positive atom is above two of the three others, the negative one below two of three
    assert float(atoms.positive_auc(SCORE, truth, ONE, 1)) == pytest.approx(2 / 3)
    assert float(atoms.negative_auc(SCORE, truth, ONE, 1)) == pytest.approx(2 / 3)
    none = torch.zeros(4)
    assert math.isnan(float(atoms.negative_auc(SCORE, none, ONE, 1)))


def test_top_n_counts_over_molecules_and_shares_ties() -> None:
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    score = torch.tensor([3.0, 2.0, 1.0, 5.0, 5.0, 5.0])
    true = torch.tensor([True, False, True, True, False, False])
    hits, number = atoms.top_n(score, true, batch, 2)
    assert number.tolist() == [2.0, 1.0]
    # the best two of the first molecule hold one true atom; of three equal atoms one is drawn
    assert hits.tolist() == pytest.approx([1.0, 1 / 3])


def test_error_after_the_best_scaling() -> None:
    # a = (2 + 1) / (4 + 1) = 0.6: errors 0.2, 0.4, 1
    score, truth = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0])
    error, factor = atoms.scaled_rmse(score, truth)
    assert factor == pytest.approx(0.6)
    assert error == pytest.approx(math.sqrt((0.04 + 0.16 + 1) / 3))
    assert atoms.scaled_rmse(torch.zeros(2), torch.ones(2)) == (1.0, 0.0)


def test_kendall_tau_by_hand_and_by_scipy() -> None:
    truth = torch.tensor([4.0, 4.0, 2.0, 3.0])
    # six pairs, one of them tied in the truth: four in order, one not; 3 / sqrt(6 * 5)
    tau = float(atoms.kendall_tau(SCORE, truth, ONE, 1))
    assert tau == pytest.approx(3 / math.sqrt(30))
    assert tau == pytest.approx(kendalltau(SCORE, truth).statistic)
    assert math.isnan(float(atoms.kendall_tau(SCORE, torch.ones(4), ONE, 1)))


def test_overlap_of_signs_leaves_out_atoms_without_contribution() -> None:
    truth = torch.tensor([1.0, -1.0, 1.0, 0.0])
    # right, wrong, and a score of 0, which has no sign
    assert float(atoms.sign_overlap(SCORE, truth, ONE, 1)) == pytest.approx(1 / 3)


def test_sums_that_are_half_the_rise() -> None:
    batch, rise = torch.tensor([0, 0, 1]), torch.tensor([2.0, 4.0])
    share, correlation = atoms.adds_up(torch.tensor([0.5, 0.5, 2.0]), rise, batch)
    assert share == pytest.approx(1 - (1 + 4) / (4 + 16))
    assert correlation == pytest.approx(1.0)


def test_evidence_has_the_sign_of_the_rise() -> None:
    batch, rise = torch.tensor([0, 0, 1]), torch.tensor([0.5, -2.0])
    assert atoms.evidence(torch.tensor([3.0, -1.0, 4.0]), rise, batch).tolist() == [3.0, -1.0, -4.0]


def test_distance_from_the_mean_that_is_left() -> None:
    # 4 above the mean of 1, and 2 below it
    clean = torch.tensor([5.0, -1.0])
    answers = torch.tensor(
        [
            [5.0, -1.0],  # nothing has changed
            [2.0, 0.5],  # 1 of 4 and 0.5 of 2 are left
            [0.0, 9.0],  # both passed the mean: nothing is left, not less
            [8.0, 1.0],  # the first went farther, which counts as all of it; the second came back
        ]
    )
    left = atoms.distance_left(answers, clean, 1.0)
    assert left.tolist() == pytest.approx([1.0, 1.5 / 6, 0.0, 4 / 6])


def test_direction_and_masks_of_a_pair() -> None:
    ptr = torch.tensor([0, 3, 5])
    score = torch.tensor([0.5, -2.0, 0.1, 1.0, 0.2])
    place, differs = [(0, 1)], [(torch.tensor([0, 1]), torch.tensor([0]))]
    given = (score, ptr, place, differs)
    # -1.5 in the first molecule, 1 in the second: the first should be weaker
    assert atoms.global_direction(*given, torch.tensor([-1.2])).tolist() == [1.0]
    assert atoms.global_direction(*given, torch.tensor([1.2])).tolist() == [0.0]
    signs, areas = atoms.mask_agreement(*given, torch.tensor([-1.2]))
    assert signs.tolist() == pytest.approx([2 / 3])  # 0.5 has the wrong sign, -2 and 1 are right
    assert areas.tolist() == [1.0]  # the others have the smallest sizes
