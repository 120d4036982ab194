"""What is counted of two places: what is said, and whether both hold true atoms."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.places import told


def test_a_place_is_right_if_both_hold_a_true_atom() -> None:
    place = torch.tensor([1, 0, 2, 0, 0, -1, -2, 1, 2, 2])
    out: Any = SimpleNamespace(atom_place=place)
    true = [
        torch.tensor([True, False, True]),
        torch.tensor([True, True]),
        torch.tensor([True, False]),
        torch.tensor([True, True, False]),
    ]
    assert told(out, true) == ["either, right", "nothing", "both, wrong", "either, right"]
