"""The gate network, a small MLP over bond representations of the frozen target."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nicegnn.config import BoundaryConfig
from nicegnn.errors import GraphError
from nicegnn.intervention.query import Query


def node_states(query: Query) -> Tensor:
    """Returns the states of each node, of the input and all layers, ``[V, D]``."""
    batch, states = query.case.batch, list(query.states)
    if isinstance(batch.get("x"), Tensor):
        x = batch.x.flatten(1) if batch.x.dim() > 1 else batch.x.unsqueeze(1)
        states.insert(0, x.nan_to_num(0, 0, 0))  # a model that does not read x may have NaN there
    return torch.cat([state.to(query.clean.dtype) for state in states], dim=1)


def bond_representation(query: Query, settings: BoundaryConfig) -> Tensor:
    r"""Returns the input of the gate network, ``[M, D]`` by bond or ``[E, D]`` by directed edge.

    .. math:: z_e = [\, h_u,\; h_v \,] \quad \text{(penalty, for each direction)}, \qquad
        z_e = [\, h_u + h_v,\; |h_u - h_v|,\; \bar h_G \,] \quad \text{(budget)}

    Symbols: :math:`h` -> node states of the frozen target, of its last layer (penalty) or of its
    input and all layers; :math:`\bar h_G` -> their mean over the graph.
    """
    case, batch = query.case, query.case.batch
    if settings.objective == "penalty":
        h = query.states[-1].to(query.clean.dtype)
        return h[batch.edge_index].transpose(0, 1).flatten(1)
    h, (u, v) = node_states(query), case.bonds.index
    total = h.new_zeros(case.num_graphs, h.size(1)).index_add(0, batch.batch, h)
    size = torch.bincount(batch.batch, minlength=case.num_graphs).clamp(min=1)
    context = (total / size.unsqueeze(1))[case.bonds.batch]
    return torch.cat([h[u] + h[v], (h[u] - h[v]).abs(), context], dim=1)


class GateNetwork(nn.Module):
    r"""Maps the bonds of a query to the logits of their restoration gates.

    .. math:: \rho_e = \sigma(g_\theta(z_e))  \qquad \text{(Appendix E)}

    Symbols: :math:`z_e` -> `bond_representation`. With several heads, each explained class has its
    own network, and graphs of one class do not change the gates of another. Under a budget inputs
    are shifted and scaled, and gates start at 1/2.
    """

    mean: Tensor
    scale: Tensor
    trained: Tensor

    def __init__(self, in_size: int, settings: BoundaryConfig, num_heads: int) -> None:
        super().__init__()
        self.in_size, self.settings = in_size, settings
        start = 0.5 if settings.objective == "budget" else settings.start
        self.register_buffer("mean", torch.zeros(in_size))
        self.register_buffer("scale", torch.ones(in_size))
        self.register_buffer("trained", torch.zeros(num_heads, dtype=torch.bool))
        self.heads = nn.ModuleList()
        for _ in range(num_heads):
            last = nn.Linear(settings.hidden_size, 1)
            with torch.no_grad():
                last.weight.mul_(0.1)
                last.bias.fill_(math.log(start / (1 - start)))
            first = nn.Linear(in_size, settings.hidden_size)
            self.heads.append(nn.Sequential(first, nn.ReLU(), last))

    def standardise(self, z: Tensor) -> None:
        """Fixes mean and scale of the inputs from a sample of bond representations."""
        self.mean.copy_(z.mean(0))
        self.scale.copy_(z.std(0, unbiased=False).clamp(min=1e-6))

    def forward(self, query: Query) -> Tensor:
        """Returns the gate logit of each bond, ``[M]``, a mean over directed edges if ordered."""
        case, z = query.case, bond_representation(query, self.settings)
        if z.size(1) != self.in_size:
            raise GraphError(
                f"Bonds must be described by {self.in_size} numbers (got {z.size(1)}). Explain "
                "graphs with the features of those in fit()."
            )
        is_ordered = self.settings.objective == "penalty"
        if not is_ordered:
            z = ((z - self.mean) / self.scale).clamp(-10, 10)
        label = query.explained[case.edge_batch if is_ordered else case.bonds.batch]
        logit = z.new_zeros(z.size(0))
        for number, head in enumerate(self.heads):
            chosen = (label == number) | (len(self.heads) == 1)
            logit = logit.masked_scatter(chosen, head(z[chosen]))
        return case.bonds.mean(logit) if is_ordered else logit

    def is_trained_for(self, label: Tensor) -> Tensor:
        """Returns whether the head of each class has seen training graphs."""
        return self.trained[label] if len(self.heads) > 1 else self.trained.expand(label.numel())
