"""Tasks with planted motifs: graphs, split, a trained target, explained graphs or nodes."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv

from nicegnn.config import check_choice, check_count
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.node_tasks import computation_graphs, survey
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import TrainConfig, accuracy_of, predict, train_classifier
from nicegnn_lab.bench.measure import MetricConfig, Scores
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import content_hash
from nicegnn_lab.bench.targets import make_target
from nicegnn_lab.bench.task import Task
from nicegnn_lab.datasets.motifs import FEATURES, ba_2motifs, ba_shapes
from nicegnn_lab.metrics import fidelity_curve, graph_keys, random_rank, random_ties, roc_auc
from nicegnn_lab.metrics.ranking import graph_sum

VERSION = 1  # raise it when the same settings give other data or targets
TARGETS_FOLDER = "motifs"  # within the folder of all targets
_TARGET_KIND = "motif target"
_CHECK_EVERY = 5  # epochs between two validations
_NODES_AT_ONCE = 8  # nodes explained together; one computation graph can be most of the graph


@dataclass(frozen=True)
class MotifConfig:
    """Sizes of the generated data and of training."""

    num_graphs: int = 1000  # of ba-2motifs; 80, 10 and 10 percent are train, valid and test
    graph_epochs: int = 100  # most epochs of training on ba-2motifs
    base_nodes: int = 300  # of ba-shapes, before houses are attached
    num_motifs: int = 80  # houses of ba-shapes
    node_epochs: int = 1000  # epochs of training on ba-shapes

    def __post_init__(self) -> None:
        check_count(self, *vars(self))


class NodeGCN(nn.Module):
    """Three GCN layers; the head reads the outputs of all, as the last alone is not accurate."""

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


class MotifTask(Task):
    """Generated data and a target trained on it; the seed makes data, split and weights."""

    is_seeded = True
    accuracy_wanted: float  # a target below this accuracy has not learned the task

    def __init__(self, seed: int, config: MotifConfig) -> None:
        self.seed, self.config = seed, config
        num = self.generate()
        data = content_hash([VERSION, self.name, seed, asdict(config)])
        self.identity = {"data": data, "split": f"random, seed {seed}"}
        order, first, second = self._order(num, "split"), round(0.8 * num), round(0.9 * num)
        self.train_part, self.valid_part = order[:first], order[first:second]
        self.test_part = order[second:]

    @property
    def num_train(self) -> int:
        return int(self.train_part.numel())

    @abstractmethod
    def generate(self) -> int:
        """Makes the data and returns the number of graphs or nodes."""

    @abstractmethod
    def new_target(self, name: str) -> nn.Module:
        """Returns an untrained model with weights of the task's seed."""

    @abstractmethod
    def train(self, model: nn.Module) -> None:
        """Trains the model in place and loads its best validation weights."""

    @abstractmethod
    def accuracy(self, model: nn.Module) -> float:
        """Returns the share of right predictions in the test part."""

    @abstractmethod
    def right_positions(self, model: nn.Module) -> Tensor:
        """Returns positions in the test part with a right prediction and a truth, ``[B]``."""

    @abstractmethod
    def stacked(self, positions: Tensor) -> Batch:
        """Returns one graph for each position, with its ``edge_truth``."""

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        """Returns the target, from its file if it was trained before."""
        check_choice("target", target, self.targets)
        model = self.new_target(target)
        shapes = {weight: list(tensor.shape) for weight, tensor in model.state_dict().items()}
        how = content_hash([VERSION, asdict(self.config), shapes])[:12]  # `repr` changes with PyG
        name = f"{self.name}-{target}-{self.seed}-{how}.safetensors"
        path = folder / TARGETS_FOLDER / name
        if not path.is_file():
            model.to(device)
            self.train(model)
            save_tensors(path, model.state_dict(), {"kind": _TARGET_KIND})
        tensors, _ = load_tensors(path, _TARGET_KIND)
        model.load_state_dict(tensors)
        return model.to(device).eval()

    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        check_choice("part", part, ("test",))
        return self._some(self.right_positions(model), most, "explained")

    def measure(
        self, scores: Scores, model: nn.Module, metrics: MetricConfig, seed: int
    ) -> Iterator[Block]:
        """Yields ``roc_auc`` and ``recall_at_k`` (see `motif_agreement`); areas for graphs."""
        batch = self.stacked(scores.positions)
        bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
        index = scores.positions if self.level == "node" else None
        for metric, value in motif_agreement(scores, bonds, batch.edge_truth, seed, index).items():
            yield Block(metric, value, graph=scores.positions)
        if self.level == "node":  # removing bonds would change the predictions of all nodes
            return
        for removal in metrics.removals:
            curve = fidelity_curve(
                Target(model), batch, bonds, scores.bond_score, removal=removal, seed=seed
            )
            yield Block("kept_area", curve.area, removal, scores.positions)

    def _some(self, positions: Tensor, most: int | None, purpose: str) -> Tensor:
        """Returns at most `most` positions, drawn by the seed, in rising order."""
        return positions[self._order(positions.numel(), purpose)[:most]].sort().values

    def _order(self, num: int, purpose: str) -> Tensor:
        generator = torch.Generator().manual_seed(mix(self.seed, self.name, purpose))
        return torch.randperm(num, generator=generator)


class TwoMotifs(MotifTask):
    """Graph classification: a house or a five-cycle is attached to a tree."""

    name = "ba-2motifs"
    level = "graph"
    targets = ("gin", "gcn")
    accuracy_wanted = 0.95

    def generate(self) -> int:
        self.graphs = ba_2motifs(self.config.num_graphs, self.seed)
        return len(self.graphs)

    def new_target(self, name: str) -> nn.Module:
        return make_target(name, FEATURES, self.seed)

    def train(self, model: nn.Module) -> None:
        epochs, seed = self.config.graph_epochs, self.seed
        config = TrainConfig(batch_size=128, epochs=epochs, patience=20, stop_after=50, seed=seed)
        train, valid = self._take(self.train_part), self._take(self.valid_part)
        train_classifier(model, train, valid, config, progress=False)

    def accuracy(self, model: nn.Module) -> float:
        return accuracy_of(model, self._take(self.test_part))

    def right_positions(self, model: nn.Module) -> Tensor:
        graphs = self._take(self.test_part)
        label = torch.cat([graph.y for graph in graphs])
        return self.test_part[predict(model, graphs).argmax(1).cpu() == label]

    def stacked(self, positions: Tensor) -> Batch:
        return to_batch(self._take(positions))

    def training(self, most: int | None = None) -> tuple[list[Data], None]:
        return self._take(self._some(self.train_part, most, "fit")), None

    def explain(
        self, explainer: Explainer, positions: Tensor, part: str, seed: int
    ) -> Iterator[Explanation]:
        yield explainer.explain(self._take(positions), seed=seed)  # label and prediction agree

    def _take(self, positions: Tensor) -> list[Data]:
        return [self.graphs[number] for number in positions.tolist()]


class Shapes(MotifTask):
    """Node classification: base graph, or one of three parts of a house."""

    name = "ba-shapes"
    level = "node"
    targets = ("gcn",)
    accuracy_wanted = 0.9

    def generate(self) -> int:
        sizes = {"base_nodes": self.config.base_nodes, "num_motifs": self.config.num_motifs}
        self.data = ba_shapes(self.seed, **sizes)
        return int(self.data.graph.num_nodes)

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
            loss = float(_loss(logits, graph.y, self.valid_part))
            result = (_share_right(logits, graph.y, self.valid_part), -loss)
            if result > best:
                best, weights = result, copy.deepcopy(model.state_dict())
        model.load_state_dict(weights)
        model.eval()

    def accuracy(self, model: nn.Module) -> float:
        return _share_right(self._logits(model), self.data.graph.y, self.test_part)

    def right_positions(self, model: nn.Module) -> Tensor:
        label = self.data.graph.y
        right = (self._logits(model).argmax(1).cpu() == label) & (self.data.motif >= 0)
        return self.test_part[right[self.test_part]]

    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        """Sorts nodes by the size of their computation graphs, so that batches are even."""
        chosen = super().explained(model, part, most)
        if chosen.numel() == 0:
            return chosen
        target = Target(model, level="node")
        with target.frozen():
            graph = to_batch(self._graph_for(model))
            units, _ = computation_graphs(target, survey(target, graph), chosen.to(target.device))
        return chosen[torch.tensor([unit.num_edges for unit in units]).argsort(stable=True)]

    def stacked(self, positions: Tensor) -> Batch:
        return to_batch([self._with_truth(node) for node in positions.tolist()])

    def training(self, most: int | None = None) -> tuple[Data, Tensor]:
        return self.data.graph, self._some(self.train_part, most, "fit")

    def explain(
        self, explainer: Explainer, positions: Tensor, part: str, seed: int
    ) -> Iterator[Explanation]:
        # each node has its own truth, and a graph holds only one
        size = 1 if explainer.name == "ground-truth" else _NODES_AT_ONCE
        for nodes in torch.split(positions, size):
            graph = self._with_truth(int(nodes)) if size == 1 else copy.copy(self.data.graph)
            yield explainer.explain(graph, index=nodes, seed=seed).to_dense()

    def _with_truth(self, node: int) -> Data:
        graph = copy.copy(self.data.graph)
        graph.edge_truth = self.data.truth_of(node)
        return graph

    @torch.no_grad()
    def _logits(self, model: nn.Module) -> Tensor:
        graph = self._graph_for(model)
        with Target(model, level="node").frozen():
            return model(graph.x, graph.edge_index)

    def _graph_for(self, model: nn.Module) -> Data:
        return copy.copy(self.data.graph).to(next(model.parameters()).device)


def motif_agreement(
    scores: Scores, bonds: Bonds, edge_truth: Tensor, seed: int, index: Tensor | None = None
) -> dict[str, Tensor]:
    r"""Compares scores with the truth among the bonds that can influence the prediction.

    .. math:: recall@K = \frac{|S_K \cap T|}{|T|}, \qquad K = |T|

    Symbols: :math:`T` -> ``true``, the true bonds within reach, bool ``[M]``; :math:`S_K` -> the
    best :math:`K` bonds within reach, equal scores in random order by `seed`. Precision at K is the
    same number. Bonds that cannot influence an explained node do not count.

    Args:
        bonds: of all explained graphs, or of one copy of the graph for each explained node.
        edge_truth: truly explaining directed edges, bool ``[E]``.
        index: explained nodes, ``[B]``, for copies of one graph.

    Returns:
        ``roc_auc`` and ``recall_at_k``, ``[B]`` each; nan where undefined.
    """
    num = scores.num_graphs
    truth = bonds.sum(edge_truth.double()) > 0  # [M]
    key = graph_keys(bonds, num)
    if index is not None:
        key = key + index
    tie = random_ties(bonds.batch, num, seed, key)
    reached = scores.bond_reached
    score, true, batch = scores.bond_score[reached], truth[reached], bonds.batch[reached]
    size = graph_sum(true.long(), batch, num)  # K, [B]
    best = random_rank(score, batch, num, tie[reached]) < size[batch]
    hit = graph_sum((best & true).double(), batch, num)
    return {"roc_auc": roc_auc(score, true, batch, num), "recall_at_k": hit / size}  # nan for 0 / 0


def _loss(logits: Tensor, label: Tensor, nodes: Tensor) -> Tensor:
    nodes = nodes.to(logits.device)
    return nn.functional.cross_entropy(logits[nodes], label.to(logits.device)[nodes])


def _share_right(logits: Tensor, label: Tensor, nodes: Tensor) -> float:
    right = logits.argmax(1).cpu() == label.cpu()
    return float(right[nodes].double().mean())


#: Tasks by name.
MOTIF_TASKS: dict[str, type[MotifTask]] = {task.name: task for task in (TwoMotifs, Shapes)}
