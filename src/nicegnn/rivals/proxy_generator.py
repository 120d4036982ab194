"""The generator of ProxyExplainer: a variational graph auto-encoder that draws proxy graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize

from nicegnn.rivals.dense import DenseGraphs
from nicegnn.seeding import mix, slot_numbers


class ProxyGenerator(nn.Module):
    r"""Draws a graph like the input graph from its explanation and from its rest.

    .. math::
        h^{(0)}_u &= [x_u, r_u], \qquad
            h^{(l+1)} = \mathrm{relu}\,\frac{\hat W h^{(l)} \Theta_l}{\|\hat W h^{(l)} \Theta_l\|},
            \qquad \hat W = D^{-1/2} (W + I) D^{-1/2} \\
        z_u &= \mu(h_u) + \tau\, e^{\log \mathrm{var}(h_u) / 2} \epsilon_u, \qquad
            q_u = \mathrm{norm}\, \mathrm{MLP}([z_u, \max_v z_v, \mathrm{mean}_v z_v]) \\
        s_{uv}(W, \epsilon) &= q_u^\top \mathrm{diag}(c)\, q_v + b, \qquad
            \mathrm{proxy} = \max(\sigma(s(m, 0)), \sigma(s(1 - m, \epsilon)))

    Symbols: :math:`x` -> ``graphs.x``, ``[B, N, F]``; :math:`r` -> ``identity``, fixed random
    numbers of a node's place, ``[N, R]``; :math:`W` -> ``weight``, mask of the bonds,
    ``[B, N, N]``; :math:`\epsilon` -> ``noise``, ``[B, N, Z]``; :math:`\tau` -> ``noise_scale``;
    :math:`c, b` -> ``metric``, ``bias``; norm -> `spread_nodes`, over the nodes of a graph.

    A node's place gives it an identity, without which two nodes with like surroundings could not
    be told apart and no bond between them be drawn. Only the training of the explainer sees it.

    Args:
        x_size: node features.
        hidden_sizes: widths of the graph convolutions.
        latent_size: Z.
        identity_size: R.
        noise_scale: how far the rest is perturbed.
        density: share of bonded pairs that an untrained generator draws.
    """

    def __init__(
        self,
        x_size: int,
        hidden_sizes: Sequence[int],
        latent_size: int,
        identity_size: int,
        noise_scale: float,
        density: float,
    ) -> None:
        super().__init__()
        self.identity_size, self.noise_scale = identity_size, noise_scale
        sizes = [x_size + identity_size, *hidden_sizes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.mean = nn.Linear(sizes[-1], latent_size)
        self.log_var = nn.Linear(sizes[-1], latent_size)
        self.code = nn.Sequential(
            nn.Linear(3 * latent_size, 2 * latent_size),
            nn.ReLU(),
            nn.Linear(2 * latent_size, latent_size),
        )
        self.metric = nn.Parameter(torch.ones(latent_size) / math.sqrt(latent_size))
        self.bias = nn.Parameter(torch.tensor(math.log(density / (1 - density))))

    def encode(self, graphs: DenseGraphs, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log-variance of each node's latent, ``[..., B, N, Z]`` each.

        Args:
            weight: weights of the bonds, ``[..., B, N, N]``.
        """
        size = weight.size(-1)
        identity = self._identity(size, weight.device).expand(weight.size(-3), -1, -1)
        h = torch.cat([graphs.x, identity], dim=2) * graphs.present.unsqueeze(2)
        loops = weight + torch.eye(size, device=weight.device)
        scale = loops.sum(-1).rsqrt()  # [..., B, N]
        spread = scale.unsqueeze(-1) * loops * scale.unsqueeze(-2)
        for layer in self.layers:
            h = normalize(spread @ layer(h), dim=-1).relu()
        return self.mean(h), self.log_var(h)

    def decode(self, graphs: DenseGraphs, z: Tensor) -> Tensor:
        """Returns the logit of each pair of nodes, symmetric, ``[..., B, N, N]``."""
        present = graphs.present.unsqueeze(2)  # [B, N, 1]
        highest = z.masked_fill(~present, -torch.inf).amax(-2, keepdim=True)
        mean = (z * present).sum(-2, keepdim=True) / present.sum(1, keepdim=True)
        context = torch.cat([highest, mean], dim=-1)
        q = self.code(torch.cat([z, context.expand(*z.shape[:-1], -1)], dim=-1))
        q = spread_nodes(q, present.to(q))
        return (q * self.metric) @ q.mT + self.bias

    def forward(self, graphs: DenseGraphs, mask: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the proxy's logit of each pair ``[B, N, N]`` and the divergence ``[B]``.

        Args:
            mask: how far each bond belongs to the explanation, 0 for unbonded pairs, ``[B, N, N]``.
            noise: normal numbers that perturb the rest, ``[B, N, Z]``.
        """
        both, log_vars = self.encode(graphs, torch.stack([mask, graphs.adjacency - mask]))
        mean, log_var = both[1], log_vars[1]
        rest = mean + self.noise_scale * (log_var / 2).exp() * noise
        logit = torch.maximum(*self.decode(graphs, torch.stack([both[0], rest])))
        divergence = (mean.square() + log_var.exp() - log_var - 1) / 2  # [B, N, Z]
        return logit, (divergence * graphs.present.unsqueeze(2)).sum((1, 2))

    def _identity(self, size: int, device: torch.device) -> Tensor:
        slot = torch.arange(size * self.identity_size, device=device)
        return slot_numbers(mix("identity"), slot, kind="normal").view(size, self.identity_size)


def spread_nodes(q: Tensor, present: Tensor) -> Tensor:
    """Gives each number of a graph's nodes mean 0 and variance 1 over them, padding 0.

    Without it all nodes start alike and their products hardly differ, which stalls the training.

    Args:
        q: values, ``[..., B, N, Z]``.
        present: 1 where there is a node, else 0, ``[B, N, 1]``.
    """
    number = present.sum(1, keepdim=True)
    centred = (q - (q * present).sum(-2, keepdim=True) / number) * present
    return centred / (centred.square().sum(-2, keepdim=True) / number + 1e-5).sqrt()


def reconstruction(logit: Tensor, graphs: DenseGraphs) -> Tensor:
    r"""Returns how far proxies are from the input graphs, summed over node pairs, ``[B]``.

    .. math:: \sum_{u \ne v} \mathrm{BCE}(\sigma(s_{uv}), A_{uv})

    Symbols: :math:`s` -> ``logit``, ``[B, N, N]``; :math:`A` -> ``graphs.adjacency``.
    """
    bce = binary_cross_entropy_with_logits(logit, graphs.adjacency, reduction="none")
    return (bce * graphs.pair).sum((1, 2))
