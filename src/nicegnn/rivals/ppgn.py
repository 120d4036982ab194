"""PPGN: a network on all node pairs of a graph, as strong as the 3-WL test; D4's denoiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PPGN(nn.Module):
    r"""Maps a noisy adjacency, node features and the noise level to one logit per node pair.

    .. math::
        h^{(0)}_{uv} &= W [\tilde A_{uv}, x_u, x_v, 1_{u=v}\, n(\sigma)] \\
        h^{(k+1)}_{uv} &= \mathrm{relu}\, \mathrm{norm}\, W^{(k)} \Big[h^{(k)}_{uv},
            \tfrac{1}{\sqrt N} \sum_w a^{(k)}(h^{(k)}_{uw}) \odot b^{(k)}(h^{(k)}_{wv})\Big] \\
        s_{uv} &= \mathrm{MLP}([h^{(0)}, \dots, h^{(K)}]_{uv}), \qquad
            s \leftarrow \tfrac12 (s + s^\top)

    Symbols: :math:`\tilde A` -> ``adjacency``, ``[R, N, N]``; :math:`x` -> ``x``, ``[R, N, F]``;
    :math:`\sigma` -> ``level``, ``[R]``; :math:`n` -> ``noise``, a network 1-4-1; :math:`a, b, W`
    -> ``left``, ``right``, ``join``; norm -> `masked_norm`, over the pairs of one graph and
    channel. R counts graphs times draws. Padding changes no result.

    Args:
        x_size: node features.
        hidden_size: channels per pair.
        num_blocks: K.
    """

    def __init__(self, x_size: int, hidden_size: int, num_blocks: int) -> None:
        super().__init__()
        self.x_size = x_size
        self.noise = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))
        self.sender = nn.Linear(x_size, hidden_size)
        self.receiver = nn.Linear(x_size, hidden_size, bias=False)
        self.pair = nn.Linear(2, hidden_size, bias=False)
        self.blocks = nn.ModuleList(_Block(hidden_size) for _ in range(num_blocks))
        self.skips = nn.ModuleList(
            nn.Linear(hidden_size, hidden_size, bias=k == 0) for k in range(num_blocks + 1)
        )
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, adjacency: Tensor, x: Tensor, level: Tensor, present: Tensor) -> Tensor:
        """Returns symmetric logits, ``[R, N, N]``; those of padding mean nothing.

        Args:
            present: which places hold a node, ``[R, N]``.
        """
        both = (present.unsqueeze(2) & present.unsqueeze(1)).unsqueeze(3).to(x)  # [R, N, N, 1]
        size = present.sum(1).to(x)  # [R]
        told = self.noise(level.unsqueeze(1)).unsqueeze(2) * torch.eye(x.size(1), device=x.device)
        h = self.sender(x).unsqueeze(2) + self.receiver(x).unsqueeze(1)
        h = h + self.pair(torch.stack([adjacency, told], dim=3))  # [R, N, N, D]
        collected = self.skips[0](h)  # the linear map of all h side by side, summed as they come
        for block, skip in zip(self.blocks, list(self.skips)[1:], strict=True):
            h = block(h, both, size)
            collected = collected + skip(h)
        logit = self.head(collected.relu()).squeeze(3)
        return (logit + logit.mT) / 2


class _Block(nn.Module):
    """Products of pairs along all paths of two steps, joined with the pairs themselves."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.left = nn.Linear(hidden_size, hidden_size)
        self.right = nn.Linear(hidden_size, hidden_size)
        self.join = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, h: Tensor, both: Tensor, size: Tensor) -> Tensor:
        a, b = self.left(h) * both, self.right(h) * both
        product = torch.einsum("ruwd,rwvd->ruvd", a, b) / size.sqrt().view(-1, 1, 1, 1)
        return masked_norm(self.join(torch.cat([h, product], dim=3)), both).relu()


def masked_norm(h: Tensor, both: Tensor) -> Tensor:
    """Gives each channel of each graph mean 0 and variance 1 over its own pairs, padding 0.

    Args:
        h: values, ``[R, N, N, D]``.
        both: 1 where both places hold a node, else 0, ``[R, N, N, 1]``.
    """
    number = both.sum((1, 2), keepdim=True).clamp(min=1)
    centred = (h - (h * both).sum((1, 2), keepdim=True) / number) * both
    variance = centred.square().sum((1, 2), keepdim=True) / number
    return centred / (variance + 1e-5).sqrt()
