"""Damage to one bond in one kernel: chooses it where the model, the batch and the device allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nicegnn.intervention.intervene import Site
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.neighbourhoods import agrees
from nicegnn.intervention.query import Query
from nicegnn.kernels.chain import CannotFuse, Chain, read_chain
from nicegnn.kernels.clean_pass import Damage, clean_pass
from nicegnn.seeding import mix, seed_words

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
    agreed: set[object] = field(default_factory=set)  # mechanisms whose answers were compared


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
        self.left = bonds.batch[:0]
        clean = clean_pass(self.chain, partial(target.call, case.batch), case.batch)
        self.runner = packed.over(clean, case.batch.ptr)
        if clean.loop is not None:  # a pass of the model would tell it
            loops = dict.fromkeys(self.chain.names, case.batch.num_nodes)
            query.report.clean_loops.update(loops)
        order = bonds.edge_bond.argsort(stable=True)  # edges by bond
        start = bonds.count.cumsum(0) - bonds.count
        second = order[(start + 1).clamp(max=order.numel() - 1)]
        self.edges = torch.stack(
            [order[start], torch.where(bonds.count == 2, second, -1)], dim=1
        )  # [M, 2]

    def fits(self, query: Query, bond: Tensor) -> Tensor:
        """Whether the graphs of bonds are small enough, ``[J]``."""
        return self.runner.fits(query.case.bonds.batch[bond])

    def damage(
        self, query: Query, bond: Tensor, num_draws: int, stream: int, first_draw: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields bonds, draws and raw outputs, ``[K]``, ``[K]`` and ``[K, C]``, chunk by chunk.

        ``first_draw`` is the number of each bond's first noise draw, ``[M]``. Should the kernel
        fail, the bonds that are still to do are ``left``, and the target remembers why.
        """
        self.left = bond[:0]
        size = max(1, _MOST_NUMBERS // (num_draws * self.chain.width))
        for start in range(0, bond.numel(), size):
            some = bond[start : start + size]
            try:
                output = self.outputs(query, some, num_draws, stream, first_draw[some])
            except Exception as error:  # of a compiler that is missing, or a device too small
                query.target.facts.fusion.reason = _told(error)
                self.left = bond[start:]
                return
            draw = torch.arange(num_draws, device=bond.device).repeat(some.numel())
            yield some.repeat_interleave(num_draws), draw, output

    def outputs(
        self, query: Query, bond: Tensor, num_draws: int, stream: int, first_draw: Tensor
    ) -> Tensor:
        """Returns the raw output for each bond, ``[J]``, and draw, ``[J * N, C]``."""
        damage = self.damages(query, bond, num_draws, stream, first_draw)
        return self.chain.answer(self.runner.pooled(damage).flatten(0, 1))

    def damages(
        self, query: Query, bond: Tensor, num_draws: int, stream: int, first_draw: Tensor
    ) -> Damage:
        """Returns what kernels must know about bonds, ``[J]``, and their noise."""
        mechanism, sizes = query.mechanism, [x.message_size for x in self.chain.layers]
        case = query.case
        seeds = directions = address = None
        if isinstance(mechanism, NoiseCorruption):
            if not self.runner.packed.hashes_noise:
                slot = case.slot[self.edges[bond].clamp(min=0)]  # [J, 2]
                draw = first_draw.unsqueeze(1) + torch.arange(num_draws, device=bond.device)
                where, address = _addresses(slot.unsqueeze(2), draw.unsqueeze(1))
                directions = [
                    mechanism.directions(
                        Site(number, "", stream, *where),
                        query.clean.new_empty(where[0].numel(), size),
                    )
                    for number, size in enumerate(sizes)
                ]
            else:
                rows = [
                    (*seed_words(mix(mechanism.seed, stream, number, size)), size)
                    for number, size in enumerate(sizes)
                ]
                seeds = torch.tensor(rows, dtype=torch.int32).to(bond.device)
        return Damage(
            case.bonds.batch[bond],
            self.edges[bond],
            first_draw,
            case.slot,
            num_draws,
            seeds,
            antithetic=bool(getattr(mechanism, "antithetic", False)),
            directions=directions,
            address=address,
        )


@torch.no_grad()
def masked_answers(query: Query, edge_gate: Tensor) -> Tensor:
    """Returns log-probabilities (or values) under masks of all edges, ``[N, E]``, ``[N, B, C]``.

    A kernel computes them, if there is one for the model; else `Query.answers` does.
    """
    query = query.under(ElementMask())
    fused = find_fused(query, edge_gate.size(0) * query.case.num_graphs)
    every = torch.arange(query.case.num_graphs, device=edge_gate.device)
    if fused is None or not fused.runner.fits(every).all():
        return _in_chunks(query, edge_gate)
    known: Fusion = query.target.facts.fusion
    try:
        pooled = fused.runner.masked(edge_gate).transpose(0, 1)  # [N, B, W]
    except CannotFuse:  # other damage runs in kernels all the same
        return _in_chunks(query, edge_gate)
    except Exception as error:  # of a compiler that is missing
        known.reason = _told(error)
        return _in_chunks(query, edge_gate)
    answer = query.target.read(fused.chain.answer(pooled.flatten(0, 1))).view(*pooled.shape[:2], -1)
    if "masks" not in known.agreed:
        expected = _in_chunks(query, edge_gate)
        if not torch.allclose(answer, expected, rtol=1e-3, atol=1e-3):
            known.reason = "The kernel's answers under masks are not those of the model."
            return expected
        if not torch.allclose(expected, query.clean.expand_as(expected), rtol=1e-5, atol=1e-5):
            known.agreed.add("masks")  # masks without any effect tell nothing
    return answer


def _in_chunks(query: Query, edge_gate: Tensor) -> Tensor:
    return torch.cat([query.answers(some) for some in torch.split(edge_gate, query.chunk_draws)])


def _addresses(slot: Tensor, draw: Tensor) -> tuple[tuple[Any, ...], Tensor]:
    """Returns rows of noise, and where each slot and draw, ``[J, 2, 1]`` and ``[J, 1, N]``, is.

    The rows are slot and draw of each, and the bounds of both, as in `Site`. Bonds with the same
    draws share rows.
    """
    num_slots, low, end = int(slot.max()) + 1, int(draw.min()), int(draw.max()) + 1
    address = (draw - low) * num_slots + slot  # [J, 2, N]
    rows = torch.arange((end - low) * num_slots, device=slot.device)
    if rows.numel() > address.numel():  # each bond has draws of its own
        rows, address = address.flatten(), torch.arange(address.numel()).view(address.shape)
    return (rows % num_slots, rows // num_slots + low, num_slots, end, low), address


def find_fused(query: Query, copies: int) -> Fused | None:
    """Returns kernels for a query if they can run its model and batch here, else None.

    ``copies`` are the damaged graphs to run; kernels are used once they are many.
    The first time, answers for a few bonds are compared with those of whole graphs. The target
    remembers the result, and the reason if there is one, until the model's weights change.
    """
    target, shared = query.target, query.shared
    if not _has_kernels(query.clean.device) or not _is_known(query):
        return None
    facts = target.facts
    if facts.fusion is None:
        facts.fusion = Fusion()
    known: Fusion = facts.fusion
    known.copies += copies
    if known.packed is None and not known.reason:
        if known.copies < WORTH[query.clean.device.type]:
            return None
        try:
            known.packed = _pack(query)
        except CannotFuse as error:
            known.reason = str(error)
    if known.reason or shared.fused is False:
        return None
    try:
        if shared.fused is None:
            shared.fused = Fused(query, known.packed)
    except CannotFuse:  # this batch only
        shared.fused = False
        return None
    fused: Fused = shared.fused
    name = type(query.mechanism).__name__
    if name not in known.agreed:
        try:
            same = agrees(query, partial(_answers, query, fused), fits=partial(fused.fits, query))
            known.reason = "" if same else "The kernel's answers are not those of the model."
        except Exception as error:  # of a compiler that is missing, or a device too small
            known.reason = _told(error)
        if known.reason:
            return None
        if shared.has_effect:
            known.agreed.add(name)
    return fused


def _told(error: Exception) -> str:
    return f"The kernel does not run here: {type(error).__name__}: {error}"


def _answers(query: Query, fused: Fused, bond: Tensor) -> Tensor:
    return fused.outputs(query, bond, 1, 0, torch.zeros_like(bond))


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


def _is_known(query: Query) -> bool:
    """Whether kernels know the mechanism and the kind of answer."""
    known = type(query.mechanism) in (ElementMask, NoiseCorruption) and not query.is_anchored
    return known and query.target.level == "graph" and query.target.is_batched
