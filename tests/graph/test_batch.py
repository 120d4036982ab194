"""Batches as explainers see them: checks, and copies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.errors import GraphError
from nicegnn.graph.batch import check_graph, to_batch
from nicegnn.graph.minibatches import GraphStack

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


# --- copies ------------------------------------------------------------------------------------


class Pair(Data):
    """Two node sets: `cross_index` points into `x` with row 0 and into `z` with row 1."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key == "cross_index":
            return torch.tensor([[self.x.size(0)], [self.z.size(0)]])
        return super().__inc__(key, value, *args, **kwargs)


class Global(Data):
    """`context` is a vector of the graph, stacked in a new dimension."""

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return None if key == "context" else super().__cat_dim__(key, value, *args, **kwargs)


def _data(kind: type[Data] = Data, **extra: Any) -> Data:
    return kind(x=torch.randn(3, 2), edge_index=EDGES, **extra)


EXTRAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "edge-features": {"edge_attr": torch.randn(4, 3), "edge_weight": torch.rand(4)},
    "graph-label": {"y": torch.tensor([1])},
    "graph-label-row": {"y": torch.randn(1, 6)},
    "scalar-label": {"y": torch.tensor(0.5)},
    "python-number": {"temperature": 3.5, "size": 4},
    "node-index": {"root_index": torch.tensor([2])},
    "index-rows": {"pair_index": torch.tensor([[0, 2, 2], [1, 1, 0]])},
    "mask": {"train_mask": torch.tensor([True, False, True])},
    "string": {"smiles": "CCO"},
    "list-of-strings": {"names": ["a", "b", "c"]},
    "new-dimension": {"context": torch.randn(4)},
}


def assert_same_batch(got: Batch, expected: Batch) -> None:
    assert set(got.keys()) == set(expected.keys())
    for key in expected.keys():  # noqa: SIM118
        a, b = got[key], expected[key]
        assert type(a) is type(b), key
        if isinstance(a, Tensor):
            assert torch.equal(a, b), key
            assert a.dtype == b.dtype, key
        else:
            assert str(a) == str(b), key
    assert (got.num_graphs, got.num_nodes, got.num_edges) == (
        expected.num_graphs,
        expected.num_nodes,
        expected.num_edges,
    )


@pytest.mark.parametrize("num", [1, 3])
@pytest.mark.parametrize("name", EXTRAS)
def test_copies_equal_a_batch_of_copies(name, num):
    torch.manual_seed(0)
    other = Data(x=torch.randn(2, 2), edge_index=EDGES[:, :0])
    kind = Global if name == "new-dimension" else Data
    graphs = [_data(kind, **EXTRAS[name]), _data(kind, **EXTRAS[name])]
    if name == "nothing":
        graphs.insert(1, other)  # a graph without edges in between
    stack = GraphStack(Batch.from_data_list(graphs))
    got = stack.take(torch.arange(len(graphs)).repeat(num))
    assert_same_batch(got, Batch.from_data_list(graphs * num))


@pytest.mark.parametrize(
    "graph",
    [
        _data(Pair, z=torch.randn(2, 2), cross_index=torch.tensor([[0, 2], [1, 0]])),
        _data(parts=[torch.ones(2), torch.zeros(1)]),
        _data(extra={"a": torch.ones(2)}),
    ],
)
def test_what_cannot_be_copied_is_named(graph):
    lost = GraphStack(Batch.from_data_list([graph, graph])).lost
    assert lost <= {"cross_index", "parts", "extra"}
    assert len(lost) == 1


# --- checks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [list, tuple, Batch.from_data_list, iter])
def test_to_batch_accepts_one_or_many_graphs(form, graphs):
    assert_same_batch(to_batch(form(graphs)), Batch.from_data_list(graphs))
    assert_same_batch(to_batch(graphs[0]), Batch.from_data_list(graphs[:1]))


@pytest.mark.parametrize(
    "graphs",
    [
        *([], (), None, torch.ones(3), torch.ones(3).numpy(), "graph", [1, 2], HeteroData()),
        *([_data(), None], {"x": torch.ones(3, 2)}),
        Batch(x=torch.ones(3, 2), edge_index=EDGES, batch=torch.zeros(3, dtype=torch.long)),
    ],
    ids=lambda g: type(g).__name__ + (f"-{len(g)}" if hasattr(g, "__len__") else ""),
)
def test_to_batch_refuses_what_is_no_graph(graphs):
    with pytest.raises(GraphError, match=r"`(graphs|ptr)` must"):
        to_batch(graphs)


def test_edges_of_several_graphs_in_turn_are_refused(graphs):
    batch = Batch.from_data_list(graphs)
    batch.edge_index = batch.edge_index.flip(1)
    with pytest.raises(GraphError, match="edges of a graph side by side"):
        to_batch(batch)


def good(**changes: Any) -> Data:
    return Data(**{"x": torch.ones(3, 2), "edge_index": EDGES, **changes})


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no-edges": ({"edge_index": None}, r"`edge_index` must be a tensor.*got none"),
    "transposed": ({"edge_index": EDGES.t()}, r"`edge_index` must be a tensor.*\(4, 2\)"),
    "flat": ({"edge_index": EDGES[0]}, r"`edge_index` must be a tensor.*\(4,\)"),
    "float-edges": ({"edge_index": EDGES.float()}, r"dtype torch.long \(got torch.float32\)"),
    "int-edges": ({"edge_index": EDGES.int()}, r"dtype torch.long \(got torch.int32\)"),
    "list-edges": ({"edge_index": EDGES.tolist()}, "got list"),
    "too-large": ({"edge_index": EDGES + 1}, r"from 0 to 2 \(got 1 to 3\)"),
    "negative": ({"edge_index": EDGES - 1}, r"from 0 to 2 \(got -1 to 1\)"),
    "too-few-features": ({"x": torch.ones(2, 2)}, r"from 0 to 1 \(got 0 to 2\)"),
    "no-nodes": ({"x": torch.ones(0, 2)}, "edge_index"),
    "edge-rows": ({"edge_attr": torch.ones(3, 2)}, r"one row per edge \(got shape \(3, 2\) for 4"),
    "edge-scalar": ({"edge_attr": torch.tensor(1.0)}, "one row per edge"),
    "weight-rows": ({"edge_weight": torch.ones(5)}, "one row per edge"),
    "rows-unlike-num-nodes": ({"num_nodes": 5, "edge_index": EDGES + 2}, "`x`|`edge_index`"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_graphs_are_refused_with_the_reason(name):
    changes, words = BAD[name]
    with pytest.raises(GraphError, match=words):
        check_graph(good(**changes))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_graph_on_two_devices_is_refused():
    with pytest.raises(GraphError, match="Move the whole graph"):
        check_graph(good(x=torch.ones(3, 2, device="cuda")))
