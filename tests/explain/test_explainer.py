"""What every explainer does: graphs in any form, clear errors, an untouched model, fits shared."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from nicegnn import NICE, Explainer
from nicegnn.errors import ConfigError, GraphError, TargetError
from nicegnn.explain.registry import get_explainer
from nicegnn.explain.trust import Flag
from tests.conftest import NUM_FEATURES, take_snapshot
from tests.explain.small_models import (
    FAST,
    DataCall,
    NodeGCN,
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
    nice.fit([lonely, *graphs], progress=False)
    assert nice.fit_report is not None
    assert nice.fit_report.num_left_out == 1
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


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda g: g.x.__setitem__((0, 0), float("nan")), GraphError, "finite"),
        (lambda g: setattr(g, "edge_index", g.edge_index.int()), GraphError, "torch.long"),
        (lambda g: setattr(g, "x", g.x.double()), GraphError, "dtype"),
        (lambda g: setattr(g, "edge_index", g.edge_index + 100), GraphError, "node numbers"),
        (lambda g: setattr(g, "edge_index", None), GraphError, "edge_index"),
        (lambda g: setattr(g, "edge_attr", g.edge_attr[1:]), GraphError, "one row per edge"),
    ],
)
def test_bad_graphs_are_named_and_leave_the_model_alone(spoil, error, words, ring: Data) -> None:  # type: ignore[no-untyped-def]
    model = make("gin").train()
    before = take_snapshot(model)
    spoil(ring)
    with pytest.raises(error, match=words):
        NICE(model, FAST).explain(ring)
    assert take_snapshot(model) == before


def test_bad_targets_indices_and_inputs_are_named(ring: Data) -> None:
    nice = NICE(make("gin"), FAST)
    with pytest.raises(TargetError, match="between 0 and 2"):
        nice.explain(ring, target=3)
    with pytest.raises(TargetError, match="number of a class or output"):
        nice.explain(ring, target=torch.tensor(1.5))
    with pytest.raises(TargetError, match="Leave `index` out"):
        nice.explain(ring, index=0)
    node = NICE(NodeGCN(), FAST)
    with pytest.raises(TargetError, match="pass `index=`"):
        node.explain(ring)
    with pytest.raises(TargetError, match="between 0 and 6"):
        node.explain(ring, index=7)
    with pytest.raises(GraphError, match="at least one graph"):
        nice.explain([])
    with pytest.raises(ConfigError, match="name its featuriser"):
        nice.explain("benzene")


def test_unreached_graph_attribute_is_named(ring: Data) -> None:
    ring.edge_attr = None
    with pytest.raises(TargetError, match="edge_weight"):
        NICE(Weighted(), FAST).explain(ring)


class Failing(Smooth):
    """Runs until told to fail; the switch is a list, so that the model's attributes stay as is."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = [10**6]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        self.calls_left[0] -= 1
        if self.calls_left[0] < 0:
            raise KeyboardInterrupt
        return super().forward(x, edge_index, batch)


def test_interrupted_explanation_leaves_the_model_alone(ring: Data) -> None:
    model = Failing().train()
    model.calls_left[0] = 5
    before = take_snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        NICE(model, FAST).explain(ring)
    model.calls_left[0] = 5
    assert take_snapshot(model) == before


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


def test_global_random_state_is_left_alone(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    state = torch.random.get_rng_state()
    nice.fit(batch.to_data_list(), progress=False)
    nice.explain(batch)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_chosen_class_is_explained(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    out = nice.explain(batch, target=2)
    assert out.target.tolist() == [2] * 5
    mixed = torch.tensor([0, 1, 2, 1, 0])
    out = nice.explain(batch, target=mixed)
    assert out.target.tolist() == mixed.tolist()
    alone = nice.explain(batch[1], target=1)
    torch.testing.assert_close(out.split()[1].edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
    listed = nice.explain(batch.to_data_list(), target=mixed)
    torch.testing.assert_close(listed.edge_score, out.edge_score, rtol=1e-4, atol=1e-5)


def test_classes_of_a_list_stay_with_their_graphs_from_batch_to_batch(graphs: list[Data]) -> None:
    wanted = torch.tensor([2, 0, 1, 1, 0])[: len(graphs)]
    model = make("gin")
    found = NICE(model, FAST.with_(batch_size=2)).explain(graphs, target=wanted)
    assert found.target.tolist() == wanted.tolist()
    whole = NICE(model, FAST).explain(graphs, target=wanted)
    torch.testing.assert_close(found.bond_score, whole.bond_score, rtol=1e-3, atol=1e-4)


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


def test_what_was_learned_moves_and_follows_the_model(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = Smooth()
    explainer = NICE(model, FAST)
    assert explainer.to("cpu") is explainer  # nothing learned yet
    explainer.fit(graphs, progress=False)
    expected = explainer.explain(graphs)
    assert explainer._learned()
    moved: list[object] = []
    for net in explainer._learned():
        net.to = lambda device: moved.append(device)  # type: ignore[method-assign, assignment]
    explainer.to("meta")
    assert moved == [torch.device("meta")] * len(explainer._learned())
    moved.clear()
    again = explainer.explain(graphs)
    assert moved == [torch.device("cpu")] * len(explainer._learned())  # where the model is
    assert torch.equal(again.bond_score, expected.bond_score)
