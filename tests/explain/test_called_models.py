"""A call and its model: errors of the model, kinds of outputs, one object for many calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from nicegnn import NICE
from nicegnn.errors import TargetError
from nicegnn.intervention import neighbourhoods
from tests.conftest import NUM_FEATURES, random_graph, take_snapshot
from tests.explain.small_models import FAST, PAPER, NodeGCN, Smooth

GRAPHS = [random_graph(5 + n, n) for n in range(4)]


# --- the model -----------------------------------------------------------------------------------


class Moody(Smooth):
    """Raises an error of its own for graphs with certain numbers of nodes."""

    def __init__(self, is_wrong: Callable[[int], bool], error: BaseException) -> None:
        super().__init__()
        self.rule, self.error = (is_wrong, error), ()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        is_wrong, error = self.rule
        if is_wrong(x.size(0)):
            raise error
        return super().forward(x, edge_index, batch)


@pytest.mark.parametrize(
    "error", [KeyError("mood"), RuntimeError("odd"), ZeroDivisionError(), MemoryError("full")]
)
def test_errors_of_the_model_are_passed_on_with_a_sentence_around_them(error: Exception) -> None:
    with pytest.raises(TargetError, match=rf"it raised {type(error).__name__}") as found:
        NICE(Moody(lambda size: True, error)).explain(GRAPHS)
    assert found.value.__cause__ is error
    assert ("chunk_edges" in str(found.value)) == isinstance(error, MemoryError)


def test_an_interrupted_explanation_leaves_the_model_alone() -> None:
    calls: list[int] = []

    def ends(size: int) -> bool:
        calls.append(size)
        return len(calls) > 3

    model = Moody(ends, KeyboardInterrupt()).train()
    before = take_snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        NICE(model, FAST).explain(GRAPHS[0])
    assert take_snapshot(model) == before


def test_a_model_that_takes_whole_graphs_only_is_explained_by_whole_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbourhoods, "WORTH", 0)
    graph = GRAPHS[3]
    size = int(graph.num_nodes)
    torch.manual_seed(0)
    picky = Moody(lambda number: number % size != 0, ValueError("a part"))
    plain = Smooth()
    plain.load_state_dict(picky.state_dict())
    out, wanted = (NICE(one, background=[graph]).explain(graph) for one in (picky, plain))
    torch.testing.assert_close(out.bond_score, wanted.bond_score, rtol=1e-4, atol=1e-5)


def test_inputs_must_call_the_model_that_they_are_given() -> None:
    model, other = Smooth(), Smooth()
    found = NICE(model, inputs=lambda _, b: model(b.x, b.edge_index, b.batch)).explain(GRAPHS[0])
    assert torch.equal(found.bond_score, NICE(model).explain(GRAPHS[0]).bond_score)
    wrong = NICE(model, inputs=lambda _, b: other(b.x, b.edge_index, b.batch))
    with pytest.raises(TargetError, match="must call the model that it is given"):
        wrong.explain(GRAPHS[0])


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


PAIRS = random_graph(9, 0)
PAIRS.edge_label_index = torch.tensor([[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("edges", r"one column per class \(got 18, one per edge"),
        ("labels", r"one column per class \(got 3, one per pair"),
        ("rows", r"one row per graph, 1 \(got 18, one for each edge"),
        ("matrix", r"one row per graph, 1 \(got 9, one for each node"),
        ("cube", r"got shape \(9, 9, 2\)"),
        ("nodes", r"got 9, one per node of the graph\)"),
    ],
)
def test_models_of_node_pairs_are_named_with_the_way_to_explain_one(shape: str, words: str) -> None:
    torch.manual_seed(0)
    nice = NICE(Pairs(shape))
    with pytest.raises(TargetError, match=rf"{words}.*(explain one pair: pass `inputs`|`index=`)"):
        nice.explain(PAIRS)


@pytest.mark.parametrize("is_graph", [True, False])
def test_several_values_need_the_number_of_one(is_graph: bool) -> None:
    torch.manual_seed(0)
    model = Smooth(2) if is_graph else NodeGCN()
    graph, index = GRAPHS[0], None if is_graph else [1, 2]
    nice = NICE(model, mode="regression")
    with pytest.raises(TargetError, match=r"`target` must name the output to explain, 0 to \d"):
        nice.explain(graph, index=index)
    out = nice.explain(graph, index=index, target=1)
    frame = out.to_frame("graphs")
    assert frame["explained"].tolist() == [1] * out.num_graphs
    assert frame["prediction"].tolist() == pytest.approx(out.prediction[:, 1].tolist())
    assert "of output 1" in out.split()[0].summary()


def test_all_values_together_are_told_as_such_along_a_joint_path() -> None:
    nice = NICE(Smooth(2), PAPER, mode="regression").fit(GRAPHS, progress=False)
    out = nice.explain(GRAPHS)
    assert out.target.tolist() == [-1] * 4
    assert (out.risk_corrupted > 0).all()
    assert out.atom_score is None
    assert out.trust is None
    assert out.to_frame("graphs")["prediction"].isna().all()
    assert "output -1" not in out.summary()
    assert "2 values" in out.split()[0].summary()


# --- one object, many calls ----------------------------------------------------------------------


class Either(nn.Module):
    """Answers for nodes, or for graphs, as a switch outside of the model says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.graph = NodeGCN(), [False]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out = self.inner(x, edge_index)
        if not self.graph[0]:
            return out
        zeros = out.new_zeros(int(batch.max()) + 1, out.size(1))
        return zeros.index_add(0, batch, out)


def test_one_object_gives_what_new_objects_give() -> None:
    model = Either()
    one = NICE(model)
    for turn in range(3):
        for number, graph in enumerate(GRAPHS):
            model.graph[0] = bool((turn + number) % 2)
            index = None if model.graph[0] else [0, int(graph.num_nodes) - 1]
            target = number % 2
            found, wanted = (
                nice.explain(graph, index=index, target=target) for nice in (one, NICE(model))
            )
            for name in ("bond_score", "bond_loss", "bond_stderr", "atom_score", "prediction"):
                assert torch.equal(getattr(found, name), getattr(wanted, name)), name
            assert found.status == wanted.status
