"""References: random scores are uniform and independent, the truth is copied from the graphs."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from nicegnn.errors import GraphError
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.references import slot_numbers
from tests.conftest import random_graph
from tests.explain.score_properties import CHECKS, gin, some_graphs

KINDS = ["random", "ground-truth"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS)
def test_has_the_properties_of_every_rival(check, kind):
    check(kind)


def scores(graphs: list[Data], seed: int = 0) -> torch.Tensor:
    return get_explainer("random", gin()).explain(graphs, seed=seed).bond_score.double()


def test_scores_are_uniform():
    score = scores([random_graph(30, seed) for seed in range(60)])
    num = score.numel()
    steps = torch.arange(1, num + 1) / num
    assert float((score.sort().values - steps).abs().max()) < 1.95 / num**0.5  # Kolmogorov, 0.1 %
    assert score.unique().numel() == num


def test_scores_are_the_truth():
    graphs = some_graphs()
    found = get_explainer("ground-truth", gin()).explain(graphs)
    truth = torch.cat([graph.edge_truth[::2] for graph in graphs])  # edges stand bond after bond
    assert torch.equal(found.bond_score, truth.float())


def test_graphs_without_truth_are_refused():
    graphs = some_graphs()
    del graphs[1].edge_truth
    with pytest.raises(GraphError, match=r"`edge_truth`.*\(got none\).*Set it"):
        get_explainer("ground-truth", gin()).explain(graphs)
    graph = some_graphs()[0]
    graph.edge_truth = torch.tensor([True, False])
    expected = rf"{graph.num_edges} directed edges \(got shape \(2,\)\)"
    with pytest.raises(GraphError, match=expected):
        get_explainer("ground-truth", gin()).explain(graph)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_a_slot_has_its_number_in_every_company(kind: str) -> None:
    slots = torch.tensor([0, 5, 1023, 1024, 3000])
    together = slot_numbers(7, slots, kind=kind)
    alone = torch.cat([slot_numbers(7, slot.view(1), kind=kind) for slot in slots])
    assert torch.equal(together, alone)
    assert together.unique().numel() == 5
    assert not torch.equal(together, slot_numbers(8, slots, kind=kind))
    assert slot_numbers(7, slots[:0], kind=kind).tolist() == []
