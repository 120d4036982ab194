"""The student network: predicts the score of each bond, and its error, from the target's states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nicegnn.errors import GraphError
from nicegnn.intervention.query import Query

_ERRORS = -5.0, 1.0  # logarithms of the smallest and largest error; values have spread 1
_HIDDEN = 64  # width of the network
_ROUNDS = 2  # in which bonds hear from their neighbours
_CLAMP = 10.0  # spreads; states further out than that are cut


@dataclass(frozen=True)
class BondView:
    """What the student reads of a batch; one clean pass of the target gives it."""

    state: Tensor  # states of each node: input and all layers, [V, D]
    home: Tensor  # graph of each node, [V]
    ends: Tensor  # the two nodes of each bond, [2, M]
    edge: Tensor  # mean ``edge_attr`` of each bond if the model reads it, [M, K]
    label: Tensor  # explained class of each graph, counted from 1; 0 for all outputs, [B]

    @property
    def graph(self) -> Tensor:
        """Graph of each bond, ``[M]``."""
        return self.home[self.ends[0]]


def view_bonds(query: Query) -> BondView:
    """Returns what the student reads of a query."""
    case, batch, states = query.case, query.case.batch, list(query.states)
    if isinstance(batch.get("x"), Tensor):
        x = batch.x.flatten(1) if batch.x.dim() > 1 else batch.x.unsqueeze(1)
        states.insert(0, x.nan_to_num(0, 0, 0))  # a model that does not read x may have NaN there
    state = torch.cat([one.to(query.clean.dtype) for one in states], dim=1)
    edge, edge_attr = query.clean.new_zeros(case.bonds.batch.numel(), 0), batch.get("edge_attr")
    if isinstance(edge_attr, Tensor) and query.target.may_read("edge_attr"):
        feature = edge_attr.flatten(1) if edge_attr.dim() > 1 else edge_attr.unsqueeze(1)
        edge = case.bonds.mean(feature.to(edge.dtype).t()).t()
    return BondView(state, batch.batch, case.bonds.index, edge, query.explained + 1)


class StudentNetwork(nn.Module):
    r"""Predicts the loss of each bond, compressed, and the error of that.

    .. math:: e_{uv} = \phi\big(A (h_u + h_v) + B |h_u - h_v| + C \bar h_G + D a_{uv} + c_y\big),
        \qquad
        e_{uv} \leftarrow e_{uv} + \phi\big(P n_{uv} + Q (\bar n_u + \bar n_v) + R \bar n_G +
        c'_y\big)

    Symbols: :math:`h` -> ``state`` of a `BondView`, ``[V, D]``, standardised; :math:`a` ->
    ``edge``; :math:`n` -> :math:`e` normalised to mean 0 and spread 1;
    :math:`\bar n_u, \bar n_G` -> means over the bonds of a node and of a graph; :math:`y` ->
    ``label``. The second line runs twice. It tells a bond what its neighbours and its graph are
    like. A linear map of :math:`n_{uv}` for each class, of which there are ``num_labels`` with the
    0 of a `BondView`, gives the value :math:`t` and the logarithm of its error; a loss is
    :math:`s = u \sinh(c + d\, t)`, with ``unit``, ``centre`` and ``spread``.
    """

    mean: Tensor  # of the inputs, [D + K]
    scale: Tensor  # spread of the inputs, [D + K]
    taught: Tensor  # classes that were taught, [C + 1]
    factor: Tensor  # makes the error bars of a class cover what they say, [C + 1]
    limit: Tensor  # error above which a graph counts as uncertain, a number
    unit: Tensor  # losses beyond it are compressed, a number
    centre: Tensor  # mean of compressed losses, a number
    spread: Tensor  # spread of compressed losses, a number

    def __init__(self, state_size: int, edge_size: int, num_labels: int) -> None:
        super().__init__()
        self.shape = {"state_size": state_size, "edge_size": edge_size, "num_labels": num_labels}
        self.register_buffer("mean", torch.zeros(state_size + edge_size))
        self.register_buffer("scale", torch.ones(state_size + edge_size))
        self.register_buffer("taught", torch.zeros(num_labels, dtype=torch.bool))
        self.register_buffer("factor", torch.ones(num_labels))
        self.register_buffer("limit", torch.tensor(torch.inf))
        for name, value in (("unit", 1.0), ("centre", 0.0), ("spread", 1.0)):
            self.register_buffer(name, torch.tensor(value))
        self.first = nn.Linear(state_size, _HIDDEN, bias=False)
        self.gap = nn.Linear(state_size, _HIDDEN, bias=False)
        self.context = nn.Linear(state_size, _HIDDEN, bias=False)
        self.edge = nn.Linear(edge_size, _HIDDEN, bias=False) if edge_size else None
        self.rounds = nn.ModuleList(_Round(_HIDDEN) for _ in range(_ROUNDS))
        self.offset = nn.Parameter(torch.zeros(_ROUNDS + 1, num_labels, _HIDDEN))
        self.norm = nn.LayerNorm(_HIDDEN)
        self.last = nn.Linear(_HIDDEN, 2 * num_labels)

    def standardise(self, view: BondView, loss: Tensor) -> None:
        """Fixes mean and spread of the inputs, and how losses are compressed, from a sample."""
        size = view.state.size(1)
        for part, value in ((slice(size), view.state), (slice(size, None), view.edge)):
            if value.numel():
                self.mean[part] = value.mean(0)
                self.scale[part] = value.std(0, unbiased=False).clamp(min=1e-6)
        self.unit.copy_(loss.abs().mean().clamp(min=1e-6))
        small = (loss / self.unit).asinh()
        self.centre.copy_(small.mean())
        self.spread.copy_(small.std(unbiased=False).clamp(min=1e-6))

    def compressed(self, loss: Tensor) -> Tensor:
        """Returns the values that stand for losses, with mean 0 and spread 1 over the sample."""
        return ((loss / self.unit).asinh() - self.centre) / self.spread

    def losses(self, value: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the losses that values stand for, and their errors."""
        small = self.centre + self.spread * value
        return self.unit * small.sinh(), self.unit * self.spread * small.cosh() * error

    def forward(self, view: BondView) -> tuple[Tensor, Tensor]:
        """Returns the value of each bond and the logarithm of its error, ``[M]`` each."""
        size, edge_size = view.state.size(1), view.edge.size(1)
        wanted = self.shape["state_size"], self.shape["edge_size"]
        if (size, edge_size) != wanted:
            raise GraphError(
                f"Nodes and bonds must be described by {wanted[0]} and {wanted[1]} numbers (got "
                f"{size} and {edge_size}). Explain graphs with the features of those in teach()."
            )
        h = ((view.state - self.mean[:size]) / self.scale[:size]).clamp(-_CLAMP, _CLAMP)  # [V, D]
        (u, v), graph = view.ends, view.graph
        num_nodes, num_graphs = h.size(0), view.label.numel()
        degree = _count(view.ends.reshape(-1), num_nodes, h)  # bonds of each node, [V, 1]
        atoms, number = (_count(where, num_graphs, h) for where in (view.home, graph))  # [B, 1]
        mean_state = _sum(h, view.home, num_graphs) / atoms  # [B, D]
        first = self.first(h)
        e = first[u] + first[v] + self.gap((h[u] - h[v]).abs())  # [M, H]
        e = e + (self.context(mean_state) + self.offset[0][view.label])[graph]
        if self.edge is not None:
            e = e + self.edge((view.edge - self.mean[size:]) / self.scale[size:])
        e = e.relu()
        for one, offset in zip(self.rounds, self.offset[1:], strict=True):
            e = one(e, view, degree, number, offset[view.label])
        out = self.last(self.norm(e)).view(e.size(0), self.taught.numel(), 2)  # [M, C + 1, 2]
        chosen = view.label[graph].view(-1, 1, 1).expand(-1, 1, 2)
        value, raw = out.gather(1, chosen).squeeze(1).unbind(1)
        low, high = _ERRORS
        return value, low + (high - low) * (raw + 1).sigmoid()


class _Round(nn.Module):
    """A round in which bonds hear from their neighbours and from their graph."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.own, self.near, self.whole = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(
        self, e: Tensor, view: BondView, degree: Tensor, number: Tensor, offset: Tensor
    ) -> Tensor:
        """Returns new states of the bonds, ``[M, H]``, with offsets by graph, ``[B, H]``."""
        (u, v), graph, n = view.ends, view.graph, self.norm(e)
        near = self.near(_sum(n, u, degree.size(0)).index_add(0, v, n) / degree)  # [V, H]
        whole = self.whole(_sum(n, graph, number.size(0)) / number) + offset  # [B, H]
        return e + (self.own(n) + near[u] + near[v] + whole[graph]).relu()


def _sum(value: Tensor, where: Tensor, number: int) -> Tensor:
    return value.new_zeros(number, value.size(1)).index_add(0, where, value)


def _count(where: Tensor, number: int, like: Tensor) -> Tensor:
    """Returns how many items each place has, at least 1, ``[number, 1]``."""
    return _sum(like.new_ones(where.numel(), 1), where, number).clamp(min=1)
