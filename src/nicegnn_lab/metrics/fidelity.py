"""Fidelity: predictions of the target with only the best bonds, and without them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import MetricError
from nicegnn.graph.case import Bonds, make_case
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn_lab.metrics.ranking import (
    check_scores,
    graph_keys,
    num_selected,
    random_rank,
    random_ties,
)

REMOVALS: tuple[str, ...] = ("em", "nc", "delete")  # that a benchmark measures by default
ALL_REMOVALS = (*REMOVALS, "exchange")
_RANDOM = ("nc", "exchange")
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class FidelityCurve:
    """Predictions for each graph at each share of kept or dropped bonds; nan without bonds."""

    removal: str  # how bonds were removed, one of `ALL_REMOVALS`
    ratios: Tensor  # shares of bonds, [Q]
    explained: Tensor  # explained class of each graph, [B]
    prob_clean: Tensor  # its probability on the whole graph, [B]
    kept: Tensor  # chance that it is predicted with only the best bonds, [Q, B]
    dropped: Tensor  # chance that it is not predicted without the best bonds, [Q, B]
    prob_kept: Tensor  # its probability with only the best bonds, [Q, B]
    prob_dropped: Tensor  # its probability without the best bonds, [Q, B]

    @property
    def area(self) -> Tensor:
        r"""Mean height of the curve of `kept` by the trapezoidal rule, ``[B]``.

        .. math:: \frac{1}{q_Q - q_1} \int_{q_1}^{q_Q} kept(q)\, dq
        """
        if self.ratios.numel() == 1:
            return self.kept[0]
        area = torch.trapezoid(self.kept, self.ratios, dim=0)
        return area / (self.ratios[-1] - self.ratios[0])

    def metrics(self) -> dict[str, Tensor]:
        r"""Returns the curve by names of `METRICS`: ``[Q, B]``, and ``kept_area`` ``[B]``.

        .. math:: fid_+ = [f(G \setminus S) \ne y], \quad fid_- = [f(S) \ne y], \qquad
            prob\_fid_+ = p_y(G) - p_y(G \setminus S), \quad prob\_fid_- = p_y(G) - p_y(S)

        High plus values: the best bonds are necessary. Low minus values: they suffice.
        """
        return {
            "kept": self.kept,
            "fid_plus": self.dropped,
            "fid_minus": 1 - self.kept,
            "prob_fid_plus": self.prob_clean - self.prob_dropped,
            "prob_fid_minus": self.prob_clean - self.prob_kept,
            "kept_area": self.area,
        }


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
    sample: Prototypes | None = None,
) -> FidelityCurve:
    r"""Returns predictions with only the best bonds, and without them, for each share of bonds.

    With :math:`S_q` the best share :math:`q` of a graph's bonds (rounded, at least one):

    .. math:: kept_q = [\arg\max f(S_q) = y], \qquad dropped_q = [\arg\max f(G \setminus S_q) \ne y]

    Symbols: :math:`q` -> ``ratios``, ``[Q]``; :math:`y` -> ``explained``, ``[B]``; :math:`f` ->
    ``target``. Removed bonds are missing in every layer: their messages are multiplied by zero
    (``em``), turned into random directions of the same norm (``nc``, averaged over draws), into
    those of other real edges (``exchange``, averaged too), or the bonds are deleted from
    ``edge_index`` with their attributes (``delete``). Atoms always stay. A
    graph's result does not depend on its batch. The model is left as it was.

    Args:
        bond_score: higher is more important, ``[M]``; equal scores are ordered at random by `seed`.
        num_draws: draws of ``nc`` and of ``exchange``, the same for every share.
        explained: one class, or one per graph; by default the predicted class.
        chunk_edges: maximum of directed edges, times copies, in one call of the model; a batch is
            not cut.
        sample: real edges, ``background.sample``; for ``exchange``.
    """
    mechanism = _mechanism(target, removal, ratios, num_draws, mix(seed, "fidelity"), sample)
    target = target.private()
    if bonds.edge_bond.numel() != batch.num_edges:
        raise MetricError(
            f"`bonds` must have {batch.num_edges} directed edges, as `batch` has (got "
            f"{bonds.edge_bond.numel()}). Make them with find_bonds()."
        )
    device = target.device
    if batch.edge_index.device != device:
        batch = copy.copy(batch).to(device)
    bonds = Bonds(*(getattr(bonds, field.name).to(device) for field in fields(bonds)))
    check_scores(bond_score, "bond_score", bonds.batch.numel())
    graph, num_graphs = bonds.batch, int(batch.num_graphs)
    tie = random_ties(graph, num_graphs, seed, graph_keys(bonds, num_graphs))
    rank = random_rank(bond_score.to(device), graph, num_graphs, tie)
    number = torch.bincount(graph, minlength=num_graphs)
    best = torch.stack([rank < num_selected(number, ratio)[graph] for ratio in ratios])  # [Q, M]
    kept_bonds = torch.cat([best, ~best])  # [2Q, M]: only the best, all but the best
    kept_edges = kept_bonds[:, bonds.edge_bond]  # [2Q, E]
    draws = num_draws if removal in _RANDOM else 1
    with torch.no_grad():
        query = Query(target, make_case(batch), mechanism, explained=explained)
        if target.mode == "regression":  # known after the first call
            raise MetricError("`target` must be a classifier (got mode='regression').")
        label = query.explained
        clean = query.clean.gather(1, label.view(-1, 1)).squeeze(1).exp().double()
        answers = _ask(query, kept_edges, removal, draws, chunk_edges)
    same, prob = (value.masked_fill(number == 0, torch.nan) for value in answers)
    kept, dropped = torch.split(same, len(ratios))
    prob_kept, prob_dropped = torch.split(prob, len(ratios))
    shares = torch.tensor(ratios, dtype=torch.double, device=device)
    return FidelityCurve(removal, shares, label, clean, kept, 1 - dropped, prob_kept, prob_dropped)


def _ask(
    query: Query, kept: Tensor, removal: str, num_draws: int, chunk_edges: int
) -> tuple[Tensor, Tensor]:
    """Returns how often the explained class is predicted and its mean probability, ``[R, B]`` each.

    The target is called for each row of kept edges, bool ``[R, E]``.
    """

    def tally(rows: Tensor, first: int = 0) -> Tensor:  # [N, E] to [2, N, B]
        if removal == "delete":
            answers = _answers_without_edges(query, rows)
        else:
            answers = query.answers(rows.to(query.clean.dtype), first=first)  # [N, B, C]
        index = query.explained.view(1, -1, 1).expand(answers.size(0), -1, 1)
        prob = answers.gather(2, index).squeeze(2).exp().double()
        return torch.stack([(answers.argmax(2) == query.explained).double(), prob])

    copies = max(1, chunk_edges // max(1, kept.size(1)))
    if removal not in _RANDOM:
        same, prob = torch.cat([tally(rows) for rows in torch.split(kept, copies)], dim=1)
        return same, prob
    means = []
    for row in kept:  # draws side by side, the same ones for every row
        starts = range(0, num_draws, copies)
        drawn = [tally(row.expand(min(copies, num_draws - n), -1), n) for n in starts]
        means.append(torch.cat(drawn, dim=1).mean(1))
    same, prob = torch.stack(means, dim=1)
    return same, prob


def _mechanism(
    target: Target,
    removal: str,
    ratios: Sequence[float],
    num_draws: int,
    seed: int,
    sample: Prototypes | None,
) -> Mechanism:
    """Returns what damages removed bonds; raises `MetricError` if a curve cannot be measured."""
    if target.level != "graph":
        raise MetricError("`target` must predict graphs (got one that predicts nodes).")
    if not target.is_batched:
        raise MetricError("`target` must take batches of graphs (got one without `batch`).")
    if removal not in ALL_REMOVALS:
        raise MetricError(f"`removal` must be one of {ALL_REMOVALS} (got {removal!r}).")
    if not ratios or list(ratios) != sorted(set(ratios)):
        raise MetricError(f"`ratios` must be shares in rising order (got {tuple(ratios)}).")
    if num_draws < 1:
        raise MetricError(f"`num_draws` must be at least 1 (got {num_draws}).")
    if removal == "exchange" and sample is None:
        raise MetricError(
            "`sample` must be real edges for removal='exchange' (got None). Pass "
            "record_background(target, graphs).sample."
        )
    if removal == "exchange":
        return Exchange(sample, each="edge", seed=seed)
    return NoiseCorruption(seed) if removal == "nc" else ElementMask()


def without_edges(batch: Batch, kept: Tensor) -> Batch:
    """Returns a batch with only the kept directed edges, bool ``[E]``, and all nodes."""
    out = copy.copy(batch)
    for key, value in batch.to_dict().items():
        if key == "edge_index":
            out[key] = value[:, kept]
        elif isinstance(value, Tensor) and value.shape[:1] == kept.shape:
            is_per_edge = key.startswith("edge_") or batch.is_edge_attr(key)
            out[key] = value[kept] if is_per_edge else value
    return out


def _answers_without_edges(query: Query, kept: Tensor) -> Tensor:
    """Returns the target's answers for each row of kept edges, ``[N, E]`` to ``[N, B, C]``."""
    graphs = torch.arange(query.case.num_graphs, device=kept.device)
    copies = without_edges(query.copies(graphs.repeat(kept.size(0))), kept.reshape(-1))
    out = query.target.read(query.target.call(copies))
    return out.view(kept.size(0), graphs.numel(), -1)
