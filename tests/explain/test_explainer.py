"""What every explainer does: graphs in any form, clear errors, an untouched model, fits shared."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import FastRGCNConv, RGCNConv, global_add_pool

from nicegnn import NICE, Explainer, NICEConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.explain.registry import get_explainer
from nicegnn.explain.trust import Flag
from tests.conftest import NUM_FEATURES
from tests.explain.small_models import (
    FAST,
    PAPER,
    DataCall,
    PlainCall,
    RenamedCall,
    Smooth,
    Weighted,
    make,
)


@pytest.mark.parametrize(
    ("wrapper", "inputs"),
    [
        (PlainCall, None),
        (DataCall, None),
        (RenamedCall, ["x", "edge_index", "batch"]),
        (RenamedCall, lambda model, batch: model(batch.x, batch.edge_index, batch.batch)),
    ],
)
def test_every_way_to_call_a_model_gives_the_same_scores(
    wrapper: type[PlainCall], inputs: object, graphs: list[Data]
) -> None:
    torch.manual_seed(0)
    inner = Smooth()
    expected = NICE(inner, FAST).explain(graphs[:3])
    out = NICE(wrapper(inner), FAST, inputs=inputs).explain(graphs[:3])  # type: ignore[arg-type]
    torch.testing.assert_close(out.edge_score, expected.edge_score, rtol=1e-4, atol=1e-5)


def test_edge_weights_reach_the_model_and_dead_edges_get_no_score(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    for graph in graphs:
        graph.edge_weight = torch.rand(graph.num_edges)
        graph.edge_weight[:2] = 0.0  # first bond
    out = NICE(Weighted(), FAST, mechanism="em").explain(graphs)
    for part in out.split():
        assert part.bond_loss[0] == 0
        assert part.bond_loss[1:].abs().sum() > 0


def test_datasets_loaders_and_lists_are_accepted_alike(graphs: list[Data]) -> None:
    scores = []
    for source in (graphs, DataLoader(graphs, batch_size=2), iter(graphs)):
        nice = NICE(make("gin"), FAST).fit(source, progress=False)
        scores.append(nice.explain(graphs).edge_score)
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_graphs_without_edges_and_single_nodes_have_defined_results(graphs: list[Data]) -> None:
    lonely = Data(x=torch.randn(1, NUM_FEATURES), edge_index=torch.zeros(2, 0, dtype=torch.long))
    scattered = Data(x=torch.randn(4, NUM_FEATURES), edge_index=torch.zeros(2, 0, dtype=torch.long))
    for graph in graphs:
        graph.edge_attr = None
    nice = NICE(make("gin"), FAST)
    out = nice.explain([graphs[0], lonely, graphs[1], scattered])
    assert out.status.flags[1] == out.status.flags[3] == Flag.NO_EDGES
    assert [part.bond_score.numel() for part in out.split()][1::2] == [0, 0]
    torch.testing.assert_close(
        out.split()[2].edge_score, nice.explain(graphs[1]).edge_score, rtol=1e-4, atol=1e-5
    )
    alone = nice.explain(lonely)
    assert alone.bond_score.numel() == 0
    assert "no edges" in str(alone.status)
    nice = NICE(make("gin"), PAPER).fit([lonely, *graphs], progress=False)
    assert nice.fit_report is not None
    assert nice.fit_report.num_graphs == len(graphs)
    with pytest.raises(GraphError, match="must have edges"):
        nice.fit([lonely, scattered], progress=False)


def test_isolated_nodes_self_loops_duplicates_and_one_way_edges(isolated: Data) -> None:
    nice = NICE(make("gin"), FAST)
    assert nice.explain(isolated).bond_score.numel() == 2
    odd = Data(
        x=torch.randn(4, NUM_FEATURES),
        # a loop, a one-way edge, a bond, and the bond's first direction once more
        edge_index=torch.tensor([[0, 1, 2, 3, 2], [0, 2, 3, 2, 3]]),
    )
    out = nice.explain(odd)
    assert out.bond_index.t().tolist() == [[0, 0], [1, 2], [2, 3]]
    assert out.bonds.count.tolist() == [1, 1, 3]
    looped = NICE(make("gcn"), FAST).explain(odd)
    assert looped.bond_loss[0].abs() < 1e-6  # GCN takes the loop over as its own, which stays clean
    assert looped.bond_loss[1:].abs().min() > 0


def test_compiled_models_are_explained_like_the_model_itself(ring: Data) -> None:
    torch.manual_seed(0)
    model = Smooth()
    expected = NICE(model, FAST).explain(ring)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(ring.x, ring.edge_index)  # compiled before anything is explained
    out = NICE(compiled, FAST).explain(ring)
    torch.testing.assert_close(out.edge_score, expected.edge_score)


def test_equal_seeds_give_equal_results_and_other_seeds_others(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST, mechanism="nc")
    first, again, other = (nice.explain(batch, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.edge_score, again.edge_score)
    assert not torch.allclose(first.edge_score, other.edge_score)


def test_chosen_class_is_explained(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    out = nice.explain(batch, target=2)
    assert out.target.tolist() == [2] * 5
    mixed = torch.tensor([0, 1, 2, 1, 0])
    out = nice.explain(batch, target=mixed)
    assert out.target.tolist() == mixed.tolist()
    alone = nice.explain(batch[1], target=1)
    torch.testing.assert_close(out.split()[1].edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
    by_two = NICE(nice.target.model, FAST.with_(batch_size=2))
    listed = by_two.explain(batch.to_data_list(), target=mixed)
    assert listed.target.tolist() == mixed.tolist()
    torch.testing.assert_close(listed.edge_score, out.edge_score, rtol=1e-4, atol=1e-5)


def test_one_column_needs_a_word_about_its_meaning(batch: Batch) -> None:
    with pytest.raises(TargetError, match="mode='binary' or mode='regression'"):
        NICE(Smooth(num_classes=1), FAST).explain(batch)
    out = NICE(Smooth(num_classes=1), FAST, mode="binary").explain(batch)
    assert set(out.target.tolist()) <= {0, 1}
    torch.testing.assert_close(out.prediction.exp().sum(1), torch.ones(5))


@pytest.mark.parametrize("name", ["nice", "occlusion"])
def test_explainers_and_explanations_can_be_pickled(name: str, graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = Smooth()
    explainer: Explainer = NICE(model, FAST)
    if name != "nice":
        explainer = get_explainer(name, model)
    explainer.fit(graphs, progress=False)
    found = explainer.explain(graphs)
    again = pickle.loads(pickle.dumps(explainer))
    assert again.target.model is not model
    other = again.explain(graphs)
    kept = pickle.loads(pickle.dumps(found))
    for one in (other, kept):
        assert torch.equal(one.bond_score, found.bond_score)
        assert torch.equal(one.prediction, found.prediction)
        assert one.status == found.status


def test_what_was_learned_follows_the_model(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = Smooth()
    explainer = NICE(model, PAPER)
    explainer.fit(graphs, progress=False)
    expected = explainer.explain(graphs)
    assert explainer._learned()
    moved: list[object] = []
    for net in explainer._learned():
        net.to = lambda device: moved.append(device)  # type: ignore[method-assign, assignment]
    again = explainer.explain(graphs)
    assert moved == [torch.device("cpu")] * len(explainer._learned())  # where the model is
    assert torch.equal(again.bond_score, expected.bond_score)


# --- models that are called or built in other ways ------------------------------------------------


def changed(graph: Data, **values: Any) -> Data:
    return graph.clone().update(values)


class Relations(nn.Module):
    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(NUM_FEATURES, 6, 3), layer(6, 2, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor) -> Tensor:
        h = self.first(x, edge_index, edge_type).relu()
        return global_add_pool(self.second(h, edge_index, edge_type), batch)


def test_relations_are_explained_whichever_way_messages_are_sent(graphs: list[Data]) -> None:
    typed = [changed(g, edge_type=torch.arange(g.num_edges) // 2 % 2) for g in graphs]
    config = NICEConfig(mechanism="em")
    one_by_one, at_once = (
        NICE(Relations(kind), config).explain(typed) for kind in (RGCNConv, FastRGCNConv)
    )
    torch.testing.assert_close(one_by_one.bond_score, at_once.bond_score, rtol=1e-4, atol=1e-5)
    noisy = NICE(Relations(RGCNConv), FAST).explain(typed)
    assert bool(torch.isfinite(noisy.bond_score).all())


class WithState(nn.Module):
    """Reads a vector of the graph, and names of graphs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head = Smooth(), nn.Linear(5, 2)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, u: Tensor, kind: list[str]
    ) -> Tensor:
        sign = torch.tensor([1.0 if name == "plus" else -1.0 for name in kind])
        return self.inner(x, edge_index, batch) + sign.view(-1, 1) * self.head(u.view(-1, 5))


def test_fit_takes_the_attributes_that_explain_takes(graphs: list[Data]) -> None:
    full = [
        changed(g, u=torch.randn(5), kind="plus" if n % 2 else "minus")
        for n, g in enumerate(graphs)
    ]
    nice = NICE(WithState(), FAST)
    before = nice.explain(full)
    after = nice.fit(full, progress=False).explain(full)
    assert torch.equal(after.prediction, before.prediction)
