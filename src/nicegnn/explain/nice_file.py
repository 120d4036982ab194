"""What NICE has learned as a file and back: background, gates and student."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.config import BoundaryConfig, NICEConfig
from nicegnn.errors import StoreError
from nicegnn.explain.explainer import check_fingerprint
from nicegnn.intervention.background import Background
from nicegnn.seeding import SeededWeights
from nicegnn.store import load_tensors, save_tensors
from nicegnn.student.network import StudentNetwork
from nicegnn.student.teaching import TeachReport
from nicegnn.target.frozen_model import fingerprint

if TYPE_CHECKING:
    from nicegnn.explain.nice import NICE

_VERSION = 4  # of files of explainers


def write_nice(nice: NICE, path: str | Path) -> None:
    """Writes background, gates, student, settings and the model's fingerprint to one file."""
    background, student, report = nice.background, nice.student, nice.fit_report
    judged = None
    if report is not None:
        judged = {label: asdict(judgement) for label, judgement in report.classes.items()}
    description = {
        "kind": "nice",
        "version": _VERSION,
        "config": nice.config.to_dict(),
        "model": fingerprint(nice.target.model),
        "mode": nice.target.mode,
        "return_type": nice.target.return_type,
        "label": nice.target.label,
        "fit": judged,
        "background": None if background is None else background.facts(),
        "student": None if student is None else student.shape,
        "taught": None if nice.teach_report is None else nice.teach_report.to_dict(),
    }
    parts = {
        "background": {} if background is None else background.tensors(),
        "gates": {} if nice.gates is None else nice.gates.state_dict(),
        "student": {} if student is None else student.state_dict(),
    }
    tensors = {f"{part}.{key}": v for part, own in parts.items() for key, v in own.items()}
    save_tensors(path, tensors, description)


def read_nice(kind: type[NICE], path: str | Path, model: nn.Module, **given: Any) -> NICE:
    """Reads what `write_nice` wrote for exactly this model; ``given`` are words of `NICE`."""
    tensors, description = load_tensors(path, "nice")
    if description["version"] != _VERSION:
        raise StoreError(
            f"{path} must hold an explainer of version {_VERSION} (got version "
            f"{description['version']}, of an older nicegnn). Fit it again."
        )
    check_fingerprint(path, model, description["model"])
    config = NICEConfig.from_dict(description["config"])
    background = None
    if description["background"] is not None:
        own = _below(tensors, "background")
        background = Background.from_tensors(own, description["background"])
    reading = {key: description[key] for key in ("mode", "return_type")}
    nice = kind(model, config, background=background, **reading, **given)
    nice.target.label = description["label"]
    device = nice.target.device
    nice.gates = _gates(_below(tensors, "gates"), config.boundary, device)
    if description["student"] is not None:
        nice.student = _student(_below(tensors, "student"), description["student"], device)
        nice.teach_report = TeachReport.from_dict(description["taught"])
    nice._fitted_for = description["model"]
    return nice


def _gates(
    own: dict[str, Tensor], config: BoundaryConfig, device: torch.device
) -> GateNetwork | None:
    if not own:
        return None
    sizes = own["mean"].numel(), config.hidden_size, own["trained"].numel()
    with SeededWeights(0):  # new layers draw weights; they are replaced
        net = GateNetwork(*sizes, 0.5, is_standardised=config.standardise)
    net.to(own["mean"].dtype).load_state_dict(own)
    return net.to(device)


def _student(own: dict[str, Tensor], shape: dict[str, Any], device: torch.device) -> StudentNetwork:
    with SeededWeights(0):  # new layers draw weights; they are replaced
        student = StudentNetwork(**shape)
    student.to(own["mean"].dtype).load_state_dict(own)
    return student.to(device).eval()


def _below(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Returns the tensors whose name starts with a part, without it."""
    return {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
