"""Whatever is passed to a public call works or is refused by name; nothing raw comes out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn import NICE, NICEAlgorithm, NICEConfig
from nicegnn.errors import GraphError, NicegnnError
from nicegnn.explain.registry import get_explainer
from tests.conftest import NUM_FEATURES, random_graph, take_snapshot
from tests.explain.small_models import FAST, PAPER, DataCall, NodeGCN, Smooth, Weighted, make

GRAPHS = [random_graph(5 + n, n) for n in range(4)]
WORDS = ("no", "", b"x", "\0")
NUMBERS = (1.5, float("nan"), 1e400, 1 + 1j, 10**30, -1, -(10**30))
TENSORS = (
    torch.tensor([1.5]),
    torch.tensor([]),
    torch.tensor(1 + 1j),
    torch.empty(2, dtype=torch.long, device="meta"),
    torch.zeros(3).to_sparse(),
    np.array([1.5, 2.0]),
    np.array("a"),
)
TWO = (torch.tensor([1, 0]), torch.tensor([True, False]), np.array([1, 0]))
OTHERS = ({1}, {"a": 1}, [[]], [None], ["a"], object(), int, lambda: 0, (one for one in "a"))
JUNK = (*WORDS, *NUMBERS, *TENSORS, *OTHERS)
#: What each argument must not be, beside `JUNK`, and calls that take it.
EXPLAIN: dict[str, tuple[Any, ...]] = {
    "target": (True, 1e9, (), [1, [2]]),
    "index": (True, (), 99, [1, [2]], TWO[1]),
    "seed": (True, *TWO),
    **dict.fromkeys(("progress", "atoms", "student"), (0, 1, None, *TWO)),
}
FIT = {"target": (0, *TWO), "index": (True,), "seed": (True, *TWO), "progress": (0, None, *TWO)}
MAKE: dict[str, tuple[Any, ...]] = {
    "model": (None, 3, *TWO),
    "config": (0, True, *TWO),
    "mode": (None, 0, *TWO),
    "return_type": (None, 0, *TWO),
    "batched": (0, 1, *TWO),
    "inputs": ((), 3, [3], *TWO),
    "background": (0, *TWO),
}
CALLABLE = ("mechanism", "inputs", "config")  # a function or a class may be right for these


def word(value: object) -> str:
    """Names a case without addresses, so that all workers collect the same names."""
    is_plain = isinstance(value, str) and value.isidentifier()
    return str(value) if is_plain else type(value).__name__


def cases() -> Iterator[Any]:
    for call, known in (("explain", EXPLAIN), ("fit", FIT), ("teach", FIT), ("make", MAKE)):
        for name, own in known.items():
            for value in (*JUNK, *own):
                if not (callable(value) and name in CALLABLE):
                    yield pytest.param(call, name, value, id=f"{call}-{name}-{word(value)}")
    for call in ("load", "save"):
        for value in (b"x", "\0", 3, None, ["a"], *TWO):
            yield pytest.param(call, "path", value, id=f"{call}-{word(value)}")


def run(call: str, name: str, value: Any) -> None:
    model = make("gin")
    if call == "make":
        NICE(**({"model": model} | {name: value})).explain(GRAPHS)
    elif call == "load":
        NICE.load(value, model)
    elif call == "save":
        NICE(model, background=GRAPHS).save(value)
    elif call == "explain":
        node = NICE(NodeGCN(), background=GRAPHS[0]) if name == "index" else None
        (node or NICE(model, background=GRAPHS)).explain(GRAPHS[0], **{name: value})
    else:
        getattr(NICE(model, FAST), call)(GRAPHS, **({"progress": False} | {name: value}))


@pytest.mark.parametrize(("call", "name", "value"), [*cases()])
def test_what_is_wrong_is_refused_by_the_name_of_its_argument(
    call: str, name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some junk would be a path
    with pytest.raises(NicegnnError) as found:
        run(call, name, value)
    text = str(found.value)
    said = {"background": (f"`{name}`", "`graphs`", "`model.featurizer`")}
    assert any(word in text for word in said.get(name, (f"`{name}`",)))
    assert "(got " in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [*JUNK, None, 3, [], HeteroData(), [HeteroData()]], ids=word)
def test_graphs_are_graphs(value: Any) -> None:
    nice, node = NICE(make("gin"), FAST), NICE(NodeGCN())
    calls: tuple[Callable[[], Any], ...] = (
        lambda: nice.explain(value),
        lambda: nice.explain([GRAPHS[0], value]),
        lambda: nice.fit(value, progress=False),
        lambda: node.explain(value, index=1),
    )
    told = r"`(graphs|model.featurizer)`|at least one graph|must have nodes of some kind"
    for call in calls:
        with pytest.raises(NicegnnError, match=told):
            call()


@pytest.mark.parametrize(
    ("make_it", "told"),
    [
        (lambda model: get_explainer("nosuch", model), "`name` must be one of"),
        (lambda model: get_explainer("nice", model, nosuch=3), "Unknown setting"),
        (lambda model: NICE(model, mechanism="noise"), r"one of \('exchange', 'nc', 'em'\)"),
        (lambda model: NICE(model, mechanism=3), "a callable"),
        (lambda model: NICE(model, mechanism=lambda: 0).explain(GRAPHS), "."),
        (lambda model: NICE(model, mechanism=lambda m, g, site: m[:, :1]).explain(GRAPHS), "."),
        (lambda model: NICE(model, inputs=lambda: 0).explain(GRAPHS), "."),
        (lambda model: NICE(model).explain(GRAPHS).to("nosuch"), "`device`"),
        (lambda model: NICE(model, "my.toml"), "from_toml"),
        (lambda model: NICE(model, {"seed": 1}), "from_dict"),
        (lambda model: NICEAlgorithm("paper"), r"got 'paper'\). Pass .* NICEConfig.paper\(\)"),
        (lambda model: NICEConfig().with_(anchor="gate"), "`anchor`"),
        (lambda model: NICE(model).explain(["CCO", "CC"]), r"`model.featurizer`.*or pass graphs"),
        (lambda model: NICE(model).explain(GRAPHS).to_frame("nosuch"), "`kind`"),
        (lambda model: NICE(model).explain(GRAPHS).summary(0), "`most`"),
        (lambda model: NICE(model).explain(GRAPHS).top(1.5), "`size`"),
        (lambda model: NICE(model).explain(GRAPHS).top("a"), "`size`"),
        (lambda model: NICE(model).explain(GRAPHS).draw(value="nosuch"), "`value`"),
        (lambda m: NICE(m, background=[GRAPHS[0].clone().update({"x": X / 0})]), "`background`"),
        (lambda model: NICE(model).explain(GRAPHS[0], target=3), "between 0 and 2"),
        (lambda model: NICE(model).explain(GRAPHS[0], index=0), "Leave `index` out"),
        (lambda model: NICE(NodeGCN()).explain(GRAPHS[0]), "pass `index=`"),
        (lambda model: NICE(NodeGCN()).explain(GRAPHS[0], index=7), "between 0 and 4"),
        (lambda model: NICE(Smooth(1)).explain(GRAPHS), "mode='binary' or mode='regression'"),
        (lambda m: NICE(Weighted()).explain(Data(x=X, edge_index=EDGES)), "edge_weight"),
    ],
)
def test_other_mistakes_are_named_too(make_it: Callable[[nn.Module], Any], told: str) -> None:
    with pytest.raises(NicegnnError, match=told):
        make_it(make("gin"))


def test_seeds_of_numpy_count() -> None:
    nice = NICE(make("gin"), mechanism="nc")
    found = nice.explain(GRAPHS[0], seed=np.int64(3))  # type: ignore[arg-type]
    assert torch.equal(found.bond_score, nice.explain(GRAPHS[0], seed=3).bond_score)


# --- graphs --------------------------------------------------------------------------------------

X, EDGES = GRAPHS[0].x, GRAPHS[0].edge_index
FEATURES = {
    "x1": X[:, 0],
    "x3": X[:, :, None],
    "x0": torch.tensor(1.0),
    "narrow": X[:, :3],
    "wide": torch.ones(5, 9),
    "double": X.double(),
    "half": X.half(),
    "whole": X.long(),
    "bool": X > 0,
    "complex": X + 1j,
    "sparse": X.to_sparse(),
    "meta": X.to("meta"),
    "array": X.numpy(),
    "text": "abc",
    "texts": ["a"] * 5,
    "set": {1},
    "nan": X * torch.nan,
}
INDICES = {
    "float": EDGES.float(),
    "int": EDGES.int(),
    "flat": EDGES[0],
    "turned": EDGES.t(),
    "low": EDGES - 1,
    "high": EDGES + 3,
    "text": "ab",
    "list": EDGES.tolist(),
    "none": None,
    "meta": EDGES.to("meta"),
    "sparse": torch.eye(5).to_sparse(),
    "number": torch.tensor(1),
}


def changed(graph: Data, **values: Any) -> Data:
    return graph.clone().update(values)


@pytest.mark.parametrize("kind", ["graph", "node", "data"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(pytest.param("x", value, id=f"x-{key}") for key, value in FEATURES.items()),
        *(pytest.param("edge_index", v, id=f"edges-{key}") for key, v in INDICES.items()),
        pytest.param("edge_attr", [1.0] * 10, id="attributes-list"),
    ],
)
def test_features_and_edges_of_the_wrong_kind_are_named(name: str, value: Any, kind: str) -> None:
    model = {"graph": make("gin"), "node": NodeGCN(), "data": DataCall(Smooth())}[kind].train()
    before = take_snapshot(model)
    bad = copy.copy(GRAPHS[0])
    bad[name] = value
    with pytest.raises(NicegnnError, match=rf"`{name}`|`x.float\(\)`|must take these graphs"):
        NICE(model).explain(bad, index=[1] if kind == "node" else None)
    assert take_snapshot(model) == before


def test_graphs_of_a_list_are_named_by_their_number() -> None:
    empty = Data(x=torch.zeros(0, NUM_FEATURES), edge_index=torch.zeros(2, 0).long())
    nice = NICE(Smooth(), FAST)
    with pytest.raises(GraphError, match="Graph 1 of 2: A graph must have at least one node"):
        nice.explain([GRAPHS[0], empty])
    words = r"`x` must have the same width.*\(5, 5\) in graph 0 and \(6, 9\) in graph 1"
    fitted = NICE(Smooth(), PAPER)
    for call in (nice.explain, lambda some: fitted.fit(some, progress=False)):
        with pytest.raises(GraphError, match=words):
            call([GRAPHS[0], changed(GRAPHS[1], x=torch.ones(6, 9))])


@pytest.mark.parametrize("kind", [Smooth, lambda: DataCall(Smooth())])
def test_nan_that_the_model_does_not_read_is_allowed(kind: Any) -> None:
    torch.manual_seed(0)
    model, bad = kind(), changed(GRAPHS[0], edge_attr=torch.full((len(EDGES[0]), 3), torch.nan))
    for config in (NICEConfig(), FAST):
        found, wanted = (NICE(model, config).explain(one) for one in (bad, GRAPHS[0]))
        assert torch.equal(found.bond_score, wanted.bond_score)


def batches() -> dict[str, Batch]:
    """Returns batches that were made or changed by hand, so that something does not fit."""
    whole = Batch.from_data_list(GRAPHS[:2])
    home, ptr = whole.batch, whole.ptr
    leaving = whole.edge_index.clone()
    leaving[0, 0] = 9
    changes: dict[str, dict[str, Any]] = {
        "leaving": {"edge_index": leaving},
        "no batch": {"batch": None},
        "no ptr": {"ptr": None},
        "short": {"batch": home[:3]},
        "float": {"batch": home.float()},
        "text": {"batch": "x"},
        "low": {"batch": home - 1},
        "unsorted": {"batch": home.flip(0)},
        "gap": {"batch": 2 * home},
        "ptr": {"ptr": torch.tensor([0, 3, 11])},
        "one": {"ptr": torch.tensor([0, 11])},
        "flat ptr": {"ptr": ptr.view(1, -1)},
        "float ptr": {"ptr": ptr.float()},
    }
    bad = Data(x=X, edge_index=EDGES + 3)
    return {
        **{key: changed(whole, **values) for key, values in changes.items()},
        "by hand": Batch(x=X, edge_index=EDGES),
        "broken graph": Batch.from_data_list([bad, GRAPHS[1].subgraph(torch.arange(6))]),
    }


@pytest.mark.parametrize("key", [*batches()])
@pytest.mark.parametrize("is_node", [False, True])
def test_batches_that_do_not_fit_together_are_named(key: str, is_node: bool) -> None:
    nice = NICE(NodeGCN() if is_node else make("gin"))
    with pytest.raises(NicegnnError, match=r"`(batch|ptr|edge_index)`"):
        nice.explain(batches()[key], index=1 if is_node else None)
