"""What a model's output went through last: a sigmoid, a softmax, or none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_KINDS = {"sigmoid": "sigmoid", "softmax": "softmax", "log_softmax": "log_softmax"}
_KINDS |= {"logsigmoid": "log_sigmoid"}
_SAME = (  # functions after which values are still the same numbers
    *("squeeze", "unsqueeze", "view", "reshape", "flatten", "__getitem__", "contiguous", "clone"),
    *("float", "to", "double", "select", "detach", "cat", "stack", "clamp", "index_select"),
)


class LastStep(TorchFunctionMode):
    """Watches a pass of a model, and tells which function made its output.

    Values between 0 and 1 may be probabilities or logits; the function behind them leaves no doubt.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[Tensor, str]] = {}  # tensors are kept, so that ids stay theirs

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(out, Tensor):
            kind = _KINDS.get(name.strip("_")) or (self._of_first(args) if name in _SAME else "")
            if kind:
                self._known[id(out)] = out, kind
        return out

    def _of_first(self, args: tuple[Any, ...]) -> str:
        first = args[0] if args else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        return self._known.get(id(first), (None, ""))[1]

    def behind(self, output: Tensor) -> str:
        """Returns ``sigmoid``, ``softmax``, ``log_softmax``, ``log_sigmoid``, or nothing."""
        return self._known.get(id(output), (None, ""))[1]


def is_probability(kind: str) -> bool:
    """Whether values made by such a function are probabilities."""
    return kind in ("sigmoid", "softmax")


def sums_to_one(out: Tensor) -> bool:
    """Whether all rows of several columns are probabilities of classes that exclude each other."""
    total = torch.allclose(out.sum(1), torch.ones_like(out[:, 0]), atol=1e-4)
    return out.size(1) > 1 and total and bool((out >= 0).all())
