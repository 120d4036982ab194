"""Tiny seeded graphs, and a snapshot of all that an explanation must leave as it found it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from nicegnn.cli.main import app
from nicegnn_lab.cli.main import app as laboratory

NUM_FEATURES, NUM_EDGE_FEATURES = 5, 3

if all(group.name != "lab" for group in app.registered_groups):  # it is here, but not installed
    app.add_typer(laboratory, name="lab")


def make_graph(
    bonds: list[tuple[int, int]], num_nodes: int, seed: int, dtype: torch.dtype = torch.float32
) -> Data:
    """Returns a graph with both directions of each bond side by side and random features."""
    generator = torch.Generator().manual_seed(seed)
    pairs = [pair for u, v in bonds for pair in ((u, v), (v, u))]
    edge_index = torch.tensor(pairs, dtype=torch.long).view(-1, 2).t().contiguous()
    return Data(
        x=torch.randn(num_nodes, NUM_FEATURES, generator=generator, dtype=dtype),
        edge_index=edge_index,
        edge_attr=torch.randn(len(pairs), NUM_EDGE_FEATURES, generator=generator, dtype=dtype),
        y=torch.tensor([seed % 2]),
    )


def random_graph(num_nodes: int, seed: int, dtype: torch.dtype = torch.float32) -> Data:
    """Returns a connected graph: a random tree with a few bonds more."""
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    bonds = {(below(v), v) for v in range(1, num_nodes)}
    for _ in range(num_nodes // 2):
        u, v = sorted((below(num_nodes), below(num_nodes)))
        if u != v:
            bonds.add((u, v))
    return make_graph(sorted(bonds), num_nodes, seed, dtype)


@pytest.fixture
def path() -> Data:
    """0-1-2-3."""
    return make_graph([(0, 1), (1, 2), (2, 3)], 4, seed=1)


@pytest.fixture
def ring() -> Data:
    """A ring of five, 0 to 4, with the tail 4-5-6."""
    return make_graph([(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (4, 5), (5, 6)], 7, seed=2)


@pytest.fixture
def isolated() -> Data:
    """0-1-2 and node 3 without any bond."""
    return make_graph([(0, 1), (1, 2)], 4, seed=3)


@pytest.fixture
def graphs() -> list[Data]:
    """Five connected graphs of different sizes."""
    return [random_graph(size, seed) for seed, size in enumerate((4, 6, 3, 8, 5))]


@pytest.fixture
def graphs64() -> list[Data]:
    """The same graphs with float64 features, for finite differences."""
    return [random_graph(size, seed, torch.float64) for seed, size in enumerate((4, 6, 3, 8, 5))]


@pytest.fixture
def batch(graphs: list[Data]) -> Batch:
    """Five connected graphs in one batch."""
    return Batch.from_data_list(graphs)


class Same:
    """Equal to nothing but the very same object, which it keeps alive."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__} at {id(self.value):#x}>"


def _inside(value: object) -> object:
    """Returns what a container holds, object by object."""
    if isinstance(value, dict):
        return {key: Same(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [Same(item) for item in value]
    return None


def take_snapshot(model: nn.Module) -> dict[str, Any]:
    """Returns everything about a model that must be as before; compare two with ``==``."""
    parameters = {
        name: (
            p.requires_grad,
            Same(p.grad),
            None if p.grad is None else p.grad.numpy().tobytes(),
        )
        for name, p in model.named_parameters()
    }
    modules = {}
    for name, module in model.named_modules():
        held = vars(module)
        modules[name] = {
            "attributes": {key: Same(value) for key, value in held.items()},
            "contents": {key: _inside(value) for key, value in held.items()},  # hooks among them
            "class": {key: Same(value) for key, value in vars(type(module)).items()},
            "training": module.training,
            "explain": getattr(module, "_explain", "no layer"),
            "signatures": (
                _inside(module.inspector._signature_dict) if hasattr(module, "inspector") else None
            ),
        }
    return {
        "state": {
            key: value.detach().cpu().contiguous().numpy().tobytes()
            for key, value in model.state_dict().items()
        },
        "parameters": parameters,
        "modules": modules,
    }


@pytest.fixture
def snapshot() -> Callable[[nn.Module], dict[str, Any]]:
    """The function that takes a snapshot of a model."""
    return take_snapshot


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, which asks for nothing by itself."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium")
    options = (
        *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update"),
    )
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=list(options))
        yield started
        started.close()
