"""Parts of the wide bench that no other study has."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.target.losses import log_odds
from nicegnn_lab.studies.wide import without_each
from tests.explain.small_models import make


def test_a_bond_is_taken_out_of_its_graph_alone(graphs: list[Data]) -> None:
    """Layers that divide by degrees divide by the bonds that are left."""
    model, label = make("gcn").eval(), torch.ones(1, dtype=torch.long)
    found, bonds = without_each(model, graphs), make_case(to_batch(graphs)).bonds

    def odds(graph: Data) -> torch.Tensor:
        batch = to_batch(graph)
        out = model(x=batch.x, edge_index=batch.edge_index, batch=batch.batch)
        return log_odds(out.log_softmax(1).unsqueeze(0), label)[0, 0]

    start = 0
    for number, graph in enumerate(graphs):
        own = bonds.edge_bond[start : start + graph.num_edges]
        start += graph.num_edges
        for bond in (bonds.batch == number).nonzero().view(-1).tolist():
            less = Data(x=graph.x, edge_index=graph.edge_index[:, own != bond])
            lost = (odds(graph) - odds(less)).clamp(min=0)
            torch.testing.assert_close(found[bond], lost, rtol=1e-3, atol=1e-4)
