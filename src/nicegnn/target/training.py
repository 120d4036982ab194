"""Graph classifiers and regressors: training, predictions, accuracy and calibration."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.config import Count, Positive, Settings
from nicegnn.graph.minibatches import GraphStack
from nicegnn.optimisation import run_steps
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.output import Mode
from nicegnn.target.zoo import GraphClassifier


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
    """Result of training; the kept weights have the best validation accuracy, then loss.

    For a regressor, R² takes the place of the accuracy.
    """

    best_epoch: int  # epoch of the kept weights
    valid_accuracy: float  # of the kept weights
    epochs: int  # epochs that were run
    history: list[dict[str, float]]  # training loss, validation loss and accuracy per epoch


def train_classifier(
    model: nn.Module,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    balanced: bool = False,
    progress: bool = True,
) -> TrainReport:
    """Trains `model` in place on labels ``y`` and leaves it with its best validation weights.

    With ``balanced`` all classes weigh the same, in the loss and in the validation accuracy.
    """
    run = _Run(model, train, config or TrainConfig(), balanced=balanced)
    return _train(run, valid, progress)


def train_labels(
    model: nn.Module,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    progress: bool = True,
) -> TrainReport:
    """Trains a model with a logit for each label; ``y`` is ``[1, L]``, nan where it is not known.

    Present and absent weigh the same for each label, in the loss and in the validation accuracy.
    """
    return _train(_Run(model, train, config or TrainConfig(), "multilabel"), valid, progress)


def train_regressor(
    model: GraphClassifier,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    progress: bool = True,
) -> TrainReport:
    """Trains a model with one output on values ``y``, as `train_classifier` does on labels.

    It learns values of mean 0 and spread 1; at the end its head is rescaled to the true ones.
    """
    run = _Run(model, train, config or TrainConfig(), "regression")
    report = _train(run, valid, progress)
    model.rescale(run.mean, run.spread)
    return report


def _train(run: _Run, valid: Sequence[Data], progress: bool) -> TrainReport:
    config, held_out = run.config, GraphStack(valid, run.target.device)
    held_out_batch = held_out.take(torch.arange(len(held_out)))
    history = run_steps(
        lambda number: run.epoch(number, held_out_batch),
        config.epochs,
        title="Training",
        progress=progress,
        is_over=run.is_over,
    )
    run.is_over(history)
    run.model.load_state_dict(run.best_model.state_dict())
    run.model.eval()
    return TrainReport(run.best_epoch, run.best[0], len(history), history)


class _Run:
    """One training run; what follows from the numbers of its epochs is read from its history."""

    def __init__(
        self,
        model: nn.Module,
        train: Sequence[Data],
        config: TrainConfig,
        mode: Mode = "multiclass",
        *,
        balanced: bool = False,
    ) -> None:
        self.model, self.config = model, config
        self.target = Target(model, mode=mode)
        self.train = GraphStack(train, self.target.device)
        self.mean, self.spread = 0.0, 1.0  # of the values that a regressor learns
        self.weight: Tensor | None = None  # of each class
        value = self.train.take(torch.arange(len(self.train))).y
        if balanced:
            count = value.view(-1).bincount().clamp_min(1)
            self.weight = len(self.train) / (count.numel() * count)
        if mode == "multilabel":
            count = torch.stack([(value == 0).sum(0), (value == 1).sum(0)]).clamp_min(1)  # [2, L]
            self.weight = count.sum(0) / (2 * count)
        if mode == "regression":
            value = value.double()
            self.mean = float(value.mean())
            self.spread = float(value.std(correction=0)) or 1.0
        self.optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
        self.schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimiser, factor=0.5, patience=config.patience
        )
        self.best: tuple[float, float] = (-math.inf, -math.inf)  # accuracy or R², minus loss
        self.best_epoch, self.num_read = 0, 0
        self.best_model = copy.deepcopy(model)

    def is_over(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Reads new epochs; whether the last `stop_after` of them brought no better weights."""
        for numbers in history[self.num_read :]:
            self.schedule.step(numbers["valid_loss"])
            reached = numbers["valid_accuracy"], -numbers["valid_loss"]
            if reached > self.best:
                self.best, self.best_epoch = reached, self.num_read
            self.num_read += 1
        return self.num_read - 1 - self.best_epoch >= self.config.stop_after

    def epoch(self, number: int, held_out: Batch) -> dict[str, float]:
        """Trains for one epoch and judges it on the validation graphs."""
        config = self.config
        self.model.train()
        generator = torch.Generator().manual_seed(mix(config.seed, "epoch", number))
        order = torch.randperm(len(self.train), generator=generator)
        total = torch.zeros((), device=self.target.device)
        for chosen in torch.split(order, config.batch_size):
            batch = self.train.take(chosen)
            error = self._loss(self.target.call(batch), batch)
            self.optimiser.zero_grad()
            torch.autograd.backward(error)
            self.optimiser.step()
            total += error.detach() * batch.num_graphs
        with torch.no_grad(), self.target.frozen():
            out = self.target.call(held_out)
        valid_loss = float(self._loss(out, held_out))
        if self.target.mode == "regression":
            accuracy = r_squared(self.mean + self.spread * out.view(-1), held_out.y)
            accuracy = -math.inf if math.isnan(accuracy) else accuracy  # the loss decides
        else:
            is_one = self.target.mode != "multilabel"
            accuracy = self._accuracy(out, held_out.y.view(-1) if is_one else held_out.y)
        if (accuracy, -valid_loss) > self.best:
            self.best_model.load_state_dict(self.model.state_dict())
        loss = float(total) / len(self.train)
        return {"loss": loss, "valid_loss": valid_loss, "valid_accuracy": accuracy}

    def _accuracy(self, out: Tensor, label: Tensor) -> float:
        if self.target.mode == "multilabel":
            right, weight = ((out > 0) == (label == 1)).double(), self._weights(label)
            return float((right * weight).sum() / weight.sum())
        right = (out.argmax(1) == label).double()
        if self.weight is None:
            return float(right.mean())
        weight = self.weight[label]
        return float((right * weight).sum() / weight.sum())

    def _weights(self, label: Tensor) -> Tensor:
        """Returns what each label of each graph weighs, ``[B, L]``: 0 where it is not known."""
        assert self.weight is not None
        return torch.where(label == 1, self.weight[1], self.weight[0]) * label.isfinite()

    def _loss(self, out: Tensor, batch: Batch) -> Tensor:
        if self.target.mode == "multilabel":
            weight, known = self._weights(batch.y), batch.y.nan_to_num()
            loss = nn.functional.binary_cross_entropy_with_logits(
                out, known, weight, reduction="sum"
            )
            return loss / weight.sum().clamp_min(1)
        if self.target.mode != "regression":
            return nn.functional.cross_entropy(out, batch.y.view(-1), weight=self.weight)
        wanted = (batch.y.view(-1) - self.mean) / self.spread
        return nn.functional.mse_loss(out.view(-1), wanted.to(out.dtype))


@torch.no_grad()
def predict(
    model: nn.Module,
    graphs: Sequence[Data],
    *,
    mode: Mode = "multiclass",
    batch_size: Count = 2048,
) -> Tensor:
    """Returns class probabilities of each graph, or values of a regressor, ``[G, C]``."""
    target = Target(model, mode=mode)
    stack = GraphStack(graphs, target.device)
    parts = []
    with target.frozen():
        for chosen in torch.split(torch.arange(len(stack)), batch_size):
            out = target.first_call(stack.take(chosen))
            target.settle(out)
            read = target.read(out)
            parts.append(read if target.mode == "regression" else read.exp())
    return torch.cat(parts)


def r_squared(predicted: Tensor, value: Tensor) -> float:
    r"""Returns the share of the values' variance that predictions explain.

    .. math:: R^2 = 1 - \frac{\sum_g (y_g - \hat y_g)^2}{\sum_g (y_g - \bar y)^2}

    Symbols: :math:`\hat y` -> ``predicted``, :math:`y` -> ``value``, ``[G]``. It is nan for values
    that are all the same.

    Example:
        >>> r_squared(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]))
        0.5
    """
    y = value.double().view(-1)
    left = (y - predicted.double().view(-1)).square().sum()
    return float(1 - left / (y - y.mean()).square().sum())


def accuracy_of(model: nn.Module, graphs: Sequence[Data]) -> float:
    """Returns the share of graphs whose label the model predicts."""
    predicted = predict(model, graphs).argmax(1).cpu()
    stored = getattr(graphs, "y", None)  # a dataset has them at hand
    labels = torch.cat([g.y.view(-1) for g in graphs]) if stored is None else stored
    return float((predicted == labels.cpu()).double().mean())


@dataclass(frozen=True)
class Calibration:
    """Accuracy and confidence of a classifier, and the gap between them."""

    accuracy: float  # share of right predictions
    interval: tuple[float, float]  # 95% Wilson interval of the accuracy
    ece: float  # expected calibration error over equal bins of confidence
    mean_confidence: float  # mean probability of the predicted class
    histogram: list[float]  # share of predictions in each bin of confidence, from 1/C up to 1
    edges: list[float]  # borders of the bins


def calibration(probability: Tensor, label: Tensor, *, num_bins: int = 10) -> Calibration:
    r"""Measures accuracy and calibration of probabilities ``[G, C]`` for labels ``[G]``.

    .. math:: ECE = \sum_b \frac{n_b}{n} \, |acc_b - conf_b|

    Symbols: of the predictions whose confidence lies in bin b, :math:`n_b` is the number,
    :math:`acc_b` the accuracy and :math:`conf_b` the mean confidence.
    """
    confidence, predicted = probability.double().cpu().max(1)
    right = (predicted == label.cpu()).double()
    number, lowest = right.numel(), 1 / probability.size(1)
    edges = torch.linspace(lowest, 1, num_bins + 1, dtype=torch.double)
    where = torch.bucketize(confidence, edges[1:-1])
    count = torch.bincount(where, minlength=num_bins).double()
    gap = torch.zeros(num_bins, dtype=torch.double).index_add(0, where, right - confidence)
    return Calibration(
        accuracy=float(right.mean()),
        interval=wilson_interval(int(right.sum()), number),
        ece=float(gap.abs().sum() / number),
        mean_confidence=float(confidence.mean()),
        histogram=(count / number).tolist(),
        edges=edges.tolist(),
    )


def wilson_interval(hits: int, number: int, z: float = 1.96) -> tuple[float, float]:
    r"""Returns the Wilson score interval of a proportion, which also holds near 0 and 1.

    .. math:: \frac{p + \frac{z^2}{2n} \pm z \sqrt{\frac{p(1-p)}{n} + \frac{z^2}{4n^2}}}
        {1 + z^2/n}

    Example:
        >>> [round(value, 4) for value in wilson_interval(177, 177)]
        [0.9788, 1.0]
    """
    p = hits / number
    middle = p + z**2 / (2 * number)
    half = z * math.sqrt(p * (1 - p) / number + z**2 / (4 * number**2))
    scale = 1 + z**2 / number
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
