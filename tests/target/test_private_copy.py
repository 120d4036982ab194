"""A private copy computes what the model computes, and nothing done to it reaches the model."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, SGConv, global_add_pool

from nicegnn.target.message_layers import message_layers
from nicegnn.target.private_copy import PrivateCopy
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, take_snapshot


def call(model: nn.Module, graph: Data) -> Tensor:
    with torch.no_grad():
        return model(graph.x, graph.edge_index)


class Model(nn.Module):
    """A GCN that is called in a way given by a subclass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(NUM_FEATURES, 6), GCNConv(6, 6)
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 2)

    def layers(self) -> list[Callable[..., Tensor]]:
        return [self.first, self.second]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers():
            x = self.norm(layer(x, edge_index)).relu()
        return self.head(x.sum(0, keepdim=True))


class Holder:
    """An object that is no module."""

    def __init__(self, *layers: nn.Module) -> None:
        self.one, self.two = layers


class Placed(Model):
    """Keeps its layers somewhere, and finds them there."""

    def __init__(self, place: str) -> None:
        super().__init__()
        first, second = self.first, self.second
        self.held, self.find = {
            "list": ([first, second], lambda held: held),
            "dict": (
                {"a": (first,), "b": [second]},
                lambda held: [held["a"][0], *held["b"]],
            ),
            "functions": (
                [functools.partial(first.forward), lambda x, edges: second(x, edges)],
                lambda held: held,
            ),
            "object": (Holder(first, second), lambda held: [held.one, held.two]),
        }[place]

    def layers(self) -> list[Callable[..., Tensor]]:
        return self.find(self.held)


class Shared(Model):
    def __init__(self) -> None:
        super().__init__()
        self.second = self.third = GCNConv(6, 6)
        self.parent = [self]  # refers to itself

    def layers(self) -> list[Callable[..., Tensor]]:
        return [self.first, self.second, self.third]


class Pruned(Model):
    """Hooks compute the weights before each call."""

    def __init__(self) -> None:
        super().__init__()
        prune.random_unstructured(self.head, "weight", 0.5)
        parametrizations.weight_norm(self.second.lin)


class Patched(Model):
    def __init__(self) -> None:
        super().__init__()
        plain = self.head.forward
        self.head.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
        self.norm.forward = MethodType(lambda self, x: x * self.weight, self.norm)


class CompiledPart(Model):
    def __init__(self) -> None:
        super().__init__()
        self.second = torch.compile(self.second)


PLACES = {name: functools.partial(Placed, name) for name in ("list", "dict", "functions", "object")}
KINDS = [Model, *PLACES.values(), Shared, Pruned, Patched, CompiledPart]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_predicts_the_same_and_never_runs_the_model(
    kind: Callable[[], Model], ring: Data
) -> None:
    model = kind().eval()
    with torch.compiler.set_stance("force_eager"):
        expected = call(model, ring)
        before = take_snapshot(model)
        made = PrivateCopy(model).model
        seen = []
        for module in model.modules():  # hooks on the model, which the copy must not call
            module.register_forward_hook(lambda module, *_: seen.append(module))
        assert torch.equal(call(made, ring), expected)
    assert seen == []
    assert not {id(m) for m in made.modules()} & {id(m) for m in model.modules()}
    assert len(message_layers(made)) == 2
    for module in model.modules():
        module._forward_hooks.clear()
    assert take_snapshot(model) == before


@pytest.mark.parametrize("kind", [Model, Pruned, PLACES["dict"]])
def test_what_is_done_to_the_copy_stays_there(kind: Callable[[], Model], ring: Data) -> None:
    model = kind().train()
    model.log, model.cache = [1], {}
    before = take_snapshot(model)
    made: Any = PrivateCopy(model).model
    assert not any(module.training for module in made.modules())
    call(made, ring)
    made.log.append(2)
    made.cache["key"] = 3
    made.register_forward_hook(lambda *_: None)
    made.first.explain = True
    made.head = nn.Linear(1, 1)
    assert take_snapshot(model) == before
    assert (model.log, model.cache) == ([1], {})


def test_tensors_are_shared_and_hooks_called_with_the_copies(ring: Data) -> None:
    model, seen = Model().eval(), []
    model.head.register_forward_hook(lambda module, *_: seen.append(module))
    made: Any = PrivateCopy(model).model
    mine, theirs = (one.state_dict(keep_vars=True) for one in (model, made))
    assert mine.keys() == theirs.keys()
    assert all(value is theirs[key] for key, value in mine.items())
    with torch.no_grad():
        model.head.bias.add_(1.0)
    out = call(made, ring)
    assert seen == [made.head]
    assert torch.equal(out, call(model, ring))


def test_compiled_models_become_the_model_inside(ring: Data) -> None:
    model = Model().eval()
    assert type(PrivateCopy(torch.compile(model)).model) is Model
    in_place = Model().eval()
    in_place.compile()
    assert torch.equal(call(PrivateCopy(in_place).model, ring), call(model, ring))


@pytest.mark.parametrize("layer", [GCNConv, SGConv])
def test_caches_of_layers_are_forgotten(layer: type[nn.Module], ring: Data, path: Data) -> None:
    torch.manual_seed(0)
    cached, plain = layer(NUM_FEATURES, 2, cached=True), layer(NUM_FEATURES, 2)
    plain.load_state_dict(cached.state_dict())
    call(cached, path)
    kept = cached.cached
    assert torch.equal(call(PrivateCopy(cached).model, ring), call(plain, ring))
    assert cached.cached is kept is True


def test_scripted_parts_are_kept_and_never_switched(ring: Data) -> None:
    model = Model()
    model.head = torch.jit.script(nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.5)))
    model.train()
    made: Any = PrivateCopy(model).model
    assert model.head.training
    assert not made.head.training
    assert torch.equal(call(made, ring), call(model.eval(), ring))


def test_functions_find_the_copy_by_any_name() -> None:
    model = Model().eval()
    made = PrivateCopy(model)
    inner = made.rebound(lambda _, graph: model)
    assert inner(None, None) is made.model
    kept = [1]
    other = made.rebound(lambda: kept)
    kept.append(2)
    assert other() is kept  # what is no module is not copied


def test_a_copy_is_cheap() -> None:
    model, times = GIN(NUM_FEATURES, 2), []
    for _ in range(20):
        start = time.perf_counter()
        PrivateCopy(model)
        times.append(time.perf_counter() - start)
    assert min(times) < 2e-3


def test_lazy_and_pooled_models_work(ring: Data) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GINConv(nn.LazyLinear(4))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return global_add_pool(self.conv(x, edge_index), None)

    model = Pooled()
    call(model, ring)
    assert torch.equal(call(PrivateCopy(model).model, ring), call(model, ring))
