"""A trained model in one file: weights, architecture, and a card that says what it is."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from nicegnn.config import Settings, check_choice
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.intervention.background import Background
from nicegnn.molecule.domain import Domain
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.store import load_tensors, save_tensors, tensors_below
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.output import Mode
from nicegnn.target.zoo import GraphClassifier, make_model

EXPLAINER_ENDING = ".nice.safetensors"  # of an explainer that was fitted, beside its model
_VERSION = 2  # of files of models

Task = Literal["classification", "binary", "regression"]
#: How outputs are read, see `Target`.
MODES: dict[Task, Mode] = {"classification": "multiclass", "binary": "binary"}
MODES["regression"] = "regression"

_LEARNED = 0.9  # share of molecules on which models are right that have learned their rule


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
    doubt: str = ""  # why the model must not be used; empty where it is better than a constant
    test: dict[str, float] = field(default_factory=dict)  # quality on the test part
    baseline: dict[str, float] = field(default_factory=dict)  # of always the same answer, there

    @property
    def is_often_wrong(self) -> bool:
        """Whether it is right on fewer held-out molecules than models that trust was checked on."""
        return self.test.get("balanced_accuracy", self.test.get("accuracy", 1.0)) < _LEARNED

    def class_name(self, number: int) -> str:
        """Returns the name of a class, or its number where it has none."""
        return self.classes[number] if number < len(self.classes) else str(number)

    def in_words(self) -> str:
        """Returns one line: what the model predicts and how well."""
        shown = {
            "accuracy": "accuracy {:.1%}",
            "balanced_accuracy": "balanced {:.1%}",
            "auc": "AUC {:.3f}",
            "r2": "R² {:.3f}",
            "mae": "mean error {:.2f}",
        }
        quality = [text.format(self.test[k]) for k, text in shown.items() if k in self.test]
        known = [key for key in ("accuracy", "mae") if key in self.baseline]
        plain = [shown[key].format(self.baseline[key]) for key in known]
        line = self.question or f"{self.task} by {self.name}"
        if quality:
            line += f" ({', '.join(quality)} on held-out molecules"
            line += f"; always the same answer: {', '.join(plain)})" if plain else ")"
        return f"{line}. {self.doubt.rstrip('.')}" if self.doubt else line


@dataclass(frozen=True)
class Pretrained:
    """A trained model with all that is needed to explain its predictions for molecules."""

    model: nn.Module
    explainer: Explainer
    featurizer: Featurizer
    card: ModelCard
    origin: dict[str, str] = field(default_factory=dict)  # what results depend on, as hashes
    background: Background | None = None  # of the data that the model was trained on
    domain: Domain | None = None  # of these molecules
    cards: Mapping[str, ModelCard] = field(default_factory=dict)  # of labels, or of endpoints


def save_model(
    path: str | Path,
    model: GraphClassifier,
    card: ModelCard,
    background: Background | None = None,
    domain: Domain | None = None,
    labels: Mapping[str, ModelCard] | None = None,
) -> None:
    """Writes a reference model and what belongs to it to one file; no code is stored.

    ``labels`` are cards of the outputs of a model with several labels.
    """
    description = {
        "kind": "model",
        "version": _VERSION,
        "architecture": type(model).__name__.lower(),
        "settings": model.settings,
        "card": card.to_dict(),
        "labels": {label: own.to_dict() for label, own in (labels or {}).items()},
    }
    tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
    for name, part in (("background", background), ("domain", domain)):
        description[name] = None if part is None else part.facts()
        if part is not None:
            tensors |= {f"{name}.{key}": value for key, value in part.tensors().items()}
    save_tensors(path, tensors, description)


def load_file(path: str | Path, device: str | torch.device = "cpu", label: str = "") -> Pretrained:
    """Returns the model of a file, with the explainer that was fitted for it and lies beside it.

    Without such an explainer, NICE with the background of the model explains it. Of a model with
    several labels one is meant, by default the first.
    """
    path = Path(path)
    tensors, held = load_tensors(path, "model")
    if held.get("version") != _VERSION:
        found = held.get("version")
        raise StoreError(f"{path} must be of version {_VERSION} (got {found}). Train it again.")
    try:
        with torch.random.fork_rng(devices=[]):  # new layers draw weights; they are replaced
            model = make_model(held["architecture"], **held["settings"])
        card = ModelCard.from_dict(held["card"])
        check_choice("featurizer", card.featurizer, FEATURIZERS)
        weights, own = tensors_below(tensors, "model"), held.get("labels") or {}  # older: none
        model.load_state_dict(weights)
        if not all(bool(value.isfinite().all()) for value in weights.values()):
            raise ValueError("weights that are not finite")
        labels = {name: ModelCard.from_dict(one) for name, one in own.items()}
        if labels and len(labels) != model.head.out_features:
            raise ValueError(f"{model.head.out_features} outputs for {len(labels)} labels")
        parts: dict[str, Any] = {}
        for name, kind in (("background", Background), ("domain", Domain)):
            if held[name] is not None:
                parts[name] = kind.from_tensors(tensors_below(tensors, name), held[name])
    except Exception as error:
        raise StoreError(
            f"{path} is damaged: a part of it is missing or wrong "
            f"({type(error).__name__}: {' '.join(str(error).split())}). Train it again."
        ) from error
    background = parts.get("background")
    if background is not None and background.model != fingerprint(model):
        raise StoreError(f"{path} is damaged: its background is of other weights. Train it again.")
    if label and label not in labels:
        known = tuple(labels)
        raise ConfigError(f"`model` must name a label of {path}: one of {known} (got {label!r}).")
    fitted = path.with_name(path.name.removesuffix(".safetensors") + EXPLAINER_ENDING)
    if labels:
        label = label or next(iter(labels))
        model, card = one_output(model, [*labels].index(label)), labels[label]
        if background is not None:
            background = parts["background"] = replace(background, model=fingerprint(model))
    model.to(device).eval().__dict__["featurizer"] = card.featurizer  # explainers take SMILES
    explainer = NICE(model, background=background, mode=MODES[card.task])
    if fitted.is_file() and not labels:
        explainer = NICE.load(fitted, model)
    origin = {"model": fingerprint(model), "featurizer": card.featurizer}
    featurizer = FEATURIZERS[card.featurizer]
    return Pretrained(model, explainer, featurizer, card, origin, **parts, cards=labels)


def one_output(model: GraphClassifier, number: int) -> GraphClassifier:
    """Returns a copy of a model that has only one of its outputs."""
    made = copy.deepcopy(model)
    made.settings["num_classes"] = made.head.out_features = 1
    for name, value in model.head.named_parameters():
        setattr(made.head, name, torch.nn.Parameter(value.detach()[number : number + 1].clone()))
    return made
