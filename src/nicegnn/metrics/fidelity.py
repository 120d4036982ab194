"""Fidelity: what the target predicts when only the best bonds are left, or when they are gone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.graph.case import Bonds, make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.metrics.errors import MetricError
from nicegnn.metrics.ranking import check_scores, graph_keys, num_selected, random_rank, random_ties
from nicegnn.metrics.removal import answers_without_edges
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target

REMOVALS: tuple[str, ...] = ("em", "nc", "delete")
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_Answers = Callable[[Tensor, int], Tensor]  # kept edges [N, E] and first draw to [N, B, C]


@dataclass(frozen=True)
class FidelityCurve:
    """What the target says about each graph at each share of kept or dropped bonds.

    Graphs without bonds are nan throughout: nothing can be removed from them.

    Attributes:
        removal: how bonds were removed, ``em``, ``nc`` or ``delete``.
        ratios: shares of bonds, ``[Q]``.
        explained: explained class of each graph, ``[B]``.
        prob_clean: its probability on the whole graph, ``[B]``.
        kept: chance that it is predicted when only the best bonds are left, ``[Q, B]``.
        dropped: chance that it is not predicted when the best bonds are gone, ``[Q, B]``.
        prob_kept: its probability when only the best bonds are left, ``[Q, B]``.
        prob_dropped: its probability when the best bonds are gone, ``[Q, B]``.
    """

    removal: str
    ratios: Tensor
    explained: Tensor
    prob_clean: Tensor
    kept: Tensor
    dropped: Tensor
    prob_kept: Tensor
    prob_dropped: Tensor

    @property
    def fid_plus(self) -> Tensor:
        """:math:`1 - [f(G \\setminus S) = y]`, high for necessary bonds, ``[Q, B]``."""
        return self.dropped

    @property
    def fid_minus(self) -> Tensor:
        """:math:`1 - [f(S) = y]`, low for sufficient bonds, ``[Q, B]``."""
        return 1 - self.kept

    @property
    def prob_fid_plus(self) -> Tensor:
        """:math:`p_y(G) - p_y(G \\setminus S)`, high for necessary bonds, ``[Q, B]``."""
        return self.prob_clean - self.prob_dropped

    @property
    def prob_fid_minus(self) -> Tensor:
        """:math:`p_y(G) - p_y(S)`, low for sufficient bonds, ``[Q, B]``."""
        return self.prob_clean - self.prob_kept

    @property
    def area(self) -> Tensor:
        r"""Mean height of the curve of `kept` by the trapezoidal rule, ``[B]``.

        .. math:: \frac{1}{q_Q - q_1} \int_{q_1}^{q_Q} kept(q)\, dq
        """
        if self.ratios.numel() == 1:
            return self.kept[0]
        width = self.ratios[-1] - self.ratios[0]
        return torch.trapezoid(self.kept, self.ratios, dim=0) / width

    def metrics(self) -> dict[str, Tensor]:
        """Returns the curve by names of `METRICS`: ``[Q, B]``, and ``kept_area`` ``[B]``."""
        names = ("kept", "fid_plus", "fid_minus", "prob_fid_plus", "prob_fid_minus")
        return {name: getattr(self, name) for name in names} | {"kept_area": self.area}


def fidelity_curve(
    target: Target,
    batch: Batch,
    bonds: Bonds,
    bond_score: Tensor,
    *,
    removal: str = "em",
    ratios: Sequence[float] = RATIOS,
    num_draws: int = 16,
    seed: int = 0,
    explained: int | Tensor | None = None,
    chunk_edges: int = 400_000,
) -> FidelityCurve:
    r"""Measures how far the best bonds alone carry the prediction, and how far it needs them.

    With :math:`S_q` the best share :math:`q` of a graph's bonds (rounded, at least one):

    .. math:: kept_q = [\arg\max f(S_q) = y], \qquad dropped_q = [\arg\max f(G \setminus S_q) \ne y]

    Symbols: :math:`q` -> ``ratios``, ``[Q]``; :math:`y` -> ``explained``, ``[B]``; :math:`f` ->
    ``target``. Bonds outside are removed in every layer: their messages are multiplied by zero
    (``em``), turned into random directions of the same norm (``nc``, averaged over draws), or the
    bonds are taken out of ``edge_index`` with their attributes (``delete``). Atoms always stay, and
    both directions of a bond go together.

    A graph's result does not depend on the batch it comes in. The model is left as it was.

    Args:
        bonds: of the batch, as from `find_bonds`.
        bond_score: higher is more important, ``[M]``; equal scores are ordered at random by `seed`.
        num_draws: noise draws of ``nc``, the same for every share.
        explained: class to explain, one or one per graph; by default the predicted one.
        chunk_edges: most directed edges, times copies, in one call of the model.
    """
    _check(target, batch, bonds, removal, ratios, num_draws)
    device = target.device
    if batch.edge_index.device != device:
        batch = copy.copy(batch).to(device)
    bonds = Bonds(*(getattr(bonds, field.name).to(device) for field in fields(bonds)))
    check_scores(bond_score, "bond_score", bonds.batch.numel())
    best = _best_bonds(bond_score.to(device), bonds, int(batch.num_graphs), ratios, seed)
    kept_bonds = torch.cat([best, ~best])  # [2Q, M]: only the best, all but the best
    kept_edges = kept_bonds[:, bonds.edge_bond]  # [2Q, E]
    draws = num_draws if removal == "nc" else 1
    columns: dict[str, list[Tensor]] = {"explained": [], "clean": [], "same": [], "prob": []}
    with target.frozen(), torch.no_grad():
        for part, graphs, edges in _parts(target, batch, chunk_edges):
            query = _query(target, part, graphs, explained, removal, seed)
            same, prob = _ask(query, kept_edges[:, edges], removal, draws, chunk_edges)
            clean = query.clean.gather(1, query.explained.view(-1, 1)).squeeze(1).exp().double()
            for name, value in zip(columns, (query.explained, clean, same, prob), strict=True):
                columns[name].append(value)
    joined = {name: torch.cat(values, dim=-1) for name, values in columns.items()}
    empty = torch.bincount(bonds.batch, minlength=int(batch.num_graphs)) == 0
    same, prob = (joined[name].masked_fill(empty, torch.nan) for name in ("same", "prob"))
    num = len(ratios)
    return FidelityCurve(
        removal=removal,
        ratios=torch.tensor(ratios, dtype=torch.double, device=device),
        explained=joined["explained"],
        prob_clean=joined["clean"],
        kept=same[:num],
        dropped=1 - same[num:],
        prob_kept=prob[:num],
        prob_dropped=prob[num:],
    )


def _best_bonds(
    score: Tensor, bonds: Bonds, num_graphs: int, ratios: Sequence[float], seed: int
) -> Tensor:
    """Returns which bonds are among the best of their graph at each share, bool ``[Q, M]``."""
    tie = random_ties(bonds.batch, num_graphs, seed, graph_keys(bonds, num_graphs))
    rank = random_rank(score, bonds.batch, num_graphs, tie)
    number = torch.bincount(bonds.batch, minlength=num_graphs)
    return torch.stack([rank < num_selected(number, ratio)[bonds.batch] for ratio in ratios])


def _query(
    target: Target,
    part: Batch,
    graphs: Tensor,
    explained: int | Tensor | None,
    removal: str,
    seed: int,
) -> Query:
    """Returns the target's clean answers on a part of the graphs, ready for gates."""
    if isinstance(explained, Tensor) and explained.numel() > 1:
        explained = explained.view(-1)[graphs.to(explained.device)]
    mechanism: Mechanism = ElementMask()
    if removal == "nc":
        mechanism = NoiseCorruption(mix(seed, "fidelity"))
    query = Query(target, make_case(part), mechanism, explained=explained)
    if target.mode == "regression":
        raise MetricError("Fidelity needs a classifier (got mode='regression').")
    return query


def _ask(
    query: Query, kept: Tensor, removal: str, num_draws: int, chunk_edges: int
) -> tuple[Tensor, Tensor]:
    """Asks the target under each row of kept edges, bool ``[R, E]``.

    Returns how often the explained class is predicted and its mean probability, ``[R, B]`` each.
    """

    def under_gates(rows: Tensor, first: int) -> Tensor:
        return query.answers(rows.to(query.clean.dtype), first=first)

    def deleted(rows: Tensor, _: int) -> Tensor:
        return answers_without_edges(query.target, query.case.batch, rows)

    copies = max(1, chunk_edges // max(1, kept.size(1)))
    ask: _Answers = deleted if removal == "delete" else under_gates
    if removal == "nc":  # draws side by side, the same ones for every row
        rows = [_over_draws(ask, row, query.explained, num_draws, copies) for row in kept]
        return torch.stack([same for same, _ in rows]), torch.stack([prob for _, prob in rows])
    parts = [
        _tally(ask(kept[first : first + copies], 0), query.explained)
        for first in range(0, kept.size(0), copies)
    ]
    return torch.cat([same for same, _ in parts]), torch.cat([prob for _, prob in parts])


def _over_draws(
    ask: _Answers, row: Tensor, explained: Tensor, num_draws: int, copies: int
) -> tuple[Tensor, Tensor]:
    """Averages over noise draws for one row of kept edges ``[E]``, ``[B]`` each."""
    parts = []
    for first in range(0, num_draws, copies):
        num = min(copies, num_draws - first)
        parts.append(_tally(ask(row.expand(num, -1), first), explained))
    same, prob = (torch.cat(values).mean(0) for values in zip(*parts, strict=True))
    return same, prob


def _tally(answers: Tensor, explained: Tensor) -> tuple[Tensor, Tensor]:
    """Returns whether the class is predicted and its probability, ``[N, B, C]`` to ``[N, B]``."""
    index = explained.view(1, -1, 1).expand(answers.size(0), -1, 1)
    prob = answers.gather(2, index).squeeze(2).exp().double()
    return (answers.argmax(2) == explained).double(), prob


def _parts(
    target: Target, batch: Batch, chunk_edges: int
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Yields batches of at most about `chunk_edges` edges, with the graphs and edges they hold."""
    edge_batch = batch.batch[batch.edge_index[0]]
    device, num_graphs = edge_batch.device, int(batch.num_graphs)
    everything = (
        torch.arange(num_graphs, device=device),
        torch.arange(edge_batch.numel(), device=device),
    )
    is_ordered = bool((edge_batch.diff() >= 0).all())
    if edge_batch.numel() <= chunk_edges or not target.is_batched or not is_ordered:
        yield batch, *everything  # a model that takes one graph per call needs no parts
        return
    stack = GraphStack(batch, device)
    begin = stack.num_edges.cumsum(0) - stack.num_edges
    part = begin // chunk_edges  # [B]
    for number in sorted(set(part.tolist())):
        graphs = everything[0][part == number]
        yield stack.take(graphs), graphs, everything[1][part[edge_batch] == number]


def _check(
    target: Target,
    batch: Batch,
    bonds: Bonds,
    removal: str,
    ratios: Sequence[float],
    num_draws: int,
) -> None:
    if target.level != "graph":
        raise MetricError(
            "Fidelity is defined for predictions of graphs (got a node-level target)."
        )
    if removal not in REMOVALS:
        raise MetricError(f"`removal` must be one of {REMOVALS} (got {removal!r}).")
    if not ratios or list(ratios) != sorted(set(ratios)):
        raise MetricError(f"`ratios` must hold rising shares of bonds (got {tuple(ratios)}).")
    if num_draws < 1:
        raise MetricError(f"`num_draws` must be at least 1 (got {num_draws}).")
    if bonds.edge_bond.numel() != batch.num_edges:
        raise MetricError(
            f"`bonds` must be those of `batch`, {batch.num_edges} directed edges "
            f"(got {bonds.edge_bond.numel()}); make them with find_bonds()."
        )
