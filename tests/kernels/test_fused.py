"""Kernels give the answers of whole graphs, under the same noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MLP, GCNConv, GINConv, global_add_pool, global_mean_pool

from nicegnn import NICE, NICEConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention import fused
from nicegnn.intervention.fused import WORTH, Fused, Fusion, masked_answers
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.one_bond import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, make_graph, random_graph

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MECHANISMS = {"em": ElementMask(), "nc": NoiseCorruption(3, antithetic=True)}


class Own(nn.Module):
    """A user's model: functions instead of modules, an encoder, ReLU before normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(NUM_FEATURES, 6)
        self.first = GINConv(MLP([6, 12, 8]), eps=0.3)
        self.second = GINConv(nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.BatchNorm1d(10)))
        self.head = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 3))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = torch.tanh(self.encoder(x))
        x = nn.functional.dropout(self.first(x, edge_index).relu(), training=self.training)
        return self.head(global_mean_pool(self.second(x, edge_index), batch))


class Skipping(nn.Module):
    """A model that is no chain."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(NUM_FEATURES, 4), GCNConv(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        return self.head(global_add_pool(x + self.second(x, edge_index), batch))


def graphs(sizes: tuple[int, ...]) -> list[Data]:
    """Returns random graphs, and one with a bond of a single direction."""
    one_way = make_graph([(0, 1), (1, 2), (2, 0)], 3, seed=1)
    one_way.edge_index, one_way.edge_attr = one_way.edge_index[:, 1:], one_way.edge_attr[1:]
    return [*(random_graph(size, seed=size) for size in sizes), one_way]


def model_of(name: str, num_layers: int, readout: str) -> nn.Module:
    """Returns a model whose normalisations have seen some graphs."""
    torch.manual_seed(0)
    if name in ("own", "skipping"):
        model: nn.Module = {"own": Own, "skipping": Skipping}[name]()
    else:
        sizes = {"hidden_size": 12, "num_layers": num_layers, "edge_size": NUM_EDGE_FEATURES}
        model = make_model(name, NUM_FEATURES, 2, readout=readout, **sizes)
    target, batch = Target(model), to_batch([random_graph(20, seed=3)])
    with torch.no_grad():
        for _ in range(5):
            target.call(batch)
    return model.eval().to(DEVICE)


def query_of(model: nn.Module, mechanism: str, sizes: tuple[int, ...]) -> Query:
    batch = to_batch(graphs(sizes)).to(DEVICE)
    return Query(Target(model), make_case(batch), MECHANISMS[mechanism])


def answers(query: Query) -> Tensor:
    out = query.clean.new_zeros(2, query.case.bonds.batch.numel(), query.clean.size(1))
    for some in damage_each_bond(query, query.draws(2), 5, fresh=True):
        out[some.draw, some.bond] = some.output
    return out


def run_whole(query: Query) -> None:
    """Makes a query run whole graphs."""
    target, weights = query.target, query.target.weights()
    target.fusion = Fusion(weights, reason="told")
    target.not_followed = {"damage": "told", "removal": "told"}
    target.followed_for = weights


def check_same(model: nn.Module, mechanism: str, sizes: tuple[int, ...]) -> None:
    plain, query = (query_of(model, mechanism, sizes) for _ in range(2))
    run_whole(plain)
    expected, found = answers(plain), answers(query)
    assert query.target.fusion.reason == ""
    assert query.target.fusion.agreed == {type(query.mechanism).__name__}
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float(expected[0].std()) > 1e-3  # bonds differ


def check_masks(model: nn.Module, sizes: tuple[int, ...], *, is_run: bool = True) -> None:
    query = query_of(model, "em", sizes)
    gate = torch.rand(5, query.case.num_edges, device=DEVICE)
    gate[:2] = (gate[:2] > 0.5).float()
    with torch.no_grad():
        expected = query.answers(gate)
    for _ in range(2):  # compared with the model, then not any more
        torch.testing.assert_close(masked_answers(query, gate), expected, rtol=1e-4, atol=1e-5)
    assert query.target.fusion.reason == ""
    assert ("masks" in query.target.fusion.agreed) is is_run
    assert float(expected.std(0).max()) > 1e-3  # masks matter


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes kernels run however small the work is."""
    pytest.importorskip("triton" if DEVICE == "cuda" else "numba")
    monkeypatch.setitem(fused.WORTH, DEVICE, 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage", "own"])
def test_answers_are_those_of_whole_graphs(name: str, mechanism: str) -> None:
    for num_layers, readout in ((1, "sum"), (4, "mean")):
        check_same(model_of(name, num_layers, readout), mechanism, (9, 40))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage", "own"])
def test_answers_under_masks_are_those_of_the_model(name: str) -> None:
    for num_layers, readout in ((1, "sum"), (4, "mean")):
        is_run = DEVICE == "cpu" or name != "gine"  # the GPU kernel knows no terms of edges
        check_masks(model_of(name, num_layers, readout), (9, 40), is_run=is_run)


def _wrong(one: Any, gate: Tensor) -> Tensor:
    return gate.new_ones(one.clean.num_graphs, gate.size(0), one.packed.chain.width)


def _failing(one: Any, gate: Tensor) -> Tensor:
    raise RuntimeError("no compiler")


@pytest.mark.skipif(DEVICE == "cuda", reason="a kernel of the CPU")
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("masked", "reason"), [(_wrong, "under masks"), (_failing, "no compiler")])
def test_a_kernel_that_is_wrong_or_fails_under_masks_is_not_used(
    monkeypatch, masked: Any, reason: str
) -> None:
    numba_pass = pytest.importorskip("nicegnn.kernels.numba_pass")
    query = query_of(model_of("gin", 2, "sum"), "em", (9,))
    gate = (torch.rand(3, query.case.num_edges) > 0.5).float()
    with torch.no_grad():
        expected = query.answers(gate)
    monkeypatch.setattr(numba_pass.NumbaPass, "masked", masked)
    for _ in range(2):
        torch.testing.assert_close(masked_answers(query, gate), expected)
    assert reason in query.target.fusion.reason


@pytest.mark.skipif(DEVICE == "cuda", reason="compiled there, by the test above")
@pytest.mark.parametrize(
    ("name", "mechanism"), [("gin", "nc"), ("gcn", "em"), ("sage", "nc"), ("gine", "nc")]
)
def test_the_gpu_kernel_gives_them_in_the_interpreter(
    name: str, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from nicegnn.kernels.chain import read_chain
    from nicegnn.kernels.triton_pass import TritonChain

    def pack(query: Query) -> Any:
        batch = query.case.batch
        chain = read_chain(query.target.model, lambda: query.target.call(batch), batch.batch)
        return TritonChain(chain, torch.device("cpu"))

    monkeypatch.setattr(fused, "_has_kernels", lambda device: True)
    monkeypatch.setattr(fused, "_pack", pack)
    monkeypatch.setitem(fused.WORTH, "cpu", 0)
    check_same(model_of(name, 2, "mean"), mechanism, ())
    check_masks(model_of(name, 3, "mean"), (), is_run=name != "gine")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("name", "reason"), [("gat", "GATv2Conv"), ("skipping", "uses `add`"), ("max", "`")]
)
def test_other_models_are_run_otherwise_and_say_why(name: str, reason: str) -> None:
    model = model_of("gin", 2, "max") if name == "max" else model_of(name, 2, "sum")
    query = query_of(model, "em", (9,))
    answers(query)
    assert reason in query.target.fusion.reason


@pytest.mark.usefixtures("at_once")
def test_self_loops_are_told_of_although_no_layer_ran() -> None:
    first = query_of(model_of("gcn", 2, "sum"), "em", (9,))
    for _ in range(2):  # the second time nothing is compared with the model
        query = Query(first.target, first.case, first.mechanism)
        masked_answers(query, torch.zeros(1, query.case.num_edges, device=DEVICE))
        assert len(query.report.clean_loops) == 2


@pytest.mark.usefixtures("at_once")
def test_a_kernel_that_fails_leaves_its_bonds_to_the_other_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = model_of("gin", 2, "sum")
    query, plain = query_of(model, "nc", (9,)), query_of(model, "nc", (9,))
    answers(query)  # compares, and goes well
    run_whole(plain)

    def fail(*_: object) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(query.shared.fused, "outputs", fail)
    torch.testing.assert_close(answers(query), answers(plain), rtol=1e-4, atol=1e-5)
    assert "no compiler" in query.target.fusion.reason


def test_small_work_is_not_worth_a_kernel() -> None:
    query = query_of(model_of("gin", 2, "sum"), "em", (9,))
    answers(query)
    assert query.target.fusion is None or query.target.fusion.packed is None


def test_later_calls_of_an_explainer_use_the_kernel_too(monkeypatch) -> None:
    """Each call works on a private copy of the model, whose layers are other objects."""
    monkeypatch.setitem(WORTH, "cpu", 0)
    ran = []
    plain = Fused.damage
    monkeypatch.setattr(Fused, "damage", lambda *a, **k: ran.append(1) or plain(*a, **k))
    nice = NICE(GIN(NUM_FEATURES, 2, hidden_size=8), NICEConfig.instant())
    graphs = [random_graph(6, seed=seed) for seed in range(3)]
    first, second = (nice.explain(graphs, trust=False) for _ in range(2))
    assert len(ran) == 4  # noise and masking, twice
    assert torch.equal(first.bond_score, second.bond_score)
