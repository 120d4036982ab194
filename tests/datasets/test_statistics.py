"""Figures of small sets by hand."""

import math

import pytest

from nicegnn.datasets import dataset_statistics
from tests.datasets.small_files import load, tidy_benzene, tidy_bxaic


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


def test_figures_of_a_part_count_only_that_part(tmp_path):
    tidy_benzene(tmp_path)
    dataset = load("benzene", tmp_path)
    assert dataset_statistics(dataset[:1]).union.mean == pytest.approx(100 * 6 / 7)
    empty = dataset_statistics(dataset[:0])
    assert empty.num_graphs == 0
    assert math.isnan(empty.union.mean)
    assert math.isnan(empty.positive_ratio)


def test_marks_of_ring_tasks_count_for_both_labels(tmp_path):
    tidy_bxaic(tmp_path)
    figures = dataset_statistics(load("rings-max", tmp_path))
    assert figures.annotation.mean == pytest.approx(100 * (6 / 10 + 1 + 0) / 3)
    assert figures.union.mean == pytest.approx(100 / 3)
