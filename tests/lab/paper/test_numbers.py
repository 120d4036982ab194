"""The paper's tables give the numbers that its text sums up; its dataset figures beside ours."""

from __future__ import annotations

from statistics import fmean

import pytest

from nicegnn_lab.datasets.dataset import dataset_statistics
from nicegnn_lab.paper.numbers import (
    PAPER_ACCURACY,
    PAPER_DATASETS,
    PAPER_DISTANCES,
    PAPER_MARGIN,
    PAPER_REDUCTION,
    PAPER_RESULTS,
    PAPER_SRB,
    PAPER_STATISTICS,
    paper_value,
    papers_reading,
    statistics_markdown,
)
from tests.lab.datasets.small_files import load, tidy_benzene, tidy_bxaic, tidy_mutagenicity


@pytest.mark.parametrize("metric", PAPER_MARGIN)
def test_margin_is_that_of_the_table(metric: str) -> None:
    table = PAPER_RESULTS[metric]
    average = {name: fmean(mean for mean, _ in row) for name, row in table.items()}
    nice = average.pop("nice")
    assert nice - max(average.values()) == pytest.approx(PAPER_MARGIN[metric], abs=0.005)


def test_nice_is_among_the_best_two_in_precision_as_often_as_said() -> None:
    table = PAPER_RESULTS["precision"]
    better = [
        sum(row[place] > table["nice"][place] for row in table.values())
        for place in range(len(PAPER_DATASETS))
    ]
    assert sum(number < 2 for number in better) == 7  # of eight, as the claim says


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
    assert list(PAPER_ACCURACY) == list(PAPER_STATISTICS) == list(PAPER_DATASETS)
    assert set(PAPER_DISTANCES) < set(PAPER_DATASETS)
    for table in PAPER_RESULTS.values():
        assert len(table) == 10
        assert {len(row) for row in table.values()} == {8}


def test_value_of_a_cell_and_of_none() -> None:
    assert paper_value("f1", "saliency", "rings-max") == (46.97, 0.00)
    assert paper_value("recall", "d4explainer", "benzene") == (96.83, 0.08)
    assert paper_value("f1", "nobody", "benzene") is None
    assert paper_value("f1", "nice", "my-own") is None
    assert paper_value("kept", "nice", "benzene") is None


def test_shares_are_read_as_the_paper_does(tmp_path):
    tidy_benzene(tmp_path)
    tidy_bxaic(tmp_path)
    benzene, rings = (dataset_statistics(load(name, tmp_path)) for name in ("benzene", "rings-max"))
    assert papers_reading(benzene) == benzene.first
    assert papers_reading(rings) == rings.annotation


def test_table_has_every_dataset_and_says_stand_in(tmp_path):
    tidy_benzene(tmp_path)
    tidy_mutagenicity(tmp_path)
    tidy_bxaic(tmp_path)
    names = ("mutagenicity", "benzene", "indole")
    text = statistics_markdown([load(name, tmp_path) for name in names])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        "mutagenicity",
        "benzene",
        "indole (stand-in for B-XAIC)",
    ]
    assert f"{PAPER_STATISTICS['benzene'].true_edges}" in rows[3]
    assert "left out: 1" in text
