"""The paper's tables give the numbers that its text sums up."""

from __future__ import annotations

from statistics import fmean

import pytest

from nicegnn_lab.paper.numbers import (
    PAPER_ACCURACY,
    PAPER_DATASETS,
    PAPER_DISTANCES,
    PAPER_MARGIN,
    PAPER_REDUCTION,
    PAPER_RESULTS,
    PAPER_SRB,
)


@pytest.mark.parametrize("metric", PAPER_MARGIN)
def test_margin_is_that_of_the_table(metric: str) -> None:
    table = PAPER_RESULTS[metric]
    average = {name: fmean(mean for mean, _ in row) for name, row in table.items()}
    nice = average.pop("nice")
    assert nice - max(average.values()) == pytest.approx(PAPER_MARGIN[metric], abs=0.005)


@pytest.mark.parametrize(("metric", "place"), [("D_repr", 0), ("D_pred", 2)])
def test_reduction_is_that_of_both_rings_with_true_gates(metric: str, place: int) -> None:
    cuts = []
    for dataset in ("rings-count", "rings-max"):
        em, nc = (PAPER_DISTANCES[dataset][way][place][0] for way in ("em", "nc"))
        cuts.append(100 * (em - nc) / em)
    assert fmean(cuts) == pytest.approx(PAPER_REDUCTION[metric], abs=0.05)


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
