"""Graph classifiers and regressors: training, predictions, accuracy and calibration."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.config import Settings, check_count, check_positive
from nicegnn.errors import StoreError
from nicegnn.graph.minibatches import GraphStack
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, optimiser_tensors, restore_optimiser, save_tensors
from nicegnn.target.frozen_model import Mode, Target
from nicegnn.target.zoo import GraphClassifier

CHECKPOINT_EVERY = 10  # epochs


@dataclass(frozen=True)
class TrainConfig(Settings):
    """Settings of training; the defaults are those of the paper's Appendix C."""

    learning_rate: float = 0.01  # Adam
    batch_size: int = 2048  # graphs per step
    epochs: int = 1000  # most epochs
    patience: int = 100  # epochs without a better validation loss before the rate is halved
    stop_after: int = 300  # epochs without a better checkpoint before training ends
    seed: int = 0  # order of graphs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "learning_rate")
        check_count(self, "batch_size", "epochs", "patience", "stop_after")


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
    progress: bool = True,
    checkpoint: str | Path | None = None,
) -> TrainReport:
    """Trains `model` in place on labels ``y`` and leaves it with its best validation weights.

    The ``checkpoint`` is written every 10 epochs, and resumed from if it exists; an interrupted and
    resumed run gives the same result as a whole one.
    """
    run = _Run(model, GraphStack(train, Target(model).device), config or TrainConfig())
    return _train(run, valid, progress, checkpoint)


def train_regressor(
    model: GraphClassifier,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    progress: bool = True,
    checkpoint: str | Path | None = None,
) -> TrainReport:
    """Trains a model with one output on values ``y``, as `train_classifier` does on labels.

    It learns values of mean 0 and spread 1; at the end its head is rescaled to the true ones.
    """
    run = _Run(
        model, GraphStack(train, Target(model).device), config or TrainConfig(), "regression"
    )
    report = _train(run, valid, progress, checkpoint)
    model.rescale(run.mean, run.spread)
    return report


def _train(
    run: _Run, valid: Sequence[Data], progress: bool, checkpoint: str | Path | None
) -> TrainReport:
    config, held_out = run.config, GraphStack(valid, run.target.device)
    held_out_batch = held_out.take(torch.arange(len(held_out)))
    if checkpoint is not None and Path(checkpoint).exists():
        run.resume(checkpoint)
    with progress_bar("Training", config.epochs, shown=progress) as advance:
        try:
            while len(run.history) < config.epochs and not run.is_over:
                run.epoch(held_out_batch)
                advance(len(run.history), f"validation {run.judged_by} {run.best[0]:.3f}")
                if len(run.history) % CHECKPOINT_EVERY == 0:
                    run.save(checkpoint)
        finally:  # also on Ctrl-C
            run.save(checkpoint)
    run.model.load_state_dict(run.best_weights)
    run.model.eval()
    return TrainReport(run.best_epoch, run.best[0], len(run.history), run.history)


class _Run:
    """State of one training run, as of the last whole epoch."""

    def __init__(
        self,
        model: nn.Module,
        train: GraphStack,
        config: TrainConfig,
        mode: Mode = "multiclass",
    ) -> None:
        self.model, self.train, self.config = model, train, config
        self.target = Target(model, mode=mode)
        self.judged_by = "R²" if mode == "regression" else "accuracy"
        self.mean, self.spread = 0.0, 1.0  # of the values that a regressor learns
        if mode == "regression":
            value = train.take(torch.arange(len(train))).y.double()
            self.mean = float(value.mean())
            self.spread = float(value.std(correction=0)) or 1.0
        self.optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
        self.schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimiser, factor=0.5, patience=config.patience
        )
        self.best: tuple[float, float] = (-math.inf, -math.inf)  # accuracy or R², minus loss
        self.best_epoch = 0
        self.best_weights = copy.deepcopy(model.state_dict())
        self.history: list[dict[str, float]] = []
        self._saved = self._tensors()

    @property
    def is_over(self) -> bool:
        """Whether the last `stop_after` epochs brought no better weights."""
        return len(self.history) - 1 - self.best_epoch >= self.config.stop_after

    def epoch(self, held_out: Batch) -> None:
        """Trains for one epoch and judges it on the validation graphs."""
        number, config = len(self.history), self.config
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
            accuracy = float((out.argmax(1) == held_out.y.view(-1)).double().mean())
        self.schedule.step(valid_loss)
        if (accuracy, -valid_loss) > self.best:
            self.best, self.best_epoch = (accuracy, -valid_loss), number
            self.best_weights = copy.deepcopy(self.model.state_dict())
        loss = float(total) / len(self.train)
        self.history.append({"loss": loss, "valid_loss": valid_loss, "valid_accuracy": accuracy})
        if (number + 1) % CHECKPOINT_EVERY == 0:
            self._saved = self._tensors()

    def _loss(self, out: Tensor, batch: Batch) -> Tensor:
        if self.target.mode != "regression":
            return nn.functional.cross_entropy(out, batch.y.view(-1))
        wanted = (batch.y.view(-1) - self.mean) / self.spread
        return nn.functional.mse_loss(out.view(-1), wanted.to(out.dtype))

    def save(self, path: str | Path | None) -> None:
        """Writes the state of the last epoch that is a multiple of `CHECKPOINT_EVERY`."""
        tensors, description = self._saved
        if path is not None:
            save_tensors(path, tensors, {"kind": "training", **description})

    def resume(self, path: str | Path) -> None:
        """Continues from a checkpoint."""
        tensors, description = load_tensors(path, "training")
        ends = {"epochs": 0, "stop_after": 0}  # when to end may change between runs
        is_same = {**description["config"], **ends} == {**self.config.to_dict(), **ends}
        if not is_same or description["graphs"] != self._graphs():
            raise StoreError(
                f"The checkpoint {path} belongs to another run (settings or graphs differ). "
                "Delete it to start again, or name another checkpoint."
            )
        self.model.load_state_dict(_under("model.", tensors))
        self.best_weights = _under("best.", tensors)
        restore_optimiser(self.optimiser, tensors)
        self.optimiser.param_groups[0]["lr"] = description["rate"]
        self.schedule.load_state_dict(description["schedule"])
        self.best = (description["best"][0], description["best"][1])
        self.best_epoch, self.history = description["best_epoch"], description["history"]
        self._saved = self._tensors()

    def _graphs(self) -> int:
        return mix(len(self.train), *self.train.num_edges[:1000].tolist())

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"model.{k}": v.clone() for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best_weights.items()}
        state, plain = self.schedule.state_dict(), int | float | str | list
        schedule = {key: value for key, value in state.items() if isinstance(value, plain)}
        return tensors | optimiser_tensors(self.optimiser), {
            "config": self.config.to_dict(),
            "graphs": self._graphs(),
            "rate": self.optimiser.param_groups[0]["lr"],
            "schedule": schedule,
            "best": list(self.best),
            "best_epoch": self.best_epoch,
            "history": list(self.history),
        }


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@torch.no_grad()
def predict(
    model: nn.Module,
    graphs: Sequence[Data],
    *,
    mode: Mode = "multiclass",
    batch_size: int = 2048,
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
