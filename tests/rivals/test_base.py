"""What all rivals share: settings, mechanisms, the log-probability that masks are judged by."""

from __future__ import annotations

import math

import pytest
import torch

from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.rivals.base import Baseline, BaselineConfig, bond_slots
from nicegnn.rivals.gnnexplainer import GNNExplainerConfig
from tests.conftest import make_graph
from tests.rivals.rival_properties import Linear, gin, some_graphs


class Given(Baseline):
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
    directed = Given(gin(), BaselineConfig(undirected=False)).explain(graph)
    assert directed.bond_score.tolist() == [1.0, 3.0, -2.0, 5.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_an_error(bad):
    with pytest.raises(GraphError, match="given gave NaN or infinite scores"):
        Given(gin()).explain(graph_with([1.0, bad, 0.0, 0.0]))


def test_settings_of_another_method_and_unknown_mechanisms_are_refused():
    with pytest.raises(ConfigError, match=r"must be a BaselineConfig \(got a dict\)"):
        Given(gin(), {"seed": 1})
    assert Given(gin(), GNNExplainerConfig()).config.steps == 300  # a subclass has all it needs
    with pytest.raises(ConfigError, match=r"one of \('em', 'nc'\) \(got 'both'\)"):
        Given(gin(), mechanism="both")
    for name in ("num_draws", "batch_size", "chunk_edges"):
        with pytest.raises(ConfigError, match=f"`{name}` must be a whole number of at least 1"):
            BaselineConfig(**{name: 0})


def test_draws_are_taken_where_the_mechanism_is_random():
    config = BaselineConfig(num_draws=3)
    assert Given(gin(), config).num_draws == 1
    assert Given(gin(), config, mechanism="nc").num_draws == 3


def test_log_probability_under_gates_is_that_of_the_weighted_graph():
    model, graph = Linear(dtype=torch.float32), some_graphs()[1]
    explainer = Given(model)
    query = explainer._query(to_batch(graph), 2)
    gate = torch.linspace(0, 1, graph.num_edges)
    logits = torch.stack([(gate * model.shares(graph, c)).sum() for c in range(3)])
    expected = logits.log_softmax(0)[2].view(1)
    torch.testing.assert_close(explainer._log_prob(query, gate, 0), expected)


def test_bonds_have_the_lowest_slot_of_their_edges():
    batch = to_batch(make_graph([(0, 1), (1, 2)], 3, seed=0))
    assert bond_slots(make_case(batch)).tolist() == [0, 2]
    assert bond_slots(make_case(batch, slot=torch.tensor([7, 5, 1, 9]))).tolist() == [5, 1]
