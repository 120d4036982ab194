"""Penalties of masks, per graph: their size and their entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.graph.case import Case


def binary_entropy(mask: Tensor) -> Tensor:
    """Returns the entropy of each mask value in nats; its slope is finite at 0 and 1."""
    return -mask * (mask + 1e-15).log() - (1 - mask) * (1 - mask + 1e-15).log()


def reached_edges(case: Case) -> Tensor:
    """Returns which directed edges belong to bonds that can influence the output, ``[E]``."""
    return case.reached[case.bonds.edge_bond]


def graph_sum(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Adds up the values of each graph's counted edges, ``[B]``."""
    zeros = edge_value.new_zeros(case.num_graphs)
    return zeros.index_add(0, case.edge_batch, edge_value * counted)


def graph_mean(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Averages the values of each graph's counted edges, ``[B]``; 0 without any."""
    number = graph_sum(case, torch.ones_like(edge_value), counted)
    return graph_sum(case, edge_value, counted) / number.clamp(min=1)


def add_penalties(
    loss: Tensor,
    case: Case,
    mask: Tensor,
    counted: Tensor,
    *,
    size: float,
    entropy: float,
    margin: float = 0.0,
) -> Tensor:
    r"""Adds the penalties of each graph's mask to its loss, ``[B]``.

    .. math:: L_G + a \sum_e m_e + \frac{b}{|E|} \sum_e H\big((1 - 2 \delta)\, m_e + \delta\big)

    Symbols: :math:`L_G` -> ``loss``, ``[B]``; :math:`m` -> ``mask``, ``[E]``; :math:`a, b` ->
    ``size``, ``entropy``; :math:`\delta` -> ``margin``; sums and :math:`|E|` -> edges that are
    ``counted``, bool ``[E]``.
    """
    loss = loss + size * graph_sum(case, mask, counted)
    bits = binary_entropy((1 - 2 * margin) * mask + margin)
    return loss + entropy * graph_mean(case, bits, counted)
