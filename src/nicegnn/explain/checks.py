"""The gate of public calls: arguments are checked here once, and never again behind it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, NicegnnError, TargetError


def whole_number(name: str, value: Any, error: type[NicegnnError] = ConfigError) -> int:
    """Returns a whole number of at least 0.

    >>> whole_number("seed", 3)
    3
    >>> whole_number("seed", "x")
    Traceback (most recent call last):
    nicegnn.errors.ConfigError: `seed` must be a whole number of at least 0 (got 'x'). Pass one.
    """
    is_switch = isinstance(value, bool) or getattr(value, "dtype", None) == torch.bool
    try:
        number = -1 if is_switch else operator.index(value)
    except (TypeError, RuntimeError):
        number = -1
    if 0 <= number < 2**63:  # what tensors hold
        return number
    raise error(f"`{name}` must be a whole number of at least 0 (got {shown(value)}). Pass one.")


def whole_numbers(name: str, value: object, meaning: str, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """Returns whole numbers, or a mask, in a shape: of one number, a list or a tensor."""
    try:
        numbers = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        numbers = torch.empty(0)
    is_other = numbers.is_meta or numbers.numel() == 0 or numbers.is_complex()
    is_other |= len(shape) > 1 and (*numbers.shape[:1], -1) != shape
    if is_other or numbers.is_floating_point():
        raise TargetError(
            f"`{name}` must be {meaning}: a whole number, or a list or tensor of them "
            f"(got {shown(value)}). Pass such numbers, or leave it out."
        )
    return numbers.reshape(shape)


def explained_class(target: object) -> Tensor | None:
    """Returns the class, output or label to explain, one or one per graph, ``[1]`` or ``[B]``."""
    if target is None:
        return None
    numbers = whole_numbers("target", target, "the number of a class or output, or one per graph")
    if numbers.dtype == torch.bool:
        raise TargetError(f"`target` must hold class numbers (got {shown(target)}). Use 0 or 1.")
    return numbers.long()


def explained_nodes(index: Any, num_nodes: int, unit: str = "node") -> Tensor:
    """Returns the explained nodes (or other rows), given as numbers or as a mask, ``[K]``."""
    nodes = whole_numbers("index", index, f"{unit} numbers or a mask over all {num_nodes} {unit}s")
    if nodes.dtype == torch.bool and nodes.numel() == num_nodes:
        nodes = nodes.nonzero().view(-1)
    if nodes.dtype == torch.bool or nodes.numel() == 0:
        raise TargetError(
            f"`index` must hold at least one {unit} number, or be a mask over all {num_nodes} "
            f"{unit}s (got a mask of {torch.as_tensor(index).numel()} with {nodes.numel()} kept)."
        )
    return _within("index", nodes.long(), num_nodes)


def explained_pairs(pairs: Any, num_nodes: int) -> Tensor:
    """Returns the explained pairs of nodes, ``[2, K]``."""
    nodes = whole_numbers("pairs", pairs, "pairs of nodes of shape [2, K]", shape=(2, -1))
    if nodes.dtype == torch.bool:
        raise TargetError("`pairs` must hold node numbers (got a mask). Use edge_index[:, mask].")
    return _within("pairs", nodes.long(), num_nodes)


def _within(name: str, nodes: Tensor, num_nodes: int) -> Tensor:
    low, high = int(nodes.min()), int(nodes.max())
    if low < 0 or high >= num_nodes:
        raise TargetError(f"`{name}` must lie between 0 and {num_nodes - 1} (got {low} to {high}).")
    return nodes


def checked_config(config: object) -> NICEConfig:
    """Returns a configuration; a name, a dict or something else is refused."""
    if config is None or isinstance(config, NICEConfig):
        return config or NICEConfig()
    raise ConfigError(
        f"`config` must be a NICEConfig (got {shown(config)}). Pass NICEConfig().with_(...), "
        "NICEConfig.paper(), NICEConfig.from_toml(path) or NICEConfig.from_dict(values)."
    )


def share_or_number(name: str, size: object) -> None:
    """Raises `ConfigError` unless an argument is a share in (0, 1] or a number of bonds."""
    is_share = isinstance(size, float) and 0 < size <= 1
    if not is_share and not (type(size) is int and size > 0):
        raise ConfigError(
            f"`{name}` must be a share in (0, 1] or a positive number of bonds (got "
            f"{shown(size)}). Pass 0.1 or 5, for example."
        )


def shown(value: Any) -> str:
    """Returns a short text of any value, for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:  # a repr of the user's own that fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
