"""Training of graph classifiers: Adam, plateau schedule, best validation checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import ConfigError
from nicegnn.graphs import collate
from nicegnn.noise import mix
from nicegnn.progress import progress_bar
from nicegnn.target import Target


@dataclass(frozen=True)
class TrainConfig:
    """Settings of training; the defaults are those of the paper's Appendix C."""

    learning_rate: float = 0.01  # Adam
    batch_size: int = 2048  # graphs per step
    epochs: int = 1000  # most epochs
    patience: int = 100  # epochs without a better validation loss before the rate is halved
    stop_after: int = 300  # epochs without a better checkpoint before training ends
    seed: int = 0  # order of graphs

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "patience", "stop_after"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be at least 1 (got {getattr(self, name)}).")


@dataclass(frozen=True)
class TrainReport:
    """What training reached.

    Attributes:
        best_epoch: epoch of the kept weights, the best validation accuracy (first of equals by
            validation loss).
        valid_accuracy: accuracy of the kept weights on the validation graphs.
        epochs: epochs that were run.
        history: training loss, validation loss and validation accuracy per epoch.
    """

    best_epoch: int
    valid_accuracy: float
    epochs: int
    history: list[dict[str, float]]


def train_classifier(
    model: nn.Module,
    train: Sequence[Data],
    valid: Sequence[Data],
    config: TrainConfig | None = None,
    *,
    progress: bool = True,
) -> TrainReport:
    """Trains `model` in place on labels ``y`` and leaves it with its best validation weights."""
    config = config or TrainConfig()
    target = Target(model, mode="multiclass")
    device = target.device
    optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.5, patience=config.patience
    )
    held_out = collate(valid).to(device)
    best: tuple[float, float] = (-1.0, 0.0)
    best_epoch, weights = 0, copy.deepcopy(model.state_dict())
    history: list[dict[str, float]] = []
    with progress_bar("Training", config.epochs, shown=progress) as advance:
        for epoch in range(config.epochs):
            loss = _epoch(model, target, train, optimiser, config, epoch)
            valid_loss, accuracy = _evaluate(target, held_out)
            schedule.step(valid_loss)
            history.append({"loss": loss, "valid_loss": valid_loss, "valid_accuracy": accuracy})
            if (accuracy, -valid_loss) > best:
                best, best_epoch = (accuracy, -valid_loss), epoch
                weights = copy.deepcopy(model.state_dict())
            advance(epoch + 1, f"validation accuracy {best[0]:.3f}")
            if epoch - best_epoch >= config.stop_after:
                break
    model.load_state_dict(weights)
    model.eval()
    return TrainReport(best_epoch, best[0], len(history), history)


@torch.no_grad()
def predict(model: nn.Module, graphs: Sequence[Data], *, batch_size: int = 2048) -> Tensor:
    """Returns class probabilities of each graph, ``[G, C]``."""
    target = Target(model, mode="multiclass")
    parts = []
    with target.frozen():
        for first in range(0, len(graphs), batch_size):
            batch = collate(graphs[first : first + batch_size])
            out = target.call(batch.to(target.device))
            target.settle(out)
            parts.append(target.read(out).exp())
    return torch.cat(parts)


def accuracy_of(model: nn.Module, graphs: Sequence[Data]) -> float:
    """Returns the share of graphs whose label the model predicts."""
    predicted = predict(model, graphs).argmax(1).cpu()
    labels = torch.cat([graph.y.view(-1) for graph in graphs]).cpu()
    return float((predicted == labels).double().mean())


def _epoch(
    model: nn.Module,
    target: Target,
    train: Sequence[Data],
    optimiser: torch.optim.Optimizer,
    config: TrainConfig,
    epoch: int,
) -> float:
    model.train()
    generator = torch.Generator().manual_seed(mix(config.seed, "epoch", epoch))
    order = torch.randperm(len(train), generator=generator).tolist()
    total = 0.0
    for first in range(0, len(order), config.batch_size):
        chosen = order[first : first + config.batch_size]
        batch = collate([train[k] for k in chosen]).to(target.device)
        loss = nn.functional.cross_entropy(target.call(batch), batch.y.view(-1))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += float(loss.detach()) * len(chosen)
    return total / len(order)


@torch.no_grad()
def _evaluate(target: Target, batch: Batch) -> tuple[float, float]:
    with target.frozen():
        logits = target.call(batch)
    labels = batch.y.view(-1)
    loss = nn.functional.cross_entropy(logits, labels)
    return float(loss), float((logits.argmax(1) == labels).double().mean())
