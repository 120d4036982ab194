"""What NICE has learned as a file and back: background, gates and student."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from nicegnn.boundary.srb import GateNetwork
from nicegnn.config import NICEConfig
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.intervention.background import Background
from nicegnn.seeding import SeededWeights
from nicegnn.store import load_tensors, save_tensors, tensors_below
from nicegnn.student.teaching import StudentNetwork, TeachReport
from nicegnn.target.frozen_model import fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.nice import NICE

Net = TypeVar("Net", bound=nn.Module)

_VERSION = 7  # of files of explainers
_PARTS = ("background", "gates", "student")  # what names of tensors start with


def check_fingerprint(path: str | Path, model: nn.Module, expected: str) -> None:
    """Raises `StoreError` unless a file was written for exactly this model."""
    present = fingerprint(model)
    if present != expected:
        raise StoreError(
            f"The model must have the fingerprint {expected} of {path} (got {present}). Load the "
            "weights that were explained there, or call fit() again."
        )


def write_nice(nice: NICE, path: str | Path) -> None:
    """Writes background, gates, student, settings and the model's fingerprint to one file."""
    background, student, report = nice.background, nice.student, nice.teach_report
    description = {
        "kind": "nice",
        "version": _VERSION,
        "config": nice.config.to_dict(),
        "model": fingerprint(nice.target.model),
        "mode": nice.target.mode,
        "return_type": nice.target.return_type,
        "label": nice.target.label,
        "background": None if background is None else background.facts(),
        "student": None if student is None else student.shape,
        "taught": None if report is None else asdict(report),
    }
    parts = {"background": {} if background is None else background.tensors()}
    for part, net in (("gates", nice.gates), ("student", student)):
        parts[part] = {} if net is None else net.state_dict()
    named = {f"{part}.{key}": value for part in parts for key, value in parts[part].items()}
    save_tensors(path, named, description)


def read_nice(kind: type[NICE], path: str | Path, model: nn.Module, **given: Any) -> NICE:
    """Reads what `write_nice` wrote for exactly this model; ``given`` are words of `NICE`."""
    tensors, description = load_tensors(path, "nice")
    if description.get("version") != _VERSION:
        raise StoreError(
            f"{path} must hold an explainer of version {_VERSION} (got version "
            f"{description.get('version')}, of another nicegnn). Fit it again."
        )
    for key, value in tensors.items():
        is_finite = not value.isnan().any() and (key == "student.limit" or not value.isinf().any())
        if not is_finite or value.is_complex() or key.partition(".")[0] not in _PARTS:
            raise StoreError(
                f"{path} must hold finite numbers of its parts (got {key}); save it again."
            )
    check_fingerprint(path, model, str(description.get("model")))
    try:
        return _made(kind, tensors, description, model, given)
    except NicegnnError as error:
        raise StoreError(f"{path} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError) as error:
        raise StoreError(
            f"{path} must hold what save() writes ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}). Save it again."
        ) from error


def _made(
    kind: type[NICE], tensors: Mapping[str, Tensor], about: Any, model: nn.Module, given: Any
) -> NICE:
    """Returns the explainer that a checked file describes."""
    config, facts = NICEConfig.from_dict(about["config"]), about["background"]
    recorded, gates, student = (tensors_below(tensors, part) for part in _PARTS)
    if facts is None and recorded:
        raise StoreError("its background must have facts (got none). Save it again.")
    background = None if facts is None else Background.from_tensors(recorded, facts)
    reading = {key: about[key] for key in ("mode", "return_type")}
    nice = kind(model, config, background=background, **reading, **given)
    nice.target.label, nice._fitted_for = about["label"], about["model"]
    with SeededWeights(0):  # new layers draw weights; they are replaced
        if gates:
            size = gates["first.weight"].size(1)
            nice.gates = _filled(GateNetwork(size, config.boundary), gates, nice)
        if about["student"] is not None:
            nice.student = _filled(StudentNetwork(**about["student"]), student, nice).eval()
            nice.teach_report = TeachReport(**about["taught"])
    return nice


def _filled(net: Net, held: Mapping[str, Tensor], nice: NICE) -> Net:
    """Returns a network with the tensors of a file, which must be those that it has."""
    floats = (w for w in (*nice.target.model.parameters(), *held.values()) if w.is_floating_point())
    for name, needed in net.to(next(floats).dtype).state_dict().items():
        if name in held and held[name].dtype != needed.dtype:
            raise StoreError(f"`{name}` must be of {needed.dtype} (got {held[name].dtype}).")
    net.load_state_dict(dict(held))  # other names and shapes are a RuntimeError
    return net.to(nice.target.device)
