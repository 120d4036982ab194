"""Truth as flat tensors, and agreement with it: hand numbers, scikit-learn, any batch."""

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
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import ConfigError, MetricError
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn_lab.metrics.agreement import (
    TRUTH_METRICS,
    Truth,
    selected_graphs,
    truth_metrics,
)


def random_graph(seed: int) -> Data:
    """A random graph with several alternatives, the last one their union."""
    generator = torch.Generator().manual_seed(seed)
    num_nodes = int(torch.randint(5, 12, (1,), generator=generator))
    upper = torch.triu_indices(num_nodes, num_nodes, 1)
    ends = upper[:, torch.randperm(upper.size(1), generator=generator)[: 2 * num_nodes]]
    edge_index = torch.stack([ends, ends.flip(0)], dim=2).view(2, -1)
    parts = [torch.rand(ends.size(1), generator=generator) < 0.2 for _ in range(3)]
    parts[0][0] = True
    masks = [mask for mask in parts if mask.any()]
    masks.append(torch.stack(masks).any(0))
    edges = [
        [e for b in mask.nonzero().view(-1).tolist() for e in (2 * b, 2 * b + 1)] for mask in masks
    ]
    edge_truth = masks[-1].repeat_interleave(2)
    return Data(
        x=torch.ones(num_nodes, 1),
        edge_index=edge_index,
        edge_truth=edge_truth,
        edge_alternatives=edges,
    )


def prepare(graphs: list[Data]) -> tuple[Bonds, Truth]:
    batch = Batch.from_data_list(graphs)
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    return bonds, Truth.from_graphs(batch)


def scores_for(num: int, seed: int = 0) -> Tensor:
    return torch.rand(num, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@pytest.fixture
def graphs() -> list[Data]:
    return [random_graph(seed) for seed in range(8)]


def sklearn_scores(score: Tensor, truth: Tensor, top: float) -> dict[str, float]:
    chosen = torch.zeros_like(truth)
    chosen[score.topk(max(1, round(top * score.numel()))).indices] = True
    return {
        "f1": f1_score(truth, chosen, zero_division=0),
        "recall": recall_score(truth, chosen),
        "precision": precision_score(truth, chosen, zero_division=0),
        "roc_auc": roc_auc_score(truth, score),
        "average_precision": average_precision_score(truth, score),
    }


def over_alternatives(graph: Data, score: Tensor, top: float) -> list[dict[str, float]]:
    rows = []
    for edges in graph.edge_alternatives:
        truth = torch.zeros(graph.num_edges, dtype=torch.bool)
        truth[edges] = True
        rows.append(sklearn_scores(score, truth, top))
    return rows


@pytest.mark.parametrize("top", [0.1, 0.3, 0.5])
def test_both_protocols_equal_scikit_learn_graph_by_graph(top: float, graphs: list[Data]) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.edge_bond.numel())
    paper, strict = (
        truth_metrics(score, bonds, truth, protocol=name, top=top) for name in ("paper", "strict")
    )
    of_bond = bonds.mean(score)
    for g, graph in enumerate(graphs):
        rows = over_alternatives(graph, score[truth.edge_batch == g], top)
        best = max(reversed(rows), key=lambda row: row["recall"])  # max keeps the first it meets
        expected = sklearn_scores(of_bond[bonds.batch == g], graph.edge_truth[::2], top)
        for name in TRUTH_METRICS:
            assert float(paper[name][g]) == pytest.approx(best[name]), (name, g)
            assert float(strict[name][g]) == pytest.approx(expected[name]), (name, g)


@pytest.mark.parametrize("protocol", ["paper", "strict"])
def test_a_graph_alone_has_the_values_it_has_in_a_batch(protocol: str, graphs: list[Data]) -> None:
    """Also where most scores are equal, and in any order of graphs."""
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.batch.numel()).mul(3).round()
    found = truth_metrics(score, bonds, truth, protocol=protocol)
    order = [5, 2, 7, 0, 1, 6, 4, 3]
    turned_bonds, turned_truth = prepare([graphs[g] for g in order])
    turned_score = torch.cat([score[bonds.batch == g] for g in order])
    turned = truth_metrics(turned_score, turned_bonds, turned_truth, protocol=protocol)
    for g, graph in enumerate(graphs):
        alone = truth_metrics(score[bonds.batch == g], *prepare([graph]), protocol=protocol)
        for name in TRUTH_METRICS:
            assert float(alone[name][0]) == pytest.approx(float(found[name][g]))
            assert float(turned[name][order.index(g)]) == pytest.approx(float(found[name][g]))


def two_groups() -> Data:
    """A chain of ten bonds; true are bonds 0 and 1, or bonds 4 to 9, or all of these."""
    pairs = [pair for u in range(10) for pair in ((u, u + 1), (u + 1, u))]
    small, large = [0, 1, 2, 3], list(range(8, 20))
    edge_truth = torch.zeros(20, dtype=torch.bool)
    edge_truth[small + large] = True
    return Data(
        x=torch.ones(11, 1),
        edge_index=torch.tensor(pairs).t().contiguous(),
        edge_truth=edge_truth,
        edge_alternatives=[small, large, small + large],
    )


def test_hand_numbers_of_both_protocols() -> None:
    bonds, truth = prepare([two_groups()])
    score = torch.tensor([9.0, 1, 0, 0.5, 8, 7, 6, 5, 4, 3])  # best three: bonds 0, 4, 5
    matched_values = truth_metrics(score, bonds, truth, protocol="paper")
    assert float(matched_values["recall"]) == pytest.approx(1 / 2)  # small: one of two bonds
    assert float(matched_values["precision"]) == pytest.approx(1 / 3)
    assert float(matched_values["f1"]) == pytest.approx(2 / 5)
    strict = truth_metrics(score, bonds, truth, protocol="strict")
    assert float(strict["recall"]) == pytest.approx(3 / 8)
    assert float(strict["precision"]) == pytest.approx(1)
    assert float(strict["roc_auc"]) == pytest.approx(1)


def no_truth(num_bonds: int) -> Data:
    pairs = [pair for u in range(num_bonds) for pair in ((u, u + 1), (u + 1, u))]
    return Data(
        x=torch.ones(num_bonds + 1, 1),
        edge_index=torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous(),
        edge_truth=torch.zeros(2 * num_bonds, dtype=torch.bool),
        edge_alternatives=[],
    )


def all_true() -> Data:
    graph = no_truth(2)
    graph.edge_truth = torch.ones(4, dtype=torch.bool)
    graph.edge_alternatives = [[0, 1, 2, 3]]
    return graph


@pytest.mark.parametrize("protocol", ["paper", "strict"])
def test_undefined_values_are_nan(protocol: str) -> None:
    bonds, truth = prepare([two_groups(), no_truth(3), no_truth(0), all_true()])
    found = truth_metrics(scores_for(bonds.batch.numel()), bonds, truth, protocol=protocol)
    for name in TRUTH_METRICS:
        assert torch.isnan(found[name][1:3]).all()
        assert not torch.isnan(found[name][0])
        assert math.isnan(found[name][3]) == (name == "roc_auc")


def test_graphs_are_selected_by_label_truth_and_prediction() -> None:
    _, truth = prepare([two_groups(), no_truth(3), two_groups(), two_groups()])
    y, predicted = torch.tensor([1, 1, 0, 1]), torch.tensor([1, 1, 0, 0])
    assert selected_graphs(y, None, truth, "paper").tolist() == [True, False, False, True]
    assert selected_graphs(y, predicted, truth, "strict").tolist() == [True, False, False, False]
    with pytest.raises(MetricError, match="predicted"):
        selected_graphs(y, None, truth, "strict")


def test_wrong_arguments_are_named() -> None:
    bonds, truth = prepare([two_groups()])
    with pytest.raises(ConfigError, match=r"paper.*got 'papers'"):
        truth_metrics(torch.zeros(10), bonds, truth, protocol="papers")
    with pytest.raises(MetricError, match=r"`score` must have shape \[10\] or \[20\]"):
        truth_metrics(torch.zeros(7), bonds, truth)
    _, other = prepare([all_true()])
    with pytest.raises(MetricError, match="same batch"):
        truth_metrics(torch.zeros(10), bonds, other)


def chain(num_nodes: int, alternatives: list[list[int]]) -> Data:
    """A chain of atoms; bond b is edges 2b and 2b + 1."""
    pairs = [pair for u in range(num_nodes - 1) for pair in ((u, u + 1), (u + 1, u))]
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous()
    edge_truth = torch.zeros(len(pairs), dtype=torch.bool)
    edge_truth[[edge for edges in alternatives for edge in edges]] = True
    return Data(
        x=torch.ones(num_nodes, 1),
        edge_index=edge_index,
        edge_truth=edge_truth,
        edge_alternatives=alternatives,
    )


@pytest.fixture
def chains() -> list[Data]:
    return [
        chain(4, [[0, 1], [4, 5], [0, 1, 4, 5]]),
        chain(3, []),
        chain(1, []),
        chain(2, [[0, 1]]),
    ]


def test_alternatives_become_entries(chains: list[Data]) -> None:
    truth = Truth.from_graphs(chains)
    assert truth.num_graphs == 4
    assert truth.num_edges.tolist() == [6, 4, 0, 2]
    assert truth.num_true.tolist() == [4, 0, 0, 2]
    assert truth.entry_edge.tolist() == [0, 1, 4, 5, 0, 1, 4, 5, 10, 11]
    assert truth.entry_alternative.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert truth.alternative_batch.tolist() == [0, 0, 0, 3]


def test_graphs_without_truth_are_an_error(path: Data) -> None:
    with pytest.raises(MetricError, match="edge_truth"):
        Truth.from_graphs(path)
