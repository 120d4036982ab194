"""GNNExplainer: equal to PyG's on single graphs, and what every rival must do."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer
from torch_geometric.nn import GCNConv, global_add_pool

from nicegnn.graph.batch import to_batch
from nicegnn.seeding import mix
from nicegnn_lab.rivals.gnnexplainer import GNNExplainer, GNNExplainerConfig, first_logit
from tests.conftest import NUM_FEATURES, make_graph, random_graph
from tests.explain.score_properties import CHECKS, PYG_CLASSES, Linear, gin


class FromGivenMask(PyGGNNExplainer):
    """PyG's explainer from a given first mask."""

    def __init__(self, start: Tensor, **settings: float) -> None:
        super().__init__(**settings)
        self.start = start

    def _initialize_homogeneous_masks(self, *_: object) -> None:
        self.node_mask, self.edge_mask = None, nn.Parameter(self.start.clone())


def pyg_mask(model, graph, start, output, **settings) -> Tensor:
    explainer = PyGExplainer(
        copy.deepcopy(model),  # PyG leaves its mask behind
        FromGivenMask(start, **settings),
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config=PYG_CLASSES,
    )
    batch = torch.zeros(graph.num_nodes, dtype=torch.long)
    found = explainer(graph.x, graph.edge_index, target=torch.tensor([output]), batch=batch)
    return found.edge_mask.detach()


class Plain(nn.Module):
    """Two GCN layers: messages of self-loops stay clean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList([GCNConv(NUM_FEATURES, 8), GCNConv(8, 3)])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.convs[0](x, edge_index).relu()
        return global_add_pool(self.convs[1](x, edge_index), batch)


@pytest.mark.parametrize("model", [gin(), Plain()], ids=["gin", "gcn"])
@pytest.mark.parametrize(("size", "entropy"), [(0.005, 1.0), (0.1, 0.3)])
def test_equals_pyg_on_single_graphs(model, size, entropy):
    config = GNNExplainerConfig(
        steps=60, learning_rate=0.05, size=size, entropy=entropy, undirected=False
    )
    explainer = GNNExplainer(model.eval(), config)
    graphs = [random_graph(number, seed) for seed, number in enumerate((4, 7, 9))]
    found = explainer.explain(graphs)
    for part, graph in zip(found.split(), graphs, strict=True):
        query = explainer._query(explainer.target, to_batch(graph))
        start = first_logit(query, mix(0, "start", 0))
        expected = pyg_mask(
            model,
            graph,
            start,
            int(part.target),
            epochs=60,
            lr=0.05,
            edge_size=size,
            edge_ent=entropy,
        )
        live = expected > 0
        assert int(live.sum()) > 0
        torch.testing.assert_close(
            part.bond_score.sigmoid()[live], expected[live], rtol=1e-5, atol=1e-5
        )
        if not bool(live.all()):
            assert float(part.bond_score[~live].max()) < float(part.bond_score[live].min())


def test_edges_without_influence_come_last():
    graph = make_graph([(0, 1), (1, 2), (2, 3)], 4, seed=1)
    graph.x[3] = 0  # its messages are zero
    model = Linear(dtype=torch.float32)
    config = GNNExplainerConfig(steps=20, undirected=False)
    found = GNNExplainer(model, config).explain(graph)
    silent = graph.edge_index[0] == 3
    score = found.bond_score
    assert float(score[silent]) == pytest.approx(float(score[~silent].min()) - 1)


@pytest.mark.parametrize("kind", ["gnnexplainer", "gnnexplainer+nc"])
@pytest.mark.parametrize("check", CHECKS)
def test_does_what_every_rival_must(check, kind):
    check(kind, steps=5)
