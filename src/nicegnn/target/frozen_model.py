"""The frozen model to be explained: calls it and reads its output."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.errors import GraphError, TargetError
from nicegnn.graph.batch import num_spoiled
from nicegnn.store import tensor_digest
from nicegnn.target.last_step import LastStep, is_probability, sums_to_one
from nicegnn.target.message_layers import message_layers, unwrap
from nicegnn.target.private_copy import PrivateCopy

Mode = Literal["auto", "multiclass", "binary", "multilabel", "regression"]
ReturnType = Literal["auto", "raw", "probs", "log_probs"]
Level = Literal["graph", "node"]
Inputs = Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None  # see `Target`


#: What to do with models that score pairs of nodes.
LINKS = (
    "If it scores pairs of nodes, explain one pair: pass `inputs`, a function (model, batch) that "
    "returns the score of that pair as shape [1, 1], with batched=False and mode='binary'."
)


@dataclass
class Facts:
    """What is found out about a model with certain weights, once and not in every call.

    Each is a fixed function of model and weights: a call gives the same numbers with it and
    without it.
    """

    weights: tuple[object, ...]  # for which all this holds, see `Target.weights`
    mixes: bool = False  # whether outputs of a batch's graphs depend on each other
    mixes_is_known: bool = False
    not_followed: dict[str, str] = field(default_factory=dict)  # why "damage" or "removal" needs
    # whole copies of graphs, or "" if it does not, see `neighbourhoods.find_follower`
    fusion: Any = None  # the model's form for kernels, see `fused.find_fused`


class Target:
    """A frozen model, with the way to call it and to read its output.

    Args:
        model: any model with PyG message-passing layers.
        mode: ``multiclass`` (one column per class), ``binary`` (one logit or probability),
            ``multilabel`` (one per label; labels do not exclude each other), or ``regression``.
            ``auto`` takes two or more columns for classes.
        return_type: ``raw`` logits, ``probs`` or ``log_probs``. ``auto`` recognises probabilities
            by their sum and takes anything else for logits.
        inputs: names of the graph's attributes to pass, in order, or a callable
            ``(model, batch) -> output``; by default the argument names of ``forward``.
        level: whether the model returns one row per graph or one per node.
        batched: whether one call can take several graphs. By default if the model takes ``batch``
            or whole graphs, unless a graph's output depends on the others (see `find_mixing`).
        label: the label that ``multilabel`` reads: its classes are 0, absent, and 1, present.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
        level: Level = "graph",
        batched: bool | None = None,
        label: int | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TargetError(
                f"`model` must be a torch.nn.Module (got {type(model).__name__}). Pass the model "
                "itself, with its weights."
            )
        message_layers(model)  # fails here, not later, if there is nothing to explain
        for name, value, known in (
            ("mode", mode, get_args(Mode)),
            ("return_type", return_type, get_args(ReturnType)),
            ("level", level, get_args(Level)),
        ):
            if value not in known:
                raise TargetError(f"`{name}` must be one of {known} (got {value!r}).")
        self.model, self.level, self.batched = model, level, batched
        self.mode, self.return_type, self.label = mode, return_type, label
        self._made_by = ""  # function behind the output, see `LastStep`
        self._is_read_anew = False  # whether the next call finds that out
        self._facts: dict[Level, Facts] = {}  # shared with private copies
        self._present: Facts | None = None  # of a private copy, whose weights stay during a call
        self.inputs = inputs if inputs is None or callable(inputs) else tuple(inputs)
        self._parameters = forward_parameters(model)
        needed = [p for p in self._parameters.values() if p.default is inspect.Parameter.empty]
        takes_one = len(needed) == 1 and "edge_index" not in self._parameters
        self.takes_data = self.inputs is None and takes_one
        if self.inputs is None and not self._parameters:
            raise TargetError(
                f"forward() of {type(model).__name__} must name its arguments (got none). Pass "
                "inputs=['x', 'edge_index', ...] or a callable."
            )

    @property
    def device(self) -> torch.device:
        """Device of the model's parameters."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def is_batched(self) -> bool:
        """Whether one call can take several graphs."""
        return self.may_take_batches and not self.facts.mixes

    @property
    def may_take_batches(self) -> bool:
        """Whether the model takes several graphs by its signature, or as the user said."""
        if self.batched is not None:
            return self.batched
        return self.level == "node" or self.may_read("batch")

    def may_read(self, key: str) -> bool:
        """Whether the model receives this attribute of a graph, or the whole graph."""
        if key == "edge_index" or self.takes_data or callable(self.inputs):
            return True
        return key in (self.inputs if self.inputs is not None else self._parameters)

    @property
    def facts(self) -> Facts:
        """What was found out about the model with its present weights."""
        if self._present is not None:
            return self._present
        weights, known = self.weights(), self._facts.get(self.level)
        if known is None or known.weights != weights:
            known = self._facts[self.level] = Facts(weights)
        return known

    def weights(self) -> tuple[object, ...]:
        """Returns a mark of the model's present tensors, another one after they change."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return tuple((id(t), -1 if t.is_inference() else t._version) for t in tensors)

    def private(self, level: Level | None = None) -> Target:
        """Returns a copy of this target with a private copy of the model, see `PrivateCopy`.

        The user's model is then neither changed nor switched to evaluation mode, and other threads
        can use it meanwhile.
        """
        out, made = copy.copy(self), PrivateCopy(self.model)
        out.model, out.inputs = made.model, made.rebound(self.inputs)
        out.level = self.level if level is None else level
        out._present = None
        out._present = out.facts
        return out

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Puts the model in evaluation mode, and restores the mode of every module afterwards."""
        modes = [(module, module.training) for module in self.model.modules()]
        try:
            self.model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training

    def first_call(self, batch: Batch) -> Tensor:
        """Like `call`, and finds out which function made the output, for `settle`."""
        self._is_read_anew = True
        try:
            return self.call(batch)
        finally:
            self._is_read_anew = False

    def call(self, batch: Batch) -> Tensor:
        """Runs the model on a batch and returns its raw output, ``[rows, columns]``."""
        try:
            with LastStep() if self._is_read_anew else nullcontext() as last:
                out = self._run(batch)
        except RuntimeError as error:
            x = batch.get("x")
            is_whole = isinstance(x, Tensor) and not x.is_floating_point()
            if is_whole and "type" in str(error):  # a dtype, scalar type or result type
                raise GraphError(
                    f"`x` must be of floating point for this model (got {x.dtype}, and PyTorch "
                    f"says: {error}). Use `x.float()`."
                ) from error
            if isinstance(x, Tensor) and "cannot be multiplied" in str(error):
                raise GraphError(
                    f"`x` must have the columns that the model reads (got shape {tuple(x.shape)}, "
                    f"and PyTorch says: {error}). Use the features that it was trained on."
                ) from error
            raise
        if isinstance(out, tuple | list):
            out = out[0]
        if last is not None and isinstance(out, Tensor):
            self._made_by = last.behind(out)
        if not isinstance(out, Tensor) or not out.is_floating_point():
            raise TargetError(
                "The model must return a floating point tensor, or a tuple that starts with one "
                f"(got {type(out).__name__})."
            )
        if out.dim() > 2:
            raise TargetError(
                "The model must return a row for each graph or node and a column for each class "
                f"(got shape {tuple(out.shape)}). {LINKS}"
            )
        if out.dim() == 0:  # the value of a single graph
            return out.view(1, 1)
        if out.dim() == 1:  # one value per row, or the classes of a single graph
            is_long = self.level == "node" or self.may_take_batches
            return out.unsqueeze(1) if is_long else out.unsqueeze(0)
        return out

    def _run(self, batch: Batch) -> Any:
        """Calls the model in the way that its signature or ``inputs`` says."""
        if callable(self.inputs):
            return self.inputs(self.model, batch)
        if self.takes_data:
            return self.model(batch)
        if self.inputs is not None:
            return self.model(*(_attribute(batch, key) for key in self.inputs))
        return self.model(**self._arguments(batch))

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
            spoiled = {k: num_spoiled(v) for k, v in (batch.to_dict() if batch else {}).items()}
            for key, number in spoiled.items():
                if number:
                    raise GraphError(
                        f"`{key}` must be finite (got {number} NaN or infinite values, for which "
                        "the model returns NaN or infinite ones). Replace them."
                    )
            raise TargetError(
                "The model must return finite values for the clean graphs (got NaN or infinite "
                "ones). Check its weights and inputs."
            )
        self._read_kind(out)
        if self.mode == "multilabel" and self.label is None and out.size(1) > 1:
            raise TargetError(
                f"`target` must name the label to explain, 0 to {out.size(1) - 1}, with "
                "mode='multilabel' (got None)."
            )
        low, high = float(out.min()), float(out.max())
        if self.mode == "multiclass" and out.size(1) < 2:
            raise TargetError(
                f"The output must have one column per class for mode='multiclass' (got "
                f"{out.size(1)}). Use mode='binary' for one logit, mode='regression' for a value."
            )
        if self.mode == "regression":
            return
        if self.return_type == "probs" and (low < -1e-4 or high > 1 + 1e-4):
            raise TargetError(
                f"The output must lie in [0, 1] for return_type='probs' (got {low:.4g} to "
                f"{high:.4g}). Use return_type='raw' for logits."
            )
        if self.return_type == "log_probs" and high > 1e-4:
            raise TargetError(
                f"The output must not exceed 0 for return_type='log_probs' (got {high:.4g}). Use "
                "return_type='raw' for logits."
            )

    def _read_kind(self, out: Tensor) -> None:
        """Resolves ``auto`` by the function behind the output, and refuses a contradiction."""
        made, is_one = self._made_by, sums_to_one(out)
        if self.mode == "auto" and out.size(1) == 1:
            if made not in ("sigmoid", "log_sigmoid"):
                raise TargetError(
                    "One output column may be a binary logit or a regression value. Pass "
                    "mode='binary' or mode='regression'."
                )
            self.mode = "binary"
        elif self.mode == "auto":
            if made in ("sigmoid", "log_sigmoid") and not is_one:
                raise TargetError(
                    f"{out.size(1)} columns that each end with a sigmoid are labels that do not "
                    "exclude each other, or classes of a model that was trained column by column. "
                    "Pass mode='multilabel' with target=, or take the sigmoid off for classes."
                )
            self.mode = "multiclass"
        if self.mode == "regression":
            return
        found: ReturnType = "raw"
        if is_probability(made) or (self.mode == "multiclass" and is_one):
            found = "probs"
        elif made == "log_sigmoid" and self.mode != "multiclass":
            found = "log_probs"
        if self.return_type == "raw" and is_probability(made):
            raise TargetError(
                f"The model must return logits for return_type='raw' (its last step is a {made}). "
                "Use return_type='probs', or leave it out."
            )
        if self.mode == "multiclass" and made == "sigmoid" and not is_one:
            raise TargetError(
                "Probabilities of classes must add up to 1 for mode='multiclass' (got columns that "
                "each end with a sigmoid). Use mode='multilabel' with target=."
            )
        if self.return_type == "auto":
            self.return_type = found

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
        return torch.where(target >= 0, _of_target(out, target), out.sum(2))

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

    def _arguments(self, batch: Batch) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in ("batch_size", "num_graphs") and name not in batch:
                arguments[name] = batch.num_graphs
            elif name in batch:
                arguments[name] = batch[name]
            elif parameter.default is inspect.Parameter.empty:
                raise TargetError(
                    f"The model's forward() needs `{name}`, which the graph does not have "
                    f"(it has {sorted(batch.keys())}). Add it to the Data, or pass inputs=[...] or "
                    "inputs=lambda model, batch: ..."
                )
        return arguments


def log_prob_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""One-sided loss of the target's log-probability.

    .. math:: d_{y^*} = [\log f_{y^*}(G) - \log f_{y^*}(\rho, \epsilon)]_+  \qquad \text{(Eq. 11)}

    Symbols: :math:`\log f(G)` -> ``clean``, ``[B, C]``; :math:`\log f(\rho, \epsilon)` ->
    ``perturbed``, ``[N, B, C]``; :math:`y^*` -> ``target``, ``[B]``. Returns ``[N, B]``.
    """
    return (_of_target(clean.unsqueeze(0), target) - _of_target(perturbed, target)).clamp(min=0)


def margin_degradation(
    clean: Tensor, perturbed: Tensor, target: Tensor, *, hinge: bool = True
) -> Tensor:
    r"""One-sided loss of the target's log-odds, which does not saturate on confident graphs.

    .. math:: d_{y^*} = [m(G) - m(\rho, \epsilon)]_+, \qquad
        m = \log f_{y^*} - \log \textstyle\sum_{c \ne y^*} f_c

    Symbols as in :func:`log_prob_degradation`. The log-probability of a confident prediction stays
    near 0 while evidence is lost; its log-odds fall. The paper uses log-probabilities, this is
    ours. Without ``hinge``, gains are negative losses.
    """
    loss = log_odds(clean.unsqueeze(0), target) - log_odds(perturbed, target)  # [N, B]
    return loss.clamp(min=0) if hinge else loss


def squared_degradation(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""Squared change of the explained output of a regression model.

    .. math:: d = (f_k(\rho, \epsilon) - f_k(G))^2

    Symbols as in :func:`log_prob_degradation`; :math:`k` -> ``target``; a negative target means all
    outputs, whose squares are added. The paper covers classification only; this is our extension.
    """
    change = (perturbed - clean).square()  # [N, B, K]
    return torch.where(target >= 0, _of_target(change, target), change.sum(2))


def value_fall(clean: Tensor, perturbed: Tensor, target: Tensor) -> Tensor:
    r"""How far the explained value of a regression model falls, negative for a rise, ``[N, B]``.

    .. math:: f_k(G) - f_k(\rho, \epsilon)

    Symbols as in :func:`squared_degradation`. It is nan where all outputs are explained together.
    """
    return torch.where(target >= 0, _of_target(clean - perturbed, target), torch.nan)


def log_odds(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log f_y - \log(1 - f_y)` of the target class y, ``[N, B]``."""
    return _of_target(log_prob, target) - other_log_prob(log_prob, target)


def other_log_prob(log_prob: Tensor, target: Tensor) -> Tensor:
    r"""Returns :math:`\log(1 - f_y)`, the log-probability of all other classes, ``[N, B]``.

    It is the sum over the other classes, so it stays exact where :math:`f_y` rounds to 1.
    """
    index = target.view(1, -1, 1).expand(log_prob.size(0), -1, 1)
    return log_prob.scatter(2, index, -torch.inf).logsumexp(2)


def _of_target(value: Tensor, target: Tensor) -> Tensor:
    """Returns the column of each row's target, ``[N, B, C]`` to ``[N, B]``."""
    index = target.clamp(min=0).view(1, -1, 1).expand(value.size(0), -1, 1)
    return value.gather(2, index).squeeze(2)


def fingerprint(model: nn.Module) -> str:
    """Returns a short hash of a model's weights and buffers, the same on every device."""
    return tensor_digest(unwrap(model).state_dict())[:16]


def forward_parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    """Returns the named parameters of a model's ``forward``."""
    parameters = inspect.signature(unwrap(model).forward).parameters
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in parameters.items() if p.kind not in kinds}


def _attribute(batch: Batch, key: str) -> Any:
    if key == "batch_size":
        return batch.num_graphs
    if key not in batch:
        raise TargetError(
            f"`inputs` names '{key}', which the graph does not have (it has "
            f"{sorted(batch.keys())})."
        )
    return batch[key]
