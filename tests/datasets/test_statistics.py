"""Figures of small sets by hand, and the table beside the paper's."""

import math

import pytest

from nicegnn.datasets import PAPER, dataset_statistics, load_dataset, statistics_markdown
from nicegnn.paper.dataset_statistics import papers_reading
from tests.datasets.small_files import tidy_benzene, tidy_bxaic, tidy_mutagenicity


def load(name, folder):
    return load_dataset(name, root=folder, cache=folder / "cache")


def test_benzene_by_hand(tmp_path):
    tidy_benzene(tmp_path)  # 7, 6, 14 and 2 bonds
    figures = dataset_statistics(load("benzene", tmp_path))
    assert (figures.num_graphs, figures.num_positives, figures.positive_ratio) == (4, 2, 50)
    assert figures.mean_nodes == (7 + 6 + 13 + 3) / 4
    assert figures.mean_edges == 2 * (7 + 6 + 14 + 2) / 4
    union, first = (6 / 7, 12 / 14), (6 / 7, 6 / 14)
    assert figures.union.mean == pytest.approx(100 * sum(union) / 4)
    assert figures.union.std == pytest.approx(100 * 6 / 14)  # 6/7, 0, 6/7, 0
    assert figures.union_positives.mean == pytest.approx(100 * 6 / 7)
    assert figures.union_positives.std == pytest.approx(0)
    assert figures.first.mean == pytest.approx(100 * sum(first) / 4)
    assert figures.annotation is None
    assert papers_reading(figures) == figures.first


def test_figures_of_a_part_count_only_that_part(tmp_path):
    tidy_benzene(tmp_path)
    dataset = load("benzene", tmp_path)
    assert dataset_statistics(dataset[:1]).union.mean == pytest.approx(100 * 6 / 7)
    empty = dataset_statistics(dataset[:0])
    assert empty.num_graphs == 0
    assert math.isnan(empty.union.mean)
    assert math.isnan(empty.positive_ratio)


def test_ring_tasks_are_read_as_the_paper_does(tmp_path):
    tidy_bxaic(tmp_path)
    figures = dataset_statistics(load("rings-max", tmp_path))
    assert papers_reading(figures).mean == pytest.approx(100 * (6 / 10 + 1 + 0) / 3)
    assert figures.union.mean == pytest.approx(100 / 3)


def test_table_has_every_dataset_and_says_stand_in(tmp_path):
    tidy_benzene(tmp_path)
    tidy_mutagenicity(tmp_path)
    tidy_bxaic(tmp_path)
    names = ("mutagenicity", "benzene", "indole", "X")
    text = statistics_markdown([load(name, tmp_path) for name in names])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        "mutagenicity",
        "benzene",
        "indole (stand-in for B-XAIC)",
    ]
    assert f"{PAPER['benzene'].true_edges}" in rows[3]
    assert "left out: 1" in text
