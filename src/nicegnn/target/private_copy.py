"""A private copy of a model's modules, so that the user's modules are never touched."""

from __future__ import annotations

import copy
from collections import OrderedDict
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nicegnn.target.message_layers import unwrap

_MOST_ITEMS = 1000  # longer containers hold data, not modules, and are shared
_DEPTH = 4  # steps from a function or object in which modules are looked for
_SHARED = {type(None), bool, str, int, float, Tensor, nn.Parameter}
_CONTAINERS = (list, dict, OrderedDict, tuple, set)


class PrivateCopy:
    """Copies the modules of a model, and whatever refers to them, in evaluation mode.

    - Tensors are shared, so the copy sees new weights.
    - Containers on modules are copied; methods, functions, containers in them and plain objects
      are if they refer to modules of the model: to their copies then. So are hooks.
    - Compiled modules (``torch.compile``) are replaced by the Python modules inside; scripted ones
      (``torch.jit``) are shared, or copied whole in training mode.
    - Layers with ``cached=True`` compute anew: what they hold belongs to another graph.
    """

    def __init__(self, model: nn.Module) -> None:
        self._own = {id(module) for module in model.modules()}
        self._made: dict[int, tuple[Any, Any]] = {}  # original (kept alive) and copy, by id
        self.model = self._module(model)

    def rebound(self, value: Any, depth: int = _DEPTH, *, is_held: bool = False) -> Any:
        """Returns a value whose references to modules of the model point to their copies.

        It is the same value if there are none, and it does not lie in a container on a module.
        """
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, nn.Module):
            return self._module(value) if id(value) in self._own else value
        if type(value) in _SHARED or isinstance(value, type) or depth == 0:
            return value
        out = value
        if type(value) in _CONTAINERS:
            if len(value) > _MOST_ITEMS:
                return value
            items = [*(value.items() if isinstance(value, dict) else value)]
            below = depth if is_held else depth - 1
            made = [self.rebound(item, below, is_held=is_held) for item in items]
            if is_held or any(one is not item for one, item in zip(made, items, strict=True)):
                out = type(value)(made)
        elif isinstance(value, MethodType):
            if (own := self.rebound(value.__self__, depth - 1)) is not value.__self__:
                out = MethodType(value.__func__, own)
        elif isinstance(value, partial):
            parts: Any = (value.func, value.args, value.keywords)
            if (made := self.rebound(parts, depth)) is not parts:
                out = partial(made[0], *made[1], **made[2])
        elif isinstance(value, FunctionType):
            names = value.__globals__
            used = {name: names[name] for name in value.__code__.co_names if name in names}
            parts = (
                [_content(cell) for cell in value.__closure__ or ()],
                {name: one for name, one in used.items() if isinstance(one, nn.Module)},
            )
            if (made := self.rebound(parts, depth)) is not parts:
                cells = tuple(map(CellType, made[0]))
                out = FunctionType(
                    value.__code__, names | made[1], value.__name__, value.__defaults__, cells
                )
                out.__kwdefaults__, out.__dict__ = value.__kwdefaults__, dict(vars(value))
        elif any(id(one) in self._own for one in getattr(value, "__dict__", {}).values()):
            out = copy.copy(value)
            self._made[id(value)] = value, out  # before its parts, which may refer to it
            vars(out).update(self.rebound(vars(value), depth - 1))
        if out is not value:
            self._made[id(value)] = value, out
        return out

    def _module(self, module: nn.Module) -> nn.Module:
        inner = unwrap(module)
        if inner is not module:
            out: nn.Module = self.rebound(inner)
        elif isinstance(module, torch.jit.ScriptModule):
            out = copy.deepcopy(module).eval() if module.training else module
        else:
            out = object.__new__(type(module))
            self._made[id(module)] = module, out  # before its parts, which may refer to it
            held = {key: self.rebound(one, is_held=True) for key, one in vars(module).items()}
            vars(out).update(held | {"training": False, "_compiled_call_impl": None})
            if isinstance(module, MessagePassing):
                _detach_layer(vars(out))
        self._made[id(module)] = module, out
        return out


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not yet assigned
        return None


def _detach_layer(held: dict[str, Any]) -> None:
    """Gives a copied layer its own record of signatures, and makes it forget what it cached."""
    inspector = copy.copy(held["inspector"])
    inspector._signature_dict = dict(inspector._signature_dict)
    held["inspector"] = inspector
    if held.get("cached") is True:
        held["cached"] = False
        held.update({key: None for key in held if key.startswith("_cached")})
