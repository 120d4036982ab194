"""Kernels give the answers of whole graphs: exchanged, masked bonds and replaced atoms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention import fused, one_part
from nicegnn.intervention.background import record_background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.one_part import damage_each_bond, replace_each_atom
from nicegnn.intervention.parts import in_copies
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, make_graph, random_graph

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DAMAGES = ("em", "exchange", "own graph", "atom")


def graphs(sizes: tuple[int, ...]) -> list[Data]:
    """Returns random graphs, and one with a bond of a single direction."""
    one_way = make_graph([(0, 1), (1, 2), (2, 0)], 3, seed=1)
    one_way.edge_index, one_way.edge_attr = one_way.edge_index[:, 1:], one_way.edge_attr[1:]
    return [*(random_graph(size, seed=size) for size in sizes), one_way]


def model_of(name: str, num_layers: int, readout: str) -> nn.Module:
    """Returns a model whose normalisations have seen some graphs."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_layers": num_layers, "edge_size": NUM_EDGE_FEATURES}
    model = make_model(name, NUM_FEATURES, 2, readout=readout, **sizes)
    target, batch = Target(model), to_batch([random_graph(20, seed=3)])
    with torch.no_grad():
        for _ in range(5):
            target.call(batch)
    return model.eval().to(DEVICE)


def query_of(model: nn.Module, damage: str, sizes: tuple[int, ...]) -> Query:
    target, batch = Target(model), to_batch(graphs(sizes)).to(DEVICE)
    mechanism: Mechanism = ElementMask()
    if damage == "exchange":
        background = record_background(target, [random_graph(12, seed=5)], 3)
        mechanism = Exchange(background.messages)
    elif damage == "own graph":
        mechanism = Exchange(num=3)
    elif damage == "nc":
        mechanism = NoiseCorruption(3)
    return Query(target, make_case(batch), mechanism)


def answers(query: Query, damage: str) -> Tensor:
    """Returns the output of each draw and each bond or atom, ``[N, M, C]``."""
    if damage == "atom":
        num_nodes = int(query.case.batch.num_nodes)
        row = torch.arange(3, device=DEVICE).expand(num_nodes, -1)
        kinds = {"x": torch.randn(3, NUM_FEATURES, generator=torch.Generator().manual_seed(0))}
        each = replace_each_atom(query, {"x": kinds["x"].to(DEVICE)}, row)
        out = query.clean.new_zeros(3, num_nodes, query.clean.size(1))
    else:
        draws = query.draws(2)
        each = damage_each_bond(query, draws, 5)
        out = query.clean.new_zeros(draws, query.case.bonds.batch.numel(), query.clean.size(1))
    for some in each:
        out[some.draw, some.item] = some.output
    return out


def whole_answers(query: Query, damage: str, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Returns the answers of whole graphs."""
    with monkeypatch.context() as patch:
        patch.setattr(one_part, "PATHS", (in_copies,))
        return answers(query, damage)


def check_same(
    monkeypatch: pytest.MonkeyPatch,
    model: nn.Module,
    damage: str,
    sizes: tuple[int, ...],
    *,
    is_run: bool = True,
) -> None:
    plain, query = (query_of(model, damage, sizes) for _ in range(2))
    expected, found = whole_answers(plain, damage, monkeypatch), answers(query, damage)
    assert (query.shared.fused is not None) is is_run
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert float(expected[0].std()) > 1e-3  # bonds, and atoms, differ


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes kernels run however small the work is."""
    pytest.importorskip("triton" if DEVICE == "cuda" else "numba")
    monkeypatch.setattr(fused, "WORTH", 0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage"])
def test_answers_are_those_of_whole_graphs(
    name: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_run = (name, damage) != ("gine", "atom")
    for num_layers, readout in ((1, "sum"), (4, "mean")):
        check_same(monkeypatch, model_of(name, num_layers, readout), damage, (9, 40), is_run=is_run)


@pytest.mark.skipif(DEVICE == "cuda", reason="compiled there, by the test above")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage"])
def test_the_gpu_kernel_gives_them_in_the_interpreter(
    name: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setitem(fused.KERNELS, "cpu", fused.KERNELS["cuda"])
    monkeypatch.setattr(fused, "WORTH", 0)
    is_run = (name, damage) != ("gine", "atom")
    check_same(monkeypatch, model_of(name, 2, "mean"), damage, (), is_run=is_run)


@pytest.mark.gpu
@pytest.mark.parametrize("damage", [*DAMAGES, "nc"])
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage"])
def test_a_gpu_gives_the_answers_of_a_cpu(
    name: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(name, 3, "sum")
    monkeypatch.setattr(fused, "WORTH", 0)
    found = answers(query_of(model, damage, (9, 40)), damage)
    monkeypatch.setattr(f"{__name__}.DEVICE", "cpu")
    expected = answers(query_of(model.cpu(), damage, (9, 40)), damage)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["gat", "max", "derived", "changed", "hooked"])
def test_other_models_are_run_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gat" if name == "gat" else "gin", 2, "max" if name == "max" else "sum")
    if name == "changed":
        model.acts[0] = nn.ELU()  # type: ignore[index, operator]
    elif name == "hooked":
        model.acts[0].register_forward_hook(lambda *_: 2 * _[2])  # type: ignore[index, union-attr]
    elif name == "derived":
        model.__class__ = type("Other", (GIN,), {})
    check_same(monkeypatch, model, "em", (9,), is_run=False)


@pytest.mark.usefixtures("at_once")
def test_self_loops_are_told_of_although_no_layer_ran() -> None:
    query = query_of(model_of("gcn", 2, "sum"), "em", (9,))
    answers(query, "em")
    assert len(query.shared.report.clean_loops) == 2


@pytest.mark.usefixtures("at_once")
def test_a_kernel_that_fails_leaves_its_bonds_to_the_other_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = query_of(model_of("gin", 2, "sum"), "exchange", (9,))
    answers(query, "exchange")

    def fail(*_: object) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(query.shared.fused.runner, "pooled", fail)
    expected = whole_answers(query, "exchange", monkeypatch)
    torch.testing.assert_close(answers(query, "exchange"), expected, rtol=1e-4, atol=1e-5)


def test_small_work_is_not_worth_a_kernel() -> None:
    query = query_of(model_of("gin", 2, "sum"), "em", ())
    answers(query, "em")
    assert query.shared.fused is None


def test_no_answer_depends_on_earlier_calls() -> None:
    """Each call chooses its path anew, by its own graphs, and on a private copy of the model."""
    many, few = ([random_graph(size, seed=seed) for seed in range(5)] for size in (9, 3))
    model = GIN(NUM_FEATURES, 2, hidden_size=8).to(DEVICE)
    nice = NICE(model, background=many)
    first = [nice.explain(graphs) for graphs in (few, many)]
    again = [nice.explain(graphs) for graphs in (many, few)][::-1]
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.bond_score, other.bond_score)
        assert torch.equal(one.atom_score, other.atom_score)
