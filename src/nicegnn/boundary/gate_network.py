"""The gate network, a small MLP over bond representations of the frozen target."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nicegnn.config import BoundaryConfig
from nicegnn.errors import GraphError
from nicegnn.intervention.query import Query


def bond_representation(query: Query) -> Tensor:
    r"""Returns the input of the gate network for each directed edge, ``[E, D]``.

    .. math:: z_{uv} = [\, h_u,\; h_v \,]

    Symbols: :math:`h` -> node states of the last layer of the frozen target.
    """
    h = query.states[-1].to(query.clean.dtype)
    return h[query.case.batch.edge_index].transpose(0, 1).flatten(1)


class GateNetwork(nn.Module):
    r"""Maps the bonds of a query to the logits of their restoration gates.

    .. math:: \rho_e = \sigma\Big(\tfrac12 \big(g_\theta(z_{uv}) + g_\theta(z_{vu})\big)\Big)
        \qquad \text{(Appendix E)}

    Symbols: :math:`z` -> `bond_representation`. Gates start near ``settings.start``.
    """

    def __init__(self, in_size: int, settings: BoundaryConfig) -> None:
        super().__init__()
        self.in_size = in_size
        self.last = nn.Linear(settings.hidden_size, 1)
        self.first = nn.Linear(in_size, settings.hidden_size)
        with torch.no_grad():
            self.last.weight.mul_(0.1)
            self.last.bias.fill_(math.log(settings.start / (1 - settings.start)))

    def forward(self, query: Query) -> Tensor:
        """Returns the gate logit of each bond, ``[M]``, a mean over its directed edges."""
        z = bond_representation(query)
        if z.size(1) != self.in_size:
            raise GraphError(
                f"Bonds must be described by {self.in_size} numbers (got {z.size(1)}). Explain "
                "graphs with the features of those in fit()."
            )
        return query.case.bonds.mean(self.last(self.first(z).relu()).squeeze(1))
