"""The paper's tables give the numbers that its text sums up."""

from __future__ import annotations

from statistics import fmean

import pytest

from nicegnn_lab.paper.numbers import (
    PAPER_ACCURACY,
    PAPER_DATASETS,
    PAPER_DISTANCES,
    PAPER_RESULTS,
    PAPER_SRB,
)


@pytest.mark.parametrize(("metric", "margin"), [("f1", 6.42), ("recall", 8.67), ("roc_auc", 7.57)])
def test_margin_is_that_of_the_table(metric: str, margin: float) -> None:
    """Of Section 5.2: points by which NICE is ahead of the strongest baseline on average."""
    table = PAPER_RESULTS[metric]
    average = {name: fmean(mean for mean, _ in row.values()) for name, row in table.items()}
    nice = average.pop("nice")
    assert nice - max(average.values()) == pytest.approx(margin, abs=0.005)


@pytest.mark.parametrize(("place", "percent"), [(0, 70.9), (2, 78.8)])  # D_repr, D_pred
def test_reduction_is_that_of_both_rings_with_true_gates(place: int, percent: float) -> None:
    cuts = []
    for dataset in ("rings-count", "rings-max"):
        em, nc = (PAPER_DISTANCES[dataset][way][place][0] for way in ("em", "nc"))
        cuts.append(100 * (em - nc) / em)
    assert fmean(cuts) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(
    ("variant", "place", "percent"),
    [
        ("paper/no-variation", 0, 61),
        ("paper/no-variation", 1, 217),
        ("paper/no-compactness", 2, 211),
        ("paper/no-compactness", 3, -6.9),
    ],
)
def test_ablation_changes_as_the_text_says(variant: str, place: int, percent: float) -> None:
    full, left = PAPER_SRB["paper"][place][0], PAPER_SRB[variant][place][0]
    assert 100 * (left - full) / full == pytest.approx(percent, abs=0.5)


def test_every_table_has_all_eight_datasets() -> None:
    assert list(PAPER_ACCURACY) == list(PAPER_DATASETS)
    assert set(PAPER_DISTANCES) < set(PAPER_DATASETS)
    for table in PAPER_RESULTS.values():
        assert len(table) == 10
        assert {len(row) for row in table.values()} == {8}
