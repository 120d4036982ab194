"""The gate of public calls: arguments are checked here once, and never again behind it.

Each function returns the argument in its plain form, or raises a named error that says what was
expected, what came and what to do. Graphs are checked by `nicegnn.graph.batch`.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from nicegnn.errors import ConfigError, NicegnnError, TargetError

_LARGEST = 2**63 - 1  # of whole numbers that tensors hold


def whole_number(name: str, value: object, error: type[NicegnnError] = ConfigError) -> int:
    """Returns a whole number of at least 0.

    >>> whole_number("seed", 3)
    3
    >>> whole_number("seed", "x")
    Traceback (most recent call last):
    nicegnn.errors.ConfigError: `seed` must be a whole number of at least 0 (got 'x').
    """
    is_number = hasattr(value, "__index__") and not isinstance(value, bool)
    if is_number and not (isinstance(value, Tensor) and _is_no_number(value)):
        found = operator.index(value)  # type: ignore[arg-type]
        if 0 <= found <= _LARGEST:
            return found
    raise error(f"`{name}` must be a whole number of at least 0 (got {shown(value)}).")


def whole_numbers(name: str, value: object, meaning: str) -> Tensor:
    """Returns whole numbers, or a mask, as a tensor, ``[K]``: one number, a list or a tensor."""
    found = value
    if not isinstance(value, Tensor):
        try:
            found = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            found = None
    wrong = not isinstance(found, Tensor) or found.is_floating_point() or found.is_complex()
    if wrong or found.numel() == 0:  # type: ignore[union-attr]
        raise TargetError(
            f"`{name}` must be {meaning}: a whole number, or a list or tensor of them "
            f"(got {shown(value)})."
        )
    assert isinstance(found, Tensor)
    return found.reshape(-1)


def switch(name: str, value: object) -> bool:
    """Returns True or False, and takes nothing else for it."""
    if value is True or value is False:
        return value
    raise ConfigError(f"`{name}` must be True or False (got {shown(value)}).")


def explained_class(target: object) -> Tensor | None:
    """Returns the class, output or label to explain, one or one per graph, ``[1]`` or ``[B]``."""
    if target is None:
        return None
    found = whole_numbers("target", target, "the number of a class or output, or one per graph")
    if found.dtype == torch.bool:
        raise TargetError(f"`target` must hold class numbers (got {shown(target)}). Use 0 or 1.")
    return found.long()


def noise_slot(slot: object) -> Tensor | None:
    """Returns the noise coordinate of each directed edge, ``[E]``."""
    if slot is None:
        return None
    is_whole = isinstance(slot, Tensor) and slot.dtype == torch.long and slot.dim() == 1
    if not is_whole or (slot.numel() and int(slot.min()) < 0):  # type: ignore[attr-defined]
        raise ConfigError(
            "`slot` must be a tensor of whole numbers of at least 0, one per directed edge "
            f"(got {shown(slot)})."
        )
    return slot  # type: ignore[return-value]


def shown(value: Any) -> str:
    """Returns a short text of any value, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:  # a repr of the user's own that fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_no_number(value: Tensor) -> bool:
    return value.numel() != 1 or value.is_floating_point() or value.dtype == torch.bool
