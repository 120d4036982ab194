"""Damaged passes of a chain on a GPU: one Triton program runs all layers for one bond and draw.

The programs are in `triton_kernels`; here is what a batch and a chain must be for them. Import this
module late: it needs Triton, which comes with PyTorch for CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from nicegnn.kernels.chain import CannotFuse, Chain
from nicegnn.kernels.clean_pass import CleanPass, Damage
from nicegnn.kernels.packing import PackedChain
from nicegnn.kernels.triton_kernels import masked_kernel, pass_kernel

SIZES = (32, 64, 128)  # nodes of a graph are padded to one of these
_MOST_WIDE = 128  # columns of states
_MOST_WIDE_INPUT = 256
_MOST_ENTRIES = 2**28  # of masked adjacencies that are kept at a time, 1 GiB
_MASK_FLAGS = ("HAS_BEFORE", "HAS_MAP", "HAS_OWN", "HAS_SECOND", "HAS_AFTER", "IS_MEAN")


@dataclass(frozen=True)
class Tuning:
    """How programs are laid out; None: chosen by size."""

    num_warps: int | None = None
    draws: int | None = None  # draws that one program runs, one after the other
    precision: str = "ieee"  # of matrix products: "ieee", "tf32x3" or "tf32"


class TritonChain(PackedChain):
    """Weights of a chain as the kernel reads them.

    Raises:
        CannotFuse: if states are too wide.
    """

    hashes_noise = True

    def __init__(self, chain: Chain, device: torch.device) -> None:
        width = max(16, triton.next_power_of_2(chain.width))
        size = chain.layers[0].message_size
        padded = width
        if chain.layers[0].weight is not None:
            padded = max(16, triton.next_power_of_2(size))
        if width > _MOST_WIDE or padded > _MOST_WIDE_INPUT:
            raise CannotFuse(
                f"States are too wide for a kernel (got {chain.width} columns, and {size} in the "
                "first messages)."
            )
        super().__init__(chain, width, padded, device)
        self.flags = {
            "HAS_BEFORE": self.has_before,
            "HAS_MAP": self.has_map,
            "HAS_OWN": self.has_own,
            "HAS_SECOND": self.has_second,
            "HAS_AFTER": any(layer.after is not None for layer in chain.layers),
            "HAS_EDGE": chain.kind == "gine",
            "IS_MEAN": chain.is_mean,
        }
        self.of_layers = [
            *(self.before, self.weight, self.scale, self.own, self.shift, self.second),
            *(self.second_shift, self.after_scale, self.after_shift, self.numbers),
        ]
        self.no_seeds = torch.zeros(1, dtype=torch.int32, device=device)

    def over(self, clean: CleanPass, ptr: Tensor) -> TritonPass:
        """Returns damaged passes over a batch; ``ptr`` is the first node of each graph."""
        return TritonPass(self, clean, ptr)


class TritonPass:
    """Damaged passes over one batch.

    Raises:
        CannotFuse: if the batch does not allow it.
    """

    def __init__(self, packed: TritonChain, clean: CleanPass, ptr: Tensor) -> None:
        self.packed, self.clean = packed, clean
        edge_index, device = clean.edge_index, clean.x.device
        size = ptr.diff()
        self.kind = torch.bucketize(size, torch.tensor(SIZES, device=device))  # place in SIZES
        padded = torch.tensor([*SIZES, 0], device=device)[self.kind]
        space = padded * padded
        start = space.cumsum(0) - space
        edge_graph = clean.batch[edge_index[0]]
        count = torch.bincount(edge_graph, minlength=clean.num_graphs)
        self.graphs = torch.stack([ptr[:-1], size, start, count.cumsum(0) - count, count], dim=1)
        self.graphs = self.graphs.int().contiguous()
        local = edge_index - ptr[edge_graph]  # [2, E]
        self.local = local
        most_edges, total, last_kind, is_mixed = torch.stack(
            [count.max(), space.sum(), self.kind.max(), (edge_graph.diff() < 0).any().long()]
        ).tolist()
        self.has_large = last_kind == len(SIZES)
        flags = packed.flags
        if total >= 2**31:
            raise CannotFuse("The batch is too large.")
        if flags["HAS_EDGE"] and is_mixed:
            raise CannotFuse("Edges of a graph are not next to each other.")
        self.most_edges = max(16, triton.next_power_of_2(most_edges)) if flags["HAS_EDGE"] else 16
        if flags["HAS_EDGE"] and self.most_edges > 512:
            raise CannotFuse(f"A graph has too many edges (got {most_edges}).")
        self.adjacency = self.terms = clean.x.new_zeros(max(1, total))
        if flags["HAS_EDGE"]:
            shape = len(clean.edge_terms), edge_index.size(1), packed.width
            self.terms = clean.x.new_zeros(shape)
            for number, term in enumerate(clean.edge_terms):
                if number and term is not None:
                    self.terms[number, :, : term.size(1)] = term
            return
        self.edge_place = self._place(start, padded, edge_graph, local[1], local[0])
        self._add(self.edge_place, clean.coefficient)
        if clean.loop is not None:
            node = torch.arange(clean.x.size(0), device=device) - ptr[clean.batch]
            self._add(self._place(start, padded, clean.batch, node, node), clean.loop)

    @staticmethod
    def _place(start: Tensor, padded: Tensor, graph: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Returns where entries lie in the adjacencies of graphs, -1 for large ones, ``[E]``."""
        place = start[graph] + row * padded[graph] + column
        return torch.where(padded[graph] > 0, place, -1)

    def _add(self, place: Tensor, value: Tensor) -> None:
        """Adds entries, ``[E]``, to the adjacencies of graphs."""
        if self.has_large:
            place, value = place[place >= 0], value[place >= 0]
        self.adjacency.index_add_(0, place, value)

    def fits(self, graph: Tensor) -> Tensor:
        """Whether graphs are small enough, ``[J]``."""
        return self.kind[graph] < len(SIZES)

    def pooled(self, damage: Damage, tuning: Tuning | None = None) -> Tensor:
        """Returns the pooled states of all damaged graphs, ``[J, N, W]``."""
        packed, clean = self.packed, self.clean
        num, draws = damage.graph.numel(), damage.num_draws
        out = clean.x.new_empty(num, draws, packed.width)
        kind = self.kind[damage.graph]
        jobs = torch.cat(
            [damage.graph.unsqueeze(1), damage.edges, damage.first_draw.unsqueeze(1)], dim=1
        )
        jobs = jobs.int().contiguous()  # [J, 4]
        edges = torch.stack([*self.local, damage.slot], dim=1).int().contiguous()  # [E, 3]
        counts = torch.bincount(kind, minlength=len(SIZES)).tolist()
        for number, (size, count) in enumerate(zip(SIZES, counts, strict=True)):
            if count == num:
                self._launch(out, jobs, edges, size, damage, tuning or Tuning())
            elif count:
                some = (kind == number).nonzero().view(-1)
                part = clean.x.new_empty(count, draws, packed.width)
                self._launch(part, jobs[some], edges, size, damage, tuning or Tuning())
                out[some] = part
        return out[..., : packed.chain.layers[-1].out_size]

    def masked(self, gate: Tensor) -> Tensor:
        """Returns the pooled states under masks of all edges, ``[N, E]``, as ``[B, N, W]``.

        Raises:
            CannotFuse: if messages have terms of edges, or a graph is too large.
        """
        packed, clean = self.packed, self.clean
        if packed.flags["HAS_EDGE"] or self.has_large:
            raise CannotFuse("The kernel for masks needs small graphs and messages without terms.")
        layer = packed.chain.layers[0]
        sent = layer.messages(clean.x)
        mapped = sent * layer.scale if layer.weight is None else sent @ layer.weight
        base = layer.inner(clean.x, torch.zeros_like(sent))
        space, most = self.adjacency.numel(), max(1, _MOST_ENTRIES // self.adjacency.numel())
        out = clean.x.new_empty(clean.num_graphs, gate.size(0), packed.width)
        kinds = [(self.kind == number).nonzero().view(-1) for number in range(len(SIZES))]
        loss = (gate - 1) * clean.coefficient  # what masks take from the adjacencies
        for first in range(0, gate.size(0), most):
            rows = loss[first : first + most]
            adjacency = self.adjacency.repeat(rows.size(0), 1)
            adjacency.index_add_(1, self.edge_place, rows)
            for size, which in zip(SIZES, kinds, strict=True):
                if which.numel() == 0:
                    continue
                part = clean.x.new_empty(which.numel(), rows.size(0), packed.width)
                masked_kernel[(which.numel(), rows.size(0))](
                    *(part, which.int(), self.graphs, adjacency, base.contiguous()),
                    *(mapped.contiguous(), *packed.of_layers, rows.size(0), space, base.size(1)),
                    LAYERS=len(packed.chain.layers),
                    A=size,
                    W=packed.width,
                    PRECISION="ieee",
                    **{name: packed.flags[name] for name in _MASK_FLAGS},
                    num_warps=self._warps(size),
                    num_stages=1,
                )
                out[which, first : first + most] = part
        return out[..., : packed.chain.layers[-1].out_size]

    def _warps(self, size: int) -> int:
        return max(2, min(8, size * self.packed.width // 512))

    def _launch(
        self, out: Tensor, jobs: Tensor, edges: Tensor, size: int, damage: Damage, tuning: Tuning
    ) -> None:
        packed, clean = self.packed, self.clean
        draws = min(tuning.draws or 4, damage.num_draws)
        warps = tuning.num_warps or self._warps(size)
        seeds = damage.seeds if damage.seeds is not None else packed.no_seeds
        grid = (jobs.size(0), triton.cdiv(damage.num_draws, draws))
        pass_kernel[grid](
            *(out, jobs, self.graphs, edges, clean.coefficient.contiguous(), self.adjacency),
            *(clean.first_message.contiguous(), clean.first_inner.contiguous(), packed.first_map),
            *(self.terms, *packed.of_layers, seeds),
            *(
                damage.num_draws,
                edges.size(0),
                packed.chain.layers[0].message_size,
                clean.first_inner.size(1),
            ),
            LAYERS=len(packed.chain.layers),
            A=size,
            W=packed.width,
            F=packed.first_map.size(0),
            E=self.most_edges,
            DRAWS=draws,
            NOISE=damage.seeds is not None,
            ANTITHETIC=damage.antithetic,
            PRECISION=tuning.precision,
            **packed.flags,
            num_warps=warps,
            num_stages=1,
        )
