"""From words to a model, its featuriser and its explainer.

Code is imported for ``module:name`` alone; for files of Chemprop see `pretrained.chemprop`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, GraphError, NicegnnError, TargetError
from nicegnn.explain.nice import NICE
from nicegnn.explain.registry import EXPLAINERS, find_entry, get_explainer
from nicegnn.molecule.featurizers import FEATURIZERS, find_featurizer, import_named
from nicegnn.pretrained import NAMES, Pretrained, load, load_file
from nicegnn.pretrained.admet import ADMET, load_admet
from nicegnn.pretrained.chemprop import CHEMPROP, load_chemprop
from nicegnn.pretrained.ensemble import Ensemble
from nicegnn.pretrained.model_file import MODES, ModelCard
from nicegnn.screening.reading import Reader
from nicegnn.screening.settings import ModelConfig
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.training import predict
from nicegnn.target.zoo import device_of

PROBE = "CC(=O)Nc1ccc(O)cc1"  # a molecule to try a model with
_BACKGROUND = 2000  # molecules that are read for a background, the first of the file


def load_words(config: ModelConfig) -> Pretrained:
    """Returns the model, featuriser and explainer that the words of a command name."""
    device = usable_device(config.device)
    file, label = file_and_label(config.model)
    own: tuple[str, ...] = ("background", "classes", "column", "trust")
    if config.model.startswith(CHEMPROP):
        path, own = Path(config.model.removeprefix(CHEMPROP)), ()
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
            f"admet:ENDPOINTS, or module:name (got {config.model!r})."
        )
    for name in (*own, "featurizer") if "code" not in subject.origin else ():
        if getattr(config, name) not in ("", (), False, getattr(subject.card, name, "")):
            raise ConfigError(
                f"`{name}` must be left out for {config.model}, which has its own (got "
                f"{getattr(config, name)!r})."
            )
    _try(subject)
    return _with_explainer(subject, config)


def file_and_label(word: str) -> tuple[str, str]:
    """Returns the file of a model, and the label that may be named after it and a colon."""
    file, colon, label = word.partition(".safetensors:")
    return (f"{file}.safetensors", label) if colon else (word, "")


def usable_device(name: str) -> torch.device:
    """Returns the named device; one that is unknown or not there is an error."""
    try:
        device = device_of(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA asserts
        said = f"`device` must be cpu, or cuda where there is a GPU (got {name!r})."
        raise ConfigError(said) from error
    return device


def _own_model(config: ModelConfig, device: torch.device) -> Pretrained:
    model: Any = import_named("model", config.model)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"`model` must name a trained torch model (got {type(model).__name__} of "
            f"{config.model!r}). A function makes an untrained one: load the weights in the module."
        )
    if not config.featurizer:
        raise ConfigError(
            f"`featurizer` must say how a SMILES becomes a graph of {config.model}: one of "
            f"{tuple(FEATURIZERS)} or module:function (got none)."
        )
    card = ModelCard(
        name=config.model,
        question=f"output of {config.model}",
        task=config.task,
        classes=config.classes,
        featurizer=config.featurizer,
        architecture=type(model).__name__,
    )
    featurizer, model = find_featurizer(config.featurizer), model.to(device).eval()
    modules = (word.partition(":")[0] for word in (config.model, config.featurizer) if ":" in word)
    code = _code_of(type(model).__module__, *modules)
    origin = {"model": fingerprint(model), "featurizer": config.featurizer, "code": code}
    return Pretrained(model, NICE(model, mode=MODES[card.task]), featurizer, card, origin)


def _with_explainer(subject: Pretrained, config: ModelConfig) -> Pretrained:
    """Returns the same with the background of a file, and with the named explainer."""
    word, model, explainer = config.explainer, subject.model, subject.explainer
    mode, learned = MODES[subject.card.task], fingerprint(model) if explainer.is_fitted else ""
    if config.background:
        graphs = []
        for record in islice(Reader(config.background), _BACKGROUND):
            with suppress(NicegnnError):  # a molecule that cannot be read
                graphs.append(subject.featurizer(record.smiles))
        if not graphs:
            raise ConfigError(f"`background` must hold molecules (got {config.background}).")
        learned = _digest(config.background)
        if isinstance(explainer, Ensemble):
            explainer = explainer.having(graphs)
        else:
            explainer = NICE(model, background=graphs, mode=mode)
    if word and isinstance(explainer, Ensemble):
        raise ConfigError(f"`explainer` must be left out for several models (got {word!r}).")
    if word and word != explainer.name:
        check_choice("explainer", word.partition("+")[0], EXPLAINERS)
        entry, _ = find_entry(word)
        if entry.group in ("supervised", "reference"):
            raise ConfigError(f"`explainer` must not need true explanations (got {word!r}).")
        if entry.learns:
            raise ConfigError(
                f"`explainer` {word!r} must be fitted first, in Python: explainer = "
                f"get_explainer({word!r}, model); explainer.fit(graphs); explainer.explain(others)."
            )
        explainer, learned = get_explainer(word, model, mode=mode), ""
    text = json.dumps([explainer.name, explainer.config.to_dict()], sort_keys=True)
    text += _code_of(type(explainer).__module__) + learned
    origin = {**subject.origin, "explainer": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return replace(subject, explainer=explainer, origin=origin)


def _code_of(*names: str) -> str:
    """Returns a hash of the files of modules; none for ours."""
    modules = (sys.modules.get(name) for name in {*names} if not name.startswith("nicegnn."))
    files = {str(getattr(module, "__file__", None) or "") for module in modules} - {""}
    return "".join(_digest(file)[:16] for file in sorted(files))


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _try(subject: Pretrained) -> None:
    """Raises unless the model answers for a small molecule, in the way its card says."""
    card = subject.card
    try:
        out = predict(subject.model, [subject.featurizer(PROBE)], mode=MODES[card.task])
    except TargetError as error:
        raise ConfigError(f"{error} Commands say it by --task ({card.task} here).") from error
    except Exception as error:
        is_ours = isinstance(error, NicegnnError) and not isinstance(error, GraphError)
        if is_ours or isinstance(error, ImportError):  # which names the package to install
            raise
        raise ConfigError(
            f"The model {card.name} must take graphs of the featuriser {card.featurizer!r} (got "
            f"{type(error).__name__}: {' '.join(str(error).split())[:200]}). Choose another."
        ) from error
    wanted = len(card.classes)
    if card.task == "classification" and wanted and out.size(1) != wanted:
        raise ConfigError(f"`classes` must name the {out.size(1)} classes (got {wanted}).")
