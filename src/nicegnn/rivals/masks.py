"""Masks over directed edges: what predicts them, relaxed samples, and penalties per graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nicegnn.errors import ConfigError, GraphError, TargetError
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import BaselineConfig

LAYERS = ("last", "all")


def edge_states(query: Query, layers: str) -> Tensor:
    r"""Returns what a mask network sees of each directed edge, ``[E, D]``.

    .. math:: [z_u \,\|\, z_v], \qquad [z_u \,\|\, z_v \,\|\, z_r] \text{ in node tasks}

    Symbols: :math:`z` -> node states of the frozen target as its message-passing layers return
    them, of the last layer or of all side by side, ``[V, F]``; :math:`r` -> the explained node.
    """
    case = query.case
    states = query.states[-1:] if layers == "last" else query.states
    for state in states:
        if state.size(0) != case.batch.num_nodes:
            raise TargetError(
                f"A message-passing layer returns {state.size(0)} rows for "
                f"{case.batch.num_nodes} nodes (the model pools nodes), so edges cannot be "
                "described by node states; use an explainer that needs none, gnnexplainer say."
            )
    z = torch.cat(states, dim=1).float()
    u, v = case.batch.edge_index
    parts = [z[u], z[v]]
    if query.target.level == "node":
        parts.append(z[case.rows][case.edge_batch])
    return torch.cat(parts, dim=1)


def edge_state_size(state_sizes: tuple[int, ...], layers: str, level: str) -> int:
    """Returns the width of `edge_states`, for node states of these widths."""
    width = state_sizes[-1] if layers == "last" else sum(state_sizes)
    return width * (3 if level == "node" else 2)


class EdgeMLP(nn.Module):
    r"""A small network that gives each directed edge a number.

    .. math:: \omega_e = w_2^\top \mathrm{ReLU}(W_1 [z_u \| z_v] + b_1) + b_2
    """

    def __init__(self, in_size: int, hidden_size: int) -> None:
        super().__init__()
        self.in_size = in_size
        self.layers = nn.Sequential(
            nn.Linear(in_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1)
        )

    def forward(self, z: Tensor) -> Tensor:
        """Returns one number per row of `z`, ``[E]``."""
        if z.size(1) != self.in_size:
            raise GraphError(
                f"The masks were fitted on edges described by {self.in_size} numbers (got "
                f"{z.size(1)}): explain what fit() was called with, graphs or nodes (`index=`)."
            )
        return self.layers(z).squeeze(1)


def uniform_noise(like: Tensor, seed: int) -> Tensor:
    """Returns one uniform number per entry; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(like.shape, generator=generator).to(like)


def normal_noise(like: Tensor, seed: int) -> Tensor:
    """Returns one normal number per entry; the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator).to(like)


def relax(logit: Tensor, temperature: float, seed: int, margin: float = 0.01) -> Tensor:
    r"""Returns a sample of the concrete distribution before its sigmoid, ``[E]``.

    .. math:: (\log \epsilon - \log(1 - \epsilon) + \omega) / T, \qquad \epsilon \sim U(b, 1 - b)

    Symbols: :math:`\omega` -> ``logit``, ``[E]``; :math:`T` -> ``temperature``; :math:`b` ->
    ``margin``.
    """
    eps = margin + (1 - 2 * margin) * uniform_noise(logit, seed)
    return (eps.log() - (1 - eps).log() + logit) / temperature


def cooled(first: float, last: float, step: int, num_steps: int) -> float:
    r"""Returns the temperature of a step, :math:`T_0 (T_1 / T_0)^{s / S}`."""
    return float(first * (last / first) ** (step / num_steps))


def binary_entropy(mask: Tensor) -> Tensor:
    """Returns the entropy of each mask value in nats; finite slopes at 0 and 1."""
    return -mask * (mask + 1e-15).log() - (1 - mask) * (1 - mask + 1e-15).log()


def reached_edges(case: Case) -> Tensor:
    """Returns which directed edges belong to bonds that can influence the output, ``[E]``."""
    return case.reached[case.bonds.edge_bond]


def share_bonds(case: Case, edge_value: Tensor) -> Tensor:
    """Gives all directed edges of a bond their mean, ``[E]``."""
    return case.bonds.mean(edge_value)[case.bonds.edge_bond]


def graph_sum(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Adds up the values of each graph's counted edges, ``[B]``."""
    zeros = edge_value.new_zeros(case.num_graphs)
    return zeros.index_add(0, case.edge_batch, edge_value * counted)


def graph_mean(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Averages the values of each graph's counted edges, ``[B]``; 0 without any."""
    number = graph_sum(case, torch.ones_like(edge_value), counted)
    return graph_sum(case, edge_value, counted) / number.clamp(min=1)


def check_numbers(
    config: BaselineConfig,
    *,
    positive: tuple[str, ...] = (),
    not_negative: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
) -> None:
    """Raises `ConfigError` for a setting out of range; `whole` ones must be at least 1."""
    for name in positive:
        if not getattr(config, name) > 0:
            raise ConfigError(f"`{name}` must be positive (got {getattr(config, name)!r}).")
    for name in not_negative:
        if not getattr(config, name) >= 0:
            raise ConfigError(f"`{name}` must not be negative (got {getattr(config, name)!r}).")
    for name in whole:
        value = getattr(config, name)
        if type(value) is not int or value < 1:
            raise ConfigError(f"`{name}` must be a whole number of at least 1 (got {value!r}).")


def check_layers(layers: str) -> None:
    """Raises `ConfigError` unless `layers` is known."""
    if layers not in LAYERS:
        raise ConfigError(f"`layers` must be one of {LAYERS} (got {layers!r}).")
