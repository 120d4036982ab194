"""How time grows with graphs, bonds, draws, layers and width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contenders import make_explainer
from material import Material, chained
from timing import cost
from torch import nn
from torch_geometric.data import Batch, Data

from nicegnn.explain.explainer import Explainer
from nicegnn.target.zoo import GIN

_FIT = {"boundary__steps": 1, "boundary__batch_size": 16}


@dataclass(frozen=True)
class Sweep:
    """Values of each number that is varied; all others stay as they are."""

    graphs: tuple[int, ...] = (8, 16, 32, 64, 128)  # explained in one batch
    bonds: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)  # of one graph
    draws: tuple[int, ...] = (4, 8, 16, 32, 64)
    layers: tuple[int, ...] = (2, 3, 4, 6, 8)
    width: tuple[int, ...] = (16, 32, 64, 128, 256)
    num_graphs: int = 32  # in a batch, where draws, layers and width grow


def slope(points: Mapping[int, float]) -> float:
    """Returns the exponent b of the least-squares fit of ``seconds = a * number ** b``.

    >>> slope({1: 3.0, 2: 12.0, 4: 48.0})
    2.0
    """
    x = [math.log(number) for number in points]
    y = [math.log(seconds) for seconds in points.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mean_x) ** 2 for a in x)


def growth(name: str, material: Material, sweep: Sweep, repeats: int) -> dict[str, dict[str, Any]]:
    """Returns for each varied number its slope in log-log, and seconds and peak bytes by value.

    ``end_slope`` is that of the last two points, where what every call costs matters least.
    """
    found: dict[str, dict[str, Any]] = {}
    for axis in ("graphs", "bonds", "draws", "layers", "width"):
        seconds, memory = dict[int, float](), dict[int, int]()
        for number, explainer, graphs in _cases(axis, name, material, sweep):
            batch = Batch.from_data_list(graphs)
            measured = cost(partial(explainer.explain, batch), material.device, repeats)
            seconds[number], memory[number] = measured.seconds, measured.memory
        if len(seconds) > 1:
            last = dict(list(seconds.items())[-2:])
            found[axis] = {"slope": slope(seconds), "end_slope": slope(last)}
            found[axis] |= {"seconds": seconds, "memory": memory}
    return found


def _cases(
    axis: str, name: str, material: Material, sweep: Sweep
) -> Iterator[tuple[int, Explainer, list[Data]]]:
    """Yields each value with the explainer and the graphs to time."""
    test, train, model = material.test, material.train, material.model
    some = _repeated(test, sweep.num_graphs)
    values: tuple[int, ...] = getattr(sweep, axis)
    if axis == "draws" and not hasattr(make_explainer(name, model, train).config, "attribution"):
        return
    plain = _ready(name, model, train) if axis in ("graphs", "bonds") else None
    for number in values:
        if plain is not None:
            is_batch = axis == "graphs"
            graphs = _repeated(test, number) if is_batch else [chained(test, number)]
            yield sum(g.num_edges // 2 for g in graphs) if not is_batch else number, plain, graphs
        elif axis == "draws":
            draws = {"attribution__num_draws": number, "boundary__num_draws": number}
            yield number, _ready(name, model, train, **draws), some
        else:
            size: dict[str, Any] = {"num_layers" if axis == "layers" else "hidden_size": number}
            other = GIN(test[0].num_node_features, 2, **size).to(material.device).eval()
            yield number, _ready(name, other, train), some


def _ready(name: str, model: nn.Module, train: Sequence[Data], **settings: Any) -> Explainer:
    """Returns an explainer after one step of its fit, which costs as much as after all steps."""
    explainer = make_explainer(name, model, train, **settings)
    config: Any = explainer.config
    if not getattr(config, "needs_boundary", False):
        return explainer
    return make_explainer(name, model, train, **_FIT, **settings).fit(train[:16], progress=False)


def _repeated(graphs: list[Data], number: int) -> list[Data]:
    return [graphs[place % len(graphs)] for place in range(number)]
