"""What every rival must do, whatever its method; and small models with known answers."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.nn import GINConv, MessagePassing, global_add_pool

from nicegnn.explain.explanation import Explanation
from nicegnn.explain.registry import get_explainer
from nicegnn.explain.trust import Flag
from nicegnn.target.zoo import GIN, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, make_graph, random_graph, take_snapshot

#: What PyG's `Explainer` is told of a classifier of graphs.
PYG_CLASSES = {
    "mode": "multiclass_classification",
    "task_level": "graph",
    "return_type": "raw",
}


class Sum(MessagePassing):
    """Adds up what the neighbours hold."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)


class Linear(nn.Module):
    r"""A GNN whose logits are sums over edges: :math:`f_c = \sum_{e = (u, v)} m_e (W x_u)_c`."""

    def __init__(self, num_outputs: int = 3, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = Sum()
        self.head = nn.Linear(NUM_FEATURES, num_outputs, bias=False, dtype=dtype)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index), batch))

    def shares(self, graph: Data, output: int) -> Tensor:
        """Returns what each directed edge adds to an output, ``[E]``."""
        return self.head(graph.x)[graph.edge_index[0], output].detach()


class NodeGIN(nn.Module):
    """Two layers that answer for every node."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        mlp = nn.Sequential(nn.Linear(NUM_FEATURES, 8), nn.ReLU(), nn.Linear(8, 8))
        self.convs = nn.ModuleList([GINConv(mlp), GINConv(nn.Linear(8, 3))])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


class SingleGIN(nn.Module):
    """A graph classifier that takes one graph per call."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = gin()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index)


def gin(num_classes: int = 3, name: str = "gin", hidden_size: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return make_model(
        name, NUM_FEATURES, num_classes, edge_size=NUM_EDGE_FEATURES, hidden_size=hidden_size
    ).eval()


def some_graphs() -> list[Data]:
    """Graphs of different sizes, one without bonds and one of a single node among them."""
    graphs = [random_graph(size, seed) for seed, size in enumerate((4, 7, 3))]
    graphs += [make_graph([], 3, seed=5), make_graph([], 1, seed=6)]
    for number, graph in enumerate(graphs):
        graph.edge_truth = torch.arange(graph.num_edges) // 2 % 3 == number % 3
    return graphs


def deletion_evidence(model: nn.Module, graph: Data, kept: list[int], output: int) -> Tensor:
    """Returns a logit of the graph with only these bonds, which stand two edges by two edges."""
    columns = [column for bond in kept for column in (2 * bond, 2 * bond + 1)]
    edge_index = graph.edge_index[:, torch.tensor(columns, dtype=torch.long)]
    with torch.no_grad():
        batch = torch.zeros(graph.num_nodes, dtype=torch.long)
        return model(graph.x, edge_index, batch)[0, output]


def captum_scores(method: str, model: nn.Module, graph: Data, output: int, **kwargs: Any) -> Tensor:
    """Returns the directed-edge scores of Captum through PyG, on a copy of the model."""
    explainer = PyGExplainer(
        copy.deepcopy(model),
        CaptumExplainer(method, **kwargs),
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config=PYG_CLASSES,
    )
    with warnings.catch_warnings():  # Captum warns about the hooks that guide ReLUs
        warnings.simplefilter("ignore")
        found = explainer(  # further arguments go by position: all of them, in forward's order
            graph.x,
            graph.edge_index,
            target=torch.tensor([output]),
            batch=torch.zeros(graph.num_nodes, dtype=torch.long),
            edge_attr=graph.edge_attr,
        )
    return found.edge_mask.detach()


def same_scores(one: Explanation, other: Explanation) -> None:
    torch.testing.assert_close(one.bond_score, other.bond_score, rtol=1e-5, atol=1e-5)


def check_batch_equals_loop(name: str, **settings: Any) -> None:
    explainer = get_explainer(name, gin(), **settings)
    graphs = some_graphs()
    together = explainer.explain(graphs)
    assert together.bond_score.numel() == sum(graph.num_edges // 2 for graph in graphs)
    for part, graph in zip(together.split(), graphs, strict=True):
        same_scores(part, explainer.explain(graph))


def check_chunks_do_not_matter(name: str, **settings: Any) -> None:
    graphs = some_graphs()
    whole = get_explainer(name, gin(), **settings).explain(graphs)
    same_scores(whole, get_explainer(name, gin(), chunk_edges=1, **settings).explain(graphs))
    same_scores(whole, get_explainer(name, gin(), batch_size=2, **settings).explain(graphs))


def check_seed_decides_everything(name: str, **settings: Any) -> None:
    explainer = get_explainer(name, gin(), **settings)
    graphs = some_graphs()
    before = torch.get_rng_state()
    first = explainer.explain(graphs, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(explainer.explain(graphs, seed=3).bond_score, first.bond_score)


def check_model_stays_as_it_was(name: str, **settings: Any) -> None:
    model = gin().train()
    model.head.weight.requires_grad_(False)
    before = take_snapshot(model)
    get_explainer(name, model, **settings).explain(some_graphs())
    assert take_snapshot(model) == before


def check_graphs_without_edges(name: str, **settings: Any) -> None:
    found = get_explainer(name, gin(), **settings).explain(some_graphs()[3:])
    assert found.bond_score.shape == (0,)
    assert found.status.flags == (Flag.NO_EDGES, Flag.NO_EDGES)


def check_nodes_are_explained(name: str, **settings: Any) -> None:
    graph = random_graph(9, 4)
    graph.edge_truth = torch.arange(graph.num_edges) // 2 % 2 == 0
    explainer = get_explainer(name, NodeGIN(), **settings)
    both = explainer.explain(graph, index=[2, 5])
    dense = both.to_dense()
    assert dense.bond_score.shape == (graph.num_edges,)  # two nodes, each with all bonds
    assert bool((dense.bond_score[~dense.bond_reached] == 0).all())
    for part, node in zip(both.split(), (2, 5), strict=True):
        same_scores(part, explainer.explain(graph, index=node))


def check_other_outputs(name: str, **settings: Any) -> None:
    """One logit, a regression of one or two outputs, and probabilities."""
    graphs = some_graphs()
    for mode, num_columns in (("binary", 1), ("regression", 1), ("regression", 2)):
        found = get_explainer(name, gin(num_columns), mode=mode, **settings).explain(graphs)
        assert bool(torch.isfinite(found.bond_score).all())
    probs = nn.Sequential(gin(), nn.Softmax(dim=1))
    call = {
        "inputs": lambda model, batch: model[1](model[0](batch.x, batch.edge_index, batch.batch))
    }
    found = get_explainer(name, probs, return_type="probs", **call, **settings).explain(graphs)
    assert bool(torch.isfinite(found.bond_score).all())


def check_models_of_one_graph_per_call(name: str, **settings: Any) -> None:
    single = SingleGIN().eval()
    graphs = some_graphs()[:2]
    found = get_explainer(name, single, **settings).explain(graphs)
    same_scores(found, get_explainer(name, single.inner, **settings).explain(graphs))


CHECKS = [
    check_batch_equals_loop,
    check_chunks_do_not_matter,
    check_seed_decides_everything,
    check_model_stays_as_it_was,
    check_graphs_without_edges,
    check_nodes_are_explained,
    check_other_outputs,
    check_models_of_one_graph_per_call,
]


def check_cuda_equals_cpu(name: str, tolerance: float = 1e-4, **settings: Any) -> None:
    graphs = some_graphs()
    model = GIN(NUM_FEATURES, 3, hidden_size=8).eval()
    here = get_explainer(name, model, **settings).explain(graphs).bond_score
    there = get_explainer(name, copy.deepcopy(model).cuda(), **settings).explain(graphs)
    assert there.bond_score.is_cuda
    torch.testing.assert_close(there.bond_score.cpu(), here, rtol=tolerance, atol=tolerance)
