"""From words to a model, its featuriser and its explainer.

A model is the name of one that comes with nicegnn, a file that ``nicegnn train`` or Chemprop
wrote, or ``module:function`` of the user's own code. Nothing else is imported, and weights are read
from safetensors files, which hold no code; for those of Chemprop see `pretrained.chemprop`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file as load_weights
from torch import nn

from nicegnn.config import Settings
from nicegnn.errors import ConfigError, GraphError, NicegnnError, StoreError, TargetError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.registry import EXPLAINERS, find_entry, get_explainer, list_explainers
from nicegnn.graph.batch import to_batch
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer, find_featurizer
from nicegnn.pretrained import DEFAULT, NAMES, Pretrained, load, load_file
from nicegnn.pretrained.model_file import MODES, ModelCard, Task
from nicegnn.screening.reading import Reader
from nicegnn.store import check_tensors
from nicegnn.target.frozen_model import Target, fingerprint
from nicegnn.target.zoo import device_of

_MOST_BACKGROUND = 1000  # molecules; a thousand hold every common kind of bond
PROBE = "CC(=O)Nc1ccc(O)cc1"  # a molecule to try a model with


@dataclass(frozen=True)
class ModelConfig(Settings):
    """Which model is explained, and how; empty words stand for what the model brings itself."""

    model: str = DEFAULT  # name, file of `nicegnn train`, chemprop:PATH, or module:function
    column: str = ""  # task of a Chemprop model that has several
    background: str = ""  # molecules like those that a Chemprop model was trained on
    trust: bool = False  # whether the file of a Chemprop model may run code when it is read
    weights: str = ""  # safetensors file for the model of module:function
    featurizer: str = ""  # name, or module:function
    explainer: str = ""  # name, or file of `nicegnn fit`; the default is the fitted NICE, if any
    task: Task = "classification"  # of a model of module:function
    classes: tuple[str, ...] = ()  # names of its classes
    device: str = "cpu"  # or cuda
    seed: int = 0  # of everything random

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", tuple(self.classes))


def load_words(config: ModelConfig) -> Pretrained:
    """Returns the model, featuriser and explainer that the words of a command name."""
    device = usable_device(config.device)
    kind, _, rest = config.model.partition(":")
    if kind != "chemprop" and ":" in config.model and not Path(config.model).exists():
        subject = _own_model(config, device)
    else:
        if config.weights:
            raise ConfigError(
                f"`weights` must be left out for {config.model}, which has its own (got "
                f"{config.weights!r})."
            )
        if kind == "chemprop":
            subject = _chemprop(config, rest, device)
        elif config.model in NAMES:
            subject = load(config.model, device)
        else:
            subject = _stored(config, device)
        if config.featurizer and config.featurizer != subject.card.featurizer:
            raise ConfigError(
                f"`featurizer` must be {subject.card.featurizer!r} for {config.model} (got "
                f"{config.featurizer!r}). Leave it out."
            )
    subject = _with_explainer(subject, config)
    _try(subject)
    return subject


def usable_device(name: str) -> torch.device:
    """Returns the named device; one that is unknown or not there is an error."""
    try:
        device = device_of(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA asserts
        raise ConfigError(
            f"`device` must be cpu, or cuda where there is a GPU (got {name!r}: {_line(error)})."
        ) from error
    return device


def _stored(config: ModelConfig, device: torch.device) -> Pretrained:
    path = Path(config.model)
    if path.is_file():
        return load_file(path, device)
    raise ConfigError(
        f"`model` must be one of {NAMES}, a file of `nicegnn train`, chemprop:PATH, or "
        f"module:function (got "
        f"{config.model!r})."
    )


def _chemprop(config: ModelConfig, path: str, device: torch.device) -> Pretrained:
    """Returns a model of Chemprop, with a background of a file or of the table it learned from."""
    from nicegnn.pretrained.chemprop import find_checkpoint, load_chemprop, training_file

    file = find_checkpoint(Path(path))
    source = config.background or training_file(file)
    listed = [one.smiles for one in Reader(source) if not one.problem] if source else []
    return load_chemprop(
        file,
        column=config.column,
        background=listed[:: max(1, len(listed) // _MOST_BACKGROUND)],
        classes=config.classes,
        trusted=config.trust,
        device=device,
    )


def _own_model(config: ModelConfig, device: torch.device) -> Pretrained:
    made: Any = import_named("model", config.model)
    sources = [made]
    if not isinstance(made, nn.Module):
        try:
            made = made()
        except Exception as error:
            raise ConfigError(
                "`model` must be a function that returns a torch model when it is called without "
                f"arguments (got {config.model!r}, which raised {type(error).__name__}: {error}). "
                "Correct it."
            ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"`model` must return a torch model (got {type(made).__name__} of {config.model!r})."
        )
    if config.weights:
        read_weights(made, config.weights)
    elif not isinstance(sources[0], nn.Module):
        raise ConfigError(
            f"`weights` must name the trained weights of {config.model}, a safetensors file (got "
            "none): a function that makes a model makes an untrained one. If it loads its weights "
            "itself, let module:name name the trained model instead of the function."
        )
    if not config.featurizer:
        raise ConfigError(
            f"`featurizer` must say how a SMILES becomes a graph of {config.model}: one of "
            f"{tuple(FEATURIZERS)} or module:function (got none)."
        )
    featurizer = named_featurizer(config.featurizer)
    if ":" in config.featurizer:
        sources.append(import_named("featurizer", config.featurizer))
    card = ModelCard(
        name=config.model,
        question=f"output of {config.model}",
        task=config.task,
        classes=config.classes,
        featurizer=config.featurizer,
        architecture=type(made).__name__,
    )
    model = made.to(device).eval()
    explainer = get_explainer("nice", model, mode=MODES[card.task])
    origin = {"model": fingerprint(model), "featurizer": config.featurizer}
    origin["code"] = _code_of(type(made), *sources)
    return Pretrained(model, explainer, featurizer, card, origin)


def import_named(what: str, word: str) -> Any:
    """Returns what ``module:name`` names, from the current folder or what is installed."""
    module, _, name = word.partition(":")
    if not module or not name:
        raise ConfigError(f"`{what}` must be written as module:function (got {word!r}).")
    sys.path.insert(0, "")  # as `python` does, to import modules of the current folder
    try:
        thing: Any = import_module(module)
        for part in name.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"`{what}` must name a function that can be imported (got {word!r}: {error}). Run the "
            "command in the folder of the module, or install it."
        ) from error
    finally:
        sys.path.remove("")
    return thing


def named_featurizer(word: str) -> Featurizer:
    """Returns a featuriser by name, or from ``module:function`` of the user."""
    return find_featurizer(import_named("featurizer", word) if ":" in word else word)


def read_weights(model: nn.Module, path: str | Path) -> None:
    """Puts the weights of a safetensors file into a model; all names and shapes must fit."""
    path = Path(path)
    if not path.is_file():
        raise StoreError(f"There is no file {path}. Write one with safetensors.torch.save_model.")
    try:
        weights = load_weights(path)
    except (SafetensorError, OSError) as error:
        raise StoreError(
            f"{path} must be a safetensors file (got {error}). Convert a checkpoint of torch.save "
            "with safetensors.torch.save_file(model.state_dict(), ...); pickles are not read."
        ) from error
    check_tensors(path, weights, model.state_dict(), type(model).__name__)
    model.load_state_dict(weights)


def _with_explainer(subject: Pretrained, config: ModelConfig) -> Pretrained:
    """Returns the same with the named explainer, or the one of a file."""
    word = config.explainer
    mode, model = MODES[subject.card.task], subject.model
    explainer, learned = subject.explainer, subject.explainer.is_fitted
    if word and Path(word).is_file():
        explainer = load_explainer(word, model)
        learned = True
    elif word and not (word == "nice" and subject.explainer.is_fitted):
        if word.partition("+")[0] not in EXPLAINERS:
            raise ConfigError(
                f"`explainer` must be one of {tuple(list_explainers())} or a file of `nicegnn fit` "
                f"(got {word!r})."
            )
        entry, _ = find_entry(word)
        if entry.group in ("supervised", "reference") and entry.name != "random":
            raise ConfigError(f"`explainer` must not need true explanations (got {word!r}).")
        explainer, learned = get_explainer(word, model, mode=mode), False
        if entry.learns and entry.load().name != "nice":
            raise ConfigError(
                f"`explainer` {word!r} must be fitted first. Run `nicegnn fit MOLECULES --model "
                f"{config.model} --explainer {word} --out explainer.safetensors` and name that "
                "file."
            )
    text = json.dumps([explainer.name, explainer.config.to_dict()], sort_keys=True)
    text += _code_of(type(explainer))
    if learned:
        text += _digest(word) if word and Path(word).is_file() else fingerprint(model)
    origin = {**subject.origin, "explainer": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return replace(subject, explainer=explainer, origin=origin)


def _code_of(*things: Any) -> str:
    """Returns a hash of the files in which users' classes and functions stand; none for ours."""
    names = {str(getattr(thing, "__module__", "")) for thing in things}
    modules = (sys.modules.get(name) for name in names if not name.startswith("nicegnn."))
    files = {str(getattr(module, "__file__", None) or "") for module in modules} - {""}
    return "".join(_digest(file)[:16] for file in sorted(files))


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def load_explainer(path: str | Path, model: nn.Module) -> Explainer:
    """Reads a fitted explainer of any kind for exactly this model."""
    try:
        with safe_open(path, framework="pt") as file:
            kind = json.loads((file.metadata() or {})["nicegnn"])["kind"]
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise StoreError(
            f"{path} must be a file of `nicegnn fit` (got {type(error).__name__}). Fit an "
            "explainer first."
        ) from error
    classes: list[Any] = [entry.load() for entry in EXPLAINERS.values()]
    fitting = [one for one in classes if one.name == kind]
    if not fitting:
        raise StoreError(
            f"{path} must be a file of `nicegnn fit` (got one of a {kind}). Fit an explainer first."
        )
    loaded: Explainer = fitting[0].load(path, model)
    return loaded


def _try(subject: Pretrained) -> None:
    """Raises unless the model answers for a small molecule, in the way its card says."""
    try:
        graph = subject.featurizer(PROBE)
        target = Target(subject.model, mode=MODES[subject.card.task])
        with torch.no_grad(), target.frozen():
            out = target.first_call(to_batch(graph).to(target.device))
            target.settle(out)
            target.read(out)
    except ImportError:  # it names the package to install
        raise
    except Exception as error:
        if isinstance(error, TargetError):
            raise ConfigError(
                f"{error} Commands say it by --task ({subject.card.task} here)."
            ) from error
        if isinstance(error, NicegnnError) and not isinstance(error, GraphError):
            raise
        raise ConfigError(
            f"The model {subject.card.name} must take graphs of the featuriser "
            f"{subject.card.featurizer!r} (got {type(error).__name__}: {_line(error)}). Choose the "
            "featuriser that it was trained with."
        ) from error
    wanted = len(subject.card.classes)
    if subject.card.task == "classification" and wanted and out.size(1) != wanted:
        raise ConfigError(
            f"`classes` must name the {out.size(1)} classes of {subject.card.name} (got {wanted})."
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
