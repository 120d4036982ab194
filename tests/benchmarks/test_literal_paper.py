"""The literal loop computes what the library computes."""

from __future__ import annotations

from typing import Any

import literal_paper
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn import NICEConfig
from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Site
from nicegnn.intervention.mechanisms import NoiseCorruption, directions
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN

SEED = 3


def make_model(graph: Data) -> Any:
    """Returns an untrained GIN in double precision with a visible effect of noise."""
    torch.manual_seed(0)
    return GIN(graph.num_node_features, 2, hidden_size=8, num_layers=3).double().eval()


def doubled(graph: Data) -> Data:
    return Data(x=graph.x.double(), edge_index=graph.edge_index)


def library_noise() -> literal_paper.Noise:
    """Returns the directions that the library draws for each node, draw and layer."""

    def drawn(node: int, draw: int, layer: int, message: Tensor) -> Tensor:
        slot = torch.arange(message.size(0))
        draws = torch.full_like(slot, draw)
        stream = mix(SEED, "path", node)
        site = Site(layer, "", stream, slot, draws)
        return directions(0, site, message)

    return drawn


def test_big_equals_the_library_given_the_same_noise(ring: Data) -> None:
    graph = doubled(ring)
    model = make_model(graph)
    boundary = torch.linspace(0.2, 0.9, graph.num_edges // 2, dtype=torch.float64)
    clean = literal_paper.clean_pass(model, graph)
    found = literal_paper.boundary_integrated_gradient(
        model, graph, clean, boundary, library_noise()
    )
    target = Target(model)
    with target.frozen():
        case = make_case(Batch.from_data_list([graph]))
        query = Query(target, case, NoiseCorruption(0, anchor="clean"))
        expected = boundary_integrated_gradient(query, boundary, NICEConfig.paper(), SEED).bond_loss
    assert clean.explained == int(query.explained)
    assert found.abs().max() > 1e-3  # noise matters, so that zeros are not compared with zeros
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_clean_pass_is_the_model_itself(ring: Data) -> None:
    graph = doubled(ring)
    model = make_model(graph)
    expected = model(graph.x, graph.edge_index).log_softmax(1)[0]
    torch.testing.assert_close(literal_paper.clean_pass(model, graph).log_prob, expected)


def test_open_gates_leave_the_prediction_alone(ring: Data) -> None:
    graph = doubled(ring)
    model = make_model(graph)
    clean = literal_paper.clean_pass(model, graph)
    gate = torch.ones(graph.num_edges // 2, dtype=torch.float64)
    risk = literal_paper.restoration_risk(model, graph, clean, gate, library_noise(), node=0)
    assert float(risk.detach()) < 1e-6


def test_fit_lowers_gates_that_restore_nothing(ring: Data) -> None:
    """With a head of zeros no message matters, so only the penalty on gates is left."""
    torch.manual_seed(0)
    model = GIN(ring.num_node_features, 2, hidden_size=8).eval()
    torch.nn.init.zeros_(model.head.weight)
    literal = literal_paper.LiteralPaper(model)
    clean = literal_paper.clean_pass(model, ring)
    before = literal.boundary(ring, clean).mean()
    for _ in range(3):
        literal.fit_step([ring])
    assert literal.boundary(ring, clean).mean() < before
