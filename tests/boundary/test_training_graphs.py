"""Tests of training graphs: what is kept of them gives what the model gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nicegnn import NICE, NICEConfig
from nicegnn.boundary.training_graphs import TrainingGraphs
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, random_graph

GRAPHS = [random_graph(5 + number % 4, seed=number) for number in range(12)]
MASKS = ElementMask()
NO_OFFSET = torch.zeros(5, dtype=torch.long)


def model_of(name: str, readout: str = "mean") -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_layers": 3, "edge_size": NUM_EDGE_FEATURES}
    return make_model(name, NUM_FEATURES, 2, readout=readout, **sizes).eval()


def training(model: nn.Module, *mechanisms, config: NICEConfig | None = None) -> TrainingGraphs:  # type: ignore[no-untyped-def]
    used = mechanisms or (MASKS,)
    return TrainingGraphs(Target(model), GRAPHS, used, config or NICEConfig(), 0, progress=False)


def some(graphs: TrainingGraphs) -> torch.Tensor:
    chosen = torch.tensor([7, 2, 11, 0, 5])
    return chosen[graphs.sorted_by_class(chosen)]


def losses(query: Query) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns losses under some gates, ``[B]``, and the slope of their sum in the gates."""
    torch.manual_seed(1)
    gate = torch.rand(query.case.bonds.batch.numel()).requires_grad_()
    loss = query.degradation(gate, 1, stream=0)[0]
    return loss, torch.autograd.grad(loss.sum(), gate)[0]


@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("name", ["gin", "gine", "gcn", "sage"])
def test_steps_that_run_the_chain_lose_what_the_model_loses(name: str, readout: str) -> None:
    graphs = training(model_of(name, readout))
    chosen = some(graphs)
    drawn = graphs.draw(chosen, NO_OFFSET, MASKS)
    assert drawn.query.shared.masked is not None
    assert "x" not in drawn.query.case.batch  # PyG has nothing to run on
    plain = graphs.query(graphs.kept[chosen], MASKS, graphs.explained[chosen])
    for found, expected in zip(
        losses(drawn.query.losing("log-prob")), losses(plain.losing("log-prob")), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        assert float(expected.detach().std()) > 1e-4


def test_cases_are_those_of_the_same_graphs() -> None:
    graphs = training(model_of("gin"))
    chosen = some(graphs)
    offset = 64 * torch.arange(5)
    found = graphs.draw(chosen, offset, MASKS).query.case
    expected = graphs.query(
        graphs.kept[chosen], MASKS, graphs.explained[chosen], offset=offset
    ).case
    assert torch.equal(found.batch.edge_index, expected.batch.edge_index)
    assert torch.equal(found.batch.batch, expected.batch.batch)
    assert torch.equal(found.batch.ptr, expected.batch.ptr)
    assert found.num_graphs == expected.num_graphs
    for name in ("rows", "edge_batch", "slot", "reached"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for name in ("index", "edge_bond", "batch", "count"):
        assert torch.equal(getattr(found.bonds, name), getattr(expected.bonds, name)), name


@pytest.mark.parametrize("class_gates", [True, False])
@pytest.mark.parametrize("graph_context", [True, False])
def test_logits_are_those_of_whole_representations(graph_context: bool, class_gates: bool) -> None:
    config = NICEConfig().with_(
        boundary__graph_context=graph_context, boundary__class_gates=class_gates
    )
    graphs = training(model_of("gin"), config=config)
    chosen, net = some(graphs), graphs.new_network()
    drawn = graphs.draw(chosen, NO_OFFSET, MASKS)
    assert drawn.own is not None
    graphs._cases = None
    anew = graphs.draw(chosen, NO_OFFSET, MASKS)
    assert anew.own is None
    with torch.no_grad():
        torch.testing.assert_close(drawn.logits(net, config), anew.logits(net, config))


def test_models_that_are_no_chain_and_noise_run_the_model() -> None:
    for name, mechanism in (("gat", MASKS), ("gin", NoiseCorruption())):
        graphs = training(model_of(name), mechanism)
        query = graphs.draw(some(graphs), NO_OFFSET, mechanism).query
        assert query.shared.masked is None
        assert query.case.batch.x.size(0) == query.case.batch.num_nodes


def test_one_graph_that_a_chain_cannot_run_makes_the_model_run() -> None:
    looped = GRAPHS[5].clone()  # GCN adds self-loops, and replaces those of a graph
    looped.edge_index = torch.cat([looped.edge_index, torch.tensor([[0], [0]])], dim=1)
    looped.edge_attr = torch.cat([looped.edge_attr, looped.edge_attr[:1]])
    config = NICEConfig().with_(boundary__batch_size=4)
    for number, is_chain in ((0, True), (1, False)):
        some_graphs = [*GRAPHS[:5], *[looped][:number], *GRAPHS[6:]]
        target = Target(model_of("gcn"))
        found = TrainingGraphs(target, some_graphs, (MASKS,), config, 0, progress=False)
        assert (found._inputs is not None) is is_chain
        drawn = found.draw(torch.tensor([1, 4, 5]), torch.zeros(3, dtype=torch.long), MASKS)
        gate = drawn.logits(found.new_network(), config).sigmoid()
        assert drawn.query.degradation(gate, 1, stream=0).shape == (1, 3)


def test_a_chain_that_answers_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from nicegnn.kernels.clean_pass import CleanPass

    original = CleanPass.masked
    monkeypatch.setattr(CleanPass, "masked", lambda one, gate: original(one, gate) + 1)
    assert training(model_of("gin"))._inputs is None


def test_a_fit_of_masks_ends_as_one_that_runs_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gin", "sum")
    config = NICEConfig.quick().with_(boundary__steps=12, boundary__learning_rate=1e-4)
    chained = NICE(model, config).fit(GRAPHS, progress=False)
    monkeypatch.setattr("nicegnn.boundary.training_graphs._read_chain", lambda *given: None)
    plain = NICE(model, config).fit(GRAPHS, progress=False)
    for one, other in zip(chained.fit_report.history, plain.fit_report.history, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)
