"""What NICE has learned, gates and student, as tensors of a file and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.config import BoundaryConfig
from nicegnn.explain.score_parts import View
from nicegnn.seeding import SeededWeights
from nicegnn.student.network import StudentNetwork


def learned_tensors(learners: Sequence[View], student: StudentNetwork | None) -> dict[str, Tensor]:
    """Returns the weights of all networks; names begin with the learner's number or "student"."""
    nets = {str(number): view.gates for number, view in enumerate(learners)}
    found: dict[str, Tensor] = {}
    for part, net in {**nets, "student": student}.items():
        weights = {} if net is None else net.state_dict()
        found |= {f"{part}.{key}": value for key, value in weights.items()}
    return found


def restore_gates(
    learners: Sequence[View],
    tensors: dict[str, Tensor],
    config: BoundaryConfig,
    device: torch.device,
) -> None:
    """Gives each learner its gates; a student's teacher may have none."""
    for number, view in enumerate(learners):
        own = _below(tensors, str(number))
        if own:
            sizes = own["mean"].numel(), config.hidden_size, own["trained"].numel()
            with SeededWeights(0):  # new layers draw weights; they are replaced
                net = GateNetwork(*sizes, 0.5, is_standardised=config.standardise)
            net.to(own["mean"].dtype).load_state_dict(own)
            view.gates = net.to(device)


def restored_student(
    tensors: dict[str, Tensor], shape: dict[str, Any], device: torch.device
) -> StudentNetwork:
    """Returns a student of a stored shape."""
    own = _below(tensors, "student")
    with SeededWeights(0):  # new layers draw weights; they are replaced
        student = StudentNetwork(**shape)
    student.to(own["mean"].dtype).load_state_dict(own)
    return student.to(device).eval()


def _below(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Returns the tensors whose name starts with a part, without it."""
    return {k.partition(".")[2]: v for k, v in tensors.items() if k.startswith(f"{part}.")}
