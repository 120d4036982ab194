"""From words to a model, its featuriser and its explainer.

A model is the name of one that comes with nicegnn, a file that ``nicegnn train`` wrote (and, after
a colon, one of its labels), ``chemprop:`` and a file of Chemprop, or ``module:function`` of the
user's own code. Nothing else is imported, and weights are read from safetensors files, which hold
no code; for those of Chemprop see `pretrained.chemprop`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file as load_weights
from torch import nn
from torch_geometric.data import Data

from nicegnn.errors import ConfigError, GraphError, NicegnnError, StoreError, TargetError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.explain.registry import EXPLAINERS, find_entry, get_explainer, list_explainers
from nicegnn.graph.batch import to_batch
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer, find_featurizer
from nicegnn.pretrained import NAMES, Pretrained, load, load_file
from nicegnn.pretrained.admet import ADMET, load_admet
from nicegnn.pretrained.chemprop import CHEMPROP, load_chemprop, training_file
from nicegnn.pretrained.ensemble import Ensemble
from nicegnn.pretrained.model_file import MODES, ModelCard
from nicegnn.screening.reading import Reader
from nicegnn.screening.settings import ModelConfig
from nicegnn.store import check_tensors
from nicegnn.target.frozen_model import Target, fingerprint
from nicegnn.target.zoo import device_of

PROBE = "CC(=O)Nc1ccc(O)cc1"  # a molecule to try a model with
_BACKGROUND = 2000  # molecules that are read for a background, the first of the file


def load_words(config: ModelConfig) -> Pretrained:
    """Returns the model, featuriser and explainer that the words of a command name."""
    device = usable_device(config.device)
    file, label = file_and_label(config.model)
    if config.model.startswith(CHEMPROP):
        path = Path(config.model.removeprefix(CHEMPROP))
        config = config.with_(background=config.background or str(training_file(path) or ""))
        words: dict[str, Any] = {"classes": config.classes, "trusted": config.trust}
        subject = load_chemprop(path, column=config.column, device=device, **words)
    elif config.model.startswith(ADMET):
        subject = load_admet(config.model, device)
    elif config.model in NAMES:
        subject = load(config.model, device)
    elif Path(file).is_file():
        subject = load_file(file, device, label)
    elif ":" in config.model:
        subject = _own_model(config, device)
    else:
        raise ConfigError(
            f"`model` must be one of {NAMES}, a file of `nicegnn train`, chemprop:PATH, "
            f"admet:ENDPOINTS, or module:function (got {config.model!r})."
        )
    if "code" not in subject.origin:
        own: dict[str, Any] = {"weights": ""}
        if not config.model.startswith(CHEMPROP):
            own |= {"background": "", "classes": (), "column": "", "trust": False}
        for name, value in {**own, "featurizer": subject.card.featurizer}.items():
            if getattr(config, name) not in ("", value):
                raise ConfigError(
                    f"`{name}` must be left out for {config.model}, which has its own (got "
                    f"{getattr(config, name)!r})."
                )
    _try(subject)
    return _with_explainer(subject, config)


def file_and_label(word: str) -> tuple[str, str]:
    """Returns the file of a model, and the label that may be named after it.

    >>> file_and_label("tox.safetensors:NR-AR")
    ('tox.safetensors', 'NR-AR')
    """
    file, colon, label = word.partition(".safetensors:")
    return (f"{file}.safetensors", label) if colon else (word, "")


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


def _own_model(config: ModelConfig, device: torch.device) -> Pretrained:
    made: Any = import_named("model", config.model)
    sources, is_made = [made], isinstance(made, nn.Module)
    try:
        model = made if is_made else made()
    except Exception as error:
        raise ConfigError(
            "`model` must be a function that returns a torch model when it is called without "
            f"arguments (got {config.model!r}, which raised {type(error).__name__}: {error}). "
            "Correct it."
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"`model` must return a torch model (got {type(model).__name__} of {config.model!r})."
        )
    if config.weights:
        read_weights(model, config.weights)
    elif not is_made:
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
    featurizer: Featurizer
    if ":" in config.featurizer:
        sources.append(import_named("featurizer", config.featurizer))
        featurizer = find_featurizer(sources[-1])
    else:
        featurizer = find_featurizer(config.featurizer)
    card = ModelCard(
        name=config.model,
        question=f"output of {config.model}",
        task=config.task,
        classes=config.classes,
        featurizer=config.featurizer,
        architecture=type(model).__name__,
    )
    model = model.to(device).eval()
    origin = {"model": fingerprint(model), "featurizer": config.featurizer}
    origin["code"] = _code_of(type(model), *sources)
    explainer = get_explainer("nice", model, mode=MODES[card.task])
    return Pretrained(model, explainer, featurizer, card, origin)


def _graphs(path: str, featurizer: Featurizer) -> list[Data]:
    """Returns graphs of the first molecules of a file; those that cannot be read are left out."""
    graphs, first = [], ""
    for record in islice(Reader(path), _BACKGROUND):
        try:
            graphs.append(featurizer(record.smiles))
        except NicegnnError as error:
            first = first or str(error)
    if not graphs:
        raise ConfigError(
            f"`background` must hold molecules that can be read (got none in {path}). {first}"
        )
    return graphs


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
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"`{what}` must name a function that can be imported (got {word!r}: {error}). Run the "
            "command in the folder of the module, or install it."
        ) from error
    finally:
        sys.path.remove("")
    return thing


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
    word, model, explainer = config.explainer, subject.model, subject.explainer
    learned = fingerprint(model) if explainer.is_fitted else ""
    if config.background:
        graphs, mode = _graphs(config.background, subject.featurizer), MODES[subject.card.task]
        if isinstance(explainer, Ensemble):
            explainer = explainer.having(graphs)
        else:
            explainer = NICE(model, background=graphs, mode=mode)
        learned = _digest(config.background)
    if word and isinstance(explainer, Ensemble):
        raise ConfigError(
            f"`explainer` must be left out for several models together (got {word!r}). Name the "
            "file of one of them."
        )
    if word and Path(word).is_file():
        explainer, learned = load_explainer(word, model), _digest(word)
    elif word and word != explainer.name:
        if word.partition("+")[0] not in EXPLAINERS:
            raise ConfigError(
                f"`explainer` must be one of {tuple(list_explainers())} or a file that an "
                f"explainer saved (got {word!r})."
            )
        entry, _ = find_entry(word)
        if entry.group in ("supervised", "reference"):
            raise ConfigError(f"`explainer` must not need true explanations (got {word!r}).")
        explainer, learned = get_explainer(word, model, mode=MODES[subject.card.task]), ""
        if entry.learns and entry.load().name != "nice":
            raise ConfigError(
                f"`explainer` {word!r} must be fitted first. In Python: explainer = "
                f"get_explainer({word!r}, model); explainer.fit(graphs); explainer.save(file). "
                "Then name that file."
            )
    text = json.dumps([explainer.name, explainer.config.to_dict()], sort_keys=True)
    text += _code_of(type(explainer)) + learned
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
    """Reads a saved explainer of any kind for exactly this model."""
    try:
        with safe_open(path, framework="pt") as file:
            kind = json.loads((file.metadata() or {})["nicegnn"])["kind"]
        classes: list[Any] = [entry.load() for entry in EXPLAINERS.values()]
        (found,) = {one for one in classes if one.name == kind}
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise StoreError(
            f"{path} must be a file that an explainer saved (got {type(error).__name__}: "
            f"{_line(error)}). Save one first."
        ) from error
    loaded: Explainer = found.load(path, model)
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
