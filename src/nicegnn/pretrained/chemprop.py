"""Models that Chemprop has written: read without running code, one task of them, its background.

Checkpoints of Chemprop are pickles, which can run any code when they are read. PyTorch reads them
without; beside what it knows itself only parts of models may be named in them (`_part_of_model`).
"""

from __future__ import annotations

import io
import re
from collections import OrderedDict
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.molecule.smiles import require
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.ensemble import Ensemble, Output
from nicegnn.pretrained.model_file import MODES, ModelCard
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.frozen_model import Target, fingerprint

CHEMPROP = "chemprop:"  # stands before the file of a model where a word names it
_TASKS = {mode: task for task, mode in MODES.items()}
_KNOWN = re.compile(  # what files name besides modules
    r"torchmetrics\.(metric\.jit_distributed_available|utilities\.data\.dim_zero_\w+)"
    r"|numpy\.(ndarray|dtype|_?core\.multiarray\.(_reconstruct|scalar))"
)
_NUMBERS = [type(np.dtype(kind)) for kind in ("f4", "f8", "i8", "?")]  # no file names these


def read_mpnn(path: Path, *, trusted: bool = False) -> tuple[Any, list[str]]:
    """Returns the model of a file, and the names of its tasks; only `trusted` files run code."""
    MPNN = require("chemprop.models", "chemprop", "Chemprop").MPNN
    try:
        names = [] if trusted else get_unsafe_globals_in_checkpoint(path)
        parts = [(_part_of_model(name, path), name) for name in names]
        with safe_globals([*parts, *_NUMBERS]):
            held: Any = torch.load(path, map_location="cpu", weights_only=not trusted)
        file = io.BytesIO()  # Chemprop reads files alone; this one holds what was allowed
        torch.save(held, file)
        file.seek(0)
        mpnn = MPNN.load_from_file(file, map_location="cpu").eval()
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"{path} must be a model of Chemprop v2 of single molecules (got "
            f"{type(error).__name__}: {error}). Try `chemprop convert`, or train an MPNN on one "
            "component; models of atoms and bonds are not explained."
        ) from error
    return mpnn, [str(name) for name in held.get("output_columns") or range(mpnn.n_tasks)]


def _part_of_model(name: str, path: Path) -> Any:
    """Returns what a file names, or raises where that is no part of a model."""
    module, _, own = name.rpartition(".")
    if module.startswith("lightning.") and own == "AttributeDict":
        return OrderedDict  # PyTorch fills no other kind of dictionary
    if _KNOWN.fullmatch(name):
        return getattr(import_module(module), own)
    if module.startswith(("chemprop.nn.", "torch.nn.modules.")):
        found = getattr(import_module(module), own, None)
        if isinstance(found, type) and issubclass(found, nn.Module | Enum):
            return found
    raise StoreError(
        f"{path} names {name}, which is no part of a Chemprop model: reading it could run any "
        "code. If you know who wrote it, say so by --trust."
    )


def load_chemprop(
    path: str | Path,
    *,
    column: str = "",
    classes: tuple[str, ...] = (),
    trusted: bool = False,
    device: str | torch.device = "cpu",
) -> Pretrained:
    """Returns one task of a model of Chemprop, explained by NICE without a background.

    Several models in a folder of ``chemprop train`` are an `Ensemble`. The name of the task,
    ``column``, is needed if there are several. Files that are ``trusted`` may run code.
    """
    path, models, tasks = Path(path), list[ChempropModel](), list[list[str]]()
    files = sorted(path.glob("**/best.pt")) or sorted(path.glob("**/*.pt"))
    files = [path] if path.is_file() else files
    if not files:
        raise ConfigError(f"`model` must name a file or folder of Chemprop (got {path}).")
    for file in files:
        mpnn, names = read_mpnn(file, trusted=trusted)
        if column not in names and (column or len(names) > 1):
            raise ConfigError(f"`column` must be one of {', '.join(names)} (got {column!r}).")
        models.append(ChempropModel(mpnn.to(device), column=names.index(column or names[0])))
        tasks.append([models[-1].mode, column or names[0]])
    model, name = models[0], column or names[0]
    if any(one != tasks[0] for one in tasks):
        raise ConfigError(f"`model` must name files of the same task (got {tasks}). Name one.")
    task = _TASKS[model.mode]
    if task == "binary":
        classes = classes or (f"{name} = 0", f"{name} = 1")
    passing: Any = model.message_passing.passing
    file_name = files[0].name if len(files) == 1 else f"{len(files)} models in {path.name}"
    kind = f"Chemprop {type(passing).__name__}, depth {passing.depth}, "
    card = ModelCard(
        name=f"{files[0].stem}:{name}",
        question=f"{name} by {file_name}",
        task=task,
        classes=classes,
        featurizer="chemprop",
        architecture=f"{kind}width {passing.W_h.out_features}",
    )
    explainer: Explainer = NICE(model, mode=MODES[task])
    origin = {"model": fingerprint(model), "featurizer": card.featurizer, "name": card.name}
    if len(files) > 1:
        members = [(Target(one, mode="regression"), None) for one in models]
        explainer = Ensemble({"": members}, [Output(model.mode, card, name=name)])
        origin["model"] = explainer.weights
    return Pretrained(model, explainer, model.featurizer, card, origin)
