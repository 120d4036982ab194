r"""The floor: operations and bytes of the passes that a method defines, at this machine's peaks.

A pass is one run of the target on one graph. Default NICE needs, for each bond, one pass per draw,
one masked and one without the bond. The paper's needs T x N passes with gradients in the gates,
which double the work because weights are frozen. Boundaries that do not enter the score are not
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from material import Material
from timing import fastest
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICEConfig
from nicegnn.target.message_layers import message_layers

FLOAT = 4  # bytes
CHUNK_ROWS = 20_000  # nodes in one call of the model, about 50,000 directed edges of molecules


@dataclass(frozen=True)
class Layer:
    """Sizes of one message-passing layer."""

    message_size: int  # numbers in a message
    linear: tuple[tuple[int, int], ...]  # input and output size of each linear map

    @property
    def node_madds(self) -> int:
        """Multiply-adds for each node."""
        return sum(a * b for a, b in self.linear)

    @property
    def node_numbers(self) -> int:
        """Numbers read and written for each node: what it received, and each linear map."""
        return self.message_size + sum(a + b for a, b in self.linear)


@dataclass(frozen=True)
class Peaks:
    """What this machine reaches."""

    gemm: float  # multiply-adds per second, square matrices of 1,024
    layer_gemm: float  # multiply-adds per second, at the shapes of the target's linear maps
    copy: float  # bytes read and written per second


def layers_of(model: nn.Module) -> list[Layer]:
    """Returns the sizes of a model's layers."""
    found = []
    for _, layer in message_layers(model):
        maps = [m for m in layer.modules() if isinstance(m, nn.Linear)]
        linear = tuple((m.in_features, m.out_features) for m in maps)
        found.append(Layer(linear[0][0], linear))
    return found


def measure_peaks(layers: Sequence[Layer], device: torch.device, repeats: int = 30) -> Peaks:
    """Times matrix products and a copy."""

    def gemm(rows: int, inner: int, columns: int) -> float:
        a, b = torch.rand(rows, inner, device=device), torch.rand(inner, columns, device=device)
        out = torch.empty(rows, columns, device=device)
        return fastest(lambda: torch.mm(a, b, out=out), device, repeats)

    shapes = [shape for layer in layers for shape in layer.linear]
    seconds = sum(gemm(CHUNK_ROWS, *shape) for shape in shapes)
    source = torch.ones(32 * 2**20, device=device)  # 128 MiB, more than any cache
    target = torch.empty_like(source)
    copied = fastest(lambda: target.copy_(source), device, repeats)
    return Peaks(
        gemm=1024**3 / gemm(1024, 1024, 1024),
        layer_gemm=CHUNK_ROWS * sum(a * b for a, b in shapes) / seconds,
        copy=2 * source.nbytes / copied,
    )


def floors(material: Material, peaks: Peaks, graphs: Sequence[Data]) -> dict[str, Any]:
    """Returns work per graph, and its seconds at the peaks, of default and paper NICE.

    ``changed`` counts only the nodes that damage to one bond reaches, layer by layer, which is
    the least that bond-wise scores need. A fit is counted over all its steps.
    """
    layers, num_train = layers_of(material.model), len(material.train)
    default, paper = NICEConfig(), NICEConfig.paper()
    bonds = torch.tensor([graph.num_edges // 2 for graph in graphs])
    per_bond = default.num_prototypes
    path = 2 * paper.attribution.num_draws * paper.attribution.num_nodes
    fits = {
        name: 2 * config.boundary.steps * min(config.boundary.batch_size, num_train) * draws
        for name, config, draws in (("nice-paper fit", paper, paper.boundary.fit_draws),)
    }
    found = {
        "nice": _work(layers, graphs, per_bond * bonds),
        "nice, changed nodes only": _changed_work(layers, graphs, per_bond),
        "nice-paper": _work(layers, graphs, torch.full_like(bonds, path)),
    }
    found |= {k: _work(layers, graphs, torch.full_like(bonds, n)) for k, n in fits.items()}
    rows = {}
    for name, (madds, moved) in found.items():
        rows[name] = {
            "madds": madds,
            "bytes": moved,
            "seconds_at_gemm_peak": madds / peaks.gemm,
            "seconds_at_layer_shapes": madds / peaks.layer_gemm,
            "seconds_of_copying": moved / peaks.copy,
        }
    return {"peaks": asdict(peaks), "rows": rows}


def _work(layers: Sequence[Layer], graphs: Sequence[Data], passes: Tensor) -> tuple[float, float]:
    """Returns mean multiply-adds and bytes per graph for a number of passes of each, ``[B]``."""
    nodes = torch.tensor([graph.num_nodes for graph in graphs])
    edges = torch.tensor([graph.num_edges for graph in graphs])
    madds = passes * nodes * sum(layer.node_madds for layer in layers)
    numbers = nodes * sum(layer.node_numbers for layer in layers)
    numbers = numbers + edges * sum(2 * layer.message_size for layer in layers)  # and their noise
    return float(madds.double().mean()), float(FLOAT * (passes * numbers).double().mean())


def _changed_work(
    layers: Sequence[Layer], graphs: Sequence[Data], per_bond: int
) -> tuple[float, float]:
    """Like `_work`, for the nodes that one damaged bond reaches, and the messages they send."""
    madds = moved = 0.0
    for graph in graphs:
        nodes, degree = reached_nodes(graph, len(layers))
        for layer, count, sent in zip(layers, nodes, degree, strict=True):
            madds += per_bond * count * layer.node_madds
            numbers = count * layer.node_numbers + sent * 2 * layer.message_size
            moved += FLOAT * per_bond * numbers
    return madds / len(graphs), moved / len(graphs)


def reached_nodes(graph: Data, num_layers: int) -> tuple[list[int], list[int]]:
    """Returns the nodes that damage to a bond changes in each layer, summed over bonds.

    The second list has the messages that such nodes receive. A bond's own ends change in the first
    layer, their neighbours in the second, and so on.
    """
    num_nodes, edge_index = int(graph.num_nodes), graph.edge_index.cpu()
    near = torch.eye(num_nodes)
    near[edge_index[0], edge_index[1]] = 1.0
    degree = torch.bincount(edge_index[1], minlength=num_nodes).float()
    first = edge_index[:, edge_index[0] < edge_index[1]]  # one direction of each bond
    changed = torch.zeros(first.size(1), num_nodes)
    changed.scatter_(1, first.t(), 1.0)  # [M, V]
    nodes, received = [], []
    for _ in range(num_layers):
        nodes.append(int(changed.sum()))
        received.append(int((changed @ degree).sum()))
        changed = (changed @ near > 0).float()
    return nodes, received
