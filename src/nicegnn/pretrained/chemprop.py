"""Models that Chemprop has written: read without running code, one task of them, its background.

Checkpoints of Chemprop are pickles, which can run any code when they are read. Here only parts of
models may be named in them (`_is_known`); a file with anything else is read if it is trusted.
"""

from __future__ import annotations

import io
import pickle
import re
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.ensemble import Ensemble, Output
from nicegnn.pretrained.model_file import MODES, ModelCard
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.frozen_model import Target, fingerprint

CHEMPROP = "chemprop:"  # stands before the file of a model where a word names it
_TASKS = {mode: task for task, mode in MODES.items()}
_KNOWN = {  # what files name besides modules
    **dict.fromkeys(("__builtin__", "builtins"), ("set",)),
    "collections": ("OrderedDict",),
    "torch": ("device", "Size", "float32", "float64", "float16", "bfloat16", "int64", "bool"),
    "torch._utils": ("_rebuild_tensor_v2", "_rebuild_parameter"),
    "torchmetrics.metric": ("jit_distributed_available",),
    "torchmetrics.utilities.data": tuple(f"dim_zero_{n}" for n in ("cat", "sum", "mean", "max")),
    "lightning.fabric.utilities.data": ("AttributeDict",),
    "lightning.pytorch.utilities.parsing": ("AttributeDict",),
    "numpy": ("ndarray", "dtype"),
    **{f"numpy.{core}.multiarray": ("_reconstruct", "scalar") for core in ("core", "_core")},
}


def read_checkpoint(path: Path, *, trusted: bool = False) -> dict[str, Any]:
    """Returns what Chemprop has written to a file; code runs only if it is `trusted`."""
    try:
        import chemprop.models  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Chemprop is needed for its models. Install it with `pip install 'nicegnn[chemprop]'`."
        ) from error
    refused: list[str] = []

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if not _is_known(module, name):
                refused.append(f"{module}.{name}")
                raise pickle.UnpicklingError("not known")
            return super().find_class(module, name)

    words: dict[str, Any] = {"map_location": "cpu", "weights_only": False}
    if not trusted:
        words["pickle_module"] = SimpleNamespace(
            __name__="pickle",
            Unpickler=Reader,
            load=lambda file, **kwargs: Reader(file, **kwargs).load(),
        )
    try:
        held: Any = torch.load(path, **words)
    except Exception as error:
        if refused:
            raise StoreError(
                f"{path} names {refused[0]}, which is no part of a Chemprop model: reading it "
                "could run any code. If you know who wrote it, say so by --trust."
            ) from error
        raise StoreError(f"{path} must be a model of Chemprop v2 (got {error}).") from error
    if not isinstance(held, dict) or not {"hyper_parameters", "state_dict"} <= held.keys():
        raise StoreError(
            f"{path} must be a model of Chemprop v2, with hyper_parameters and state_dict. Convert "
            "one of v1 with `chemprop convert`."
        )
    return held


def _is_known(module: str, name: str) -> bool:
    """Whether a global that a file names is a part of a model."""
    if name in _KNOWN.get(module, ()):
        return True
    if not module.startswith(("chemprop.nn.", "torch.nn.modules.")) or "." in name:
        return False
    found = getattr(import_module(module), name, None)
    return isinstance(found, type) and issubclass(found, nn.Module | Enum)


def read_mpnn(held: dict[str, Any], path: Path) -> Any:
    """Returns the model of a checkpoint, in evaluation mode."""
    from chemprop.models import MPNN

    if "atom_predictor" in held["hyper_parameters"] or "blocks" in held["hyper_parameters"].get(
        "message_passing", {}
    ):
        raise StoreError(
            f"{path} must hold a model of single molecules (got one of atoms and bonds, or of "
            "several components). Train an MPNN on one component."
        )
    file = io.BytesIO()  # Chemprop reads files alone; this one holds what was allowed
    torch.save(held, file)
    file.seek(0)
    try:
        return MPNN.load_from_file(file, map_location="cpu").eval()
    except Exception as error:
        raise StoreError(
            f"{path} must be a model that this version of Chemprop can build "
            f"({type(error).__name__}: {error}). Try `chemprop convert`."
        ) from error


def find_checkpoints(path: Path) -> list[Path]:
    """Returns the file of a model: itself, or those in a folder of ``chemprop train``."""
    if path.is_file():
        return [path]
    files = sorted(path.glob("**/best.pt")) or sorted(path.glob("**/*.pt"))
    if not files:
        raise ConfigError(f"`model` must name a file or folder of Chemprop (got {path}).")
    return files


def training_file(path: Path) -> Path | None:
    """Returns the table that a model was trained on, if its folder's ``config.toml`` tells it."""
    for folder in (path.absolute(), *path.absolute().parents[:3]):
        if (folder / "config.toml").is_file():  # not quite TOML: data-path = [train.csv]
            text = (folder / "config.toml").read_text(encoding="utf-8", errors="replace")
            named = re.search(r"^data-path *= *\[?[\"']?([^\]\"',\n]+)", text, re.MULTILINE)
            file = Path(named[1].strip() if named else "")
            return next((one for one in (file, folder.parent / file) if one.is_file()), None)
    return None


def load_chemprop(
    path: str | Path,
    *,
    column: str = "",
    classes: tuple[str, ...] = (),
    trusted: bool = False,
    device: str | torch.device = "cpu",
) -> Pretrained:
    """Returns one task of a model of Chemprop, explained by NICE without a background.

    Several models in a folder are an `Ensemble`, as for `chemprop predict`.

    Args:
        column: name of the task, as in the table that it was trained on; needed if it has several.
        trusted: whether the files may run code when they are read.
    """
    files, models, tasks = find_checkpoints(Path(path)), list[ChempropModel](), list[list[str]]()
    for file in files:
        held = read_checkpoint(file, trusted=trusted)
        mpnn = read_mpnn(held, file).to(device)
        names = [str(name) for name in held.get("output_columns") or range(mpnn.n_tasks)]
        if column not in names and (column or len(names) > 1):
            raise ConfigError(f"`column` must be one of {', '.join(names)} (got {column!r}).")
        models.append(ChempropModel(mpnn, column=names.index(column or names[0])))
        tasks.append([models[-1].mode, column or names[0]])
    model, name = models[0], column or names[0]
    if any(one != tasks[0] for one in tasks):
        raise ConfigError(
            f"`model` must name models of the same task (got {tasks} in {path}). Name one file."
        )
    task = _TASKS[model.mode]
    if task == "binary":
        classes = classes or (f"{name} = 0", f"{name} = 1")
    sends: Any = model.message_passing
    passing = sends.passing
    file_name = files[0].name if len(files) == 1 else f"{len(files)} models in {Path(path).name}"
    card = ModelCard(
        name=f"{files[0].stem}:{name}",
        question=f"{name} by {file_name}",
        task=task,
        classes=classes,
        featurizer="chemprop",
        architecture=f"Chemprop {type(passing).__name__}, depth {passing.depth}, "
        f"width {passing.W_h.out_features}",
    )
    explainer: Explainer = NICE(model, mode=MODES[task])
    origin = {"model": fingerprint(model), "featurizer": card.featurizer, "name": card.name}
    if len(files) > 1:
        members = [(Target(one, mode="regression"), None) for one in models]
        explainer = Ensemble({"": members}, [Output(model.mode, name=name)])
        origin["model"] = explainer.weights
    return Pretrained(model, explainer, model.featurizer, card, origin)
