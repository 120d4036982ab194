"""Graph classifiers and regressors: training, predictions, accuracy and calibration."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.config import Count, Positive, Settings
from nicegnn.graph.minibatches import GraphStack
from nicegnn.optimisation import run_steps
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.output import Mode
from nicegnn.target.zoo import GraphClassifier

_BATCH = 2048  # graphs that are predicted at a time


@dataclass(frozen=True)
class TrainConfig(Settings):
    """Settings of training; the defaults are those of the paper's Appendix C."""

    learning_rate: Positive = 0.01  # Adam
    batch_size: Count = 2048  # graphs per step
    epochs: Count = 1000  # most epochs
    patience: Count = 100  # epochs without a better validation loss before the rate is halved
    stop_after: Count = 300  # epochs without a better checkpoint before training ends
    seed: int = 0  # order of graphs


@dataclass(frozen=True)
class TrainReport:
    """Result of training; the kept weights have the best validation accuracy, then loss."""

    best_epoch: int  # epoch of the kept weights
    valid_accuracy: float  # of the kept weights; R² of a regressor
    epochs: int  # epochs that were run
    history: list[dict[str, float]]  # training loss, validation loss and accuracy per epoch


def train_model(
    model: nn.Module,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    mode: Mode = "multiclass",
    balanced: bool = False,
    progress: bool = True,
) -> TrainReport:
    """Trains `model` in place on ``y``, and leaves it with its best validation weights.

    With ``balanced`` all classes weigh the same, in the loss and in the validation accuracy, as
    present and absent do with ``mode="multilabel"``, whose ``y`` is ``[1, L]``, nan where a label
    is not known. A regressor learns values of mean 0 and spread 1; at the end its head is rescaled
    to the true ones.
    """
    config, target = config or TrainConfig(), Target(model, mode=mode)
    stack = GraphStack(train, target.device)
    held_out = GraphStack(valid, target.device).take(torch.arange(len(valid)))
    goal = _Goal(mode, stack.take(torch.arange(len(stack))).y, balanced)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    schedule = plateau(optimiser, factor=0.5, patience=config.patience)
    best, best_epoch, best_model = (-math.inf, -math.inf), 0, copy.deepcopy(model)

    def epoch(number: int) -> dict[str, float]:
        nonlocal best, best_epoch
        model.train()
        generator = torch.Generator().manual_seed(mix(config.seed, "epoch", number))
        order = torch.randperm(len(stack), generator=generator)
        total = torch.zeros((), device=target.device)
        for chosen in torch.split(order, config.batch_size):
            batch = stack.take(chosen)
            loss = goal.loss(target.call(batch), batch.y)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.detach() * batch.num_graphs
        with torch.no_grad(), target.frozen():
            out = target.call(held_out)
        valid_loss = float(goal.loss(out, held_out.y))
        accuracy = goal.accuracy(out, held_out.y)
        if (accuracy, -valid_loss) > best:
            best, best_epoch = (accuracy, -valid_loss), number
            best_model.load_state_dict(model.state_dict())
        schedule.step(valid_loss)
        loss_of_all = float(total) / len(stack)
        return {"loss": loss_of_all, "valid_loss": valid_loss, "valid_accuracy": accuracy}

    def is_over(history: Sequence[object]) -> bool:
        return len(history) - 1 - best_epoch >= config.stop_after

    history = run_steps(epoch, config.epochs, title="Training", progress=progress, is_over=is_over)
    model.load_state_dict(best_model.state_dict())
    model.eval()
    if mode == "regression" and isinstance(model, GraphClassifier):
        with torch.no_grad():
            model.head.weight.mul_(goal.spread)
            model.head.bias.mul_(goal.spread).add_(goal.mean)
    return TrainReport(best_epoch, best[0], len(history), history)


class _Goal:
    """What a model is to learn: its loss, and its accuracy (R² for values)."""

    def __init__(self, mode: Mode, y: Tensor, balanced: bool) -> None:
        self.mode, self.mean, self.spread = (
            mode,
            0.0,
            1.0,
        )  # mean and spread of a regressor's values
        self.weight: Tensor | None = None  # of each class, [C], or of absent and present, [2, L]
        if mode == "regression":
            self.mean = float(y.double().mean())
            self.spread = float(y.double().std(correction=0)) or 1.0
        elif mode == "multilabel":
            count = torch.stack([(y == 0).sum(0), (y == 1).sum(0)]).clamp_min(1)
            self.weight = count.sum(0) / (2 * count)
        elif balanced:
            count = y.view(-1).bincount().clamp_min(1)
            self.weight = y.numel() / (count.numel() * count)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        if self.mode == "regression":
            wanted = (y.view(-1) - self.mean) / self.spread
            return nn.functional.mse_loss(out.view(-1), wanted.to(out.dtype))
        if self.mode == "multilabel":
            weight = self._weight_of(y)
            entropy = nn.functional.binary_cross_entropy_with_logits
            loss = entropy(out, y.nan_to_num(), weight, reduction="sum")
            return loss / weight.sum().clamp_min(1)
        return nn.functional.cross_entropy(out, y.view(-1), weight=self.weight)

    def accuracy(self, out: Tensor, y: Tensor) -> float:
        if self.mode == "regression":
            share = r_squared(self.mean + self.spread * out.view(-1), y)
            return -math.inf if math.isnan(share) else share  # the loss decides
        is_several, weight = self.mode == "multilabel", self._weight_of(y)
        right = ((out > 0) == (y == 1) if is_several else out.argmax(1) == y.view(-1)).double()
        return float((right * weight).sum() / weight.sum())

    def _weight_of(self, y: Tensor) -> Tensor:
        """Returns what each label of each graph weighs; 0 where it is not known."""
        if self.weight is None:
            return torch.ones_like(y.view(-1), dtype=torch.double)
        if self.mode == "multilabel":
            return torch.where(y == 1, self.weight[1], self.weight[0]) * y.isfinite()
        return self.weight[y.view(-1)]


@torch.no_grad()
def predict(model: nn.Module, graphs: Sequence[Data], *, mode: Mode = "multiclass") -> Tensor:
    """Returns class probabilities of each graph, or values of a regressor, ``[G, C]``."""
    target = Target(model, mode=mode)
    stack = GraphStack(graphs, target.device)
    parts = []
    with target.frozen():
        for chosen in torch.split(torch.arange(len(stack)), _BATCH):
            batch = stack.take(chosen)
            out = target.call(batch)
            target.settle(out, batch)
            read = target.read(out)
            parts.append(read if target.mode == "regression" else read.exp())
    return torch.cat(parts)


def accuracy_of(model: nn.Module, graphs: Sequence[Data]) -> float:
    """Returns the share of graphs whose label the model predicts."""
    predicted = predict(model, graphs).argmax(1).cpu()
    labels = torch.cat([graph.y.view(-1) for graph in graphs]).cpu()
    return float((predicted == labels).double().mean())


def r_squared(predicted: Tensor, value: Tensor) -> float:
    """Returns R², the share of the variance that is explained; nan if all values are the same."""
    y = value.double().view(-1)
    left = (y - predicted.double().view(-1)).square().sum()
    return float(1 - left / (y - y.mean()).square().sum())


def calibration(probability: Tensor, label: Tensor, *, num_bins: int = 10) -> dict[str, Any]:
    r"""Measures accuracy and calibration of probabilities ``[G, C]`` for labels ``[G]``.

    The expected calibration error sums the gaps between accuracy and confidence over bins of equal
    width of the confidence: :math:`ECE = \sum_b \frac{n_b}{n} \, |acc_b - conf_b|`. The interval of
    the accuracy is Wilson's, of 95%.
    """
    confidence, predicted = probability.double().cpu().max(1)
    right = (predicted == label.cpu()).double()
    edges = torch.linspace(1 / probability.size(1), 1, num_bins + 1, dtype=torch.double)
    where = torch.bucketize(confidence, edges[1:-1])
    gap = torch.zeros(num_bins, dtype=torch.double).index_add(0, where, right - confidence)
    return {
        "accuracy": float(right.mean()),
        "interval": wilson_interval(int(right.sum()), right.numel()),
        "ece": float(gap.abs().sum() / right.numel()),
        "mean_confidence": float(confidence.mean()),
    }


def wilson_interval(hits: int, number: int, z: float = 1.96) -> tuple[float, float]:
    """Returns the Wilson score interval of a proportion, which also holds near 0 and 1."""
    p = hits / number
    middle = p + z**2 / (2 * number)
    half = z * math.sqrt(p * (1 - p) / number + z**2 / (4 * number**2))
    scale = 1 + z**2 / number
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
