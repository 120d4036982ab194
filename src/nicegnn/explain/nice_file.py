"""What NICE has learned as a file and back: background, gates and student."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.config import NICEConfig
from nicegnn.errors import NicegnnError, StoreError
from nicegnn.intervention.background import Background
from nicegnn.seeding import SeededWeights
from nicegnn.store import load_tensors, save_tensors, tensors_below
from nicegnn.student.network import StudentNetwork
from nicegnn.student.teaching import TeachReport
from nicegnn.target.frozen_model import Target, fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.nice import NICE

Net = TypeVar("Net", bound=nn.Module)

_VERSION = 6  # of files of explainers
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
    background, student = nice.background, nice.student
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
        "taught": None if nice.teach_report is None else nice.teach_report.to_dict(),
    }
    parts = {
        "background": {} if background is None else background.tensors(),
        "gates": {} if nice.gates is None else nice.gates.state_dict(),
        "student": {} if student is None else student.state_dict(),
    }
    tensors = {f"{part}.{key}": v for part, held in parts.items() for key, v in held.items()}
    save_tensors(path, tensors, description)


def read_nice(kind: type[NICE], path: str | Path, model: nn.Module, **given: Any) -> NICE:
    """Reads what `write_nice` wrote for exactly this model; ``given`` are words of `NICE`.

    Names, shapes and types of all that is in the file are checked; numbers must be finite.
    """
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
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None
    except NicegnnError as error:
        raise StoreError(f"{path} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RuntimeError) as error:
        raise StoreError(
            f"{path} must hold what save() writes ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}). Save it again."
        ) from error


def _made(
    kind: type[NICE],
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    model: nn.Module,
    given: Mapping[str, Any],
) -> NICE:
    """Returns the explainer that a checked file describes."""
    config, background = NICEConfig.from_dict(description["config"]), None
    held = tensors_below(tensors, "background")
    if description["background"] is not None:
        background = Background.from_tensors(held, description["background"])
    elif held:
        raise StoreError("its background must have facts (got none). Save it again.")
    reading = {key: description[key] for key in ("mode", "return_type")}
    nice = kind(model, config, background=background, **reading, **given)
    nice.target.label = description["label"]
    gates, student = (tensors_below(tensors, part) for part in ("gates", "student"))
    with SeededWeights(0):  # new layers draw weights; they are replaced
        if gates:
            width = gates["first.weight"].size(1)
            nice.gates = _filled(GateNetwork(width, config.boundary), gates, nice.target)
        if description["student"] is not None:
            net = StudentNetwork(**description["student"])
            nice.student = _filled(net, student, nice.target).eval()
            nice.teach_report = TeachReport(**description["taught"])
    nice._fitted_for = description["model"]
    return nice


def _filled(net: Net, held: Mapping[str, Tensor], target: Target) -> Net:
    """Returns a network with the tensors of a file, which must be those that it has."""
    floats = (w for w in (*target.model.parameters(), *held.values()) if w.is_floating_point())
    needed = net.to(next(floats).dtype).state_dict()
    for name in dict.fromkeys([*needed, *held]):
        wanted, found = (
            "none" if name not in one else f"{one[name].dtype} {tuple(one[name].shape)}"
            for one in (needed, held)
        )
        if wanted != found:
            raise StoreError(f"`{name}` must be a tensor of {wanted} (got {found}). Save it again.")
    net.load_state_dict(dict(held))
    return net.to(target.device)
