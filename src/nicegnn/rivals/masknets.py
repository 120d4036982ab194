"""Mask networks of ReFine: one per class, as stacked weights, so that graphs need no loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nicegnn.errors import GraphError
from nicegnn.graph.case import edge_slots
from nicegnn.intervention.query import Query

_MOMENTUM, _EPS = 0.1, 1e-5  # of the normalisation, as in torch


class Rows:
    """Rows in groups, and linear maps with weights of each group's own.

    Args:
        group: group of each row, ``[R]``.
    """

    def __init__(self, group: Tensor, num_groups: int) -> None:
        self.group = group
        self.slot = edge_slots(group, num_groups)
        self.width = int(self.slot.max()) + 1 if group.numel() else 0

    def linear(self, value: Tensor, weight: Tensor) -> Tensor:
        """Maps rows ``[R, I]`` by their group's weight, ``[K, I, O]``, to ``[R, O]``."""
        padded = value.new_zeros(weight.size(0), self.width, value.size(1))
        padded = padded.index_put((self.group, self.slot), value)
        return torch.bmm(padded, weight)[self.group, self.slot]


@dataclass(frozen=True)
class MaskInputs:
    """What mask networks see of a batch.

    Attributes:
        x: node features, ``[V, F]``.
        edge_index: directed edges, ``[2, E]``.
        edge_attr: edge features, ``[E, D]``.
        label: class of each group of graphs, ``[K]``.
        nodes: group of each node.
        edges: group of each directed edge.
    """

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    label: Tensor
    nodes: Rows
    edges: Rows


def features_of(query: Query) -> tuple[Tensor, Tensor | None]:
    """Returns node features ``[V, F]`` and, where graphs have them, edge features ``[E, D]``.

    Graphs without ``x`` are described by the states of the target's first layer.
    """
    batch = query.case.batch
    x, edge_attr = batch.get("x"), batch.get("edge_attr")
    x = x if isinstance(x, Tensor) else query.states[0]
    x = x.float().reshape(batch.num_nodes, -1)
    if isinstance(edge_attr, Tensor):
        return x, edge_attr.float().reshape(query.case.num_edges, -1)
    return x, None


def mask_inputs(query: Query, net: MaskNetworks, group: Tensor, label: Tensor) -> MaskInputs:
    """Reads what the networks need of a batch, and checks that it fits them.

    Args:
        group: group of each graph, ``[B]``; graphs of a group share their weights.
        label: class of each group, ``[K]``.
    """
    case, batch, num_groups = query.case, query.case.batch, label.numel()
    x, edge_attr = features_of(query)
    if net.edge_size == 0:
        edge_attr = None
    found = (x.size(1), 0 if edge_attr is None else edge_attr.size(1))
    if found != (net.node_size, net.edge_size):
        raise GraphError(
            f"The masks were fitted on graphs with {net.node_size} node and {net.edge_size} edge "
            f"features (got {found[0]} and {found[1]}): explain graphs like those of fit()."
        )
    nodes = Rows(group[batch.batch], num_groups)
    edges = Rows(group[case.edge_batch], num_groups)
    return MaskInputs(x, batch.edge_index, edge_attr, label, nodes, edges)


class MaskNetworks(nn.Module):
    r"""One mask network per class; gives each directed edge the logit of its mask.

    .. math:: h^0 = \mathrm{ReLU}(x W_0), \qquad
        h^l = \mathrm{Norm}\big(\mathrm{ReLU}(\hat A h^{l-1} W_l + h^{l-1} V_l)\big), \quad l = 1, 2

    .. math:: e = [h_u \| h_v] \;\text{ or }\; [(h_u \| h_v) W_e \,\|\, a_{uv} W_a], \qquad
        \omega = \tanh(e W_3) w_4

    Symbols: :math:`x` -> node features, ``[V, F]``; :math:`a` -> edge features, ``[E, D]``, the
    second form where there are any; :math:`\hat A` -> adjacency divided by the square roots of both
    degrees. All maps have biases. The layer is PyG's ``ARMAConv`` with one stack.

    Args:
        num_classes: number of networks.
        node_size: columns of ``x``.
        edge_size: columns of ``edge_attr``, 0 without.
        hidden_size: width.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, num_classes: int, node_size: int, edge_size: int, hidden_size: int) -> None:
        super().__init__()
        self.node_size, self.edge_size = node_size, edge_size
        width = hidden_size
        sizes = {"enter": (node_size, width)}
        for layer in range(2):
            sizes |= {f"spread{layer}": (width, width), f"root{layer}": (width, width)}
        if edge_size:
            sizes |= {"ends": (2 * width, width), "edge": (edge_size, width)}
        sizes |= {"hidden": (2 * width, width), "out": (width, 1)}
        self.stacked = nn.ParameterDict()
        for name, (rows, columns) in sizes.items():
            weight = torch.empty(num_classes, rows, columns)
            for one in weight:
                nn.init.xavier_uniform_(one)
            self.stacked[name] = nn.Parameter(weight)
            if not name.startswith("spread"):
                self.stacked[f"{name}_bias"] = nn.Parameter(torch.zeros(num_classes, columns))
        for layer in range(2):
            self.stacked[f"scale{layer}"] = nn.Parameter(torch.ones(num_classes, width))
            self.stacked[f"shift{layer}"] = nn.Parameter(torch.zeros(num_classes, width))
        self.register_buffer("mean", torch.zeros(2, num_classes, width))
        self.register_buffer("var", torch.ones(2, num_classes, width))

    @property
    def num_classes(self) -> int:
        return self.mean.size(1)

    def weights(self) -> dict[str, Tensor]:
        """Returns all weights by name, each with one row per class."""
        return dict(self.stacked.items())

    def forward(self, inputs: MaskInputs, weights: Mapping[str, Tensor]) -> Tensor:
        """Returns the mask's logit of each directed edge, ``[E]``.

        Args:
            weights: as `weights` returns them, with one row per group of the inputs.
        """
        nodes, edges = inputs.nodes, inputs.edges

        def linear(name: str, rows: Rows, value: Tensor) -> Tensor:
            return rows.linear(value, weights[name]) + weights[f"{name}_bias"][rows.group]

        u, v = inputs.edge_index
        h = linear("enter", nodes, inputs.x).relu()  # [V, H]
        norm = symmetric_norm(inputs.edge_index, h.size(0)).to(h.dtype).unsqueeze(1)
        for layer in range(2):
            sent = nodes.linear(h, weights[f"spread{layer}"])
            spread = torch.zeros_like(sent).index_add(0, v, norm * sent[u])
            h = (spread + linear(f"root{layer}", nodes, h)).relu()
            h = self._normalise(layer, h, inputs.label[nodes.group])
            h = h * weights[f"scale{layer}"][nodes.group] + weights[f"shift{layer}"][nodes.group]
        e = torch.cat([h[u], h[v]], dim=1)
        if inputs.edge_attr is not None:
            e = torch.cat([linear("ends", edges, e), linear("edge", edges, inputs.edge_attr)], 1)
        return linear("out", edges, linear("hidden", edges, e).tanh()).squeeze(1)

    def _normalise(self, layer: int, h: Tensor, label: Tensor) -> Tensor:
        """Standardises rows by the statistics of their class: the batch's while training."""
        mean, var = self.mean[layer], self.var[layer]  # [C, H]
        if self.training:
            number = torch.bincount(label, minlength=mean.size(0)).unsqueeze(1)
            many = number > 1  # one row has no spread
            total = torch.zeros_like(mean).index_add(0, label, h)
            here = total / number.clamp(min=1)
            square = torch.zeros_like(mean).index_add(0, label, (h - here[label]).square())
            with torch.no_grad():
                unbiased = square / (number - 1).clamp(min=1)
                mean.copy_(torch.where(many, mean.lerp(here, _MOMENTUM), mean))
                var.copy_(torch.where(many, var.lerp(unbiased, _MOMENTUM), var))
            mean = torch.where(many, here, mean.clone())
            var = torch.where(many, square / number.clamp(min=1), var.clone())
        return (h - mean[label]) * (var[label] + _EPS).rsqrt()


def symmetric_norm(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""Returns :math:`1 / \sqrt{d_u d_v}` of each directed edge, degrees by arriving edges."""
    u, v = edge_index
    degree = torch.bincount(v, minlength=num_nodes).float()
    inverse = torch.where(degree > 0, degree, 1.0).rsqrt() * (degree > 0)
    return inverse[u] * inverse[v]
