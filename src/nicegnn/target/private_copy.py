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
_DEPTH = 3  # steps from a function or object in which modules are looked for
_TENSORS = ("_parameters", "_buffers", "_non_persistent_buffers_set")
_SHARED = {type(None), bool, str, int, float, Tensor, nn.Parameter, type}
_CONTAINERS = (list, dict, OrderedDict, tuple, set)


class PrivateCopy:
    """Copies the modules of a model, and whatever refers to them, in evaluation mode.

    Tensors are shared, so the copy sees new weights; what is stored on it never reaches the model.

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

    def rebound(self, value: Any) -> Any:
        """Returns a value whose references to modules of the model point to their copies."""
        if type(value) in _SHARED or isinstance(value, Tensor):
            return value
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, nn.Module):
            return self._module(value) if id(value) in self._own else value
        if not self._refers(value, _DEPTH):
            return value
        if type(value) in _CONTAINERS:
            return self._container(value)
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.rebound(value.__self__))
        if isinstance(value, partial):
            words = {key: self.rebound(item) for key, item in value.keywords.items()}
            return partial(self.rebound(value.func), *map(self.rebound, value.args), **words)
        if isinstance(value, FunctionType):
            cells = tuple(CellType(self.rebound(_content(c))) for c in value.__closure__ or ())
            names = {key: self.rebound(item) for key, item in _globals_of(value).items()}
            code, names = value.__code__, {**value.__globals__, **names}
            out: Any = FunctionType(code, names, value.__name__, value.__defaults__, cells)
            out.__kwdefaults__, out.__dict__ = value.__kwdefaults__, dict(vars(value))
        else:
            out = copy.copy(value)
            self._made[id(value)] = value, out
            vars(out).update({key: self.rebound(item) for key, item in vars(value).items()})
        self._made[id(value)] = value, out
        return out

    def _refers(self, value: Any, depth: int) -> bool:
        """Whether a value is a module of the model, or refers to one in a few steps."""
        if id(value) in self._own:
            return True
        return depth > 0 and any(self._refers(part, depth - 1) for part in _parts(value))

    def _module(self, module: nn.Module) -> nn.Module:
        if id(module) in self._made:
            made: nn.Module = self._made[id(module)][1]
            return made
        inner = unwrap(module)
        if inner is not module:
            out = self._module(inner)
        elif isinstance(module, torch.jit.ScriptModule):
            out = copy.deepcopy(module).eval() if module.training else module
        else:
            out = object.__new__(type(module))
            self._made[id(module)] = module, out  # before its parts, which may refer to it
            held = out.__dict__
            for key, value in vars(module).items():
                if type(value) in _SHARED:
                    held[key] = value
                elif key in _TENSORS or (type(value) is OrderedDict and not value):  # no hooks
                    held[key] = value.copy()
                else:
                    held[key] = self._held(value)
            held |= {"training": False, "_compiled_call_impl": None}
            if isinstance(module, MessagePassing):
                _detach_layer(held)
        self._made[id(module)] = module, out
        return out

    def _held(self, value: Any) -> Any:
        """Returns what a copied module holds in place of a value."""
        is_container = type(value) in _CONTAINERS and len(value) <= _MOST_ITEMS
        return self._container(value) if is_container else self.rebound(value)

    def _container(self, value: Any) -> Any:
        if id(value) in self._made:
            return self._made[id(value)][1]
        if isinstance(value, tuple | set):
            return type(value)(self._held(item) for item in value)
        out = type(value)()
        self._made[id(value)] = value, out  # before its items, which may refer to it
        if isinstance(value, list):
            out += [self._held(item) for item in value]
        else:
            out.update({self._held(key): self._held(item) for key, item in value.items()})
        return out


def _parts(value: Any) -> list[Any]:
    """Returns what a container, method, function or plain object refers to."""
    if isinstance(value, Tensor | nn.Module | type) or type(value) in _SHARED:
        return []
    if type(value) in _CONTAINERS:
        if len(value) > _MOST_ITEMS:
            return []
        return [*value, *value.values()] if isinstance(value, dict) else [*value]
    if isinstance(value, MethodType):
        return [value.__self__]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        return cells + [v for v in _globals_of(value).values() if isinstance(v, nn.Module)]
    held = getattr(value, "__dict__", None)
    return [v for v in held.values() if isinstance(v, nn.Module)] if isinstance(held, dict) else []


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """Returns the global names that a function mentions, with their values."""
    names = function.__globals__
    return {name: names[name] for name in function.__code__.co_names if name in names}


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
