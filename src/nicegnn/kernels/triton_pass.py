"""Damaged passes of a chain on a GPU: one Triton program runs all layers for one bond and draw.

Import this module late: it needs Triton, which comes with PyTorch for CUDA.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from nicegnn.errors import ShortCutEnds
from nicegnn.kernels.chain import CleanPass, Damage, PackedChain
from nicegnn.kernels.triton_kernels import pass_kernel

SIZES = (32, 64, 128)  # nodes of a graph are padded to one of these
_MOST_WIDE = 128  # columns of states
_DRAWS = 4  # draws that one program runs, one after the other


class Passes:
    """Damaged passes over one batch; raises `ShortCutEnds` if it, or states, are too large."""

    def __init__(self, clean: CleanPass) -> None:
        width, ptr = max(16, triton.next_power_of_2(clean.chain.width)), clean.ptr
        if width > _MOST_WIDE:
            raise ShortCutEnds(f"States are too wide for a kernel (got {width} columns).")
        self.clean, self.packed = clean, PackedChain(clean.chain, width, clean.x.device)
        packed = self.packed
        self.first_inner = clean.stages[0].inner
        self.first_mapped = packed.mapped_first(clean.stages[0].message)
        self.first = packed.of_atoms(clean.x)
        edge_index, device = clean.edge_index, clean.x.device
        size = ptr.diff()
        self.kind = torch.bucketize(size, torch.tensor(SIZES, device=device))  # place in SIZES
        padded = torch.tensor([*SIZES, 0], device=device)[self.kind]
        space = padded * padded
        start = space.cumsum(0) - space
        home = clean.batch[edge_index[0]]
        count = torch.bincount(home, minlength=clean.num_graphs)
        self.graphs = torch.stack([ptr[:-1], size, start, count.cumsum(0) - count, count], dim=1)
        self.graphs = self.graphs.int().contiguous()
        column, row = edge_index - ptr[home]  # [E] each
        self.local = torch.stack([column, row], dim=1).int()  # [E, 2]
        most_edges, total = torch.stack([count.max(), space.sum()]).tolist()
        self.has_edge = packed.chain.kind == "gine"
        self.most_edges = max(16, triton.next_power_of_2(most_edges)) if self.has_edge else 16
        if total >= 2**31 or self.most_edges > 512:
            raise ShortCutEnds("The batch, or a graph, is too large.")
        self.adjacency = self.terms = clean.x.new_zeros(max(1, total))
        if self.has_edge:
            self.terms = clean.padded_terms(packed.width)
            return
        value = clean.coefficient
        if clean.loop is not None:
            own = torch.arange(clean.x.size(0), device=device) - ptr[clean.batch]
            home, value = torch.cat([home, clean.batch]), torch.cat([value, clean.loop])
            row, column = torch.cat([row, own]), torch.cat([column, own])
        kept = (padded[home] > 0).nonzero().view(-1)  # entries of graphs that are not too large
        place = start[home] + row * padded[home] + column
        self.adjacency.index_add_(0, place[kept], value[kept])

    def fits(self, graph: Tensor) -> Tensor:
        return self.kind[graph] < len(SIZES)

    def pooled(self, damage: Damage) -> Tensor:
        """Returns the pooled states of all damaged graphs, ``[J, N, W]``."""
        num, draws = damage.row.shape
        out = self.clean.x.new_empty(num, draws, self.packed.width)
        is_atom = bool((damage.atom >= 0).any())
        atom = damage.atom - self.graphs[damage.graph, 0]  # by number in its graph
        jobs = torch.cat([damage.graph[:, None], damage.edges, atom[:, None]], dim=1).int()
        rows = damage.row.int()
        tables = self.packed.given(damage.values), *self.packed.of_atoms(damage.x)
        kind = self.kind[damage.graph]
        counts = torch.bincount(kind, minlength=len(SIZES)).tolist()
        for number, (size, count) in enumerate(zip(SIZES, counts, strict=True)):
            if count == num:
                self._launch(out, jobs, rows, tables, size, is_atom)
            elif count:
                alike = (kind == number).nonzero().view(-1)
                part = out.new_empty(count, draws, self.packed.width)
                self._launch(part, jobs[alike], rows[alike], tables, size, is_atom)
                out[alike] = part
        return out[..., : self.packed.chain.width]

    def _launch(
        self, out: Tensor, jobs: Tensor, rows: Tensor, tables: Any, size: int, is_atom: bool
    ) -> None:
        packed, clean, num_draws = self.packed, self.clean, rows.size(1)
        draws, inner = min(_DRAWS, num_draws), self.first_inner
        tensors = (
            *(out, jobs, rows, *tables, self.graphs, self.local, clean.coefficient, clean.outer),
            *(self.adjacency, self.first_mapped, *self.first, inner, self.terms, packed.before),
            *(packed.weight, packed.own, packed.shift, packed.second, packed.second_shift),
            packed.root,
        )
        pass_kernel[(jobs.size(0), triton.cdiv(num_draws, draws))](
            *(value.contiguous() for value in tensors),
            *(num_draws, self.local.size(0), tables[0].size(1), inner.size(1)),
            LAYERS=len(packed.chain.layers),
            A=size,
            W=packed.width,
            E=self.most_edges,
            DRAWS=draws,
            IS_ATOM=is_atom,
            IS_MEAN=packed.chain.is_mean,
            HAS_EDGE=self.has_edge,
            **{f"HAS_{name.upper()}": is_so for name, is_so in packed.has.items()},
            PRECISION="ieee",
            num_warps=max(2, min(8, size * packed.width // 512)),
            num_stages=1,
        )
