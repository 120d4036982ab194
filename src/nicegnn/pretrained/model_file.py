"""A trained model in one file: weights, architecture, and a card that says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from nicegnn.config import Settings
from nicegnn.errors import ConfigError, StoreError
from nicegnn.intervention.background import Background
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import Mode
from nicegnn.target.zoo import MODELS, GraphClassifier, make_model

_VERSION = 2  # of files of models

Task = Literal["classification", "binary", "regression"]
MODES: dict[str, Mode] = {  # how outputs are read, see `Target`
    "classification": "multiclass",
    "binary": "binary",
    "regression": "regression",
}


@dataclass(frozen=True)
class ModelCard(Settings):
    """What a model predicts, what it was trained on, and how good it is on held-out molecules."""

    name: str  # short name
    question: str = ""  # what it predicts, in words
    task: Task = "classification"  # "binary": one logit
    classes: tuple[str, ...] = ()  # names of the classes, by number
    unit: str = ""  # of a regression's value
    featurizer: str = ""  # how SMILES become graphs
    data: str = ""  # where the molecules and labels come from
    split: str = ""  # how they were split, with the number of molecules in each part
    architecture: str = ""  # kind of model
    note: str = ""  # what else a reader must know
    test: dict[str, float] = field(default_factory=dict)  # quality on the test part
    baseline: dict[str, float] = field(default_factory=dict)  # of always the same answer, there

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", tuple(self.classes))
        if self.task == "regression" and self.classes:
            raise ConfigError(f"`classes` must be empty for a regression (got {self.classes}).")

    def class_name(self, number: int) -> str:
        """Returns the name of a class, or its number where it has none."""
        return self.classes[number] if number < len(self.classes) else str(number)

    def in_words(self) -> str:
        """Returns one line: what the model predicts and how well."""
        shown = {"accuracy": "accuracy {:.1%}", "r2": "R² {:.3f}", "mae": "mean error {:.2f}"}
        quality = [text.format(self.test[k]) for k, text in shown.items() if k in self.test]
        told = {key: text for key, text in shown.items() if key != "r2"}  # R² is 0 of a constant
        plain = [text.format(self.baseline[k]) for k, text in told.items() if k in self.baseline]
        line = self.question or f"{self.task} by {self.name}"
        if quality:
            line += f" ({', '.join(quality)} on held-out molecules"
            line += f"; always the same answer: {', '.join(plain)})" if plain else ")"
        return line


def save_model(
    path: str | Path, model: GraphClassifier, card: ModelCard, background: Background | None = None
) -> None:
    """Writes a reference model, its card and its background to one file; no code is stored."""
    description = {
        "kind": "model",
        "version": _VERSION,
        "architecture": type(model).__name__.lower(),
        "settings": model.settings,
        "card": card.to_dict(),
        "background": None if background is None else background.facts(),
    }
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    if background is not None:
        tensors |= {f"background.{key}": value for key, value in background.tensors().items()}
    save_tensors(path, tensors, description)


def load_model(
    path: str | Path, device: str | torch.device = "cpu"
) -> tuple[GraphClassifier, ModelCard, Background | None]:
    """Reads what `save_model` wrote."""
    tensors, description = load_tensors(path, "model")
    if description["version"] != _VERSION:
        raise StoreError(
            f"{path} must hold a model of version {_VERSION} (got version "
            f"{description['version']}, of an older nicegnn). Train it again."
        )
    settings: dict[str, Any] = dict(description["settings"])
    kind = description["architecture"]
    if kind not in MODELS:
        raise StoreError(
            f"{path} must hold one of {tuple(MODELS)} (got {kind!r}). Use the version of nicegnn "
            "that wrote it."
        )
    with torch.random.fork_rng(devices=[]):  # new layers draw weights; they are replaced
        model = make_model(kind, settings.pop("in_size"), settings.pop("num_classes"), **settings)
    model.load_state_dict(_below(tensors, "model"))
    background = None
    if description["background"] is not None:
        own = _below(tensors, "background")
        background = Background.from_tensors(own, description["background"])
    return model.to(device).eval(), ModelCard.from_dict(description["card"]), background


def _below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Returns the tensors whose name starts with a part, without it."""
    return {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
