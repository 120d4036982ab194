"""Finding the message-passing layers of a model: the seam for other kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from nicegnn.errors import InterventionError


def message_layers(model: nn.Module) -> list[tuple[str, MessagePassing]]:
    """Returns the message-passing layers of `model` by name, or says why there are none."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise InterventionError(
            f"{type(model).__name__} copies the model per device, out of reach of an intervention; "
            "pass the wrapped model, `model.module`."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise InterventionError(
            "A scripted model (torch.jit) cannot be intervened on; pass the Python model it was "
            "scripted from."
        )
    modules = list(unwrap(model).named_modules())
    for name, module in modules:
        if isinstance(module, torch.jit.ScriptModule) and hasattr(module, "propagate"):
            raise InterventionError(
                f"Layer '{name}' is scripted (torch.jit) and out of reach; put the Python layer "
                "it was scripted from in its place."
            )
    layers = [(name, module) for name, module in modules if isinstance(module, MessagePassing)]
    if not layers:
        raise InterventionError(
            f"The model {type(model).__name__} has no torch_geometric MessagePassing layer, so it "
            "sends no messages that could be explained."
        )
    return layers


def unwrap(model: nn.Module) -> nn.Module:
    """Returns the Python model behind ``torch.compile``, which is what runs eagerly."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


@contextmanager
def eager() -> Iterator[None]:
    """Makes compiled models and functions run eagerly, so that hooks are not skipped."""
    with torch.compiler.set_stance("force_eager"):
        yield


def message_flow(model: nn.Module) -> str:
    """Returns PyG's flow of the model: ``source_to_target`` or ``target_to_source``."""
    return str(message_layers(model)[0][1].flow)
