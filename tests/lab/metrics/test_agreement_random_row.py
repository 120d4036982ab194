"""The protocol ``paper`` against the paper's row of random scores, on the real molecules."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from nicegnn.graph.case import find_bonds
from nicegnn.seeding import mix
from nicegnn_lab.datasets.data_files import MissingDataError
from nicegnn_lab.datasets.dataset import MoleculeDataset, load_dataset
from nicegnn_lab.metrics.agreement import Truth, selected_graphs, truth_metrics
from nicegnn_lab.paper.numbers import paper_value

pytestmark = [
    pytest.mark.skipif(
        "NICEGNN_DATA" not in os.environ,
        reason="set NICEGNN_DATA to a folder with the published data files",
    ),
    pytest.mark.timeout(600),
]

PAPERS_MOLECULES = ["mutagenicity", "benzene", "alkane-carbonyl", "fluoride-carbonyl"]
STAND_INS = ["indole", "pains", "rings-count"]


def load(name: str) -> MoleculeDataset:
    try:
        return load_dataset(name)
    except MissingDataError as error:
        pytest.skip(f"the files of {name} are not there: {error}")


METRICS = ("f1", "recall", "precision", "roc_auc")


def random_row(
    dataset: MoleculeDataset, num_seeds: int, protocol: str = "paper", **settings: Any
) -> dict[str, Tensor]:
    """Returns what uniform scores of directed edges reach, ``[S, B]`` for each metric."""
    truth = Truth.from_graphs(dataset.batch())
    chosen = selected_graphs(dataset.y, dataset.y, truth, protocol).nonzero().view(-1)
    batch = dataset.batch(chosen)
    truth = Truth.from_graphs(batch)
    bonds = find_bonds(batch.edge_index, truth.edge_batch)
    rows = []
    for seed in range(num_seeds):
        generator = torch.Generator().manual_seed(mix(seed, "random row"))
        score = torch.rand(truth.edge_batch.numel(), generator=generator, dtype=torch.double)
        rows.append(truth_metrics(score, bonds, truth, protocol=protocol, seed=seed, **settings))
    return {name: torch.stack([row[name] for row in rows]) for name in METRICS}


def mean(value: Tensor) -> float:
    return 100 * float(value.nanmean())


def paper(metric: str, dataset: str) -> float:
    found = paper_value(metric, "random", dataset)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("name", PAPERS_MOLECULES)
def test_random_scores_give_the_papers_random_row(name: str) -> None:
    row = random_row(load(name).test, 20)
    for metric in METRICS:
        assert mean(row[metric]) == pytest.approx(paper(metric, name), abs=1.5), metric


@pytest.mark.parametrize("name", STAND_INS)
def test_recall_and_auc_are_the_papers_also_on_other_molecules(name: str) -> None:
    """Precision of random scores is the share of true edges, which is not the paper's here."""
    row = random_row(load(name).test, 3)
    for metric in ("recall", "roc_auc"):
        assert mean(row[metric]) == pytest.approx(paper(metric, name), abs=0.5)
