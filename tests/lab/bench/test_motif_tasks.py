"""Planted motifs as tasks: split, target, what is explained, and scores judged within reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn_lab.bench import MetricConfig
from nicegnn_lab.bench.measure import Scores, scores_of
from nicegnn_lab.bench.motif_tasks import (
    MotifConfig,
    MotifTask,
    NodeGCN,
    Shapes,
    TwoMotifs,
    motif_agreement,
)
from nicegnn_lab.rivals import get_explainer

SMALL = MotifConfig(num_graphs=120, graph_epochs=8, base_nodes=40, num_motifs=12, node_epochs=60)
FACTS = {"part": "test", "fit_seconds": 0.0, "explain_seconds": 1.0}


def test_parts_of_a_split_are_disjoint_and_change_with_the_seed() -> None:
    first, second = TwoMotifs(0, SMALL), TwoMotifs(1, SMALL)
    parts = (first.train_part, first.valid_part, first.test_part)
    assert [part.numel() for part in parts] == [96, 12, 12]
    assert torch.cat(parts).sort().values.tolist() == list(range(120))
    assert first.test_part.tolist() != second.test_part.tolist()
    assert first.identity != second.identity
    assert first.identity == TwoMotifs(0, SMALL).identity
    assert first.identity != TwoMotifs(0, replace(SMALL, graph_epochs=9)).identity
    with pytest.raises(ConfigError, match=r"`num_graphs` must be .* \(got 0\)"):
        replace(SMALL, num_graphs=0)


def path_graph() -> Data:
    """Returns nodes 0 to 7 in a row; bond (1, 2) is true, and (5, 6) too."""
    u = torch.arange(7)
    bonds = torch.stack([u, u + 1])
    truth = (u == 1) | (u == 5)
    return Data(
        x=torch.ones(8, 10),
        edge_index=torch.cat([bonds, bonds.flip(0)], dim=1),
        edge_truth=torch.cat([truth, truth]),
    )


def judged(score: list[float], seed: int = 0) -> dict[str, Tensor]:
    """Agreement of scores of the path's bonds, for its first node and a model of three layers."""
    graph = path_graph()
    found = get_explainer("random", NodeGCN(10, 4)).explain(graph, index=[0]).to_dense()
    assert found.bond_reached.tolist() == [True] * 3 + [False] * 4
    scores = scores_of([found], torch.tensor([0]), FACTS)
    scores = replace(scores, bond_score=torch.tensor(score))
    return motif_agreement(scores, found.bonds, graph.edge_truth, seed, scores.positions)


def test_only_bonds_within_reach_of_a_node_are_judged() -> None:
    values = judged([0.9, 0.5, 0.1, 7.0, 7.0, -7.0, 7.0])
    assert values["roc_auc"].tolist() == [0.5]  # below one false bond, above the other
    assert values["recall_at_k"].tolist() == [0.0]  # of one true bond within reach
    values = judged([0.9, 1.0, 0.1, 7.0, 7.0, -7.0, 7.0])
    assert values["roc_auc"].tolist() == [1.0]
    assert values["recall_at_k"].tolist() == [1.0]


def test_equal_scores_get_no_more_than_chance() -> None:
    recall = [float(judged([0.0] * 7, seed)["recall_at_k"]) for seed in range(300)]
    assert abs(sum(recall) / 300 - 1 / 3) < 0.1
    assert judged([0.0] * 7)["roc_auc"].tolist() == [0.5]


def measured(task: MotifTask, explainer: Explainer, positions: Tensor) -> dict[str, Tensor]:
    """Values by metric, and by metric and removal for fidelity."""
    parts = list(task.explain(explainer, positions, "test", seed=0))
    scores: Scores = scores_of(parts, positions, FACTS)
    found = {}
    metrics = MetricConfig(removals=("em", "nc"))
    for block in task.measure(scores, explainer.target.model, metrics, seed=0):
        assert block.graph is not None
        assert torch.equal(block.graph, positions)
        found[f"{block.metric} {block.protocol}".strip()] = block.values
    return found


def test_random_scores_are_as_good_as_chance() -> None:
    task = TwoMotifs(0, SMALL)
    explainer = get_explainer("random", task.new_target("gin"))
    values = measured(task, explainer, torch.arange(120))
    assert abs(float(values["roc_auc"].mean()) - 0.5) < 0.06
    # a motif has 5 of 25 bonds, or 6 of 26
    assert abs(float(values["recall_at_k"].mean()) - (5 / 25 + 6 / 26) / 2) < 0.06
    assert set(values) == {"roc_auc", "recall_at_k", "kept_area em", "kept_area nc"}


def test_truth_is_perfect_on_graphs_and_nodes() -> None:
    for task, target in ((TwoMotifs(0, SMALL), "gin"), (Shapes(0, SMALL), "gcn")):
        explainer = get_explainer("ground-truth", task.new_target(target))
        positions = torch.arange(40, 43) if task.level == "node" else torch.tensor([0, 1, 7])
        values = measured(task, explainer, positions)
        assert values["roc_auc"].tolist() == [1.0] * 3
        assert values["recall_at_k"].tolist() == [1.0] * 3
        assert ("kept_area em" in values) == (task.level == "graph")


def test_nodes_judged_together_are_judged_as_one_by_one() -> None:
    task = Shapes(0, SMALL)
    explainer = get_explainer("saliency", task.new_target("gcn"))
    positions = torch.arange(40, 51)  # more than are explained at once
    together = measured(task, explainer, positions)
    for number, position in enumerate(positions):
        alone = measured(task, explainer, position.view(1))
        for name, value in alone.items():
            assert torch.allclose(value, together[name][number : number + 1], equal_nan=True)


def test_explained_nodes_are_right_test_nodes_of_houses() -> None:
    task = Shapes(0, SMALL)
    model = task.new_target("gcn")
    task.train(model)
    chosen = task.explained(model, "test")
    logits = model(task.data.graph.x, task.data.graph.edge_index)
    label = task.data.graph.y
    wanted = {
        node
        for node in task.test_part.tolist()
        if int(label[node]) > 0 and int(logits[node].argmax()) == int(label[node])
    }
    assert set(chosen.tolist()) == wanted
    assert len(wanted) > 0
    assert set(task.explained(model, "test", 2).tolist()) < wanted
    with pytest.raises(ConfigError, match="'test'"):
        task.explained(model, "valid")


def test_training_learns_the_task_and_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(SMALL, num_graphs=240, graph_epochs=30)
    model = TwoMotifs(0, config).model("gin", tmp_path)
    task = TwoMotifs(0, config)
    assert task.accuracy(model) > 0.8  # chance is one half

    def no_training(self: TwoMotifs, model: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(TwoMotifs, "train", no_training)
    again = task.model("gin", tmp_path)
    for name, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    with pytest.raises(AssertionError, match="trained again"):
        TwoMotifs(1, config).model("gin", tmp_path)
    with pytest.raises(ConfigError, match=r"must be one of .*'gat'"):
        task.model("gat", tmp_path)
