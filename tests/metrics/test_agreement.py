"""Agreement with the truth: hand numbers, scikit-learn, and no influence of the batch."""

from __future__ import annotations

import math
from collections.abc import Callable

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

from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.metrics import (
    TRUTH_METRICS,
    MetricError,
    Truth,
    average_precision,
    get_protocol,
    ground_truth_scores,
    pooled_roc_auc,
    roc_auc,
    selected_graphs,
    truth_metrics,
)


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


def best(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(row[name] for row in rows) for name in TRUTH_METRICS}


def matched(rows: list[dict[str, float]]) -> dict[str, float]:
    return max(reversed(rows), key=lambda row: row["recall"])  # max keeps the first it meets


@pytest.mark.parametrize("top", [0.1, 0.3, 0.5])
@pytest.mark.parametrize(("protocol", "reduce"), [("paper", matched), ("paper-best", best)])
def test_papers_protocols_equal_scikit_learn_graph_by_graph(
    protocol: str, reduce: Callable[..., dict[str, float]], top: float, graphs: list[Data]
) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.edge_bond.numel())
    found = truth_metrics(score, bonds, truth, protocol=protocol, top=top)
    for g, graph in enumerate(graphs):
        rows = over_alternatives(graph, score[truth.edge_batch == g], top)
        for name, value in reduce(rows).items():
            assert float(found[name][g]) == pytest.approx(value), (name, g)


@pytest.mark.parametrize("top", [0.1, 0.3, 0.5])
def test_strict_protocol_equals_scikit_learn_on_bonds(top: float, graphs: list[Data]) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.batch.numel())
    found = truth_metrics(score, bonds, truth, protocol="strict", top=top)
    for g, graph in enumerate(graphs):
        expected = sklearn_scores(score[bonds.batch == g], graph.edge_truth[::2], top)
        for name, value in expected.items():
            assert float(found[name][g]) == pytest.approx(value), (name, g)


@pytest.mark.parametrize("protocol", ["paper", "paper-best", "strict"])
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


def test_scores_of_bonds_hold_for_both_their_edges(graphs: list[Data]) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.batch.numel())
    per_edge = score[bonds.edge_bond]
    for protocol in ("paper", "paper-best", "strict"):
        one = truth_metrics(score, bonds, truth, protocol=protocol)
        other = truth_metrics(per_edge, bonds, truth, protocol=protocol)
        for name in TRUTH_METRICS:
            torch.testing.assert_close(one[name], other[name])


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


def test_hand_numbers_of_the_three_protocols() -> None:
    bonds, truth = prepare([two_groups()])
    score = torch.tensor([9.0, 1, 0, 0.5, 8, 7, 6, 5, 4, 3])  # best three: bonds 0, 4, 5
    matched_values = truth_metrics(score, bonds, truth, protocol="paper")
    assert float(matched_values["recall"]) == pytest.approx(1 / 2)  # small: one of two bonds
    assert float(matched_values["precision"]) == pytest.approx(1 / 3)
    assert float(matched_values["f1"]) == pytest.approx(2 / 5)
    best_values = truth_metrics(score, bonds, truth, protocol="paper-best")
    assert float(best_values["recall"]) == pytest.approx(1 / 2)
    assert float(best_values["precision"]) == pytest.approx(1)  # all three are in the union
    assert float(best_values["f1"]) == pytest.approx(6 / 11)
    strict = truth_metrics(score, bonds, truth, protocol="strict")
    assert float(strict["recall"]) == pytest.approx(3 / 8)
    assert float(strict["precision"]) == pytest.approx(1)
    assert float(strict["roc_auc"]) == pytest.approx(1)


def test_of_equal_recalls_the_last_alternative_is_matched() -> None:
    bonds, truth = prepare([two_groups()])
    score = torch.tensor([0.0, 0, 9, 8, 7, 0, 0, 0, 0, 0])  # best three: bonds 2, 3, 4
    found = truth_metrics(score, bonds, truth, protocol="paper")
    assert float(found["recall"]) == pytest.approx(1 / 6)  # bond 4 is in large
    found = truth_metrics(score, bonds, truth, protocol="paper", top=1.0)  # recall is 1 for all
    assert float(found["precision"]) == pytest.approx(8 / 10)


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


@pytest.mark.parametrize("protocol", ["paper", "paper-best", "strict"])
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


def test_pooled_auc_compares_bonds_of_different_graphs(graphs: list[Data]) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.batch.numel())
    is_true = torch.cat([graph.edge_truth[::2] for graph in graphs])
    pooled = pooled_roc_auc(score, bonds, truth)
    assert float(pooled) == pytest.approx(roc_auc_score(is_true, score))
    shifted = score + bonds.batch  # the ranking inside each graph stays
    assert float(pooled_roc_auc(shifted, bonds, truth)) != pytest.approx(float(pooled))
    per_graph = truth_metrics(shifted, bonds, truth, protocol="strict")["roc_auc"]
    same = truth_metrics(score, bonds, truth, protocol="strict")["roc_auc"]
    torch.testing.assert_close(per_graph, same)
    chosen = torch.tensor([True, False, True, False, False, False, False, True])
    here = chosen[bonds.batch]
    expected = roc_auc_score(is_true[here], score[here])
    assert float(pooled_roc_auc(score, bonds, truth, selected=chosen)) == pytest.approx(expected)


def test_equal_scores_are_worth_what_chance_is_worth() -> None:
    """Constant scores select at random: over many graphs, the share of true bonds."""
    graphs = [random_graph(seed) for seed in range(300)]
    bonds, truth = prepare(graphs)
    found = truth_metrics(torch.zeros(bonds.batch.numel()), bonds, truth, protocol="strict")
    share = truth.num_true / truth.num_edges
    assert abs(float((found["precision"] - share).mean())) < 0.03
    assert found["roc_auc"].tolist() == [0.5] * 300
    other = truth_metrics(torch.zeros(bonds.batch.numel()), bonds, truth, protocol="strict", seed=1)
    assert not torch.equal(other["precision"], found["precision"])


def test_wrong_arguments_are_named() -> None:
    bonds, truth = prepare([two_groups()])
    with pytest.raises(MetricError, match=r"paper.*got 'papers'"):
        get_protocol("papers")
    with pytest.raises(MetricError, match=r"`score` must have shape \[10\] or \[20\]"):
        truth_metrics(torch.zeros(7), bonds, truth)
    _, other = prepare([all_true()])
    with pytest.raises(MetricError, match="same batch"):
        truth_metrics(torch.zeros(10), bonds, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("protocol", ["paper", "paper-best", "strict"])
def test_values_and_ties_are_the_same_on_a_gpu(protocol: str, graphs: list[Data]) -> None:
    bonds, truth = prepare(graphs)
    score = scores_for(bonds.batch.numel()).mul(3).round()
    on_gpu = prepare([graph.clone().cuda() for graph in graphs])
    found = truth_metrics(score, bonds, truth, protocol=protocol)
    for other in (on_gpu, (on_gpu[0], truth.to("cuda"))):
        moved = truth_metrics(score.cuda(), *other, protocol=protocol)
        for name in TRUTH_METRICS:
            assert moved[name].is_cuda
            torch.testing.assert_close(moved[name].cpu(), found[name])
