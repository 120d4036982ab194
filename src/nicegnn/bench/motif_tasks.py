"""Tasks with planted motifs: graphs and split, a target that learns them, what is explained."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from nicegnn.bench.targets import make_target
from nicegnn.datasets.motifs import FEATURES, ba_2motifs, ba_shapes
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.node_tasks import computation_graphs
from nicegnn.graph.batch import to_batch
from nicegnn.metrics import fidelity_curve
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import TrainConfig, accuracy_of, predict, train_classifier

_CHECK_EVERY = 5  # epochs between two looks at the validation nodes
_NODES_AT_ONCE = 8  # nodes explained together: the computation graph of one can be most of it all


@dataclass(frozen=True)
class MotifConfig:
    """Sizes of the generated data and of training; all enter the names of parts."""

    num_graphs: int = 1000  # of ba-2motifs, in train, valid and test as 80, 10 and 10 percent
    graph_epochs: int = 100  # most epochs of training on ba-2motifs
    base_nodes: int = 300  # of ba-shapes, before houses are attached
    num_motifs: int = 80  # houses of ba-shapes
    node_epochs: int = 1000  # epochs of training on ba-shapes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is not int or value < 1:
                raise ConfigError(f"`{name}` must be a whole number of at least 1 (got {value!r}).")


class NodeGCN(nn.Module):
    """Three GCN layers, whose outputs together tell the role of a node.

    With the last layer alone, accuracy on ba-shapes collapses: the near surroundings tell the role.
    """

    def __init__(self, in_size: int, num_classes: int, hidden_size: int = 20) -> None:
        super().__init__()
        sizes = (in_size, hidden_size, hidden_size)
        self.convs = nn.ModuleList(GCNConv(size, hidden_size) for size in sizes)
        self.acts = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(hidden_size), nn.ReLU()) for _ in sizes
        )
        self.head = nn.Linear(len(sizes) * hidden_size, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns logits of each node, ``[V, C]``."""
        states = []
        for conv, act in zip(self.convs, self.acts, strict=True):
            x = act(conv(x, edge_index))
            states.append(x)
        return self.head(torch.cat(states, dim=1))


class MotifTask(ABC):
    """Generated data of one seed; a target is trained on it, and its predictions are explained.

    Attributes:
        name: in rows.
        level: whether graphs or nodes are predicted.
        targets: names of models that are trained.
        accuracy_wanted: a target below this has not learned the task.
    """

    name: ClassVar[str]
    level: ClassVar[str]
    targets: ClassVar[tuple[str, ...]]
    accuracy_wanted: ClassVar[float]

    def __init__(self, seed: int, config: MotifConfig) -> None:
        self.seed, self.config = seed, config

    @abstractmethod
    def new_target(self, name: str) -> nn.Module:
        """Returns an untrained model, its weights drawn by the task's seed."""

    @abstractmethod
    def train(self, model: nn.Module) -> None:
        """Trains the model in place and leaves it with its best validation weights."""

    @abstractmethod
    def accuracy(self, model: nn.Module) -> float:
        """Returns the share of right predictions in the test part."""

    @abstractmethod
    def explained(self, model: nn.Module, most: int | None) -> Tensor:
        """Returns what is explained: right predictions of the test part that have a truth."""

    @abstractmethod
    def fit(self, explainer: Explainer, most: int | None) -> None:
        """Fits an explainer on the training part, or on so many of it."""

    @abstractmethod
    def explain(self, explainer: Explainer, chosen: Tensor) -> Iterator[tuple[Explanation, Tensor]]:
        """Yields explanations, each with its true directed edges, bool ``[E]``."""

    def fidelity(self, model: nn.Module, found: Explanation, chosen: Tensor) -> dict[str, Tensor]:
        """Returns areas of prediction kept by name; none where they are not defined."""
        return {}

    def _split(self, num: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns 80, 10 and 10 percent of so many positions, drawn by the seed."""
        order = torch.randperm(num, generator=self._generator("split"))
        first, second = round(0.8 * num), round(0.9 * num)
        return order[:first], order[first:second], order[second:]

    def _some(self, positions: Tensor, most: int | None, purpose: str) -> Tensor:
        """Returns at most so many positions, drawn by the seed, rising."""
        order = torch.randperm(positions.numel(), generator=self._generator(purpose))
        return positions[order[:most]].sort().values

    def _generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(mix(self.seed, self.name, purpose))


class TwoMotifs(MotifTask):
    """Graph classification: does the tree carry a house or a five-cycle?"""

    name = "ba-2motifs"
    level = "graph"
    targets = ("gin", "gcn")
    accuracy_wanted = 0.95

    def __init__(self, seed: int, config: MotifConfig) -> None:
        super().__init__(seed, config)
        self.graphs = ba_2motifs(config.num_graphs, seed)
        self.train_part, self.valid_part, self.test_part = self._split(len(self.graphs))

    def new_target(self, name: str) -> nn.Module:
        return make_target(name, FEATURES, self.seed)

    def train(self, model: nn.Module) -> None:
        config = TrainConfig(
            batch_size=128,
            epochs=self.config.graph_epochs,
            patience=20,
            stop_after=50,
            seed=self.seed,
        )
        train, valid = self._take(self.train_part), self._take(self.valid_part)
        train_classifier(model, train, valid, config, progress=False)

    def accuracy(self, model: nn.Module) -> float:
        return accuracy_of(model, self._take(self.test_part))

    def explained(self, model: nn.Module, most: int | None) -> Tensor:
        graphs = self._take(self.test_part)
        label = torch.cat([graph.y for graph in graphs])
        right = predict(model, graphs).argmax(1).cpu() == label
        return self._some(self.test_part[right], most, "explained")

    def fit(self, explainer: Explainer, most: int | None) -> None:
        graphs = self._take(self._some(self.train_part, most, "fit"))
        explainer.fit(graphs, seed=self.seed, progress=False)

    def explain(self, explainer: Explainer, chosen: Tensor) -> Iterator[tuple[Explanation, Tensor]]:
        graphs = self._take(chosen)
        truth = torch.cat([graph.edge_truth for graph in graphs])
        yield explainer.explain(graphs, seed=self.seed), truth

    def fidelity(self, model: nn.Module, found: Explanation, chosen: Tensor) -> dict[str, Tensor]:
        target, batch = Target(model), to_batch(self._take(chosen))
        areas = {}
        for removal in ("em", "nc"):
            curve = fidelity_curve(
                target, batch, found.bonds, found.bond_score, removal=removal, seed=self.seed
            )
            areas[f"kept_area/{removal}"] = curve.area
        return areas

    def _take(self, positions: Tensor) -> list[Data]:
        return [self.graphs[number] for number in positions.tolist()]


class Shapes(MotifTask):
    """Node classification: base graph, or which part of a house?"""

    name = "ba-shapes"
    level = "node"
    targets = ("gcn",)
    accuracy_wanted = 0.9

    def __init__(self, seed: int, config: MotifConfig) -> None:
        super().__init__(seed, config)
        self.data = ba_shapes(seed, base_nodes=config.base_nodes, num_motifs=config.num_motifs)
        parts = self._split(int(self.data.graph.num_nodes))
        self.train_part, self.valid_part, self.test_part = parts

    def new_target(self, name: str) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # layers draw weights from the global generator
            torch.default_generator.manual_seed(mix(self.seed, self.name, "target"))
            return NodeGCN(FEATURES, 4)

    def train(self, model: nn.Module) -> None:
        graph = self._graph_for(model)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        best, weights = (-1.0, 0.0), copy.deepcopy(model.state_dict())
        for epoch in range(self.config.node_epochs):
            model.train()
            logits = model(graph.x, graph.edge_index)
            optimiser.zero_grad()
            torch.autograd.backward(_loss(logits, graph.y, self.train_part))
            optimiser.step()
            if epoch % _CHECK_EVERY and epoch + 1 < self.config.node_epochs:
                continue
            logits = self._logits(model)
            found = (
                _share_right(logits, graph.y, self.valid_part),
                -float(_loss(logits, graph.y, self.valid_part)),
            )
            if found > best:
                best, weights = found, copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        model.eval()

    def accuracy(self, model: nn.Module) -> float:
        return _share_right(self._logits(model), self.data.graph.y, self.test_part)

    def explained(self, model: nn.Module, most: int | None) -> Tensor:
        """Returns test nodes of houses that the model gets right, far-reaching ones last.

        Nodes explained together cost what the largest of them costs.
        """
        label = self.data.graph.y
        right = (self._logits(model).argmax(1).cpu() == label) & (self.data.motif >= 0)
        chosen = self._some(self.test_part[right[self.test_part]], most, "explained")
        if chosen.numel() == 0:
            return chosen
        target = Target(model, level="node")
        with target.frozen():
            graph = to_batch(self._graph_for(model))
            units, _ = computation_graphs(target, graph, chosen.to(target.device))
        return chosen[torch.tensor([unit.num_edges for unit in units]).argsort(stable=True)]

    def fit(self, explainer: Explainer, most: int | None) -> None:
        nodes = self._some(self.train_part, most, "fit")
        explainer.fit(self.data.graph, index=nodes, seed=self.seed, progress=False)

    def explain(self, explainer: Explainer, chosen: Tensor) -> Iterator[tuple[Explanation, Tensor]]:
        # the truth differs from node to node, and the graph handed over can hold only one
        size = 1 if explainer.name == "ground-truth" else _NODES_AT_ONCE
        for nodes in torch.split(chosen, size):
            truth = torch.cat([self.data.truth_of(node) for node in nodes.tolist()])
            graph = copy.copy(self.data.graph)
            if size == 1:
                graph.edge_truth = truth
            yield explainer.explain(graph, index=nodes, seed=self.seed), truth

    @torch.no_grad()
    def _logits(self, model: nn.Module) -> Tensor:
        graph = self._graph_for(model)
        with Target(model, level="node").frozen():
            return model(graph.x, graph.edge_index)

    def _graph_for(self, model: nn.Module) -> Data:
        return copy.copy(self.data.graph).to(next(model.parameters()).device)


def _loss(logits: Tensor, label: Tensor, nodes: Tensor) -> Tensor:
    nodes = nodes.to(logits.device)
    return nn.functional.cross_entropy(logits[nodes], label.to(logits.device)[nodes])


def _share_right(logits: Tensor, label: Tensor, nodes: Tensor) -> float:
    right = logits.argmax(1).cpu() == label.cpu()
    return float(right[nodes].double().mean())


#: Tasks by name.
TASKS: dict[str, type[MotifTask]] = {task.name: task for task in (TwoMotifs, Shapes)}
