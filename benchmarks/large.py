"""Times explanations of one large graph, and of nodes of a large graph, in one run.

    python benchmarks/large.py                  # up to 10,000 bonds and 100,000 edges
    python benchmarks/large.py --full           # up to 100,000 bonds and 1,000,000 edges
    python benchmarks/large.py --chunks         # seconds by the size of chunks

Graphs are chains of six-membered rings, as flat as molecules (``rings``), or have random edges,
ten per node (``random``). Targets are a GIN 3x32 with random weights, and a GCN of two layers for
nodes: time does not depend on what they have learned.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from timing import Call, cost, machine, peak_memory, stopwatch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv

from nicegnn import NICE, NICEConfig
from nicegnn.target.zoo import GCN, GIN, device_of

WIDTH = 8  # node features


def rings(num_bonds: int, seed: int = 0) -> Data:
    """Returns a chain of six-membered rings with about `num_bonds` bonds."""
    number = max(1, num_bonds // 7)
    place = 6 * torch.arange(number).repeat_interleave(6)  # first node of each node's ring
    step = torch.arange(6).repeat(number)
    inside = torch.stack([place + step, place + (step + 1) % 6])
    link = 6 * torch.arange(number - 1)
    between = torch.stack([link + 3, link + 6])
    return _graph(torch.cat([inside, between], dim=1), 6 * number, seed)


def scattered(num_edges: int, seed: int = 0) -> Data:
    """Returns a graph of random bonds, with ten directed edges per node."""
    generator = torch.Generator().manual_seed(seed)
    num_nodes = num_edges // 10
    ends = torch.randint(num_nodes, (2, num_edges // 2), generator=generator)
    return _graph(ends[:, ends[0] != ends[1]], num_nodes, seed)


def _graph(ends: Tensor, num_nodes: int, seed: int) -> Data:
    x = torch.randn(num_nodes, WIDTH, generator=torch.Generator().manual_seed(seed))
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1))


def slope(points: Mapping[int, float]) -> float:
    """Returns the exponent b of the least-squares fit of ``seconds = a * number ** b``."""
    x = [math.log(number) for number in points]
    y = [math.log(seconds) for seconds in points.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mean_x) ** 2 for a in x)


class NodeNet(nn.Module):
    """Layers that answer for each node."""

    def __init__(self, kind: str, num_layers: int) -> None:
        super().__init__()
        sizes = [WIDTH] + [32] * num_layers
        make = {"gcn": GCNConv, "gin": lambda a, b: GINConv(nn.Linear(a, b))}[kind]
        self.convs = nn.ModuleList(make(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(x)


def explainers(device: torch.device) -> dict[str, NICE]:
    """Returns what is timed: the default, and the paper's method after a fit of two steps."""
    torch.manual_seed(0)
    gin, gcn = GIN(WIDTH, 2).to(device).eval(), GCN(WIDTH, 2).to(device).eval()
    known = [rings(30, seed) for seed in range(8)]
    short = NICEConfig.paper().with_(boundary__steps=2, boundary__batch_size=4)
    return {
        "gin": NICE(gin, background=known),
        "gcn": NICE(gcn, background=known),
        "gin, paper": NICE(gin, short).fit(known, progress=False),
    }


def once(call: Call, device: torch.device, name: str = "") -> dict[str, float]:
    """Returns the cost of a single call; processor seconds hardly depend on other work."""
    seconds, before = list[float](), time.process_time()
    memory = peak_memory(lambda: seconds.append(stopwatch(call, device)), device)
    used = time.process_time() - before
    found = {"seconds": seconds[0], "processor": used, "peak_mib": memory / 2**20}
    return {name + key: value for key, value in found.items()}


def of_graphs(sizes: Sequence[int], device: torch.device, only: str) -> Iterator[dict[str, Any]]:
    """Yields the cost of one graph by its bonds, and how it grows."""
    for name, nice in explainers(device).items():
        if only not in name:
            continue
        seconds = dict[int, float]()
        nice.explain(rings(30))
        for size in sizes:
            graph = rings(size).to(device)
            bonds = graph.num_edges // 2
            found = once(partial(nice.explain, graph), device)
            seconds[bonds] = found["processor" if device.type == "cpu" else "seconds"]
            yield {"task": "graph", "explainer": name, "bonds": bonds} | found
        if len(seconds) > 1:
            last = dict(list(seconds.items())[-2:])
            yield {"explainer": name, "slope": slope(seconds), "end_slope": slope(last)}


def of_nodes(sizes: Sequence[int], device: torch.device) -> Iterator[dict[str, Any]]:
    """Yields the cost of one node, another one, and ten, by the graph's edges."""
    torch.manual_seed(0)
    for kind, num_layers, make in (
        ("gcn", 3, lambda edges: rings(edges // 2)),
        ("gin", 3, lambda edges: rings(edges // 2)),
        ("gcn", 2, scattered),
    ):
        model = NodeNet(kind, num_layers).to(device).eval()
        for size in sizes:
            graph, nice = make(size).to(device), NICE(model)
            row: dict[str, Any] = {"task": "node", "target": f"{kind} {num_layers}"}
            row |= {"edges": graph.num_edges, "nodes": graph.num_nodes}
            for name, nodes in (("first", [7]), ("next", [100]), ("ten", list(range(200, 210)))):
                row |= once(partial(nice.explain, graph, index=nodes), device, f"{name} ")
            yield row


def of_chunks(device: torch.device, repeats: int) -> Iterator[dict[str, Any]]:
    """Yields seconds for a graph of 1,000 bonds by ``chunk_edges``."""
    torch.manual_seed(0)
    graph = rings(1000).to(device)
    for width in (32, 128):
        model = GIN(WIDTH, 2, hidden_size=width).to(device).eval()
        for size in (3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 4_000_000):
            config = NICEConfig(chunk_edges=size)
            found = cost(partial(NICE(model, config).explain, graph), device, repeats)
            row = {"task": "chunks", "width": width, "chunk_edges": size}
            yield row | {"seconds": found.seconds, "peak_mib": found.memory / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="up to 1e5 bonds and 1e6 edges")
    parser.add_argument("--only", choices=("graphs", "nodes"), help="one part alone")
    parser.add_argument("--chunks", action="store_true", help="only the size of chunks")
    parser.add_argument("--explainer", default="", help="only those whose name has this in it")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", help="by default cuda where there is one")
    parser.add_argument("--out", type=Path, help="file for the rows, one JSON object per line")
    asked = parser.parse_args()
    device = device_of(asked.device)
    print(machine(device))
    bonds = (100, 1_000, 10_000, 100_000) if asked.full else (100, 1_000, 10_000)
    edges = (10_000, 100_000, 1_000_000) if asked.full else (10_000, 100_000)
    parts = []
    if asked.chunks:
        parts = [of_chunks(device, asked.repeats)]
    else:
        if asked.only != "nodes":
            parts.append(of_graphs(bonds, device, asked.explainer))
        if asked.only != "graphs":
            parts.append(of_nodes(edges, device))
    for part in parts:
        for row in part:
            print(", ".join(f"{k} {_short(v)}" for k, v in row.items()), flush=True)
            if asked.out is not None:
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
