"""The gate of public calls: arguments are checked here once, and never again behind it.

Each function returns the argument in its plain form, or raises a named error that says what was
expected, what came and what to do. Shapes of graphs are checked by `nicegnn.graph.batch`.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, GraphError, NicegnnError, TargetError
from nicegnn.intervention.intervene import Mechanism

ByStudent = Literal[False, True, "auto"]

_LARGEST = 2**63 - 1  # of whole numbers that tensors hold


def whole_number(name: str, value: object, error: type[NicegnnError] = ConfigError) -> int:
    """Returns a whole number of at least 0.

    >>> whole_number("seed", 3)
    3
    >>> whole_number("seed", "x")
    Traceback (most recent call last):
    nicegnn.errors.ConfigError: `seed` must be a whole number of at least 0 (got 'x'). Pass one.
    """
    try:
        number = -1 if _is_switch(value) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):
        number = -1
    if 0 <= number <= _LARGEST:
        return number
    raise error(f"`{name}` must be a whole number of at least 0 (got {shown(value)}). Pass one.")


def whole_numbers(name: str, value: object, meaning: str, shape: tuple[int, ...] = (-1,)) -> Tensor:
    """Returns whole numbers, or a mask, in a shape: of one number, a list or a tensor."""
    try:
        numbers = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        numbers = torch.empty(0)
    has_none = numbers.is_meta or numbers.numel() == 0
    has_none = has_none or (len(shape) > 1 and (*numbers.shape[:1], -1) != shape)
    if has_none or numbers.is_floating_point() or numbers.is_complex():
        raise TargetError(
            f"`{name}` must be {meaning}: a whole number, or a list or tensor of them "
            f"(got {shown(value)}). Pass such numbers, or leave it out."
        )
    return numbers.reshape(shape)


def switch(name: str, value: object) -> bool:
    """Returns True or False, and takes nothing else for it."""
    if value is True or value is False:
        return value
    raise ConfigError(f"`{name}` must be True or False (got {shown(value)}). Pass one of them.")


def switch_or(name: str, value: object, word: str) -> Any:
    """Returns True, False or a word, and takes nothing else for it."""
    if value is True or value is False or (isinstance(value, str) and value == word):
        return value
    raise ConfigError(
        f"`{name}` must be False, True or {word!r} (got {shown(value)}). Pass one of them."
    )


def explained_class(target: object) -> Tensor | None:
    """Returns the class, output or label to explain, one or one per graph, ``[1]`` or ``[B]``."""
    if target is None:
        return None
    numbers = whole_numbers("target", target, "the number of a class or output, or one per graph")
    if numbers.dtype == torch.bool:
        raise TargetError(f"`target` must hold class numbers (got {shown(target)}). Use 0 or 1.")
    return numbers.long()


def noise_slot(slot: object, num_edges: int) -> Tensor | None:
    """Returns the noise coordinate of each directed edge, ``[E]``."""
    if slot is None:
        return None
    is_whole = isinstance(slot, Tensor) and slot.dtype == torch.long and slot.dim() == 1
    fits = is_whole and slot.numel() == num_edges  # type: ignore[attr-defined]
    if fits and (num_edges == 0 or int(slot.min()) >= 0):  # type: ignore[attr-defined]
        return slot  # type: ignore[return-value]
    raise ConfigError(
        "`slot` must be a tensor of whole numbers of at least 0, one for each of the "
        f"{num_edges} directed edges (got {shown(slot)}). Leave it out for their positions."
    )


def checked_device(device: Any) -> torch.device:
    """Returns a device that PyTorch knows by name, and that is there."""
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (TypeError, RuntimeError, ValueError, AssertionError):  # without CUDA it asserts
        raise ConfigError(
            f"`device` must be a device of PyTorch that is there (got {shown(device)}). Pass "
            "'cpu', or 'cuda' where there is a GPU."
        ) from None
    return found


def checked_config(config: object) -> NICEConfig:
    """Returns a configuration; a name, a dict or something else is refused."""
    if config is None:
        return NICEConfig()
    if isinstance(config, NICEConfig):
        return config
    advice = "NICEConfig().with_(...)"
    if isinstance(config, str | Path):
        advice = "NICEConfig.paper()" if config == "paper" else "NICEConfig.from_toml(path)"
    elif isinstance(config, dict):
        advice = "NICEConfig.from_dict(...)"
    raise ConfigError(f"`config` must be a NICEConfig (got {shown(config)}). Pass {advice}.")


def checked_mechanism(mechanism: object) -> Mechanism | None:
    """Returns a mechanism that was passed as an object."""
    if mechanism is None or callable(mechanism):
        return mechanism
    raise ConfigError(
        "`mechanism` must be 'exchange', 'nc', 'em' or a callable such as ElementMask() "
        f"(got {shown(mechanism)}). Pass one of them."
    )


def checked_features(graph: Data, model: nn.Module) -> None:
    """Raises `GraphError` unless ``x`` is a tensor of the type that the model's weights have."""
    x, parameter = graph.get("x"), next(model.parameters(), None)
    if x is None:
        return
    if not isinstance(x, Tensor):
        raise GraphError(
            f"`x` must be a tensor (got {shown(x)}). Convert it with torch.as_tensor()."
        )
    if parameter is None or x.dtype == parameter.dtype or not parameter.is_floating_point():
        return
    if x.is_floating_point():
        raise GraphError(
            f"`x` must have the dtype of the model, {parameter.dtype} (got {x.dtype}). Convert "
            "one of them."
        )


def checked_batch(batch: Batch) -> Batch:
    """Returns a batch that the user has made, whose edges stay within their graphs."""
    home, ptr, edges = batch.batch, batch.ptr, batch.edge_index
    for name, value in (("batch", home), ("ptr", ptr)):
        is_whole = isinstance(value, Tensor) and value.dtype == torch.long and value.dim() == 1
        if not is_whole or bool((value < 0).any()):
            raise GraphError(
                f"`{name}` must be a vector of whole numbers of at least 0 (got {shown(value)}). "
                "Build the batch with Batch.from_data_list([...])."
            )
    sizes = torch.bincount(home, minlength=ptr.numel() - 1)
    if home.numel() != batch.num_nodes or not torch.equal(sizes.cumsum(0), ptr[1:]):
        raise GraphError(
            f"`batch` and `ptr` must count the same nodes, {batch.num_nodes} in all (got "
            f"{home.numel()} in `batch`, {ptr.tolist()[-1]} in `ptr`). Build the batch with "
            "Batch.from_data_list([...])."
        )
    if bool((home[1:] < home[:-1]).any()):
        raise GraphError(
            "`batch` must be sorted: nodes of a graph side by side (got an unsorted one). Build "
            "the batch with Batch.from_data_list([...])."
        )
    leaving = (home[edges[0]] != home[edges[1]]).nonzero().view(-1)
    if leaving.numel():
        edge = int(leaving[0])
        raise GraphError(
            f"`edge_index` must join nodes of one graph (got edge {edge} from graph "
            f"{int(home[edges[0, edge]])} to graph {int(home[edges[1, edge]])}). A graph of the "
            "batch has node numbers beyond its nodes: check it alone."
        )
    return batch


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


def _is_switch(value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, Tensor) and value.dtype == torch.bool)
