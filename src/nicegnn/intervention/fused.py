"""Damage to one bond or atom in one kernel: chooses it where model, batch and device allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.parts import AtomReplacement, PartDamage, compare, compared_items
from nicegnn.intervention.query import Query
from nicegnn.kernels.chain import CannotFuse, Chain, read_chain
from nicegnn.kernels.clean_pass import Damage, clean_pass

#: Damaged graphs of one model after which loading or compiling a kernel pays.
WORTH = {"cuda": 50_000, "cpu": 20_000}
_PACKAGES = {"cuda": "triton", "cpu": "numba"}
_MOST_NUMBERS = 2**27  # pooled states that are kept at a time


@dataclass
class Fusion:
    """What is known about a model: its form for kernels, or why it has none."""

    copies: int = 0  # damaged graphs so far
    packed: Any = None  # the chain with its weights as the kernel reads them
    reason: str = ""  # why kernels are not used, if so
    agreed: set[str] = field(default_factory=set)  # kinds of damage whose answers were compared


class Fused:
    """Damaged passes over a query's batch, in kernels.

    Raises:
        CannotFuse: if the batch does not allow it.
    """

    def __init__(self, query: Query, packed: Any) -> None:
        case, target = query.case, query.target
        bonds = case.bonds
        if case.num_edges == 0 or int(bonds.count.max()) > 2:
            raise CannotFuse("A bond has more than two directed edges, or there is none.")
        self.chain: Chain = packed.chain.of(target.model)  # a call has its own copy of the model
        self.clean = clean_pass(self.chain, partial(target.call, case.batch), case.batch)
        self.runner = packed.over(self.clean, case.batch.ptr)
        if self.clean.loop is not None:  # a pass of the model would tell it
            loops = dict.fromkeys(self.chain.names, case.batch.num_nodes)
            query.report.clean_loops.update(loops)
        order = bonds.edge_bond.argsort(stable=True)  # edges by bond
        start = bonds.count.cumsum(0) - bonds.count
        second = order[(start + 1).clamp(max=order.numel() - 1)]
        self.edges = torch.stack(
            [order[start], torch.where(bonds.count == 2, second, -1)], dim=1
        )  # [M, 2]

    def fits(self, query: Query, part: PartDamage, item: Tensor) -> Tensor:
        """Returns the items whose graphs are small enough, ``[J]``."""
        return item[self.runner.fits(part.graph_of(query, item))]

    def damage(
        self, query: Query, part: PartDamage, item: Tensor, num_draws: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields items, draws and raw outputs, ``[K]``, ``[K]`` and ``[K, C]``, chunk by chunk.

        Items of graphs that are too large are left out. Should the kernel fail, all that are still
        to do are, and the target remembers why.
        """
        item = self.fits(query, part, item)
        for chunk in torch.split(item, max(1, _MOST_NUMBERS // (num_draws * self.chain.width))):
            try:
                output = self.outputs(query, part, chunk, num_draws)
            except CannotFuse:  # this kind of damage in this batch
                return
            except Exception as error:  # of a compiler that is missing, or a device too small
                query.target.facts.fusion.reason = _reason(error)
                return
            draw = torch.arange(num_draws, device=item.device).repeat(chunk.numel())
            yield chunk.repeat_interleave(num_draws), draw, output

    def outputs(self, query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Tensor:
        """Returns the raw output for each item, ``[J]``, and draw, ``[J * N, C]``."""
        number = torch.arange(num_draws, device=item.device).expand(item.numel(), -1)
        if isinstance(part, AtomReplacement):
            damage = self._of_atoms(query, part, item, number)
        else:
            damage = self._of_bonds(query, item, number)
        return self.chain.answer(self.runner.pooled(damage).flatten(0, 1))

    def _of_bonds(self, query: Query, bond: Tensor, number: Tensor) -> Damage:
        """Returns what kernels must know about bonds, ``[J]``, and their draws, ``[J, N]``."""
        graph = query.case.bonds.batch[bond]
        values, row = self._nothing(query), torch.zeros_like(number)
        if isinstance(query.mechanism, Exchange):
            prototypes = query.mechanism.prototypes
            assert prototypes is not None  # a query gives an exchange those of the graphs
            if prototypes.names != tuple(self.chain.names):
                raise CannotFuse("Prototypes are those of other layers.")
            values = [layer.to(query.clean) for layer in prototypes.layers]
            row = prototypes.row(graph.unsqueeze(1), number)
        no_atom = torch.full_like(bond, -1)
        return Damage(graph, self.edges[bond], no_atom, row, values, self.clean.x[:1])

    def _of_atoms(
        self, query: Query, part: AtomReplacement, atom: Tensor, number: Tensor
    ) -> Damage:
        x = query.case.batch.get("x")
        is_read = isinstance(x, Tensor) and x.data_ptr() == self.clean.x.data_ptr()
        if self.chain.kind == "gine" or part.kinds.keys() != {"x"} or not is_read:
            raise CannotFuse("Atoms are not what the first layer reads.")
        no_edges = torch.full_like(atom, -1).unsqueeze(1).expand(-1, 2)
        row = part.row[atom].gather(1, number)
        graph, values = part.graph_of(query, atom), self._nothing(query)
        return Damage(graph, no_edges, atom, row, values, part.kinds["x"].to(query.clean))

    def _nothing(self, query: Query) -> list[Tensor]:
        """Returns what masked bonds say, one row for each layer."""
        return [query.clean.new_zeros(1, layer.message_size) for layer in self.chain.layers]


def find_fused(query: Query, part: PartDamage, item: Tensor, num_draws: int) -> Fused | None:
    """Returns kernels for a query if they can run its model and batch here, else None.

    They are used once damaged graphs are many. The first time, answers for a few items are compared
    with those of whole graphs. The target remembers the result, and the reason if there is one,
    until the model's weights change.
    """
    target, shared = query.target, query.shared
    if not _has_kernels(query.clean.device) or not _is_known(query, part):
        return None
    facts = target.facts
    if facts.fusion is None:
        facts.fusion = Fusion()
    fusion: Fusion = facts.fusion
    fusion.copies += num_draws * item.numel()
    if fusion.packed is None and not fusion.reason:
        if fusion.copies < WORTH[query.clean.device.type]:
            return None
        try:
            fusion.packed = _pack(query)
        except CannotFuse as error:
            fusion.reason = str(error)
    if fusion.reason or shared.fused is False:
        return None
    try:
        if shared.fused is None:
            shared.fused = Fused(query, fusion.packed)
    except CannotFuse:  # this batch only
        shared.fused = False
        return None
    fused: Fused = shared.fused
    if part.name(query) not in fusion.agreed:
        compared, draw = compared_items(fused.fits(query, part, item), num_draws)
        try:
            output = fused.outputs(query, part, compared, num_draws)  # [J * N, C]
            output = output[torch.arange(draw.numel(), device=draw.device) * num_draws + draw]
            is_right = compare(query, part, compared, draw, output)
        except CannotFuse:  # this kind of damage in this batch
            return None
        except Exception as error:  # of a compiler that is missing, or a device too small
            fusion.reason = _reason(error)
            return None
        if is_right is False:
            fusion.reason = "The kernel's answers are not those of the model."
            return None
        if is_right:
            fusion.agreed.add(part.name(query))
    return fused


def _reason(error: Exception) -> str:
    return f"The kernel does not run here: {type(error).__name__}: {error}"


def _pack(query: Query) -> Any:
    """Returns the model in the form of kernels."""
    batch, device = query.case.batch, query.clean.device
    chain = read_chain(query.target.model, partial(query.target.call, batch), batch.batch)
    if device.type == "cuda":
        from nicegnn.kernels.triton_pass import TritonChain

        return TritonChain(chain, device)
    from nicegnn.kernels.numba_pass import NumbaChain

    return NumbaChain(chain, device)


def _has_kernels(device: torch.device) -> bool:
    package = _PACKAGES.get(device.type)
    return package is not None and find_spec(package) is not None


def _is_known(query: Query, part: PartDamage) -> bool:
    """Whether kernels know the damage and the kind of answer."""
    mechanism, target = query.mechanism, query.target
    is_constant = type(mechanism) in (ElementMask, Exchange) and not query.is_random
    is_damage = isinstance(part, AtomReplacement) or (is_constant and not query.is_anchored)
    return is_damage and target.level == "graph" and target.is_batched and query.case.kind is None
