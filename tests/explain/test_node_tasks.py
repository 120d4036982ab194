"""Node tasks: the computation graph of a node by hand, and explanations of nodes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn import NICE, NICEConfig
from nicegnn.explain.checks import explained_nodes
from nicegnn.explain.explanation import PER_BOND
from nicegnn.explain.node_tasks import computation_graphs, reached_edges, surroundings
from nicegnn.graph.batch import to_batch
from nicegnn.target.frozen_model import Target
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import FAST, PAPER, NodeGCN

INSTANT = NICEConfig()


def long_graph() -> Data:
    graph = random_graph(12, seed=7)
    tail = torch.tensor([[12, 13, 14, 15], [13, 14, 15, 11]])
    edge_index = torch.cat([graph.edge_index, tail, tail.flip(0)], dim=1)
    return Data(x=torch.randn(16, NUM_FEATURES), edge_index=edge_index)


def test_only_the_computation_graph_of_a_node_counts() -> None:
    torch.manual_seed(0)
    graph, model = long_graph(), NodeGCN()
    out = NICE(model, FAST).explain(graph, index=12)
    assert out.bond_reached.all()
    assert {tuple(edge) for edge in out.edge_index.t().tolist()} == {
        *((12, 13), (13, 12), (13, 14), (14, 13))
    }
    out = out.to_dense()
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


def test_stored_bonds_are_those_within_reach() -> None:
    """Sparse results hold the rows of the dense ones where bonds are reached, and no others."""
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), PAPER).fit(graph, index=torch.arange(12), progress=False)
    out = nice.explain(graph, index=[12, 3])
    dense = out.to_dense()
    assert dense.edge_index.shape == (2, 2 * graph.num_edges)
    for name in PER_BOND:
        held, sparse = getattr(dense, name)[dense.bond_reached], getattr(out, name)
        torch.testing.assert_close(held, sparse, rtol=0, atol=0, equal_nan=True)
        assert not getattr(dense, name)[~dense.bond_reached].any(), name
    assert torch.equal(dense.bond_index[:, dense.bond_reached], out.bond_index)
    assert torch.equal(graph.edge_index[:, out.edge_origin], out.edge_index % graph.num_nodes)
    for part, whole in zip(out.split(), dense.split(), strict=True):
        assert torch.equal(whole.edge_index, graph.edge_index)
        assert torch.equal(part.to_dense().edge_score, whole.edge_score)
    assert dense.to_dense() is dense
    frame = out.to_frame()
    assert len(frame) == out.bond_score.numel() < len(dense.to_frame())
    assert frame["atom_a"].max() < graph.num_nodes


def test_node_explainer_can_be_fitted_on_nodes() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), PAPER).fit(graph, index=torch.arange(12), progress=False)
    assert bool(nice.explain(graph, index=12).bond_gate.isfinite().all())


class WholeGraphNorm(NodeGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = super().forward(x, edge_index)
        return x - x.mean(0)


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


FORWARD, BACKWARD = "source_to_target", "target_to_source"


def one_way(*extra: tuple[int, int]) -> Batch:
    """Messages 0 -> 1 -> 2 -> 3 -> 4, one way."""
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), *extra])
    data = Data(
        x=10 * torch.arange(5.0).view(-1, 1),
        edge_index=pairs.t(),
        edge_attr=torch.arange(float(len(pairs))),
        y=torch.tensor([1]),
    )
    return Batch.from_data_list([data])


def test_one_hop_more_than_the_model_reads_is_kept() -> None:
    """One layer answers for node 3 by the message 2 -> 3; 1 -> 2 is kept for degrees at the rim."""
    part = surroundings(one_way(), torch.tensor([3]), 1, FORWARD)
    assert part.x.view(-1).tolist() == [10, 20, 30]
    assert part.edge_index.t().tolist() == [[0, 1], [1, 2]]
    assert part.edge_attr.tolist() == [1, 2]
    assert part.edge_origin.tolist() == [1, 2]
    assert part.root_index.tolist() == [2]
    assert part.edge_reached.tolist() == [False, True]
    assert "y" not in part  # belongs to no node and no edge


@pytest.mark.parametrize(
    ("hops", "reached"),
    [
        (1, [False, False, True, False]),
        (2, [False, True, True, False]),
        (3, [True, True, True, False]),
        (9, [True, True, True, False]),
    ],
)
def test_an_edge_counts_if_its_message_arrives_in_time(hops: int, reached: list[bool]) -> None:
    edges = one_way().edge_index
    assert reached_edges(edges, torch.tensor([3]), 5, hops, FORWARD).tolist() == reached


def test_messages_may_flow_the_other_way() -> None:
    found = reached_edges(one_way().edge_index, torch.tensor([1]), 5, 2, BACKWARD)
    assert found.tolist() == [False, True, True, False]
    part = surroundings(one_way(), torch.tensor([3]), 1, BACKWARD)
    assert part.x.view(-1).tolist() == [30, 40]
    assert part.edge_reached.tolist() == [True]


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (3, [3]),
        ([0, 4], [0, 4]),
        (torch.tensor([2, 2]), [2, 2]),
        (torch.tensor([True, False, False, True, False]), [0, 3]),
    ],
)
def test_explained_nodes_are_numbers_or_a_mask(index: object, expected: list[int]) -> None:
    found = explained_nodes(index, 5)  # type: ignore[arg-type]
    assert found.tolist() == expected
    assert found.dtype == torch.long
