"""The result: scores per edge and bond, with the report that says how far to trust them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntFlag

import torch
from torch import Tensor

from nicegnn.graph.case import Bonds, Case, rank_within

# attributes of an explanation with an entry per bond, and per graph
PER_BOND = ("bond_score", "bond_big", "bond_stderr", "bond_gate", "bond_reached")
_OF_BOUNDARY = ("completeness_gap", "risk_corrupted", "risk_boundary", "restored")
PER_GRAPH = ("target", "prediction", *_OF_BOUNDARY)


class Flag(IntFlag):
    """What was noticed about one graph. Advice for each is in `ADVICE`."""

    OK = 0
    NO_EDGES = 1
    INSENSITIVE = 2
    NOT_RESTORED = 4
    ALL_RESTORED = 8
    UNFITTED_CLASS = 16


ADVICE = {
    Flag.NO_EDGES: "The graph has no edges, so there is nothing to score.",
    Flag.INSENSITIVE: (
        "Corrupting every message hardly changes the prediction: it does not depend on edges, and "
        "their scores say little. Look at the node features instead."
    ),
    Flag.NOT_RESTORED: (
        "The risk at the boundary is above its target: scores explain only a part of the "
        "prediction. Fit longer, allow a larger risk_target, or lower the penalty."
    ),
    Flag.ALL_RESTORED: (
        "Nearly all edges had to be restored, so the gates give no ranking. Use the attribution, "
        "raise the penalty, or allow a larger risk_target."
    ),
    Flag.UNFITTED_CLASS: (
        "No training graph was explained for this class, so the boundary was optimised on this "
        "graph alone. Fit on graphs of this class for steadier gates."
    ),
}


@dataclass(frozen=True)
class Status:
    """How the explanations of a batch were made and what was noticed.

    Attributes:
        boundary: ``"amortised"`` (fitted gate network), ``"per-graph"`` (optimised on each graph
            alone), or ``"none"`` for methods without one.
        flags: one `Flag` per graph.
        notes: facts about the whole run.
    """

    boundary: str
    flags: tuple[Flag, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was noticed about any graph."""
        return all(flag == Flag.OK for flag in self.flags)

    def __str__(self) -> str:
        lines = [f"boundary: {self.boundary}, {len(self.flags)} graph(s)", *self.notes]
        for flag, advice in ADVICE.items():
            number = sum(1 for seen in self.flags if flag in seen)
            if number:
                lines.append(f"{number} x {flag.name}: {advice}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """Edge attributions of one graph or of a batch of graphs.

    Attributions are signed: positive where restoring the bond lowers the risk. Bonds are the unit;
    `edge_score` spreads a bond's score evenly over its directed edges, so that both add up to the
    same total. A gate lies in [0, 1] and tells how far a bond is restored at the boundary.
    Everything about attribution and boundary is nan where a method has none.

    Attributes:
        edge_index: directed edges, ``[2, E]``.
        bonds: bonds, their edges and their graphs.
        ptr: first node of each graph, and one past the last, ``[B + 1]``.
        bond_score: what ranks the bonds: attribution, order of the gates, or both, ``[M]``.
        bond_big: attribution of each bond, ``[M]``.
        bond_stderr: standard error of `bond_big` over noise draws, ``[M]``.
        bond_gate: restoration gate of each bond at the boundary, ``[M]``.
        bond_reached: bonds in the computation graph of the explained output, ``[M]``.
        target: explained class (or output) of each graph, ``[B]``.
        prediction: clean log-probabilities (or values), ``[B, C]``.
        completeness_gap: distance of a graph's attributions from adding up to R(0) - R(rho*),
            ``[B]``; nan where bonds are attributed one by one.
        risk_corrupted: R(0), ``[B]``.
        risk_boundary: R(rho*), ``[B]``.
        restored: restored share of each graph's edges at the boundary, ``[B]``.
        status: how the boundary was found, flags per graph, advice.
        index: explained node of each graph, for node tasks, ``[B]``.
    """

    edge_index: Tensor
    bonds: Bonds
    ptr: Tensor
    bond_score: Tensor
    bond_big: Tensor
    bond_stderr: Tensor
    bond_gate: Tensor
    bond_reached: Tensor
    target: Tensor
    prediction: Tensor
    completeness_gap: Tensor
    risk_corrupted: Tensor
    risk_boundary: Tensor
    restored: Tensor
    status: Status
    index: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        return int(self.target.numel())

    @property
    def bond_index(self) -> Tensor:
        """The two ends of each bond, ``[2, M]``."""
        return self.bonds.index

    @property
    def edge_batch(self) -> Tensor:
        """Graph of each directed edge, ``[E]``."""
        return self.bonds.batch[self.bonds.edge_bond]

    @property
    def edge_score(self) -> Tensor:
        """Score of each directed edge, ``[E]``."""
        return (self.bond_score / self.bonds.count)[self.bonds.edge_bond]

    @property
    def edge_stderr(self) -> Tensor:
        """Standard error of each directed edge's attribution, ``[E]``."""
        return (self.bond_stderr / self.bonds.count)[self.bonds.edge_bond]

    @property
    def gate(self) -> Tensor:
        """Restoration gate of each directed edge, ``[E]``."""
        return self.bond_gate[self.bonds.edge_bond]

    def top(self, size: float | int) -> Tensor:
        """Returns the best bonds of each graph as a mask, ``[M]``.

        Args:
            size: a share in (0, 1] of the graph's bonds, rounded, at least one; or a whole number
                of bonds. Only bonds in the computation graph count. Equal scores keep bond order.
        """
        is_count = isinstance(size, int) and not isinstance(size, bool)
        if not size > 0 or (not is_count and size > 1):
            raise ValueError(
                f"`size` must be a share in (0, 1] or a positive number of bonds (got {size!r})."
            )
        batch = self.bonds.batch
        score = self.bond_score.masked_fill(~self.bond_reached, -torch.inf)
        reached = torch.bincount(batch[self.bond_reached], minlength=self.num_graphs)
        wanted = (
            torch.full_like(reached, int(size))
            if is_count
            else (reached * size).round().long().clamp(min=1)
        )
        rank = rank_within(score, batch, self.num_graphs)
        return (rank < wanted[batch]) & self.bond_reached

    def split(self) -> list[Explanation]:
        """Returns one explanation per graph, with node numbers of its own graph."""
        edge_batch = self.edge_batch
        by_graph = edge_batch.argsort(stable=True)
        num_edges = torch.bincount(edge_batch, minlength=self.num_graphs).tolist()
        bond_by_graph = self.bonds.batch.argsort(stable=True)
        num_bonds = torch.bincount(self.bonds.batch, minlength=self.num_graphs).tolist()
        local = torch.empty_like(bond_by_graph)
        local[bond_by_graph] = torch.arange(local.numel(), device=local.device)
        parts = []
        first_edge = first_bond = 0
        for g in range(self.num_graphs):
            edges = by_graph[first_edge : first_edge + num_edges[g]]
            chosen = bond_by_graph[first_bond : first_bond + num_bonds[g]]
            parts.append(self._part(g, edges, chosen, local[self.bonds.edge_bond[edges]]))
            parts[-1] = replace(
                parts[-1],
                bonds=replace(parts[-1].bonds, edge_bond=parts[-1].bonds.edge_bond - first_bond),
            )
            first_edge, first_bond = first_edge + num_edges[g], first_bond + num_bonds[g]
        return parts

    def _part(self, g: int, edges: Tensor, bonds: Tensor, edge_bond: Tensor) -> Explanation:
        one, offset = slice(g, g + 1), self.ptr[g]
        return Explanation(
            edge_index=self.edge_index[:, edges] - offset,
            bonds=Bonds(
                self.bonds.index[:, bonds] - offset,
                edge_bond,
                torch.zeros_like(bonds),
                self.bonds.count[bonds],
            ),
            ptr=self.ptr[g : g + 2] - offset,
            status=replace(self.status, flags=self.status.flags[one]),
            index=None if self.index is None else self.index[one],
            **{name: getattr(self, name)[bonds] for name in PER_BOND},
            **{name: getattr(self, name)[one] for name in PER_GRAPH},
        )

    def __repr__(self) -> str:
        size = f"{self.num_graphs} graph(s), {self.bond_score.numel()} bonds"
        if self.status.boundary == "none":
            return f"Explanation({size})"
        gap = float(self.completeness_gap.mean())
        known = "" if gap != gap else f"completeness gap {gap:.2g}, "
        return (
            f"Explanation({size}, restored {float(self.restored.mean()):.2f}, {known}boundary "
            f"{self.status.boundary})"
        )


def scores_only(
    case: Case, bond_score: Tensor, target: Tensor, prediction: Tensor, notes: Sequence[str] = ()
) -> Explanation:
    """Returns the explanation of a method that gives scores and has no boundary.

    Args:
        case: the explained graphs.
        bond_score: what ranks the bonds, ``[M]``.
        target: explained class of each graph, ``[B]``.
        prediction: clean log-probabilities (or values), ``[B, C]``.
    """
    per_bond, per_graph = (torch.full_like(v, torch.nan) for v in (bond_score, prediction[:, 0]))
    edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
    return Explanation(
        edge_index=case.batch.edge_index,
        bonds=case.bonds,
        ptr=case.batch.ptr,
        bond_score=torch.where(case.reached, bond_score, 0.0),
        bond_reached=case.reached,
        target=target,
        prediction=prediction,
        **dict.fromkeys(("bond_big", "bond_stderr", "bond_gate"), per_bond),
        **dict.fromkeys(_OF_BOUNDARY, per_graph),
        status=Status(
            "none",
            tuple(Flag.NO_EDGES if number == 0 else Flag.OK for number in edges.tolist()),
            tuple(notes),
        ),
    )


def concatenate(parts: Sequence[Explanation]) -> Explanation:
    """Joins explanations of several batches into one."""
    if len(parts) == 1:
        return parts[0]
    nodes = [0, *torch.tensor([int(p.ptr[-1]) for p in parts]).cumsum(0).tolist()]
    graphs = [0, *torch.tensor([p.num_graphs for p in parts]).cumsum(0).tolist()]
    sizes = [0, *torch.tensor([p.bond_score.numel() for p in parts]).cumsum(0).tolist()]
    bonds = Bonds(
        torch.cat([p.bonds.index + n for p, n in zip(parts, nodes, strict=False)], dim=1),
        torch.cat([p.bonds.edge_bond + m for p, m in zip(parts, sizes, strict=False)]),
        torch.cat([p.bonds.batch + g for p, g in zip(parts, graphs, strict=False)]),
        torch.cat([p.bonds.count for p in parts]),
    )
    joined = {
        name: torch.cat([getattr(p, name) for p in parts]) for name in (*PER_BOND, *PER_GRAPH)
    }
    status = parts[0].status
    nodes_explained = [p.index for p in parts if p.index is not None]
    return Explanation(
        edge_index=torch.cat([p.edge_index + n for p, n in zip(parts, nodes, strict=False)], dim=1),
        bonds=bonds,
        ptr=torch.cat(
            [parts[0].ptr[:1], *(p.ptr[1:] + n for p, n in zip(parts, nodes, strict=False))]
        ),
        status=replace(
            status,
            flags=tuple(flag for p in parts for flag in p.status.flags),
            notes=tuple(dict.fromkeys(note for p in parts for note in p.status.notes)),
        ),
        index=torch.cat(nodes_explained) if nodes_explained else None,
        **joined,
    )
