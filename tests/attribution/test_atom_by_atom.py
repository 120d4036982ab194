"""Atoms are scored by what the prediction loses when other real atoms stand in their place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, GraphConv, global_add_pool

from nicegnn import NICE
from nicegnn.graph.batch import to_batch
from nicegnn.intervention.background import record_background
from nicegnn.target.frozen_model import Target
from nicegnn.target.losses import log_odds
from nicegnn.target.zoo import MODELS
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import NodeGCN, make


@pytest.mark.parametrize("name", MODELS)
def test_scores_equal_a_loop_over_atoms_and_prototypes(name: str, graphs: list[Data]) -> None:
    model = make(name).eval()
    known = record_background(Target(model), graphs)
    out = NICE(model, background=known).explain(graphs)
    assert out.atom_loss is not None
    start = 0
    for graph in graphs:
        batch = to_batch(graph)
        arguments = {"edge_index": batch.edge_index, "batch": batch.batch}
        if getattr(model, "uses_edges", False):
            arguments["edge_attr"] = batch.edge_attr
        with torch.no_grad():
            clean = model(x=batch.x, **arguments).log_softmax(1).unsqueeze(0)
            label = clean[0].argmax(1)
            for atom in range(graph.num_nodes):
                falls = []
                for k in range(known.features["x"].size(0)):
                    x = batch.x.clone()
                    x[atom] = known.features["x"][k]
                    changed = model(x=x, **arguments).log_softmax(1).unsqueeze(0)
                    falls.append(float(log_odds(clean, label) - log_odds(changed, label)))
                lost = sum(max(0.0, fall) for fall in falls) / len(falls)
                gained = sum(max(0.0, -fall) for fall in falls) / len(falls)
                wanted = -gained if gained > lost else lost
                assert float(out.atom_loss[start + atom]) == pytest.approx(wanted, abs=2e-4)
        start += graph.num_nodes


class Sums(nn.Module):
    """A value that is the sum of the first features of all atoms; messages are ignored."""

    def __init__(self, columns: int = 1) -> None:
        super().__init__()
        self.conv, self.columns = GraphConv(NUM_FEATURES, columns), columns
        nn.init.zeros_(self.conv.lin_rel.weight)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        total = global_add_pool(x[:, :1] + 0 * self.conv(x, edge_index)[:, :1], batch)
        return total if self.columns == 1 else torch.cat([-total, total], dim=1)


def test_values_have_their_unit_and_sign_and_are_no_sums_of_bonds(ring: Data) -> None:
    ring.x[:, 0] = torch.tensor([3.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0])
    nice = NICE(Sums(), background=[ring], mode="regression")
    assert nice.background is not None
    typical = nice.background.features["x"][:, 0].mean()
    out = nice.explain(ring)
    torch.testing.assert_close(out.atom_loss, ring.x[:, 0] - typical)  # by hand
    assert torch.equal(out.atom_score, out.atom_loss)  # type: ignore[arg-type]
    torch.testing.assert_close(out.bond_loss, torch.zeros(7))


def test_shares_of_the_odds_have_the_sign_of_the_side_that_outweighs(ring: Data) -> None:
    ring.x[:, 0] = torch.tensor([3.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0])  # class 1, by 5 log-odds
    out = NICE(Sums(columns=2), background=[ring]).explain(ring)
    loss, score = out.atom_loss, out.atom_score
    assert loss is not None
    assert score is not None
    assert loss[0] > 0 > loss[1]  # 3 speaks for the class, -1 against it
    torch.testing.assert_close(score, loss.sign() * (1 - (-loss.abs()).exp()))
    other = NICE(Sums(columns=2), background=[ring]).explain(ring, target=0).atom_loss
    assert other is not None
    assert other[0] < 0 < other[1]


class Typed(nn.Module):
    """Reads atom and bond types by embeddings, and a second attribute of atoms."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.atoms, self.bonds = nn.Embedding(4, 6), nn.Embedding(3, 6)
        self.conv = GINEConv(nn.Linear(6, 6))
        self.head = nn.Linear(6, 2)

    def forward(
        self, x: Tensor, charge: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor
    ) -> Tensor:
        h = self.conv(self.atoms(x[:, 0]) * charge, edge_index, self.bonds(edge_attr))
        return self.head(global_add_pool(h, batch))


def test_all_attributes_of_an_atom_go_together_whole_numbers_too() -> None:
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for n in range(3):
        graph = random_graph(5 + n, n)
        x = torch.randint(4, (graph.num_nodes, 1), generator=generator)
        bonds = torch.randint(3, (graph.num_edges,), generator=generator)
        charge = 1.0 + x  # follows the type
        graphs.append(Data(x=x, charge=charge, edge_index=graph.edge_index, edge_attr=bonds))
    nice = NICE(Typed(), background=graphs)
    assert nice.background is not None
    features = nice.background.features
    assert set(features) == {"x", "charge"}
    assert torch.equal(features["charge"], 1.0 + features["x"])  # of the same atoms
    out = nice.explain(graphs)
    assert bool(torch.isfinite(out.atom_loss).all())  # type: ignore[arg-type]
    assert float(out.atom_loss.abs().max()) > 1e-3  # type: ignore[union-attr]


def test_atoms_of_node_tasks_are_those_within_reach(ring: Data) -> None:
    torch.manual_seed(0)
    out = NICE(NodeGCN(), background=[ring]).explain(ring, index=[2, 6])
    assert out.atom_loss is not None
    loss = out.atom_loss.view(2, 7)
    near = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    assert bool((loss[~near].abs() < 1e-5).all())  # two layers reach two bonds far
    assert bool((loss[near].abs() > 1e-5).all())
