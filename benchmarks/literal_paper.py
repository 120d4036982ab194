r"""The paper's algorithm, written down as its text reads: the yardstick of all speed.

One graph, one node of the path and one noise draw at a time, in plain PyTorch, for a GIN of
`nicegnn.target.zoo` in evaluation mode. What the paper writes for all edges at once (Eq. 8 and 9,
the gradient in all gates) is one tensor over edges, as in any first implementation. Messages are
those of the clean pass, as in `NICEConfig.paper()`. Edges 2b and 2b + 1 must be the two directions
of bond b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

NUM_DRAWS = NUM_NODES = 16  # N = M and T of the paper
BETA, PENALTY, LEARNING_RATE, HIDDEN_SIZE = 0.1, 1.0, 1e-3, 64

#: Unit vectors for node k, draw n, layer l and the layer's messages ``[E, F]``, of the same shape.
Noise = Callable[[int, int, int, Tensor], Tensor]


@dataclass(frozen=True)
class CleanPass:
    """What the first step of the algorithm finds out about a graph."""

    messages: list[Tensor]  # of each layer, L x [E, F]
    states: Tensor  # node states of the last layer, [V, F]
    log_prob: Tensor  # of each class, [C]
    explained: int  # y*


class LiteralPaper:
    """Gate network, its fit, and the attribution of a graph."""

    def __init__(self, model: Any, seed: int = 0) -> None:
        self.model = model
        size, device = model.head.in_features, model.head.weight.device
        self.gates = nn.Sequential(
            nn.Linear(2 * size, HIDDEN_SIZE), nn.ReLU(), nn.Linear(HIDDEN_SIZE, 1)
        ).to(device)
        self.optimiser = torch.optim.Adam(self.gates.parameters(), lr=LEARNING_RATE)
        self.noise = random_noise(torch.Generator(device).manual_seed(seed))

    def fit_step(self, graphs: Sequence[Data]) -> float:
        r"""Takes one step on a mini-batch and returns its loss.

        .. math:: L_B = \tfrac1{|B|} \sum_{G \in B} \big[ \hat R(\rho_G)
            + \lambda \|\rho_G\|_1 / |E_G| \big]  \qquad \text{(Eq. 21)}
        """
        self.optimiser.zero_grad()
        total = 0.0
        for graph in graphs:
            clean = clean_pass(self.model, graph)
            rho = self.boundary(graph, clean)  # [M]
            risk = restoration_risk(self.model, graph, clean, rho, self.noise, node=0)
            loss = (risk + PENALTY * rho.mean()) / len(graphs)
            torch.autograd.backward(loss, inputs=list(self.gates.parameters()))
            total += float(loss.detach())
        self.optimiser.step()
        return total

    def boundary(self, graph: Data, clean: CleanPass) -> Tensor:
        r"""Returns :math:`\rho_e = \sigma(g_\theta(z_e))` of each bond, ``[M]``."""
        sender, receiver = graph.edge_index
        z = torch.cat([clean.states[sender], clean.states[receiver]], dim=1)  # [E, 2F]
        return self.gates(z).view(-1, 2).mean(1).sigmoid()

    def explain(self, graph: Data) -> Tensor:
        """Returns the attribution of each bond, ``[M]``."""
        clean = clean_pass(self.model, graph)
        with torch.no_grad():
            rho = self.boundary(graph, clean)
        return boundary_integrated_gradient(self.model, graph, clean, rho, self.noise)


def boundary_integrated_gradient(
    model: Any, graph: Data, clean: CleanPass, boundary: Tensor, noise: Noise
) -> Tensor:
    r"""Returns BIG of each bond with the right end-point sum, ``[M]``.

    .. math:: s = -\rho^* \odot \frac1T \sum_{k=1}^T \nabla_\rho \hat R(\tfrac kT \rho^*)
    """
    total = torch.zeros_like(boundary)
    for k in range(NUM_NODES):
        rho = ((k + 1) / NUM_NODES * boundary).requires_grad_()
        risk = restoration_risk(model, graph, clean, rho, noise, node=k)
        total += torch.autograd.grad(risk, rho)[0]
    return -boundary * total / NUM_NODES


def restoration_risk(
    model: Any, graph: Data, clean: CleanPass, rho: Tensor, noise: Noise, node: int
) -> Tensor:
    r"""Returns :math:`\hat R = \bar d + \beta \sqrt{\tfrac1N \sum_n (d_n - \bar d)^2}` (Eq. 15)."""
    losses = []
    for n in range(NUM_DRAWS):
        log_prob = damaged_log_prob(model, graph, clean, rho, noise, node, n)
        fall = clean.log_prob[clean.explained] - log_prob[clean.explained]
        losses.append(fall.clamp(min=0))
    d = torch.stack(losses)  # [N]
    spread = ((d - d.mean()).square().mean() + 1e-12).sqrt()  # a finite slope if all are equal
    return d.mean() + BETA * spread


@torch.no_grad()
def clean_pass(model: Any, graph: Data) -> CleanPass:
    """Runs the model once and keeps its messages."""
    x, messages = graph.x, []
    for conv, act in zip(model.convs, model.acts, strict=True):
        messages.append(x[graph.edge_index[0]])  # [E, F]
        states = _update(conv, x, messages[-1], graph.edge_index)
        x = act(states)
    log_prob = _read_out(model, x)
    return CleanPass(messages, states, log_prob, int(log_prob.argmax()))


def damaged_log_prob(
    model: Any, graph: Data, clean: CleanPass, rho: Tensor, noise: Noise, node: int, draw: int
) -> Tensor:
    r"""Returns log-probabilities while every message is corrupted, ``[C]``.

    .. math:: \tilde m_e = \sqrt{\rho_e}\, m_e + \sqrt{1 - \rho_e}\, \|m_e\|_2\, u_e
        \qquad \text{(Eq. 8, 9)}
    """
    gate = rho.repeat_interleave(2).unsqueeze(1)  # [E, 1]
    x = graph.x
    for layer, (conv, act) in enumerate(zip(model.convs, model.acts, strict=True)):
        message = clean.messages[layer]
        direction = noise(node, draw, layer, message)
        corrupted = message.norm(dim=1, keepdim=True) * direction
        damaged = gate.sqrt() * message + (1 - gate).sqrt() * corrupted
        x = act(_update(conv, x, damaged, graph.edge_index))
    return _read_out(model, x)


def random_noise(generator: torch.Generator) -> Noise:
    """Returns noise that is drawn anew in every call."""

    def draw(node: int, draw: int, layer: int, message: Tensor) -> Tensor:
        normal = torch.randn(message.shape, generator=generator, device=message.device)
        return normal / normal.norm(dim=1, keepdim=True)

    return draw


def _update(conv: Any, x: Tensor, message: Tensor, edge_index: Tensor) -> Tensor:
    """Returns the new node states of a GIN layer, ``[V, F]``."""
    received = x.new_zeros(x.size(0), message.size(1)).index_add(0, edge_index[1], message)
    return conv.nn((1 + conv.eps) * x + received)


def _read_out(model: Any, x: Tensor) -> Tensor:
    everything = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
    return model.head(model.readout(x, everything))[0].log_softmax(0)
