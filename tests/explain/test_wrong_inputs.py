"""What users pass by mistake is refused with the reason; what only looks odd works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.nn import FastRGCNConv, GCNConv, RGCNConv, SAGEConv, global_add_pool

from nicegnn import NICE, NICEAlgorithm, NICEConfig
from nicegnn.errors import ConfigError, GraphError, InterventionError, StoreError, TargetError
from nicegnn.target.zoo import make_model
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import FAST, DataCall, NodeGCN, Smooth

INSTANT = NICEConfig().with_(attribution__num_draws=4)


def changed(graph: Data, **values: Any) -> Data:
    out = graph.clone()
    for key, value in values.items():
        out[key] = value
    return out


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        (HeteroData(), "must have nodes of some kind"),
        ([HeteroData()], "must have nodes of some kind"),
        (None, "got NoneType"),
        (3, "got int"),
    ],
)
def test_what_is_no_graph_is_refused(graphs: Any, words: str) -> None:
    nice = NICE(Smooth(), INSTANT)
    with pytest.raises(GraphError, match=words):
        nice.explain(graphs)
    with pytest.raises(GraphError, match=words):
        nice.fit(graphs, progress=False)


@pytest.mark.parametrize("words", ["graphs.pt", ["CCO", "CCN"]])
def test_words_need_a_model_that_names_its_featuriser(words: Any) -> None:
    nice = NICE(Smooth(), INSTANT)
    for ask in (nice.explain, nice.fit):
        with pytest.raises(ConfigError, match=r"Set `model.featurizer`.*or pass graphs"):
            ask(words)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("paper", r"got 'paper'\). Pass NICEConfig.paper\(\)"),
        ("my.toml", "from_toml"),
        ({"seed": 1}, "from_dict"),
        (7, r"got 7\). Pass NICEConfig\(\).with_"),
    ],
)
def test_what_is_no_config_is_refused(config: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        NICE(Smooth(), config)
    with pytest.raises(ConfigError, match=words):
        NICEAlgorithm(config)


def test_seeds_of_numpy_count(ring: Data) -> None:
    nice = NICE(Smooth(), INSTANT)
    found = nice.explain(ring, seed=np.int64(3))  # type: ignore[arg-type]
    assert torch.equal(found.bond_score, nice.explain(ring, seed=3).bond_score)


def test_mechanisms_have_names(ring: Data) -> None:
    model = Smooth()
    found = NICE(model, INSTANT, mechanism="nc").explain(ring)
    expected = NICE(model, INSTANT.with_(mechanism="nc")).explain(ring)
    assert torch.equal(found.bond_score, expected.bond_score)
    with pytest.raises(ConfigError, match=r"one of \('exchange', 'nc', 'em'\) \(got 'noise'\)"):
        NICE(model, mechanism="noise")
    with pytest.raises(ConfigError, match="a callable"):
        NICE(model, mechanism=3)


class Multiplying(nn.Module):
    """Multiplies features first; integers cannot be multiplied with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(NUM_FEATURES, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index), batch))


class Adding(Multiplying):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(NUM_FEATURES, 4)  # sends features as they are


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"x": np.ones((7, NUM_FEATURES))}, GraphError, "`x` must be a tensor .got ndarray"),
        ({"edge_attr": [1.0] * 14}, GraphError, "`edge_attr` must be a tensor .got list"),
        ({"x": torch.ones(7, NUM_FEATURES).long()}, GraphError, r"got torch.int64.*x.float\(\)"),
        ({"x": torch.full((7, NUM_FEATURES), 1e30)}, TargetError, "squares may overflow"),
        ({"x": torch.full((7, NUM_FEATURES), torch.nan)}, GraphError, "`x` must be finite"),
    ],
)
def test_features_that_cannot_work_are_named(
    changes: dict[str, Any], error: type[Exception], words: str, ring: Data
) -> None:
    with pytest.raises(error, match=words):
        NICE(Multiplying(), INSTANT).explain(changed(ring, **changes))


def test_whole_numbers_as_messages_are_named(ring: Data) -> None:
    whole = changed(ring, x=torch.ones(7, NUM_FEATURES).long())
    with pytest.raises((GraphError, InterventionError), match=r"x.float\(\)"):
        NICE(Adding(), INSTANT).explain(whole)


def test_graphs_without_nodes_are_named(ring: Data) -> None:
    empty = Data(x=torch.zeros(0, NUM_FEATURES), edge_index=torch.zeros(2, 0).long())
    nice = NICE(Smooth(), INSTANT)
    with pytest.raises(GraphError, match=r"at least one node \(got none\)"):
        nice.explain(empty)
    with pytest.raises(GraphError, match="Graph 1 of 2: A graph must have at least one node"):
        nice.explain([ring, empty])


def test_graphs_of_other_widths_are_named(ring: Data, path: Data) -> None:
    wide = changed(path, x=torch.ones(4, 9))
    nice = NICE(Smooth(), FAST)
    words = r"`x` must have the same width.*\(7, 5\) in graph 0 and \(4, 9\) in graph 1"
    with pytest.raises(GraphError, match=words):
        nice.explain([ring, wide])
    with pytest.raises(GraphError, match=words):
        nice.fit([ring, wide], progress=False)


@pytest.mark.parametrize("kind", [Smooth, lambda: DataCall(Smooth())])
def test_nan_that_the_model_does_not_read_is_allowed(kind: Any, ring: Data) -> None:
    torch.manual_seed(0)
    model, bad = kind(), changed(ring, edge_attr=torch.full((14, 3), torch.nan))
    for config in (INSTANT, FAST):
        found = NICE(model, config).explain(bad)
        assert torch.equal(found.bond_score, NICE(model, config).explain(ring).bond_score)


def test_gates_do_not_read_nan_either(ring: Data, path: Data) -> None:
    class OnlyEdges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Smooth()

        def forward(self, z: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.inner(z, edge_index, batch)

    graphs = [changed(g, z=g.x, x=torch.full_like(g.x, torch.nan)) for g in (ring, path)]
    found = NICE(OnlyEdges(), FAST).fit(graphs, progress=False).explain(graphs)
    assert bool(torch.isfinite(found.bond_score).all())


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
    config = INSTANT.with_(mechanism="em")
    one_by_one, at_once = (
        NICE(Relations(kind), config).explain(typed) for kind in (RGCNConv, FastRGCNConv)
    )
    torch.testing.assert_close(one_by_one.bond_score, at_once.bond_score, rtol=1e-4, atol=1e-5)
    noisy = NICE(Relations(RGCNConv), FAST).explain(typed)
    assert bool(torch.isfinite(noisy.bond_score).all())


def test_caches_of_another_graph_do_not_matter(ring: Data) -> None:
    class Cached(NodeGCN):
        def __init__(self) -> None:
            super().__init__()
            self.first.cached = self.second.cached = True

    torch.manual_seed(0)
    plain, cached = NodeGCN(), Cached()
    cached.load_state_dict(plain.state_dict())
    cached(ring.x, ring.edge_index)
    found = NICE(cached, INSTANT).explain(ring, index=[1, 6])
    assert torch.equal(
        found.bond_score, NICE(plain, INSTANT).explain(ring, index=[1, 6]).bond_score
    )


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


def test_inputs_may_call_the_model_by_its_own_name(ring: Data) -> None:
    model = Smooth()
    found = NICE(model, INSTANT, inputs=lambda _, b: model(b.x, b.edge_index, b.batch))
    assert torch.equal(
        found.explain(ring).bond_score, NICE(model, INSTANT).explain(ring).bond_score
    )
    other = Smooth()
    wrong = NICE(model, INSTANT, inputs=lambda _, b: other(b.x, b.edge_index, b.batch))
    with pytest.raises(TargetError, match="must call the model that it is given"):
        wrong.explain(ring)


def test_boolean_index_of_pyg(ring: Data) -> None:
    explainer = PyGExplainer(
        NodeGCN(),
        algorithm=NICEAlgorithm(INSTANT),
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    chosen = torch.tensor([2, 5])
    mask = torch.zeros(7, dtype=torch.bool)
    mask[chosen] = True
    found = explainer(ring.x, ring.edge_index, index=mask).edge_mask
    assert torch.equal(found, explainer(ring.x, ring.edge_index, index=chosen).edge_mask)
    with pytest.raises(TargetError, match="between 0 and 6"):
        explainer(ring.x, ring.edge_index, index=99)


def test_files_are_saved_where_that_is_possible(tmp_path: Path) -> None:
    graphs = [random_graph(5, 1), random_graph(6, 2)]
    nice = NICE(Smooth(), FAST).fit(graphs, progress=False)
    nice.save(tmp_path / "new" / "folder" / "one.nice")
    assert (tmp_path / "new" / "folder" / "one.nice").is_file()
    with pytest.raises(StoreError, match=r"must be a file \(got the folder"):
        nice.save(tmp_path)
    with pytest.raises(StoreError, match="Cannot write"):
        nice.save(tmp_path / "new" / "folder" / "one.nice" / "two.nice")


class Pairs(nn.Module):
    """Scores pairs of nodes, in one of the shapes that link predictors have."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.conv, self.shape = SAGEConv(NUM_FEATURES, 8), shape

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor | None = None
    ) -> Tensor:
        z = self.conv(x, edge_index)
        pairs = {"edges": edge_index, "labels": edge_label_index, "rows": edge_index}
        if self.shape in pairs:
            u, v = pairs[self.shape]
            score = (z[u] * z[v]).sum(1)
            return torch.stack([-score, score], 1) if self.shape == "rows" else score
        if self.shape == "nodes":
            return z[:, 0]
        scores = z @ z.t()
        return scores if self.shape == "matrix" else torch.stack([scores, -scores], 2)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("edges", r"one column per class \(got 18, one per edge"),
        ("labels", r"one column per class \(got 3, one per pair"),
        ("rows", r"one row per graph, 1 \(got 18, one for each edge"),
        ("matrix", r"one row per graph, 1 \(got 9, one for each node"),
        ("cube", r"got shape \(9, 9, 2\)"),
    ],
)
def test_models_of_node_pairs_are_named_with_the_way_to_explain_one(shape: str, words: str) -> None:
    graph = changed(random_graph(9, 0), edge_label_index=torch.tensor([[0, 1, 2], [3, 4, 5]]))
    torch.manual_seed(0)
    model = Pairs(shape)
    with pytest.raises(TargetError, match=rf"{words}.*explain one pair: pass `inputs`"):
        NICE(model, INSTANT).explain(graph)
    with pytest.raises(TargetError, match="explain one pair"):
        NICE(model, INSTANT).explain(graph, index=2)
    if shape == "matrix":

        def of_pair(model: nn.Module, batch: Data) -> Tensor:
            out: Tensor = model(batch.x, batch.edge_index, batch.edge_label_index)
            return out[2, 3].view(1, 1)

        out = NICE(model, INSTANT, inputs=of_pair, batched=False, mode="binary").explain(graph)
        far = (out.bond_index != 2).all(0) & (out.bond_index != 3).all(0)
        assert not out.bond_loss[far].any()  # one layer: bonds of other nodes do not matter
        assert out.bond_loss[~far].any()


def test_a_value_per_node_is_not_taken_for_classes() -> None:
    graph = changed(random_graph(9, 0), edge_label_index=torch.tensor([[0], [1]]))
    with pytest.raises(TargetError, match=r"got 9, one per node of the graph\). Pass `index=`"):
        NICE(Pairs("nodes"), INSTANT).explain(graph)


@pytest.mark.parametrize(
    ("name", "reason"), [("gat", "the model takes a maximum, or attends"), ("gin", None)]
)
def test_why_differences_cannot_be_followed_is_told(name: str, reason: str | None) -> None:
    torch.manual_seed(0)
    model = make_model(name, NUM_FEATURES, 2)
    notes = NICE(model, INSTANT).explain(random_graph(9, 0)).status.notes
    told = [note for note in notes if note.startswith("Bonds were damaged in whole copies")]
    assert len(told) == (reason is not None)
    assert all(str(reason) in note for note in told)
