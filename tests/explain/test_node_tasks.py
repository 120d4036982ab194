"""Node tasks: the computation graph of a node by hand, and explanations of nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn import NICE
from nicegnn.errors import TargetError
from nicegnn.explain.node_tasks import computation_graphs
from nicegnn.graph.batch import to_batch
from nicegnn.target.frozen_model import Target
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import FAST, NodeGCN, Smooth


def long_graph() -> Data:
    graph = random_graph(12, seed=7)
    tail = torch.tensor([[12, 13, 14, 15], [13, 14, 15, 11]])
    edge_index = torch.cat([graph.edge_index, tail, tail.flip(0)], dim=1)
    return Data(x=torch.randn(16, NUM_FEATURES), edge_index=edge_index)


def test_only_the_computation_graph_of_a_node_counts() -> None:
    torch.manual_seed(0)
    graph, model = long_graph(), NodeGCN()
    out = NICE(model, FAST).explain(graph, index=12)
    assert torch.equal(out.edge_index, graph.edge_index)
    near = {(12, 13), (13, 12), (13, 14), (14, 13)}
    reached = {(u, v) for u, v in near}
    for k, (u, v) in enumerate(graph.edge_index.t().tolist()):
        if (u, v) not in reached:
            assert out.edge_score[k] == 0
    assert out.bond_reached.sum() == 2
    assert out.top(1.0).sum() == 2
    assert out.prediction.argmax() == model(graph.x, graph.edge_index)[12].argmax()


def test_nodes_explained_together_equal_nodes_explained_alone() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), FAST)
    together = nice.explain(graph, index=[3, 12, 15]).split()
    for node, part in zip((3, 12, 15), together, strict=True):
        alone = nice.explain(graph, index=node)
        torch.testing.assert_close(part.edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
        assert int(part.index) == node


def test_node_explainer_can_be_fitted_on_nodes() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), FAST).fit(graph, index=torch.arange(12), progress=False)
    assert nice.explain(graph, index=12).status.boundary == "amortised"


class WholeGraphNorm(NodeGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = super().forward(x, edge_index)
        return x - x.mean(0)


def test_models_that_read_the_whole_graph_are_noticed() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    out = NICE(WholeGraphNorm(), FAST).explain(graph, index=12)
    assert any("whole graph" in note for note in out.status.notes)


# --- computation graphs ------------------------------------------------------------------------


def chain() -> Batch:
    """0 - 1 - 2 - 3 - 4 - 5, all forward directions first."""
    source = torch.arange(5)
    edge_index = torch.stack([torch.cat([source, source + 1]), torch.cat([source + 1, source])])
    x = torch.randn(6, NUM_FEATURES, generator=torch.Generator().manual_seed(0))
    return to_batch(Data(x=x, edge_index=edge_index))


def test_two_layers_read_two_hops_and_keep_a_third() -> None:
    """For node 0 the messages to 0 and to 1 count; node 3 is kept for the degree of node 2."""
    torch.manual_seed(0)
    graph, target = chain(), Target(NodeGCN().eval(), level="node")
    (first, last), is_local = computation_graphs(target, graph, torch.tensor([0, 5]))
    assert is_local
    assert torch.equal(first.x, graph.x[:4])
    assert first.edge_origin.tolist() == [0, 1, 2, 5, 6, 7]
    assert first.edge_index.t().tolist() == [[0, 1], [1, 2], [2, 3], [1, 0], [2, 1], [3, 2]]
    assert first.edge_reached.tolist() == [True, False, False, True, True, False]
    assert first.root_index.tolist() == [0]
    assert torch.equal(last.x, graph.x[2:])
    assert last.root_index.tolist() == [3]
    whole = target.call(graph)[[0, 5]]
    parts = Batch.from_data_list([first, last])
    torch.testing.assert_close(target.call(parts)[parts.root_index], whole)


def test_whole_graphs_are_used_where_the_surroundings_answer_otherwise() -> None:
    torch.manual_seed(0)
    graph, target = chain(), Target(WholeGraphNorm().eval(), level="node")
    (only,), is_local = computation_graphs(target, graph, torch.tensor([0]))
    assert not is_local
    assert torch.equal(only.x, graph.x)
    assert only.edge_origin.tolist() == list(range(10))
    assert only.edge_reached.nonzero().view(-1).tolist() == [0, 5, 6]


def test_models_that_answer_for_graphs_have_no_computation_graphs() -> None:
    target = Target(Smooth().eval(), level="node")
    with pytest.raises(TargetError, match="returns 1 rows for 6 nodes; leave `index` out"):
        computation_graphs(target, chain(), torch.tensor([0]))
