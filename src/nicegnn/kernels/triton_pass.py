"""Damaged passes of a chain on a GPU: one Triton program runs all layers for one bond and draw.

The programs are in `triton_kernels`; here is what a batch and a chain must be for them. Import this
module late: it needs Triton, which comes with PyTorch for CUDA.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from nicegnn.kernels.chain import CannotFuse, Chain, CleanPass, Damage, PackedChain
from nicegnn.kernels.triton_kernels import pass_kernel

SIZES = (32, 64, 128)  # nodes of a graph are padded to one of these
_MOST_WIDE = 128  # columns of states
_DRAWS = 4  # draws that one program runs, one after the other


class TritonChain(PackedChain):
    """Weights of a chain as the kernel reads them.

    Raises:
        CannotFuse: if states are too wide.
    """

    def __init__(self, chain: Chain, device: torch.device) -> None:
        width = max(16, triton.next_power_of_2(chain.width))
        if width > _MOST_WIDE:
            raise CannotFuse(f"States are too wide for a kernel (got {chain.width} columns).")
        super().__init__(chain, width, device)
        self.flags = {f"HAS_{name.upper()}": is_so for name, is_so in self.has.items()}
        self.flags |= {"HAS_EDGE": chain.kind == "gine", "IS_MEAN": chain.is_mean}
        self.of_layers = [
            *(self.before, self.weight, self.own, self.shift, self.second, self.second_shift),
            self.root,
        ]

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
        self.first_mapped = packed.mapped_first(clean.first_message).contiguous()
        self.first = tuple(value.contiguous() for value in packed.of_atoms(clean.x))
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
        self.local = local.t().int().contiguous()  # [E, 2]
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
            self.terms = clean.padded_terms(packed.width)
            return
        place = self._place(start, padded, edge_graph, local[1], local[0])
        self._add(place, clean.coefficient)
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
        self,
        out: Tensor,
        jobs: Tensor,  # [J, 4]
        rows: Tensor,
        tables: tuple[Tensor, ...],
        size: int,
        is_atom: bool,
    ) -> None:
        packed, clean, num_draws = self.packed, self.clean, rows.size(1)
        draws = min(_DRAWS, num_draws)
        pass_kernel[(jobs.size(0), triton.cdiv(num_draws, draws))](
            *(out, jobs.contiguous(), rows.contiguous(), *(v.contiguous() for v in tables)),
            *(self.graphs, self.local, clean.coefficient.contiguous(), clean.outer.contiguous()),
            *(
                self.adjacency,
                self.first_mapped,
                *self.first,
                clean.first_inner.contiguous(),
                self.terms,
            ),
            *(*packed.of_layers, num_draws, self.local.size(0), tables[0].size(1)),
            clean.first_inner.size(1),
            LAYERS=len(packed.chain.layers),
            A=size,
            W=packed.width,
            E=self.most_edges,
            DRAWS=draws,
            IS_ATOM=is_atom,
            PRECISION="ieee",
            **packed.flags,
            num_warps=max(2, min(8, size * packed.width // 512)),
            num_stages=1,
        )
