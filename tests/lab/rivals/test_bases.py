"""What all rivals share: settings, mechanisms, scores; what a fit depends on, and its files."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.errors import GraphError
from nicegnn.explain.explainer import ScoreConfig, ScoreExplainer
from nicegnn.graph.batch import to_batch
from nicegnn_lab.rivals import get_explainer
from nicegnn_lab.rivals.masks import mean_log_prob
from tests.conftest import make_graph
from tests.explain.score_properties import Linear, gin, some_graphs
from tests.lab.rivals.learned_properties import SHORT


class Given(ScoreExplainer):
    """Scores edges by what a graph holds in ``edge_given``."""

    name = "given"
    mechanisms = ("em", "nc")

    def _edge_score(self, query, seed):
        return query.case.batch.edge_given


def graph_with(score: list[float]):
    graph = make_graph([(0, 1), (1, 2)], 3, seed=0)
    graph.edge_given = torch.tensor(score)
    return graph


def test_a_bond_has_the_mean_of_its_directions():
    graph = graph_with([1.0, 3.0, -2.0, 5.0])
    assert Given(gin()).explain(graph).bond_score.tolist() == [2.0, 1.5]
    directed = Given(gin(), ScoreConfig(undirected=False)).explain(graph)
    assert directed.bond_score.tolist() == [1.0, 3.0, -2.0, 5.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_an_error(bad):
    with pytest.raises(GraphError, match="given gave NaN or infinite scores"):
        Given(gin()).explain(graph_with([1.0, bad, 0.0, 0.0]))


def test_log_probability_under_gates_is_that_of_the_weighted_graph():
    model, graph = Linear(dtype=torch.float32), some_graphs()[1]
    explainer = Given(model)
    query = explainer._query(explainer.target, to_batch(graph), 2)
    gate = torch.linspace(0, 1, graph.num_edges)
    logits = torch.stack([(gate * model.shares(graph, c)).sum() for c in range(3)])
    expected = logits.log_softmax(0)[2].view(1)
    torch.testing.assert_close(mean_log_prob(query, gate, explainer.num_draws, 0), expected)


def test_graphs_without_edges_teach_nothing():
    explainer = get_explainer("pgexplainer", gin(), **SHORT)
    with pytest.raises(GraphError, match=r"a graph with edges \(got 2 without\)"):
        explainer.fit([make_graph([], 3, seed=5), make_graph([], 2, seed=6)], progress=False)
