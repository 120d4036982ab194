"""Damage to one bond or atom in one kernel: chooses it where model, batch and device allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.parts import AtomReplacement, PartDamage, agrees
from nicegnn.intervention.query import Query
from nicegnn.kernels.chain import CannotFuse, Chain, Damage, clean_pass, read_chain

#: Damaged graphs of one model after which loading or compiling a kernel pays.
WORTH = {"cuda": 50_000, "cpu": 20_000}
_PACKAGES = {"cuda": "triton", "cpu": "numba"}
_MODULES = {key: f"nicegnn.kernels.{name}_pass" for key, name in _PACKAGES.items()}
_MOST_NUMBERS = 2**27  # pooled states that are kept at a time


@dataclass
class Fusion:
    """What is known about a model: its form for kernels, or why it has none."""

    copies: int = 0  # damaged graphs so far
    packed: Any = None  # the chain with its weights as the kernel reads them
    passes: Any = None  # what makes damaged passes of it, over a batch
    reason: str = ""  # why kernels are not used, if so
    agreed: set[str] = field(default_factory=set)  # kinds of damage whose answers were compared


class Fused:
    """Damaged passes over a query's batch, in kernels.

    Raises:
        CannotFuse: if the batch does not allow it.
    """

    def __init__(self, query: Query, fusion: Fusion) -> None:
        case, bonds = query.case, query.case.bonds
        if case.num_edges == 0 or int(bonds.count.max()) > 2:
            raise CannotFuse("A bond has more than two directed edges, or there is none.")
        self.fusion, self.chain = fusion, fusion.packed.chain
        self.clean = clean_pass(self.chain, case.batch)
        self.runner = fusion.passes(fusion.packed, self.clean, case.batch.ptr)
        if self.clean.loop is not None:  # a pass of the model would tell it
            loops = dict.fromkeys(self.chain.names, case.batch.num_nodes)
            query.report.clean_loops.update(loops)
        order = bonds.edge_bond.argsort(stable=True)  # edges by bond
        start = bonds.count.cumsum(0) - bonds.count
        second = order[(start + 1).clamp(max=order.numel() - 1)]
        self.edges = torch.stack(
            [order[start], torch.where(bonds.count == 2, second, -1)], dim=1
        )  # [M, 2]

    def damage(
        self, query: Query, part: PartDamage, item: Tensor, num_draws: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields items, draws and raw outputs, ``[K]``, ``[K]`` and ``[K, C]``, chunk by chunk.

        Items of graphs that are too large are left out.
        """
        item = item[self.runner.fits(part.graph_of(query, item))]
        draw = torch.arange(num_draws, device=item.device)
        for chunk in torch.split(item, max(1, _MOST_NUMBERS // (num_draws * self.chain.width))):
            output = self.outputs(query, part, chunk, draw.expand(chunk.numel(), -1))
            yield chunk.repeat_interleave(num_draws), draw.repeat(chunk.numel()), output

    def outputs(self, query: Query, part: PartDamage, item: Tensor, draw: Tensor) -> Tensor:
        """Returns the raw output for each item, ``[J]``, and its draws, ``[J, N]``."""
        graph, none = part.graph_of(query, item), torch.full_like(item, -1)
        edges, atom, row = none.unsqueeze(1).expand(-1, 2), none, torch.zeros_like(draw)
        x = self.clean.x[:1]
        if isinstance(part, AtomReplacement):
            atom, row, x = item, part.row[item].gather(1, draw), part.kinds["x"].to(query.clean)
        else:
            edges = self.edges[item]
        sizes = [layer.message_size for layer in self.chain.layers]
        values = [query.clean.new_zeros(x.size(0), size) for size in sizes]  # a row for each `row`
        if isinstance(query.mechanism, Exchange) and atom is none:
            prototypes = query.mechanism.prototypes
            assert prototypes is not None  # a query gives an exchange those of the graphs
            values = [layer.to(query.clean) for layer in prototypes.layers]
            row = prototypes.row(graph.unsqueeze(1), draw)
        try:
            pooled = self.runner.pooled(Damage(graph, edges, atom, row, values, x))
        except Exception as error:  # of a compiler that is missing, or a device too small
            self.fusion.reason = f"The kernel does not run here: {type(error).__name__}: {error}"
            raise CannotFuse(self.fusion.reason) from error
        output: Tensor = self.chain.head(pooled.flatten(0, 1))
        return output


def find_fused(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Fused | None:
    """Returns kernels for a query if they can run its model and batch here, else None.

    They are used once damaged graphs are many. The first time, answers for a few items are compared
    with those of whole graphs. The target remembers the result, and the reason if there is one,
    until the model's weights change.
    """
    shared, facts, device = query.shared, query.target.facts, query.clean.device
    if not _has_kernels(device) or not _is_known(query, part):
        return None
    fusion: Fusion = facts.fusion or Fusion()
    facts.fusion = fusion
    fusion.copies += num_draws * item.numel()
    is_worth = fusion.packed is not None or fusion.copies >= WORTH[device.type]
    if fusion.reason or not is_worth or shared.fused is False:
        return None
    if fusion.packed is None:
        try:
            kernel = import_module(_MODULES[device.type])
            fusion.packed = kernel.packed(read_chain(query.target.model), device)
            fusion.passes = kernel.Passes
        except CannotFuse as error:
            fusion.reason = str(error)
            return None
    if shared.fused is None:
        shared.fused = False  # unless the batch allows it
        shared.fused = Fused(query, fusion)
    fused: Fused = shared.fused
    name = part.kind if part.kind == "atom" else type(query.mechanism).__name__
    if not _is_taken(query, part, fused.chain):
        return None
    if name not in fusion.agreed:
        some = item[fused.runner.fits(part.graph_of(query, item))]
        is_right = agrees(
            query, part, some, num_draws, lambda i, k: fused.outputs(query, part, i, k.unsqueeze(1))
        )
        if is_right is False:
            fusion.reason = "The kernel's answers are not those of the model."
            return None
        fusion.agreed |= {name} if is_right else set()
    return fused


def _has_kernels(device: torch.device) -> bool:
    package = _PACKAGES.get(device.type)
    return package is not None and find_spec(package) is not None


def _is_known(query: Query, part: PartDamage) -> bool:
    """Whether kernels know the damage and the kind of answer."""
    mechanism, target = query.mechanism, query.target
    is_constant = type(mechanism) in (ElementMask, Exchange) and not query.is_random
    is_damage = isinstance(part, AtomReplacement) or (is_constant and not query.is_anchored)
    is_plain = target.level == "graph" and target.inputs is None and query.case.kind is None
    return is_damage and is_plain and target.is_batched


def _is_taken(query: Query, part: PartDamage, chain: Chain) -> bool:
    """Whether atoms are what the first layer reads, and prototypes those of the chain's layers."""
    if isinstance(part, AtomReplacement):
        return chain.kind != "gine" and part.kinds.keys() == {"x"}
    prototypes = getattr(query.mechanism, "prototypes", None)
    return prototypes is None or prototypes.names == chain.names
