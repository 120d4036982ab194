"""Graphs and the target model that are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import nn
from torch_geometric.data import Data

from nicegnn.target.training import TrainConfig, predict, train_model
from nicegnn_lab import load_dataset
from nicegnn_lab.bench.targets import load_target, make_target, target_path
from nicegnn_lab.datasets.generator import generate_dataset


@dataclass(frozen=True)
class Material:
    """A target model, graphs to fit explainers on, and graphs to explain."""

    title: str
    target: str
    model: nn.Module
    train: Sequence[Data]
    test: list[Data]  # predicted positive where there are enough, on the model's device

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def generated(num_train: int, num_test: int, device: torch.device, *, epochs: int) -> Material:
    """Returns generated molecules with or without benzene rings, and a GIN 3x32 trained on them."""
    graphs = generate_dataset("benzene", num_train + num_test)
    train, test = graphs[:num_train], graphs[num_train:]
    model = make_target("gin", graphs[0].num_node_features).to(device)
    if epochs:
        config = TrainConfig(batch_size=128, epochs=epochs)
        train_model(model, train, test, config, progress=False)
    title = f"generated molecules, target trained for {epochs} epochs"
    return Material(title, "gin", model.eval(), train, [graph.to(device) for graph in test])


def stored(dataset: str, target: str, num_train: int, num_test: int, device: str) -> Material:
    """Returns graphs of a dataset and the target that `results/targets` holds for it.

    If it has fewer test graphs that are predicted positive, these are repeated.
    """
    found = load_dataset(dataset)
    model = load_target(target_path("results/targets", dataset, target), device=device).model
    positive = (predict(model, found.test).argmax(1) == 1).nonzero().view(-1).tolist()
    wanted = islice(cycle(positive), num_test)
    test = [found.test[number].to(device) for number in wanted]
    train = found.train[list(range(min(num_train, len(found.train))))]
    return Material(found.title, target, model.eval(), train, test)
