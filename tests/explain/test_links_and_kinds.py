"""Models of pairs, relations and kinds: a planted reason is found, and each kind keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    FastRGCNConv,
    GCNConv,
    HeteroConv,
    HGTConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    to_hetero,
)

from nicegnn import NICE, NICEConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.graph.kinds import Kinds
from tests.conftest import take_snapshot

WRITES, REVIEWS, CITES = (
    ("author", "writes", "paper"),
    ("author", "reviews", "paper"),
    ("paper", "cites", "author"),
)
PAPERS, AUTHORS = 80, 20


def library(seed: int = 0) -> HeteroData:
    """A paper is good if one of its authors is; whether a reviewer is good does not matter."""
    draw = torch.Generator().manual_seed(seed)
    graph = HeteroData()
    good = torch.rand(AUTHORS, generator=draw) < 0.3
    graph["author"].x = torch.stack([good.float(), torch.rand(AUTHORS, generator=draw)], dim=1)
    graph["paper"].x = torch.ones(PAPERS, 3)
    number = torch.arange(PAPERS).repeat(2)
    for kind in (WRITES, REVIEWS):
        writer = torch.randint(AUTHORS, (2 * PAPERS,), generator=draw)
        graph[kind].edge_index = torch.stack([writer, number])
    cited = torch.randint(AUTHORS, (2 * PAPERS,), generator=draw)
    graph[CITES].edge_index = torch.stack([number, cited])
    writer, paper = graph[WRITES].edge_index
    graph["paper"].y = torch.zeros(PAPERS).index_add(0, paper, good[writer].float()).gt(0).long()
    return graph


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv((-1, -1), 16, aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class KindNet(nn.Module):
    """Papers by layers of one family."""

    def __init__(self, family: str) -> None:
        super().__init__()
        kinds = library().metadata()
        self.head = nn.Linear(16, 2)
        self.inner: nn.Module
        if family == "to_hetero":
            self.inner = to_hetero(Layers(), kinds)
        elif family == "HeteroConv":
            convs = {kind: SAGEConv((-1, -1), 16, aggr="sum") for kind in kinds[1]}
            self.inner = HeteroConv(convs)
        else:
            self.inner = HGTConv({"author": 2, "paper": 3}, 16, kinds, heads=2)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        return self.head(self.inner(x_dict, edge_index_dict)["paper"].relu())


class RelationNet(nn.Module):
    """The same by layers that take ``edge_type``; node features are padded."""

    def __init__(self, conv: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.conv, self.head = conv(3, 16, num_relations=3, aggr="sum"), nn.Linear(16, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.head(self.conv(x, edge_index, edge_type).relu())


def train(model: nn.Module, call: Callable[[], Tensor], label: Tensor, steps: int = 150) -> None:
    call()  # lazy weights get their sizes
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(call(), label).backward()
        optimiser.step()
    assert float((call().argmax(1) == label).float().mean()) > 0.9
    model.eval()


def share_found(score: Tensor, graph: HeteroData, paper: Tensor) -> Tensor:
    """Whether the best edge of each paper is one that a good author wrote, ``[K, E] -> [K]``."""
    writer, written = graph[WRITES].edge_index
    good = graph["author"].x[writer, 0] > 0
    return (good & (written == paper.unsqueeze(1))).gather(1, score.argmax(1, keepdim=True))


@pytest.mark.parametrize("family", ["HeteroConv", "to_hetero", "HGTConv"])
def test_a_planted_reason_is_found_among_kinds(family: str) -> None:
    torch.manual_seed(0)
    graph, model = library(), KindNet(family)
    train(model, lambda: model(graph.x_dict, graph.edge_index_dict), graph["paper"].y)
    before = take_snapshot(model)
    with torch.no_grad():
        is_right = model(graph.x_dict, graph.edge_index_dict).argmax(1) == graph["paper"].y
    papers = (is_right & (graph["paper"].y == 1)).nonzero().view(-1)[:8]
    out = NICE(model, background=[graph]).explain(graph, index=("paper", papers), atoms=False)
    assert take_snapshot(model) == before
    found = []
    for paper, part in zip(papers, out.split(), strict=True):
        scores = part.by_kind(graph)
        best = max(float(scores[kind].edge_score.max()) for kind in (REVIEWS, CITES))
        score = scores[WRITES].edge_score
        found.append(bool(share_found(score[None], graph, paper[None])) and score.max() > best)
    assert sum(found) >= 0.8 * len(found)
    frame = out.to_frame()
    assert set(frame["kind"]) <= {"author writes paper", "author reviews paper"}
    assert (frame.loc[frame["rank"] == 1, "kind"] == "author writes paper").mean() >= 0.8


@pytest.mark.parametrize("conv", [RGCNConv, FastRGCNConv])
def test_a_planted_reason_is_found_among_relations(conv: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    graph = library()
    whole = Kinds.of([graph]).join(graph)
    model = RelationNet(conv)
    papers = (whole.node_type == 1).nonzero().view(-1)
    train(
        model,
        lambda: model(whole.x, whole.edge_index, whole.edge_type)[papers],
        graph["paper"].y,
    )
    chosen = (graph["paper"].y == 1).nonzero().view(-1)[:8]
    data = Data(x=whole.x, edge_index=whole.edge_index, edge_type=whole.edge_type)
    out = NICE(model, background=[data]).explain(data, index=papers[chosen], atoms=False)
    score = out.to_dense().edge_score.view(8, -1)
    kinds = Kinds.of([graph])
    is_writing = whole.edge_type == kinds.edges.index(WRITES)
    assert bool(is_writing[score.argmax(1)].float().mean() >= 0.8)
    assert share_found(score[:, is_writing], graph, chosen).float().mean() >= 0.8


def test_prototypes_of_an_edge_are_edges_of_its_kind() -> None:
    """With one message in each relation, an edge can only say what it says: nothing is lost."""

    class Says(MessagePassing):
        def __init__(self) -> None:
            super().__init__(aggr="add")

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            return self.propagate(edge_index, x=x, kind=edge_type.float().view(-1, 1))

        def message(self, x_j: Tensor, kind: Tensor) -> Tensor:
            return 0 * x_j + kind

    ends = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graph = Data(x=torch.ones(5, 1), edge_index=ends, edge_type=torch.tensor([0, 0, 1, 1]))
    out = NICE(Says(), mode="regression").explain(graph, index=[1, 3])
    assert float(out.bond_loss.abs().max()) == 0
    mixed = NICE(Says(), mode="regression", inputs=lambda m, b: m(b.x, b.edge_index, b.edge_other))
    graph.edge_other = graph.edge_type
    del graph.edge_type
    assert float(mixed.explain(graph, index=[1, 3]).bond_loss.abs().max()) > 0


def test_kinds_come_apart_as_they_were() -> None:
    graph = library()
    graph[CITES].edge_attr = torch.rand(2 * PAPERS, 4)
    graph["author"].number = torch.arange(AUTHORS)
    kinds = Kinds.of([graph])
    again = kinds.apart(
        kinds.join(graph).update({"batch": torch.zeros(PAPERS + AUTHORS, dtype=torch.long)})
    )
    for kind in (*graph.node_types, *graph.edge_types):
        for key, value in graph[kind].items():
            assert torch.equal(again[kind][key], value)


def test_graphs_of_several_kinds_are_explained_side_by_side() -> None:
    """A model that answers for whole graphs: alone and in a list the same."""

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kinds = library().edge_types
            self.conv = HeteroConv({kind: SAGEConv((-1, -1), 8) for kind in kinds})
            self.head = nn.Linear(8, 3)

        def forward(self, x_dict: Any, edge_index_dict: Any, batch_dict: Any) -> Tensor:
            x, home = self.conv(x_dict, edge_index_dict)["paper"].relu(), batch_dict["paper"]
            pooled = x.new_zeros(int(home.max()) + 1, 8).index_add(0, home, x)
            return self.head(pooled)

    torch.manual_seed(0)
    graphs, model = [library(seed) for seed in range(2)], Pooled()
    zeros = {kind: torch.zeros(n, dtype=torch.long) for kind, n in graphs[0].num_nodes_dict.items()}
    model(graphs[0].x_dict, graphs[0].edge_index_dict, zeros)
    nice = NICE(model)
    together = nice.explain(graphs, atoms=False).split()
    for graph, part in zip(graphs, together, strict=True):
        alone = nice.explain(graph, atoms=False)
        torch.testing.assert_close(part.bond_loss, alone.bond_loss, atol=1e-5, rtol=1e-4)


class LinkNet(nn.Module):
    """Two nodes fit if their neighbours are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 4, add_self_loops=False, normalize=False, bias=False)
        nn.init.eye_(self.conv.lin.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index)
        one, other = edge_label_index
        return (x[one] * x[other]).sum(1) - 1


def meeting() -> Data:
    """Nodes 0 and 1 know node 2; 0 knows 3 as well, 1 knows 4, and 5 knows nobody of them."""
    pairs = torch.tensor([[2, 0], [2, 1], [3, 0], [4, 1], [5, 3]])
    x = torch.eye(6)[:, :4].clone()
    x[2] = torch.tensor([0.0, 0, 2, 0])
    return Data(x=x, edge_index=pairs.t())


def test_a_pair_is_explained_by_what_both_know() -> None:
    graph, nice = meeting(), NICE(LinkNet(), mode="binary")
    out = nice.explain(graph, pairs=torch.tensor([[0, 0], [1, 3]]))
    first, other = out.split()
    best = first.bond_index[:, first.bond_score.argsort(descending=True)[:2]]
    assert sorted(map(sorted, best.t().tolist())) == [[0, 2], [1, 2]]
    assert out.index is not None
    assert out.index.tolist() == [[0, 1], [0, 3]]
    alone = nice.explain(graph, pairs=[[0], [3]])
    torch.testing.assert_close(other.bond_loss, alone.bond_loss)
    assert "Pair 0, 1" in out.summary()
    apart = nice.explain(graph, pairs=(0, 1)).status.notes
    assert not any("joined by an edge" in note for note in apart)
    joined = nice.explain(graph, pairs=[[0, 0], [1, 2]]).status.notes
    assert any("1 of the pairs are joined by an edge" in note for note in joined)


def test_gates_are_fitted_on_pairs() -> None:
    graph, few = meeting(), {"boundary__steps": 2, "boundary__num_draws": 2}
    pairs = torch.tensor([[0, 0, 1, 1], [1, 3, 3, 4]])
    nice = NICE(LinkNet(), NICEConfig.paper().with_(**few), mode="binary")
    nice.fit(graph, pairs=pairs, progress=False)
    assert nice.is_fitted
    assert bool(nice.explain(graph, pairs=pairs[:, :1]).bond_gate.isfinite().all())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pairs": [0, 1, 2]}, r"`pairs` must be pairs of nodes of shape \[2, K\]"),
        ({"pairs": [[0], [9]]}, "`pairs` must lie between 0 and 5"),
        ({"pairs": [[0.5], [1]]}, "`pairs` must be pairs"),
        ({"pairs": torch.ones(2, 2).bool()}, "got a mask"),
        ({"pairs": [[0], [1]], "index": 0}, "`pairs` must come without `index`"),
        ({}, "pass them as `pairs`|edge_label_index"),
    ],
)
def test_wrong_pairs_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        NICE(LinkNet(), mode="binary").explain(meeting(), **given)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (("reader", [0]), "must name a kind of nodes"),
        (("paper", [PAPERS]), f"between 0 and {PAPERS - 1}"),
        (("paper", "x"), "`index` must be node numbers"),
        (("author", [0]), "one row per node of the kind 'author'"),
    ],
)
def test_wrong_kinds_are_named(index: Any, message: str) -> None:
    graph, model = library(), KindNet("HeteroConv")
    model(graph.x_dict, graph.edge_index_dict)
    with pytest.raises(TargetError, match=message):
        NICE(model).explain(graph, index=index)
    with pytest.raises(GraphError, match="one kind of nodes and edges"):
        NICE(model).fit([graph])
    with pytest.raises(TargetError, match="`pairs` must come without `index`, for a graph with"):
        NICE(model).explain(graph, pairs=[[0], [1]])


def test_kinds_that_the_background_lacks_are_named() -> None:
    torch.manual_seed(0)
    graph, model = library(), KindNet("HeteroConv")
    model(graph.x_dict, graph.edge_index_dict)
    fewer = library()
    del fewer[REVIEWS]
    with pytest.raises(GraphError, match=r"kinds and widths of the background .*reviews"):
        NICE(model, background=[fewer]).explain(graph, index=("paper", 0))
    whole = Kinds.of([graph]).join(graph)
    data = Data(x=whole.x, edge_index=whole.edge_index, edge_type=whole.edge_type * 0)
    relations = RelationNet(RGCNConv)
    relations(data.x, data.edge_index, data.edge_type)
    nice = NICE(relations, background=[data])
    data.edge_type = whole.edge_type
    with pytest.raises(GraphError, match=r"kinds of edges that the background has, 1 \(got 3"):
        nice.explain(data, index=AUTHORS)
