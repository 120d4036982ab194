"""What a model's raw output means: classes, labels or values, as logits or probabilities."""

from __future__ import annotations

from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Batch

from nicegnn.config import check_choice
from nicegnn.errors import GraphError, NicegnnError, TargetError
from nicegnn.graph.batch import num_spoiled
from nicegnn.target.losses import (
    log_prob_degradation,
    margin_degradation,
    of_target,
    squared_degradation,
)

Mode = Literal["auto", "multiclass", "binary", "multilabel", "regression"]
ReturnType = Literal["auto", "raw", "probs", "log_probs"]

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


class OutputReader:
    """Reads raw output as ``mode``, ``return_type`` and ``label`` say, see `Target`."""

    def __init__(self, mode: Mode, return_type: ReturnType, label: int | None) -> None:
        check_choice("mode", mode, get_args(Mode))
        check_choice("return_type", return_type, get_args(ReturnType))
        self.mode, self.return_type, self.label = mode, return_type, label
        self._made_by = ""  # function behind the output, see `LastStep`

    def read(self, out: Tensor) -> Tensor:
        """Turns raw output into log-probabilities per class, or plain values for regression."""
        if self.mode == "regression":
            return out
        if self.mode in ("binary", "multilabel"):
            out = self._column(out)
            if self.return_type in ("probs", "log_probs"):
                p = self._probability(out)
                return torch.cat([torch.log1p(-p), p.log()], dim=1)
            return nn.functional.logsigmoid(torch.cat([-out, out], dim=1))
        if self.return_type == "probs":
            return out.clamp(min=1e-30).log()
        if self.return_type == "log_probs":
            return out
        return out.log_softmax(dim=1)

    def settle(self, out: Tensor, batch: Batch | None = None) -> None:
        """Resolves ``auto`` settings from a first clean output, and checks all against it.

        ``batch`` is what the model was called with, to find out why the output is not finite.
        """
        if not bool(torch.isfinite(out).all()):
            raise _not_finite(batch)
        made, is_several, is_one = self._made_by, out.size(1) > 1, _sums_to_one(out)
        if self.mode == "auto" and not is_several and made not in ("sigmoid", "log_sigmoid"):
            raise TargetError(
                "One output column may be a binary logit or a regression value. Pass "
                "mode='binary' or mode='regression'."
            )
        if self.mode == "auto" and made in ("sigmoid", "log_sigmoid") and is_several and not is_one:
            raise TargetError(
                f"{out.size(1)} columns that each end with a sigmoid are labels that do not "
                "exclude each other, or classes of a model that was trained column by column. "
                "Pass mode='multilabel' with target=, or take the sigmoid off for classes."
            )
        if self.mode == "auto":
            self.mode = "multiclass" if is_several else "binary"
        if self.mode == "regression":
            return
        if self.mode == "multilabel" and self.label is None and is_several:
            raise TargetError(
                f"`target` must name the label to explain, 0 to {out.size(1) - 1}, with "
                "mode='multilabel' (got None)."
            )
        is_multiclass = self.mode == "multiclass"
        if is_multiclass and not is_several:
            raise TargetError(
                "The output must have one column per class for mode='multiclass' (got 1). Use "
                "mode='binary' for one logit, mode='regression' for a value."
            )
        low, high = float(out.min()), float(out.max())
        is_unclear = made == UNKNOWN and low >= 0 and high <= 1 and not is_one
        if is_unclear and self.return_type == "auto":
            raise TargetError(
                "The model must return what can be told apart (got values from 0 to 1, logits or "
                "probabilities). Pass return_type='raw' or 'probs', and mode='multilabel' for "
                "labels that do not exclude each other."
            )
        is_probability = made in ("sigmoid", "softmax")
        if self.return_type == "raw" and is_probability:
            raise TargetError(
                f"The model must return logits for return_type='raw' (its last step is a {made}). "
                "Use return_type='probs', or leave it out."
            )
        if self.return_type == "auto":
            is_log = made == "log_sigmoid" and not is_multiclass
            is_probability = is_probability or (is_multiclass and is_one)
            self.return_type = "probs" if is_probability else "log_probs" if is_log else "raw"
        if self.return_type == "probs" and (low < -1e-4 or high > 1 + 1e-4):
            raise TargetError(
                f"The output must lie in [0, 1] for return_type='probs' (got {low:.4g} to "
                f"{high:.4g}). Use return_type='raw' for logits."
            )
        read = {"probs": out, "log_probs": out.exp()}.get(self.return_type)
        if is_multiclass and read is not None and not _sums_to_one(read):
            raise TargetError(
                f"Probabilities of classes must add up to 1 for return_type={self.return_type!r} "
                f"(got {float(read.sum(1).min()):.4g} to {float(read.sum(1).max()):.4g}). Use "
                "return_type='raw' for logits, or mode='multilabel' with target=."
            )
        if self.return_type == "log_probs" and high > 1e-4:
            raise TargetError(
                f"The output must not exceed 0 for return_type='log_probs' (got {high:.4g}). Use "
                "return_type='raw' for logits."
            )

    def choose(self, clean: Tensor, target: int | Tensor | None) -> Tensor:
        """Returns the explained class (or output) of each row of `clean`, ``[B]``."""
        num_rows, num_columns = clean.shape
        if target is None:
            predicted = clean.argmax(dim=1)
            is_sum = self.mode == "regression" and num_columns > 1
            return torch.full_like(predicted, -1) if is_sum else predicted
        chosen = torch.as_tensor(target, device=clean.device)
        if chosen.is_floating_point() or chosen.dtype == torch.bool:
            raise TargetError(f"`target` must hold class numbers (got dtype {chosen.dtype}).")
        if chosen.numel() not in (1, num_rows):
            raise TargetError(
                f"`target` must be one class or one per explained output, {num_rows} "
                f"(got {chosen.numel()})."
            )
        chosen = chosen.long().view(-1).expand(num_rows)
        if bool(((chosen < 0) | (chosen >= num_columns)).any()):
            raise TargetError(
                f"`target` must lie between 0 and {num_columns - 1} "
                f"(got {int(chosen.min())} to {int(chosen.max())})."
            )
        return chosen

    def evidence(self, out: Tensor, target: Tensor) -> Tensor:
        """Returns the evidence for the explained class in raw output ``[N, B, C]``, ``[N, B]``.

        The logit of models that return logits: its slope does not vanish on confident graphs, that
        of a probability does. Else a log-odds or log-probability, or the value for regression.
        """
        if self.mode in ("binary", "multilabel"):
            value = self._column(out)[..., 0]
            if self.return_type in ("probs", "log_probs"):
                value = self._probability(value).logit()
            return torch.where(target == 1, value, -value)
        if self.mode == "multiclass" and self.return_type == "probs":
            out = out.clamp(min=1e-30).log()
        return torch.where(target >= 0, of_target(out, target), out.sum(2))

    def degradation(
        self, clean: Tensor, perturbed: Tensor, target: Tensor, kind: str = "log-prob"
    ) -> Tensor:
        """Returns the loss of the explained output in each draw, ``[N, B]``.

        Kinds are ``log-prob`` (paper), ``margin`` (log-odds) and ``signed-margin`` (a gain is a
        negative loss); regression always uses `squared_degradation`.
        """
        if self.mode == "regression":
            return squared_degradation(clean, perturbed, target)
        if kind == "log-prob":
            return log_prob_degradation(clean, perturbed, target)
        return margin_degradation(clean, perturbed, target, hinge=kind == "margin")

    def _column(self, out: Tensor) -> Tensor:
        """Returns the column of a binary model, or of the explained label, ``[..., 1]``."""
        number, label = out.size(-1), self.label or 0
        if self.mode == "binary" and number != 1:
            raise TargetError(
                f"A binary model must return one value per graph (got {number} columns). Use "
                "mode='multiclass' for two logits, or mode='multilabel' for several labels."
            )
        if not 0 <= label < number:
            raise TargetError(f"`target` must be a label from 0 to {number - 1} (got {label}).")
        return out[..., label : label + 1]

    def _probability(self, value: Tensor) -> Tensor:
        """Returns the probability of a column, clamped inside (0, 1)."""
        p = value if self.return_type == "probs" else value.exp()
        return p.clamp(1e-12, 1 - 1e-7)


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


def _sums_to_one(out: Tensor) -> bool:
    """Whether all rows of several columns are probabilities of classes that exclude each other."""
    total = torch.allclose(out.sum(1), torch.ones_like(out[:, 0]), atol=1e-4)
    return out.size(1) > 1 and total and bool((out >= 0).all())


def _not_finite(batch: Batch | None) -> NicegnnError:
    """Returns why the output of a batch is not finite."""
    for key, value in (batch.to_dict() if batch else {}).items():
        if number := num_spoiled(value):
            return GraphError(
                f"`{key}` must be finite (got {number} NaN or infinite values, for which the model "
                "returns NaN or infinite ones). Replace them."
            )
    return TargetError(
        "The model must return finite values for the clean graphs (got NaN or infinite ones). "
        "Check its weights and inputs."
    )
