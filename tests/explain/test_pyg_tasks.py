"""All tasks of ``torch_geometric.explain``, through `NICEAlgorithm`: the masks that PyG expects."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv, TransformerConv, global_add_pool

from nicegnn import NICEAlgorithm
from nicegnn.errors import NicegnnError

MODES = ("binary_classification", "multiclass_classification", "regression")
RETURNS = {MODES[0]: ("raw", "probs"), MODES[1]: ("raw", "probs", "log_probs"), MODES[2]: ("raw",)}
INDICES: tuple[Any, ...] = (None, 2, torch.arange(3), torch.tensor([True, False, True]))
MASKS = ((None, "object"), ("object", None), ("object", "object"), ("attributes", "object"))

#: What NICE refuses inside PyG's Explainer, and why.
REFUSED = {
    "node_mask_type='common_attributes'": "a column of all nodes at once is no single message",
    "edge_mask_type='attributes'": "a bond has one message: its columns mean nothing alone",
}


class Model(nn.Module):
    """Two layers, and a head for each task."""

    def __init__(self, level: str, mode: str, returns: str, conv: Any = GCNConv) -> None:
        super().__init__()
        self.level, self.mode, self.returns = level, mode, returns
        self.first, self.last = conv(3, 8), conv(8, 4 if mode == MODES[1] else 1)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_label_index: Tensor | None = None,
    ) -> Tensor:
        x = self.last(self.first(x, edge_index).relu(), edge_index)
        if self.level == "graph":
            x = global_add_pool(x, batch)
        elif self.level == "edge":
            assert edge_label_index is not None
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        if self.returns == "raw":
            return x
        if self.mode == MODES[0]:
            return x.sigmoid()
        return x.softmax(1) if self.returns == "probs" else x.log_softmax(1)


ENDS = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 6, 6, 7, 2, 3], [1, 0, 2, 1, 4, 3, 6, 5, 7, 6, 3, 2]])
X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
PAIRS = torch.tensor([[0, 1, 2], [3, 4, 5]])
GRAPHS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])  # edges 2-3 leave their graph


def explain(model: nn.Module, masks: tuple[str | None, str | None], kind: str, **given: Any) -> Any:
    settings = {
        "mode": given.pop("mode"),
        "task_level": given.pop("level"),
        "return_type": given.pop("returns"),
    }
    explainer = Explainer(
        model,
        NICEAlgorithm(),
        explanation_type=kind,
        node_mask_type=masks[0],
        edge_mask_type=masks[1],
        model_config=settings,
    )
    x, edges = given.pop("x", X), given.pop("edges", ENDS)
    if kind == "phenomenon":
        with torch.no_grad():
            out = model.eval()(x, edges, **{k: v for k, v in given.items() if k != "index"})
        is_binary = settings["mode"] == MODES[0]
        level = 0 if settings["return_type"] == "raw" else 0.5
        given["target"] = (out > level).long().view(-1) if is_binary else out.argmax(-1)
    return explainer(x, edges, **given)


def check_mask(mask: Tensor, *shape: int) -> None:
    assert mask.shape == shape
    assert 0 <= float(mask.min()) <= float(mask.max()) <= 1


@pytest.mark.parametrize("level", ["node", "edge", "graph"])
@pytest.mark.parametrize("mode", MODES)
def test_every_task_gives_the_masks_of_pyg(level: str, mode: str) -> None:
    torch.manual_seed(0)
    for returns, index in zip(cycle(RETURNS[mode]), INDICES, strict=False):
        if level == "node" and isinstance(index, Tensor) and index.dtype == torch.bool:
            index = torch.cat([index, torch.zeros(5, dtype=torch.bool)])
        model = Model(level, mode, returns)
        given = {"batch": GRAPHS, "edge_label_index": PAIRS, "index": index}
        task = {"level": level, "mode": mode, "returns": returns}
        out = explain(model, (None, "object"), "model", **given, **task)
        check_mask(out.edge_mask, ENDS.size(1))
        assert "node_mask" not in out
        assert float(out.edge_mask.max()) == pytest.approx(1.0)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("level", ["node", "edge", "graph"])
def test_every_mask_has_the_shape_of_pyg(level: str, masks: tuple[str | None, str | None]) -> None:
    torch.manual_seed(0)
    task = {"level": level, "mode": MODES[1], "returns": "raw"}
    model = Model(level, MODES[1], "raw", TransformerConv)
    given = {"batch": GRAPHS * 0, "edge_label_index": PAIRS[:, :1], "index": 0}
    out = explain(model, masks, "phenomenon", **given, **task)
    if masks[0] is not None:
        check_mask(out.node_mask, 8, 1 if masks[0] == "object" else 3)
    assert ("edge_mask" in out) == (masks[1] is not None)


def test_rows_are_added_when_none_is_named() -> None:
    torch.manual_seed(0)
    task = {"level": "node", "mode": MODES[2], "returns": "raw"}
    model = Model("node", MODES[2], "raw")
    whole = explain(model, (None, "object"), "model", **task).edge_score
    parts = [explain(model, (None, "object"), "model", index=i, **task) for i in range(8)]
    torch.testing.assert_close(whole, torch.stack([p.edge_score for p in parts]).sum(0))


def test_rows_of_any_other_kind_are_explained_one_by_one() -> None:
    """Edges leave their graph here, so that graphs are no parts; their rows are explained alone."""
    torch.manual_seed(0)
    model = Model("graph", MODES[2], "raw")
    task = {"level": "graph", "mode": MODES[2], "returns": "raw"}
    score = explain(model, (None, "object"), "model", batch=GRAPHS, index=0, **task).edge_score
    apart = ENDS[0] >= 5  # two layers away from graph 0, and further
    assert float(score[apart].abs().max()) == 0
    assert float(score[~apart].abs().min()) > 0


def hetero() -> HeteroData:
    draw = torch.Generator().manual_seed(1)
    graph = HeteroData()
    graph["paper"].x = torch.randn(6, 5, generator=draw)
    graph["author"].x = torch.randn(4, 3, generator=draw)
    for kind in (("paper", "to", "paper"), ("paper", "to", "author"), ("author", "to", "paper")):
        ends = [torch.randint(6 if kind[k] == "paper" else 4, (9,), generator=draw) for k in (0, 2)]
        graph[kind].edge_index = torch.stack(ends)
    return graph


class HeteroModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = hetero().edge_types
        self.layers = nn.ModuleList(
            HeteroConv({kind: SAGEConv((-1, -1), 8) for kind in kinds}) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        for layer in self.layers:
            x_dict = {key: x.relu() for key, x in layer(x_dict, edge_index_dict).items()}
        return self.head(x_dict["paper"])


@pytest.mark.parametrize(
    ("masks", "index"), [(MASKS[0], None), (MASKS[2], torch.arange(2)), (MASKS[3], 2)]
)
def test_kinds_give_a_mask_each(masks: tuple[str | None, str | None], index: Any) -> None:
    torch.manual_seed(0)
    graph, model = hetero(), HeteroModel()
    given = {"x": graph.x_dict, "edges": graph.edge_index_dict, "index": index}
    task = {"level": "node", "mode": MODES[1], "returns": "raw"}
    out = explain(model, masks, "model", **given, **task)
    out.validate(raise_on_error=True)
    for kind, edges in graph.edge_index_dict.items():
        check_mask(out[kind].edge_mask, edges.size(1))
    for kind, x in graph.x_dict.items():
        if masks[0] is not None:
            check_mask(out[kind].node_mask, x.size(0), 1 if masks[0] == "object" else x.size(1))


def test_what_is_refused_says_so() -> None:
    settings = {"mode": MODES[1], "task_level": "node", "return_type": "raw"}
    for masks in (("common_attributes", "object"), ("common_attributes", None)):
        with pytest.raises(ValueError, match="does not support"):
            Explainer(
                Model("node", MODES[1], "raw"),
                NICEAlgorithm(),
                explanation_type="model",
                node_mask_type=masks[0],
                edge_mask_type=masks[1],
                model_config=settings,
            )
    with pytest.raises(NicegnnError, match="`x` and `edge_index`"):
        NICEAlgorithm()(Model("node", MODES[1], "raw"), [1], ENDS, target=torch.zeros(1))
    assert all(reason for reason in REFUSED.values())
