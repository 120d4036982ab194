"""Trained models that come with nicegnn, each with a background and a card.

>>> loaded = load("benzene")
>>> loaded.card.classes
('no benzene ring', 'benzene ring')
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import nn

from nicegnn.config import check_choice
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.intervention.background import Background
from nicegnn.molecule.domain import Domain
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.pretrained.model_file import MODES, ModelCard, load_model
from nicegnn.target.frozen_model import fingerprint

#: Models in the order of lists; `scripts/shipped_models.py` trains them.
NAMES = ("benzene", "mutagenicity", "logp")
DEFAULT = "mutagenicity"
EXPLAINER_ENDING = ".nice.safetensors"  # of an explainer that was fitted, beside its model


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
    cards: tuple[ModelCard, ...] = ()  # of each output, for an ensemble that explains several


def load(name: str = DEFAULT, device: str | torch.device = "cpu") -> Pretrained:
    """Returns one of the models in `NAMES`."""
    check_choice("name", name, NAMES)
    with as_file(files("nicegnn.pretrained") / "models") as folder:
        return load_file(folder / f"{name}.safetensors", device)


def card_of(name: str) -> ModelCard:
    """Returns the card of one of the models in `NAMES`."""
    check_choice("name", name, NAMES)
    with as_file(files("nicegnn.pretrained") / "models" / f"{name}.toml") as path:
        return ModelCard.from_toml(path)


def load_file(path: str | Path, device: str | torch.device = "cpu", label: str = "") -> Pretrained:
    """Returns the model of a file, with the explainer that was fitted for it and lies beside it.

    Without such an explainer, NICE with the background of the model explains it. Of a model with
    several labels one is meant, by default the first.
    """
    path = Path(path)
    stored = load_model(path, device, label)
    model, card, background = stored.model, stored.card, stored.background
    fitted = path.with_name(path.name.removesuffix(".safetensors") + EXPLAINER_ENDING)
    explainer: Explainer
    if fitted.is_file() and not stored.labels:
        explainer = NICE.load(fitted, model)
    else:
        explainer = NICE(model, background=background, mode=MODES[card.task])
    model.__dict__["featurizer"] = card.featurizer  # so that explainers of the model take SMILES
    origin = {"model": fingerprint(model), "featurizer": card.featurizer}
    featurizer = FEATURIZERS[card.featurizer]
    return Pretrained(model, explainer, featurizer, card, origin, background, stored.domain)
