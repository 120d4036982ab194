"""Exchange: what it keeps, and that a background is a fixed function of graphs and model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.errors import ConfigError, GraphError, InterventionError, StoreError
from nicegnn.intervention.background import Background, k_medoids, record_background, spread_rows
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import Site
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import MODELS
from tests.explain.small_models import make

NUM, SIZE = 40_000, 3


def population(num: int, seed: int) -> Tensor:
    """Messages after a ReLU, with a mean and correlated columns, ``[num, 3]``."""
    value = torch.randn(num, SIZE, generator=torch.Generator().manual_seed(seed))
    mixed = value @ torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -0.5], [0.3, 0.0, 1.0]])
    return (mixed + 0.4).relu().double()


def site(num: int, draw: int = 0, graph: Tensor | None = None) -> Site:
    draws = torch.full((num,), draw)
    return Site(0, "conv", 0, torch.arange(num), draws, graph)


@pytest.fixture(scope="module")
def exchange() -> Exchange:
    donors = population(NUM, seed=1)
    mean = donors.mean(0, keepdim=True)
    return Exchange(Prototypes((donors,), (mean,), ("conv",), NUM), each="edge", seed=7)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.8, 1.0])
def test_means_and_covariances_of_messages_are_kept_at_every_gate(
    exchange: Exchange, rho: float
) -> None:
    """The proposition of docs/method.md, (a) and (b)."""
    message = population(NUM, seed=2)
    found = exchange(message, torch.full((NUM,), rho).double(), site(NUM))
    assert np.allclose(found.mean(0), message.mean(0), atol=0.02)
    assert np.allclose(torch.cov(found.t()), torch.cov(message.t()), atol=0.03)
    energy = message.square().sum(1).mean()
    assert float(found.square().sum(1).mean()) == pytest.approx(float(energy), rel=0.03)


def test_an_exchanged_edge_keeps_the_whole_law_and_noise_does_not(exchange: Exchange) -> None:
    message, closed = population(NUM, seed=2), torch.zeros(NUM).double()
    found = exchange(message, closed, site(NUM))
    noise = NoiseCorruption()(message, closed, site(NUM))
    for share in (0.1, 0.5, 0.9):  # of each column; zeros among them
        wanted = message.quantile(share, dim=0)
        assert torch.allclose(found.quantile(share, dim=0), wanted, atol=0.03)
        assert not torch.allclose(noise.quantile(share, dim=0), wanted, atol=0.1)
    assert bool((found >= 0).all())  # after a ReLU no message is negative
    assert float((noise < 0).double().mean()) > 0.45
    assert torch.allclose(noise.norm(dim=1), message.norm(dim=1))  # the paper's proposition
    assert not torch.allclose(noise.mean(0), message.mean(0), atol=0.1)


def test_gates_of_0_and_1_give_prototype_and_message_to_the_last_bit() -> None:
    donors = torch.randn(2, 4)
    exchange = Exchange(Prototypes((donors,), (donors.mean(0, keepdim=True),), ("conv",), 2))
    message, gate = torch.randn(3, 4), torch.tensor([1.0, 0.0, 0.5])
    for draw in (0, 1, 3):  # the third draw begins again
        found = exchange(message, gate, site(3, draw))
        assert torch.equal(found[0], message[0])
        assert torch.equal(found[1], donors[draw % 2])
        slope = gate.clone().requires_grad_()
        exchange(message, slope, site(3, draw)).sum().backward()
        assert bool(torch.isfinite(slope.grad).all())  # type: ignore[arg-type]
    mean, half = donors.mean(0), 0.5**0.5
    wanted = mean + half * (message[2] - mean) + half * (donors[1] - mean)
    torch.testing.assert_close(found[2], wanted)


@pytest.mark.parametrize("name", MODELS)
def test_a_background_does_not_depend_on_the_order_of_graphs_or_nodes(
    name: str, graphs: list[Data]
) -> None:
    target = Target(make(name))
    moved = []
    for number, graph in enumerate(graphs[::-1]):
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
        edges = order[graph.edge_index].flip(1)
        moved.append(
            Data(x=graph.x[order.argsort()], edge_index=edges, edge_attr=graph.edge_attr.flip(0))
        )
    one, two = record_background(target, graphs), record_background(target, moved)
    for a, b in zip(
        one.messages.layers + one.sample.layers,
        two.messages.layers + two.sample.layers,
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.features["x"], two.features["x"])


def test_a_background_goes_through_tensors_and_belongs_to_its_model(graphs: list[Data]) -> None:
    model = make("gin")
    known = record_background(Target(model), graphs)
    again = Background.from_tensors(known.tensors(), known.facts())
    assert torch.equal(
        NICE(model, background=again).explain(graphs).bond_loss,
        NICE(model, background=graphs).explain(graphs).bond_loss,
    )
    with pytest.raises(ConfigError, match=r"with the weights of this model .*Pass graphs"):
        NICE(make("gcn"), background=known)
    tensors = known.tensors()
    tensors.pop("message.1")
    with pytest.raises(StoreError, match="must be those of its facts"):
        Background.from_tensors(tensors, known.facts())
    with pytest.raises(GraphError, match="must hold graphs with edges"):
        NICE(model, background=[Data(x=graphs[0].x, edge_index=torch.zeros(2, 0).long())])
    other = Prototypes(known.messages.layers, known.messages.means, ("a", "b", "c"), 8)
    nice = NICE(model, mechanism=Exchange(other))
    with pytest.raises(InterventionError, match=r"messages in the same order.*Record a background"):
        nice.explain(graphs)


def test_without_a_background_prototypes_come_from_each_graph_itself(graphs: list[Data]) -> None:
    nice = NICE(make("gin"))
    together, alone = nice.explain(graphs).split(), [nice.explain(g) for g in graphs]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a.bond_loss, b.bond_loss, rtol=1e-4, atol=1e-5)
    assert any("other bonds of the same graph" in note for note in alone[0].status.notes)
    notes = NICE(make("gin"), background=graphs).explain(graphs).status.notes
    assert not any("other bonds of the same graph" in note for note in notes)


def test_medoids_of_three_heaps_by_hand() -> None:
    heaps = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 9.0]])
    spread = torch.tensor([[0.0, 0.0], [0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]])
    points = (heaps.unsqueeze(1) + spread).flatten(0, 1)
    home = torch.zeros(15, dtype=torch.long)
    assert sorted(k_medoids(points, home, 1, 3)[0].tolist()) == [0, 5, 10]
    twice = k_medoids(points[:1].repeat(4, 1), home[:4], 1, 3)  # one point, three times
    assert twice.shape == (1, 3)
    assert k_medoids(points[:0], home[:0], 2, 3).tolist() == [[-1] * 3] * 2  # empty sets


def test_a_sample_has_each_kind_as_often_as_it_occurs() -> None:
    points = torch.cat([torch.zeros(75, 2), torch.ones(25, 2)])
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    drawn = points[order][spread_rows(points[order], 20)]
    assert int(drawn[:, 0].sum()) == 5


@pytest.mark.parametrize(("word", "value"), [("each", "bond"), ("anchor", "dirty")])
def test_wrong_words_are_named(word: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"`{word}` must be one of"):
        Exchange(**{word: value})  # type: ignore[arg-type]
    with pytest.raises(InterventionError, match=r"must have prototypes \(got none\)"):
        Exchange()(torch.ones(2, 3), torch.zeros(2), site(2))
