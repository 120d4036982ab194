"""Trained models that come with nicegnn, each with a background and a card."""

from __future__ import annotations

from importlib.resources import as_file, files

import torch

from nicegnn.config import check_choice
from nicegnn.pretrained.model_file import ModelCard, Pretrained, load_file

#: Models in the order of lists; `scripts/shipped_models.py` trains them.
NAMES = ("benzene", "mutagenicity", "logp")
DEFAULT = "mutagenicity"
__all__ = ["DEFAULT", "NAMES", "Pretrained", "card_of", "load", "load_file"]


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
