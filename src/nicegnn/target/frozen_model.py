"""The frozen model to be explained, and how it is called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Batch, HeteroData

from nicegnn.config import check_choice
from nicegnn.errors import GraphError, NicegnnError, ShortCutEnds, TargetError
from nicegnn.graph.kinds import Kinds
from nicegnn.store import tensor_digest
from nicegnn.target.chemprop import adapted
from nicegnn.target.message_layers import Adapter, message_layers, unwrap
from nicegnn.target.output import Mode, OutputReader, ReturnType, step_behind
from nicegnn.target.private_copy import PrivateCopy

Level = Literal["graph", "node", "pair"]
Inputs = Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None  # see `Target`

_MOST_KINDS = 1000  # of edges, with prototypes each
#: What to do with models that score pairs of nodes.
LINKS = (
    "If it scores pairs of nodes, pass them as `pairs`, or explain one pair: pass `inputs`, a "
    "function (model, batch) of shape [1, 1], with batched=False and mode='binary'."
)


class Target(OutputReader):
    """A frozen model, with the way to call it and to read its output (see `OutputReader`).

    Args:
        model: any model with PyG message-passing layers.
        mode: ``multiclass`` (one column per class), ``binary`` (one logit or probability),
            ``multilabel`` (one per label; labels do not exclude each other), or ``regression``.
            ``auto`` takes two or more columns for classes.
        return_type: ``raw`` logits, ``probs`` or ``log_probs``. ``auto`` recognises probabilities
            by the function behind them, and by their sum.
        inputs: names of the graph's attributes to pass, in order, or a callable
            ``(model, batch) -> output``; by default the argument names of ``forward``.
        level: whether the model returns one row per graph, one per node, or one per pair of nodes
            in ``edge_label_index``, of which every graph then has one.
        batched: whether one call can take several graphs. By default if the model takes ``batch``
            or whole graphs, unless a graph's output depends on the others (see `mixes_graphs`).
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
            raise TargetError(f"`model` must be a torch.nn.Module (got {type(model).__name__}).")
        if any(is_lazy(parameter) for parameter in model.parameters()):
            raise TargetError("`model` must have no lazy layers. Call it once on a graph before.")
        model = adapted(model)
        if isinstance(model, Adapter) and mode == "auto":
            mode, return_type = model.mode, "raw" if return_type == "auto" else return_type
        message_layers(model)  # fails here, not later, if there is nothing to explain
        super().__init__(mode, return_type, label)
        check_choice("level", level, get_args(Level))
        if batched is not None and not isinstance(batched, bool):
            raise TargetError(f"`batched` must be True, False or None (got {batched!r}).")
        names = inputs if isinstance(inputs, list | tuple) else ()
        are_names = len(names) > 0 and all(isinstance(name, str) for name in names)
        if not (inputs is None or callable(inputs) or are_names):
            raise TargetError(
                f"`inputs` must be a list of names or a function (got {inputs!r}), for example "
                "['x', 'edge_index']."
            )
        self.model, self.level, self.batched = model, level, batched
        self.kinds: Kinds | None = None  # of a graph with several, which calls of a copy are about
        self.inputs = inputs if inputs is None or callable(inputs) else tuple(inputs)
        self._parameters = forward_parameters(model)
        needed = [p for p in self._parameters.values() if p.default is p.empty]
        takes_one = len(needed) == 1 and "edge_index" not in self._parameters
        self._takes_data = self.inputs is None and takes_one
        if self.inputs is None and not self._parameters:
            raise TargetError(
                "forward() must name its arguments (got none). Pass inputs=['x', ...]."
            )

    @property
    def device(self) -> torch.device:
        """Device of the model's parameters."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def is_batched(self) -> bool:
        """Whether the model takes several graphs by its signature, or as the user said."""
        batch = "batch" if self.kinds is None else "batch_dict"
        takes_several = self.level != "graph" or self.may_read(batch)
        return takes_several if self.batched is None else self.batched

    def may_read(self, key: str) -> bool:
        """Whether the model receives this attribute of a graph, or the whole graph."""
        if key == "edge_index" or self._takes_data or callable(self.inputs):
            return True
        is_of_kinds = self.kinds is not None and key != "batch_dict"
        return is_of_kinds or key in (self.inputs or self._parameters)

    def edge_kind(self, batch: Batch) -> Tensor | None:
        """Returns the kind of each edge, ``[E]``, if the model reads ``edge_type``."""
        kind = batch.get("edge_type")
        is_one = isinstance(kind, Tensor) and kind.dtype == torch.long and kind.numel() > 0
        if not is_one or kind.shape != batch.edge_index.shape[1:]:
            return None
        is_kind = 0 <= int(kind.min()) <= int(kind.max()) < _MOST_KINDS  # not a number of its own
        return kind if is_kind and self.may_read("edge_type") else None

    @property
    def num_kinds(self) -> tuple[int, int]:
        """How many kinds of nodes there are, and of edges at least."""
        return (1, 1) if self.kinds is None else (len(self.kinds.nodes), len(self.kinds.edges))

    @property
    def is_of_wide_bench(self) -> bool:
        """Whether verdicts were checked on such models: PyG's, of whole graphs of one kind."""
        is_plain = self.kinds is None and not isinstance(self.model, Adapter)
        return self.level == "graph" and is_plain

    def private(self, level: Level | None = None) -> Target:
        """Returns a copy of this target with a private copy of the model, see `PrivateCopy`."""
        out, made = copy.copy(self), PrivateCopy(self.model)
        out.model, out.inputs = made.model, made.rebound(self.inputs)
        out.level = level or self.level
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

    def settle(self, out: Tensor, batch: Batch, part: Batch | None = None) -> None:
        """Resolves ``auto`` settings from the clean output of a batch, and checks all against it.

        ``part`` is what one call takes of a batch, if it is not all.
        """
        if not bool(torch.isfinite(out).all()):
            values = {k: v for k, v in batch.to_dict().items() if isinstance(v, Tensor)}
            wrong = [
                f"`{key}`" for key, value in values.items() if not bool(value.isfinite().all())
            ]
            raise (GraphError if wrong else TargetError)(
                "The model must return finite values for the clean graphs (got NaN or infinite "
                f"ones). Check {', '.join(wrong) or 'its weights'}, and replace such values."
            )

        def last_step() -> str:
            one = copy.copy(batch if part is None else part)
            with torch.enable_grad():
                if isinstance(x := one.get("x"), Tensor) and x.is_floating_point():
                    one.x = x.detach().requires_grad_()  # parameters may be frozen
                return step_behind(self.call(one).grad_fn)

        self._settle(out, last_step)

    def call(self, batch: Batch) -> Tensor:
        """Runs the model on a batch and returns its raw output, ``[rows, columns]``."""
        try:
            if self.kinds is None:
                out = self._answer(batch)
            else:
                out = self.kinds.answers(self._answer(self.kinds.apart(batch)), batch)
        except (NicegnnError, ShortCutEnds):
            raise
        except Exception as error:
            raise _refusal(error, batch) from error
        if isinstance(out, tuple | list) and out:
            out = out[0]
        if not isinstance(out, Tensor) or not out.is_floating_point():
            name = type(out).__name__
            raise TargetError(f"The model must return a floating point tensor first (got {name}).")
        if out.dim() > 2:
            raise TargetError(
                "The model must return a row for each graph or node and a column for each class "
                f"(got shape {tuple(out.shape)}). {LINKS}"
            )
        if out.dim() == 0:  # the value of a single graph
            return out.view(1, 1)
        if out.dim() == 1:  # one value per row, or the classes of a single graph
            is_long = self.level == "node" or self.is_batched
            return out.unsqueeze(1) if is_long else out.unsqueeze(0)
        return out

    def _answer(self, batch: Any) -> Any:
        """Calls the model in the way that its signature or ``inputs`` says."""
        if callable(self.inputs):
            return self.inputs(self.model, batch)
        if self._takes_data:
            return self.model(batch)
        if self.inputs is not None:
            return self.model(*(_value(batch, name, is_needed=True) for name in self.inputs))
        arguments = {}
        for name, parameter in self._parameters.items():
            is_needed = parameter.default is parameter.empty
            value = _value(batch, name, is_needed=is_needed)
            if is_needed or (value is not None and not (isinstance(value, dict) and not value)):
                arguments[name] = value
        return self.model(**arguments)


def _value(batch: Any, name: str, *, is_needed: bool) -> Any:
    """Returns what a batch has by the name of an argument, or None."""
    if name in ("batch_size", "num_graphs") and name not in batch:
        return batch.num_graphs
    if name.endswith("_dict") and isinstance(batch, HeteroData):
        return batch.collect(name[:-5], allow_empty=True)
    value = batch.get(name)
    if value is None and is_needed:
        advice = LINKS if name == "edge_label_index" else "Add it, or name others in `inputs`."
        raise TargetError(
            f"The model needs `{name}`, which the graph does not have (got "
            f"{sorted(batch.keys())}). {advice}"
        )
    return value


def _refusal(error: Exception, batch: Batch) -> NicegnnError:
    x, said = batch.get("x"), str(error)
    is_number = isinstance(x, Tensor) and not x.is_floating_point() and "type" in said  # of numbers
    if is_number or (isinstance(x, Tensor) and "cannot be multiplied" in said):
        return GraphError(
            f"`x` must have the type and columns that the model reads (got {x.dtype} of shape "
            f"{tuple(x.shape)}, and PyTorch says: {said}). Use the features that it was trained "
            "on, or `x.float()`."
        )
    advice = "Call it on one of them to see why, or say in `inputs` how it is called."
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        advice = "Set a smaller `chunk_edges`, or a smaller `batch_size` for a list of graphs."
    name = type(error).__name__
    return TargetError(f"The model must take these graphs (it raised {name}: {said}). {advice}")


def fingerprint(model: nn.Module) -> str:
    """Returns a short hash of a model's weights and buffers, the same on every device."""
    return tensor_digest(unwrap(adapted(model)).state_dict())[:16]


def forward_parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    """Returns the named parameters of a model's ``forward``."""
    named = inspect.signature(unwrap(model).forward).parameters.items()
    return {key: p for key, p in named if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
