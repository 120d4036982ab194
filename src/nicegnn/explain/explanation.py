"""The result: scores per edge and bond, with a quality report."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from nicegnn.config import Count, check_number
from nicegnn.errors import ConfigError, GraphError
from nicegnn.explain.checks import share_or_number, shown
from nicegnn.explain.trust import Flag, Status, Trust, flags_of
from nicegnn.graph.case import Bonds, Case, edge_slots, rank_within
from nicegnn.graph.kinds import Kinds

if TYPE_CHECKING:
    import pandas as pd

    from nicegnn.molecule.picture import Palette, Picture

# attributes of an explanation with an entry per bond, graph, atom or edge; some may be None
_OF_LOSS = ("bond_loss", "bond_change", "bond_stderr", "bond_gate")
_OF_BOUNDARY = ("completeness_gap", "risk_corrupted", "risk_boundary", "restored")
PER_BOND = ("bond_score", "bond_reached", *_OF_LOSS)
PER_GRAPH = ("target", "prediction", *_OF_BOUNDARY, "index", "smiles", "status", "trust")
PER_ATOM = ("atom_score", "atom_loss", "atom_stderr", "atom_place", "attribute_score")
PER_EDGE = ("edge_origin", "edge_kind")

Kind = Literal["bonds", "atoms", "graphs"]
Value = Literal["score", "loss", "change", "gate"]
#: Unit of scores: a share of the odds, that of the value, or one of the method's own.
Unit = Literal["odds", "value", "own"]


@dataclass(frozen=True)
class Whole:
    """The graph whose nodes were explained."""

    edge_index: Tensor  # all its directed edges, [2, E]
    bonds: Bonds  # all its bonds
    edge_kind: Tensor | None = None  # kind of each edge, if there are several, [E]


@dataclass(frozen=True)
class Explanation:
    """Edge attributions of one graph or of a batch of graphs.

    For classes a score is the share of the odds that is lost with the bond, ``1 - exp(-loss)``, in
    [0, 1]; for values it is the loss itself, in units of the value. Scores of two graphs can be
    compared. Rivals, and the paper's method, have units of their own. What a method does not have,
    such as a boundary, is nan or None.

    The edges of a bond share its score; a one-way edge counts like one direction of a two-way bond.
    Explanations of nodes are sparse: every explained node has a graph with all nodes, but only with
    the bonds within its reach. `to_dense` adds the others, with scores of 0.
    """

    edge_index: Tensor  # directed edges, [2, E]
    bonds: Bonds  # bonds, their edges and their graphs
    ptr: Tensor  # first node of each graph, and one past the last, [B + 1]
    bond_score: Tensor  # share of the odds lost with each bond, or loss of the value, [M]
    bond_loss: Tensor  # the loss in log-odds, in units of the value, or (paper) of the risk, [M]
    bond_change: Tensor  # the same with its sign: negative where the prediction gains, [M]
    bond_stderr: Tensor  # standard error of `bond_loss` over prototypes or noise draws, [M]
    bond_gate: Tensor  # restoration gate of each bond at the boundary, [M]
    bond_reached: Tensor  # bonds in the computation graph of the explained output, [M]
    target: Tensor  # explained class (or output) of each graph, [B]
    prediction: Tensor  # clean log-probabilities (or values), [B, C]
    completeness_gap: Tensor  # distance of total attribution from R(0) - R(rho*), [B]
    risk_corrupted: Tensor  # R(0), [B]
    risk_boundary: Tensor  # R(rho*), [B]
    restored: Tensor  # restored share of each graph's edges at the boundary, [B]
    status: Status  # flags per graph, advice, notes
    unit: Unit = "own"  # of `bond_score`
    index: Tensor | None = None  # explained node of each graph, [B], or pair of nodes, [B, 2]
    smiles: tuple[str, ...] | None = None  # of each graph, empty where it carries none, [B]
    atom_score: Tensor | None = None  # share of the odds lost without an atom, or gained (minus);
    # for values the loss itself; None for methods that score no atoms, [V]
    atom_loss: Tensor | None = None  # what log-odds or value lose without it, minus gains, [V]
    atom_stderr: Tensor | None = None  # standard error of `atom_loss` over prototypes, [V]
    atom_place: Tensor | None = None  # 1 and 2: either of these places suffices for the class;
    # -1 and -2: both are needed; 0: any other atom; see `two_places`, [V]
    attribute_score: Tensor | None = None  # the same of each column of `x` alone, [V, F]
    trust: Trust | None = None  # how far to trust each graph's scores, for methods that tell
    edge_origin: Tensor | None = None  # column of each edge in `whole`, for node tasks, [E]
    whole: Whole | None = None  # the graph of explained nodes, if only a part of it is stored
    edge_kind: Tensor | None = None  # number of each edge's kind, if there are several, [E]
    kinds: Kinds | None = None  # what these numbers mean, for a `HeteroData`

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
        """Score of each directed edge, ``[E]``; edges rank as their bonds do."""
        most = self.bonds.count.new_zeros(self.num_graphs)  # directed edges of a bond of the graph
        most = most.scatter_reduce(0, self.bonds.batch, self.bonds.count, "amax")
        return (self.bond_score / most[self.bonds.batch])[self.bonds.edge_bond]

    @property
    def ranking(self) -> Tensor:
        """What ranks the bonds, ``[M]``: sizes of losses, or scores in a unit of their own."""
        return self.bond_score if self.unit == "own" else self.bond_loss.abs()

    def top(self, size: float | int) -> Tensor:
        """Returns the best bonds of each graph as a mask, ``[M]``; equal scores keep bond order.

        The size is a share in (0, 1] of the reached bonds, rounded to at least one, or a whole
        number of bonds.
        """
        share_or_number("size", size)
        batch = self.bonds.batch
        score = self.ranking.masked_fill(~self.bond_reached, -torch.inf)
        reached = torch.bincount(batch[self.bond_reached], minlength=self.num_graphs)
        wanted = (reached * size).round().clamp(min=1)
        if isinstance(size, int):
            wanted = torch.full_like(wanted, min(size, batch.numel() + 1))
        return (rank_within(score, batch, self.num_graphs) < wanted[batch]) & self.bond_reached

    def to_dense(self) -> Explanation:
        """Returns explanations of nodes with all bonds of the whole graph, or itself."""
        from nicegnn.explain.node_tasks import to_dense

        return to_dense(self)

    def by_kind(self, graph: HeteroData) -> HeteroData:
        """Returns the explained graph with ``edge_score`` and ``atom_score``, added over nodes."""
        dense = self.to_dense()
        if self.kinds is None or dense.edge_index.size(1) % max(1, graph.num_edges):
            raise GraphError(
                "`graph` must be the HeteroData that was explained (got "
                f"{graph.num_edges} edges for {dense.edge_index.size(1)} scores). Pass that one."
            )
        out, copies = copy.copy(graph), (max(1, self.num_graphs), -1)
        edges = dense.edge_score.view(copies).sum(0)
        out.set_value_dict("edge_score", self.kinds.of_each(graph, edges, "edges"))
        if self.atom_score is not None:
            atoms = self.atom_score.view(copies).sum(0)
            out.set_value_dict("atom_score", self.kinds.of_each(graph, atoms, "nodes"))
        return out

    def first(self, most: int) -> Explanation:
        """Returns the explanation of the first graphs."""
        check_number("most", most, Count)
        return self if self.num_graphs <= most else concatenate(self.split(most))

    def split(self, most: int | None = None) -> list[Explanation]:
        """Returns one explanation per graph, with node numbers of its own graph."""
        place = edge_slots(self.bonds.batch, self.num_graphs)  # of each bond in its graph, [M]
        parts, ptr, kept = [], self.ptr.tolist(), self.bonds
        of_edges, of_bonds = (
            torch.split(one.argsort(stable=True), one.bincount(minlength=self.num_graphs).tolist())
            for one in (self.edge_batch, kept.batch)
        )
        own = list(zip(of_edges, of_bonds, strict=True))[:most]
        for graph, (edges, bonds) in enumerate(own):
            first, last = ptr[graph : graph + 2]
            levels = {PER_BOND: bonds, PER_GRAPH: slice(graph, graph + 1)}
            levels |= {PER_ATOM: slice(first, last), PER_EDGE: edges}
            values = {
                name: getattr(self, name)[where]
                for names, where in levels.items()
                for name in names
                if getattr(self, name) is not None
            }
            values["edge_index"] = self.edge_index[:, edges] - first
            ends = kept.index[:, bonds] - first, place[kept.edge_bond[edges]]
            values["bonds"] = Bonds(*ends, torch.zeros_like(bonds), kept.count[bonds])
            parts.append(replace(self, **values, ptr=self.ptr[graph : graph + 2] - first))
        return parts

    def to(self, device: str | torch.device) -> Explanation:
        """Returns the same explanation with all its tensors on a device."""
        try:
            torch.empty(0, device=device)
        except (TypeError, RuntimeError, ValueError, AssertionError):  # without CUDA it asserts
            raise ConfigError(
                f"`device` must be a device of PyTorch that is there (got {shown(device)}). Pass "
                "'cpu', or 'cuda' where there is a GPU."
            ) from None
        moved: Explanation = _to(self, device)
        return moved

    def to_frame(self, kind: Kind = "bonds") -> pd.DataFrame:
        """Returns a table of all ``"bonds"``, ``"atoms"`` or ``"graphs"``, one row each.

        Elements and bond types are known where a graph carries the SMILES it was made from.
        """
        from nicegnn.explain.frames import make_frame

        return make_frame(self, kind)

    def summary(self, most: int = 20) -> str:
        """Returns the result in words: a paragraph for one graph, else a line per graph."""
        from nicegnn.explain.words import summarise

        return summarise(self, most)

    def draw(
        self,
        smiles: str | Sequence[str] | None = None,
        *,
        value: Value = "score",
        top: float | int | None = None,
        truth: Tensor | None = None,
        title: str | None = None,
        size: tuple[int, int] = (340, 260),
        columns: int = 3,
        most: int = 12,
        palette: str | Palette | None = None,
    ) -> Picture:
        """Returns a picture of each graph, bonds and atoms coloured by their scores.

        A notebook shows it; ``save("x.svg")`` or ``.png`` writes it. Needs RDKit.

        Args:
            smiles: molecule of each graph, by default those that graphs carried; node ``i`` must
                be atom ``i``. An empty one draws a graph of circles and lines.
            value: what colours the bonds; ``"change"`` is the loss with its sign.
            top, truth: outlines the best bonds, as in `top`, or true ones, bool ``[M]``.
            size, columns, most: pixels of each graph, graphs side by side, and graphs in all.
            palette: ``"score"``, ``"gate"``, ``"dark"`` or a `Palette`.
        """
        from nicegnn.explain.pictures import draw

        if palette is None:
            palette = "gate" if value == "gate" else "score"
        look: dict[str, Any] = {"size": size, "columns": columns, "palette": palette}
        return draw(self, smiles, value, top, truth, title, most, **look)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows: words, a table of bonds and pictures, or the words alone."""
        from nicegnn.explain.pictures import to_html

        return {"text/plain": self.summary(), "text/html": to_html(self)}

    def __repr__(self) -> str:
        return f"Explanation({self.num_graphs} graph(s), {self.bond_score.numel()} bonds)"


def _to(value: Any, device: str | torch.device) -> Any:
    """Returns a tensor, or a dataclass with all tensors within, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {one.name: _to(getattr(value, one.name), device) for one in fields(value)}
    return replace(value, **parts)


def scores_of(loss: Tensor, unit: Unit) -> Tensor:
    r"""Returns scores of losses: shares of the odds, :math:`\pm (1 - e^{-|s|})`, or as they are."""
    return -loss.sign() * torch.expm1(-loss.abs()) if unit == "odds" else loss


def scores_only(
    case: Case,
    bond_score: Tensor,
    target: Tensor,
    prediction: Tensor,
    *,
    notes: Sequence[str] = (),
    flags: Tensor | int = 0,
) -> Explanation:
    """Returns the explanation of a method that gives scores of bonds alone, ``[M]``.

    ``flags`` are sums of them, ``[B]``; a graph without edges has no other.
    """
    edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
    numbers = torch.where(edges == 0, int(Flag.NO_EDGES), flags)
    unknown: dict[str, Any] = dict.fromkeys(_OF_LOSS, torch.full_like(bond_score, torch.nan))
    unknown |= dict.fromkeys(_OF_BOUNDARY, torch.full_like(prediction[:, 0], torch.nan))
    return Explanation(
        edge_index=case.batch.edge_index,
        bonds=case.bonds,
        ptr=case.batch.ptr,
        bond_score=torch.where(case.reached, bond_score, 0.0),
        bond_reached=case.reached,
        target=target,
        prediction=prediction,
        **unknown,
        status=Status(flags_of(numbers), tuple(notes)),
        smiles=smiles_of(case.batch),
        edge_kind=case.kind,
    )


def smiles_of(batch: Data) -> tuple[str, ...] | None:
    """Returns the SMILES that graphs of a batch carry, ``[B]``, or None if none does."""
    smiles = batch.get("smiles")
    smiles = [smiles] if isinstance(smiles, str) else smiles
    if not isinstance(smiles, list | tuple) or len(smiles) != batch.num_graphs:
        return None
    words = tuple(one if isinstance(one, str) else "" for one in smiles)
    return words if any(words) else None


def concatenate(parts: Sequence[Explanation]) -> Explanation:
    """Joins explanations of several batches into one."""
    if len(parts) == 1:
        return parts[0]

    def joined(values: list[Tensor], sizes: list[int]) -> Tensor:
        """Joins numbers of nodes, bonds or graphs, each part counted on from the one before."""
        starts = accumulate(sizes[:-1], initial=0)
        return torch.cat([v + n for v, n in zip(values, starts, strict=True)], dim=-1)

    nodes, graphs = [int(p.ptr[-1]) for p in parts], [p.num_graphs for p in parts]
    values: dict[str, Any] = {"edge_index": joined([p.edge_index for p in parts], nodes)}
    values["ptr"] = torch.cat([parts[0].ptr[:1], joined([p.ptr[1:] for p in parts], nodes)])
    values["bonds"] = Bonds(
        joined([p.bonds.index for p in parts], nodes),
        joined([p.bonds.edge_bond for p in parts], [p.bond_score.numel() for p in parts]),
        joined([p.bonds.batch for p in parts], graphs),
        torch.cat([p.bonds.count for p in parts]),
    )
    smiles = [one for p in parts for one in p.smiles or ("",) * p.num_graphs]
    values["smiles"] = tuple(smiles) if any(smiles) else None
    values["status"] = Status.join([p.status for p in parts])
    if any(p.whole is not parts[0].whole for p in parts):
        parts = [replace(p, whole=None, edge_origin=None) for p in parts]
    for name in {*PER_BOND, *PER_GRAPH, *PER_ATOM, *PER_EDGE} - values.keys():
        held = [getattr(p, name) for p in parts]
        is_known = all(one is not None for one in held)
        join = Trust.join if name == "trust" else torch.cat
        values[name] = join(held) if is_known else None
    return replace(parts[0], **values)
