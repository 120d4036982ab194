"""Tasks: graphs with known truth, their split, and a trained target."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.intervention.background import Background, record_background
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.study import tensor_hash
from nicegnn_lab.bench.targets import TARGETS, read_target
from nicegnn_lab.datasets.dataset import MoleculeDataset, load_dataset
from nicegnn_lab.metrics.agreement import Truth, selected_graphs

BACKGROUND_GRAPHS = 2000  # training graphs whose edges are the prototypes of an exchange


class Task(ABC):
    """Graphs with known truth; studies have tasks of their own, the benchmark `MoleculeTask`."""

    name: str  # in rows and commands
    targets: Iterable[str]  # names of its targets
    is_stand_in: bool = False  # whether its molecules stand in for the published ones
    is_seeded: bool = False  # whether data and target depend on the seed of a cell
    identity: Mapping[str, Any]  # hash of the data and name of the split, as plain values

    @abstractmethod
    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        """Returns a target, from the folder of all targets where it is stored."""

    @abstractmethod
    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        """Returns positions of at most so many graphs of a part, the same in every cell, [B]."""


class MoleculeTask(Task):
    targets = TARGETS.keys()

    def __init__(self, dataset: MoleculeDataset) -> None:
        self.dataset = dataset
        self.name, self.is_stand_in = dataset.name, dataset.is_stand_in
        self.identity = {"data": data_key(dataset), "split": dataset.split}
        self._explained: dict[str, Tensor] = {}  # of all graphs of a part

    def part(self, name: str) -> MoleculeDataset:
        return getattr(self.dataset, name)

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        return read_target(folder, self.dataset, target, device)

    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        """Returns positions of graphs of label 1 with a truth, rising."""
        if part not in self._explained:
            whole = self.part(part).batch()
            chosen = selected_graphs(whole.y, None, Truth.from_graphs(whole), "paper")
            self._explained[part] = chosen.nonzero().view(-1)
        positions = self._explained[part]
        if positions.numel() == 0:
            raise ConfigError(
                f"{self.name} has no graph of label 1 with a truth in its {part} part."
            )
        return positions[draw(positions.numel(), most, "explained")]

    def training(self, most: int | None = None) -> MoleculeDataset:
        """Returns training graphs, the same in every cell."""
        graphs = self.dataset.train
        is_limit = most is not None and most < len(graphs)
        return graphs.index_select(draw(len(graphs), most, "fit")) if is_limit else graphs

    def background(self, model: nn.Module) -> Background:

        return record_background(Target(model), self.training(BACKGROUND_GRAPHS))

    def explain(
        self, explainer: Explainer, positions: Tensor, part: str, seed: int
    ) -> Iterator[Explanation]:
        """Yields explanations of the label, whose truth is known, in the given order."""
        for chunk in torch.split(positions, explainer.config.batch_size):
            batch = self.part(part).batch(chunk)
            yield explainer.explain(batch, target=batch.y, seed=seed)


def make_task(name: str) -> MoleculeTask:
    """Returns a task by the name of its dataset."""
    return MoleculeTask(load_dataset(name))


def data_key(dataset: MoleculeDataset) -> str:
    """Returns a hash of the graphs, labels, truths and parts of a dataset."""
    tensors, task, rows = dataset.flat()
    named = [
        (name, tensors[name])
        for name in sorted(tensors)
        if "/" not in name or name.startswith(f"{task}/")  # not other tasks on the same molecules
    ]
    return tensor_hash([*named, ("rows", rows), ("part", dataset.part)])


def draw(num: int, wanted: int | None, purpose: str) -> Tensor:
    """Returns `wanted` of `num` positions, drawn at random, in rising order."""
    if wanted is None or wanted >= num:
        return torch.arange(num)
    generator = torch.Generator().manual_seed(mix("bench", purpose))
    return torch.randperm(num, generator=generator)[:wanted].sort().values
