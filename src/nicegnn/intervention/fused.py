"""Damage to one bond or atom in one kernel: chooses it where model, batch and device allow."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from nicegnn.errors import ShortCutEnds
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import is_anchored
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.parts import AtomReplacement, Damaged, PartDamage
from nicegnn.intervention.query import Query
from nicegnn.kernels.chain import Damage, clean_pass

WORTH = 100  # damaged graphs of a batch for which kernels are loaded
#: Kernels by the type of a device: the package they need, and their module.
KERNELS = {
    "cuda": ("triton", "nicegnn.kernels.triton_pass"),
    "cpu": ("numba", "nicegnn.kernels.numba_pass"),
}
_MOST_NUMBERS = 2**20  # pooled states that are made at a time


def in_kernels(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Iterator[Damaged]:
    """Yields answers by kernels, chunk by chunk; items of graphs that are too large are left out.

    Raises `ShortCutEnds` if kernels do not know damage, model or batch, or fail on this device.
    """
    package, _ = KERNELS.get(query.clean.device.type, ("", ""))
    if num_draws * item.numel() < WORTH or not package or find_spec(package) is None:
        return
    mechanism, chain = query.mechanism, query.chain
    if chain is None:
        raise ShortCutEnds("Kernels do not know the model.")
    if isinstance(part, AtomReplacement):
        is_known = chain.kind != "gine" and part.kinds.keys() == {"x"}
    else:
        prototypes = getattr(mechanism, "prototypes", None)
        is_known = type(mechanism) in (ElementMask, Exchange) and not query.is_random
        is_known &= not is_anchored(mechanism) and query.case.kind is None
        is_known &= prototypes is None or prototypes.names == chain.names
    if not is_known:
        raise ShortCutEnds("Kernels do not know this damage.")
    fused: Fused = query.shared.fused or Fused(query)
    query.shared.fused = fused
    item = item[fused.runner.fits(part.graph_of(query, item))]
    draw = torch.arange(num_draws, device=item.device)
    for some in torch.split(item, max(1, _MOST_NUMBERS // (num_draws * chain.width))):
        output = fused.outputs(query, part, some, draw.expand(some.numel(), -1))
        yield Damaged(some.repeat_interleave(num_draws), draw.repeat(some.numel()), output)


class Fused:
    """Damaged passes over a query's batch, in kernels; raises `ShortCutEnds` if it cannot."""

    def __init__(self, query: Query) -> None:
        case, bonds, chain = query.case, query.case.bonds, query.chain
        assert chain is not None
        if case.num_edges == 0 or int(bonds.count.max()) > 2:
            raise ShortCutEnds("A bond has more than two directed edges, or there is none.")
        self.chain, self.clean = chain, clean_pass(chain, case.batch)
        answer = query.target.read(self.clean.output())
        if not torch.allclose(answer, query.clean, rtol=1e-3, atol=1e-3):
            raise ShortCutEnds("The model was changed: it is not the chain that its layers make.")
        kernel = import_module(KERNELS[query.clean.device.type][1])
        self.runner = kernel.Passes(self.clean)
        if self.clean.loop is not None:  # a pass of the model would tell it
            loops = dict.fromkeys(chain.names, case.batch.num_nodes)
            query.shared.report.clean_loops.update(loops)
        order = bonds.edge_bond.argsort(stable=True)  # edges by bond
        start = bonds.count.cumsum(0) - bonds.count
        second = order[(start + 1).clamp(max=order.numel() - 1)]
        second = torch.where(bonds.count == 2, second, -1)
        self.edges = torch.stack([order[start], second], dim=1)  # [M, 2]

    def outputs(self, query: Query, part: PartDamage, item: Tensor, draw: Tensor) -> Tensor:
        """Returns the raw output for each item, ``[J]``, and its draws, ``[J, N]``."""
        graph, none = part.graph_of(query, item), torch.full_like(item, -1)
        edges, atom, row = none.unsqueeze(1).expand(-1, 2), none, torch.zeros_like(draw)
        x = self.clean.x[:1]
        if isinstance(part, AtomReplacement):
            atom, row, x = item, part.row[item].gather(1, draw), part.kinds["x"].to(query.clean)
        else:
            edges = self.edges[item]
        values = [one.sent.new_zeros(len(x), one.sent.size(1)) for one in self.clean.stages]
        if isinstance(query.mechanism, Exchange) and atom is none:
            prototypes = query.mechanism.prototypes
            assert prototypes is not None  # a query gives an exchange those of the graphs
            values = [layer.to(query.clean) for layer in prototypes.layers]
            row = prototypes.row(graph.unsqueeze(1), draw)
        try:
            pooled = self.runner.pooled(Damage(graph, edges, atom, row, values, x))
        except Exception as error:  # of a compiler that is missing, or a device too small
            raise ShortCutEnds(f"The kernel does not run here: {error}") from error
        return self.chain.head(pooled.flatten(0, 1))
