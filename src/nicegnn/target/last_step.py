"""What a model's output went through last: a sigmoid, a softmax, or none of them."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from torch import Tensor
from torch.overrides import TorchFunctionMode

UNKNOWN = "unknown"  # values that may be probabilities, or not
_KINDS = dict.fromkeys(("sigmoid", "special_expit", "hardsigmoid"), "sigmoid")
_KINDS |= {name: name for name in ("softmax", "log_softmax", "log_sigmoid")}
_CHANGED = {  # kinds after a function of values of another kind
    ("log", "sigmoid"): "log_sigmoid",
    ("log", "softmax"): "log_softmax",
    ("exp", "log_sigmoid"): "sigmoid",
    ("exp", "log_softmax"): "softmax",
    ("rsub", "sigmoid"): "sigmoid",  # 1 - p
}
_SAME = (  # functions after which values are still the same numbers, or means of them
    *("squeeze", "unsqueeze", "view", "reshape", "flatten", "getitem", "contiguous", "clone"),
    *("float", "to", "double", "select", "detach", "cat", "stack", "clamp", "index_select"),
    *("mean",),
)
_ARITHMETIC = ("mul", "rmul", "div", "truediv", "add", "radd", "sub", "rsub", "pow", "lerp")


class LastStep(TorchFunctionMode):
    """Watches a pass of a model: values from 0 to 1 may be probabilities or logits."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[Tensor, str]] = {}  # tensors are kept, so that ids stay theirs
        self._seen = WeakValueDictionary[int, Tensor]()  # results of all functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            kind = self._kind(getattr(func, "__name__", "").strip("_"), args)
            self._seen[id(out)] = out
            self._known.pop(id(out), None)  # what was written in place is another value now
            if kind:
                self._known[id(out)] = out, kind
        return out

    def _kind(self, name: str, args: tuple[Any, ...]) -> str:
        if name in _KINDS:
            return _KINDS[name]
        first = args[0] if args else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        kinds = [self._known.get(id(value), (None, ""))[1] for value in (first, *args[1:])]
        if name in _SAME:
            return kinds[0]
        is_about = any(kinds) and name in _ARITHMETIC
        return _CHANGED.get((name, kinds[0]), UNKNOWN if is_about else "")

    def behind(self, output: Tensor) -> str:
        """Returns ``sigmoid``, ``softmax``, ``log_softmax``, ``log_sigmoid``, or nothing.

        It is `UNKNOWN` for probabilities that were changed, and for values that nothing seen made,
        as in scripted modules.
        """
        if id(output) not in self._seen:
            return UNKNOWN
        return self._known.get(id(output), (None, ""))[1]
