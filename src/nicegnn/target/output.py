"""What a model's raw output means: classes, labels or values, as logits or probabilities."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from nicegnn.config import check_choice
from nicegnn.errors import TargetError
from nicegnn.target.losses import (
    log_prob_degradation,
    margin_degradation,
    of_target,
    squared_degradation,
)

Mode = Literal["auto", "multiclass", "binary", "multilabel", "regression"]
ReturnType = Literal["auto", "raw", "probs", "log_probs"]

UNKNOWN = "unknown"  # values that may be probabilities, or not
_KINDS = {"Sigmoid": "sigmoid", "Hardsigmoid": "sigmoid", "SpecialExpit": "sigmoid"}
_KINDS |= {"Softmax": "softmax", "LogSoftmax": "log_softmax", "LogSigmoid": "log_sigmoid"}
_CHANGED = {("Log", "sigmoid"): "log_sigmoid", ("Exp", "log_sigmoid"): "sigmoid"}
_CHANGED |= {("Log", "softmax"): "log_softmax", ("Exp", "log_softmax"): "softmax"}
_CHANGED |= {("Rsub", "sigmoid"): "sigmoid"}  # 1 - p
_SAME = (  # steps after which values are still the same numbers, or means of them
    *("Alias", "AsStrided", "Cat", "Clamp", "Clone", "Expand", "Index", "IndexSelect", "Mean"),
    *("Select", "Slice", "Squeeze", "Stack", "T", "ToCopy", "Transpose", "Unsqueeze", "View"),
)
_ARITHMETIC = ("Add", "Div", "Exp", "Lerp", "Log", "Mul", "Pow", "Rsub", "Sub")


class OutputReader:
    """Reads raw output as ``mode``, ``return_type`` and ``label`` say, see `Target`."""

    def __init__(self, mode: Mode, return_type: ReturnType, label: int | None) -> None:
        check_choice("mode", mode, get_args(Mode))
        check_choice("return_type", return_type, get_args(ReturnType))
        self.mode, self.return_type, self.label = mode, return_type, label

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
        return out if self.return_type == "log_probs" else out.log_softmax(dim=1)

    def _settle(self, out: Tensor, last_step: Callable[[], str]) -> None:
        """Resolves ``auto`` settings from a first clean output, and checks all against it."""
        num, is_one = out.size(1), _sums_to_one(out)
        low, high = float(out.min()), float(out.max())
        is_plain = self.return_type == "auto" and is_one  # or far from all others
        is_plain |= self.mode == "regression" or high > 1 + 1e-4 or low < -1e-4 < 1e-4 < high
        made = "" if is_plain else last_step()
        is_squashed = made in ("sigmoid", "log_sigmoid")
        if self.mode == "auto" and num == 1 and not is_squashed:
            raise TargetError("Pass mode='binary' or mode='regression' (got one output column).")
        if self.mode == "auto" and num > 1 and is_squashed and not is_one:
            raise TargetError(
                f"{num} columns that each end with a sigmoid are labels that do not exclude each "
                "other. Pass mode='multilabel' with target=, or take the sigmoid off for classes."
            )
        if self.mode == "auto":
            self.mode = "multiclass" if num > 1 else "binary"
        if self.mode == "regression":
            return
        if self.mode == "multilabel" and self.label is None and num > 1:
            last = num - 1
            raise TargetError(f"`target` must name the label to explain, 0 to {last} (got None).")
        is_multiclass = self.mode == "multiclass"
        if is_multiclass and num == 1:
            raise TargetError(
                "The output must have one column per class for mode='multiclass' (got 1). Use "
                "mode='binary' for one logit, mode='regression' for a value."
            )
        is_unclear = made == UNKNOWN and low >= 0 and high <= 1 and not is_one
        if is_unclear and self.return_type == "auto":
            raise TargetError(
                "Values from 0 to 1 may be logits or probabilities. Pass return_type='raw' or "
                "'probs', and mode='multilabel' for labels that do not exclude each other."
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
        if self.return_type == "raw":
            return
        p = out if self.return_type == "probs" else out.exp()
        is_outside, total = bool(((p < -1e-4) | (p > 1 + 1e-4)).any()), p.sum(1)
        if is_outside or (is_multiclass and not _sums_to_one(p)):
            raise TargetError(
                "Probabilities must lie in [0, 1], and those of classes must add up to 1, for "
                f"return_type={self.return_type!r} (got {p.min():.4g} to {p.max():.4g}, which add "
                f"up to {total.min():.4g} to {total.max():.4g}). Use return_type='raw' for logits, "
                "or mode='multilabel' with target=."
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
        if (num := chosen.numel()) not in (1, num_rows):
            raise TargetError(f"`target` must be one per explained output, {num_rows} (got {num}).")
        chosen = chosen.long().view(-1).expand(num_rows)
        if bool(((chosen < 0) | (chosen >= num_columns)).any()):
            raise TargetError(
                f"`target` must lie between 0 and {num_columns - 1} "
                f"(got {int(chosen.min())} to {int(chosen.max())})."
            )
        return chosen

    def evidence(self, out: Tensor, target: Tensor) -> Tensor:
        """Returns the evidence for the explained class in raw output ``[N, B, C]``, ``[N, B]``.

        It is the logit if the model returns logits, else a log-odds, log-probability or value.
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

        Kinds are ``log-prob``, ``margin`` (log-odds) and ``signed-margin`` (gains are negative).
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


def step_behind(node: Any, depth: int = 8) -> str:
    """Returns ``sigmoid``, ``softmax``, ``log_softmax``, ``log_sigmoid``, or nothing.

    ``node`` is the ``grad_fn`` of an output. Probabilities that were changed, and values that
    nothing known made, as in scripted modules, are `UNKNOWN`.
    """
    name = "" if node is None else node.name()
    found = re.fullmatch(r"(?:Unsafe|Reshape)?(\w+)Backward\d", name)
    if found is None:
        return UNKNOWN
    step, before = found[1], [one for one, _ in node.next_functions if one is not None]
    if step in _KINDS or depth == 0:
        return _KINDS.get(step, "")
    if step in _SAME and before:
        return step_behind(before[0], depth - 1)
    kinds = [step_behind(one, depth - 1) for one in before if step in _ARITHMETIC]
    kinds = [kind for kind in kinds if kind not in ("", UNKNOWN)]
    return _CHANGED.get((step, kinds[0]), UNKNOWN) if kinds else ""


def _sums_to_one(out: Tensor) -> bool:
    """Whether all rows of several columns are probabilities of classes that exclude each other."""
    total = torch.allclose(out.sum(1), torch.ones_like(out[:, 0]), atol=1e-4)
    return out.size(1) > 1 and total and bool((out >= 0).all())
