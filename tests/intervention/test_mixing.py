"""Models that mix the graphs of a batch are run graph by graph; random ones are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, InstanceNorm, LayerNorm, PairNorm, global_mean_pool

from nicegnn import NICE, ElementMask, NICEConfig, intervene
from nicegnn.errors import TargetError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import record_background
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.losses import log_odds
from tests.conftest import NUM_FEATURES

CONFIG = NICEConfig().with_(mechanism="em")
NORMS = {
    "instance": lambda: InstanceNorm(8),
    "pair": PairNorm,
    "graph-layer": lambda: LayerNorm(8, mode="graph"),
    "batch": lambda: nn.BatchNorm1d(8, track_running_stats=False),
}


class Normed(nn.Module):
    """Normalises over all nodes that it is given, whatever graph they belong to."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(NUM_FEATURES, 8), GCNConv(8, 8)
        self.norm, self.head = norm, nn.Linear(8, 2)

    def nodes(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = self.norm(layer(x, edge_index)).relu()
        return x

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_mean_pool(self.nodes(x, edge_index), batch))


class NormedNodes(Normed):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.nodes(x, edge_index))


class Fine(Normed):
    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(8))


class Random(Fine):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return functional.dropout(super().forward(x, edge_index, batch), 0.5, training=True)


@pytest.mark.parametrize("name", NORMS)
def test_bonds_of_one_graph_are_judged_without_its_copies(name: str, ring: Data) -> None:
    model = Normed(NORMS[name]()).eval()
    batch = to_batch(ring)
    call = (batch.x, batch.edge_index, batch.batch)
    with torch.no_grad():
        clean = model(*call).log_softmax(1)
        label = clean.argmax(1)
        expected = []
        for bond in range(7):
            gate = (torch.arange(14) // 2 != bond).float()
            with intervene(model, ElementMask(), gate):
                masked = model(*call).log_softmax(1)
            fall = log_odds(clean.unsqueeze(0), label) - log_odds(masked.unsqueeze(0), label)
            expected.append(max(0.0, float(fall)))
    found = NICE(model, CONFIG).explain(ring)
    torch.testing.assert_close(found.bond_loss, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert any("graph by graph" in note for note in found.status.notes)
    alone = NICE(model, CONFIG, batched=False).explain(ring)
    assert torch.equal(alone.bond_loss, found.bond_loss)


@pytest.mark.parametrize("name", NORMS)
def test_a_graph_has_the_same_scores_alone_and_in_a_batch(name: str, graphs: list[Data]) -> None:
    nice = NICE(Normed(NORMS[name]()), CONFIG)
    together = nice.explain(graphs).split()
    for graph, found in zip(graphs, together, strict=True):
        alone = nice.explain(graph)
        torch.testing.assert_close(found.bond_score, alone.bond_score)
        torch.testing.assert_close(found.prediction, alone.prediction)


@pytest.mark.parametrize("batched", [None, True, False])
def test_random_models_are_refused(batched: bool | None, ring: Data) -> None:
    nice = NICE(Random(), CONFIG, batched=batched)
    with pytest.raises(TargetError, match=r"same output \(they differ by .*training=self.training"):
        nice.explain(ring)


def test_each_call_sees_for_itself_whether_graphs_are_mixed(ring: Data) -> None:
    """A graph whose messages do not matter tells nothing, and settles nothing for others."""
    target = Target(Normed(InstanceNorm(8)).eval()).private()
    still = Data(x=torch.zeros_like(ring.x), edge_index=ring.edge_index)
    asked = [Query(target, make_case(to_batch(one)), ElementMask()) for one in (still, ring, still)]
    assert [query.is_batched for query in asked] == [True, False, True]


def test_backgrounds_of_such_models_are_recorded_graph_by_graph(graphs: list[Data]) -> None:
    model = Normed(LayerNorm(8, mode="graph")).eval()
    known, alone = (
        record_background(Target(model, batched=batched), graphs) for batched in (None, False)
    )
    for one, other in zip(known.messages.layers, alone.messages.layers, strict=True):
        torch.testing.assert_close(one, other)
