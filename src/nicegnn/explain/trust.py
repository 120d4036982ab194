"""Trust: how far to rely on the scores of each graph, in numbers, flags and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from nicegnn.explain.explanation import Flag
from nicegnn.explain.score_parts import standardise
from nicegnn.graph.case import Case, rank_within
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix, normal_rows, slot_numbers
from nicegnn.target.frozen_model import log_odds

TOP = 0.3  # share of the bonds that are judged
STEADY = 0.5  # less expected overlap is unstable: most of the top bonds would be others
CERTAIN = 2.0  # standard errors by which the top bonds must beat random ones
RUINED = 0.05  # share of the probability; less is left of it whichever bonds are damaged
SATURATED = math.log(0.9999 / 0.0001)  # log-odds of a probability of 0.9999
_SEEDS = 64  # other seeds that are imagined
_DRAWS, _SETS = 4, 6  # noise draws for the top bonds; random sets of bonds, with a draw each
_SAME = 1e-6  # shares of probability; smaller differences are rounding errors


@dataclass(frozen=True)
class Trust:
    """How far to trust the explanation of each graph, ``[B]`` each; nan where it has no meaning.

    The top bonds are the best 30 % of a graph. Shares of probability are those of the clean
    prediction; ``kept`` and ``lost`` are means over the mechanisms of the explainer. For regression
    they are shares of the change that damage of all bonds makes.
    """

    overlap: Tensor  # share of the top bonds that another seed is expected to choose too
    kept: Tensor  # share of the probability that is left if all but the top bonds are damaged
    lost: Tensor  # share of the probability that is lost if the top bonds are damaged
    kept_random: Tensor  # the same for as many random bonds
    lost_random: Tensor  # the same for as many random bonds
    certainty: Tensor  # gain of `kept` or `lost` over random bonds, the larger, in standard errors
    log_odds: Tensor  # of the explained class, nan for regression

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What the numbers warn of, ``[B]``; nan warns of nothing."""
        noticed = {
            Flag.UNSTABLE: self.overlap < STEADY,
            Flag.NO_BETTER_THAN_RANDOM: self.certainty <= CERTAIN,
            Flag.SATURATED: self.log_odds.abs() > SATURATED,
        }
        total = sum(int(flag) * is_so for flag, is_so in noticed.items())
        return tuple(Flag(flag) for flag in torch.as_tensor(total).tolist())

    def take(self, graphs: slice) -> Trust:
        """Returns the numbers of some graphs."""
        return Trust(**{name: value[graphs] for name, value in self.columns().items()})

    def columns(self) -> dict[str, Tensor]:
        """Returns the numbers by name, ``[B]`` each."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def join(parts: Sequence[Trust]) -> Trust:
        """Joins the numbers of several batches."""
        names = [one.name for one in fields(Trust)]
        joined: dict[str, Any] = {n: torch.cat([getattr(p, n) for p in parts]) for n in names}
        return Trust(**joined)


@dataclass(frozen=True)
class Part:
    """One part of a score, with its error over noise draws."""

    value: Tensor  # of each bond, [M]
    stderr: Tensor | None = None  # [M]; None: another seed gives the same value


@torch.no_grad()
def judge_scores(
    queries: Sequence[Query], score: Tensor, parts: Sequence[Part], seed: int
) -> Trust:
    """Returns how far to trust the scores of each graph of a batch.

    Args:
        queries: the same question under each mechanism of the explainer.
        score: ranks the bonds, ``[M]``.
        parts: what `score` was joined from.
    """
    query = queries[0]
    top = top_bonds(query.case, score)
    odds = torch.full_like(query.clean[:, 0], torch.nan)
    if query.target.mode != "regression":
        odds = log_odds(query.clean.unsqueeze(0), query.explained)[0]
    overlap = expected_overlap(query.case, top, parts, seed)
    return Trust(overlap, *against_random(queries, top, seed), odds)


def top_bonds(case: Case, score: Tensor) -> Tensor:
    """Returns the best bonds of each graph as a mask, as `Explanation.top` does, ``[M]``.

    Scores may have several rows, ``[N, M]``.
    """
    rows = score if score.dim() == 2 else score.unsqueeze(0)
    rows = rows.masked_fill(~case.reached, -torch.inf)  # [N, M]
    num, start = rows.size(0), case.num_graphs * torch.arange(rows.size(0), device=score.device)
    batch = (case.bonds.batch + start.unsqueeze(1)).view(-1)  # each row has graphs of its own
    rank = rank_within(rows.reshape(-1), batch, num * case.num_graphs)
    wanted = (TOP * _num_reached(case)).round().clamp(min=1)[case.bonds.batch]  # [M]
    return ((rank.view(rows.shape) < wanted) & case.reached).view(score.shape)


def expected_overlap(case: Case, top: Tensor, parts: Sequence[Part], seed: int) -> Tensor:
    r"""Returns the share of the top bonds that another seed is expected to choose too, ``[B]``.

    .. math:: \tfrac1S \sum_{s} \frac{|T \cap T_s|}{|T|}, \qquad
        T_s = \mathrm{top}\Big(\sum_k \mathrm{std}(v_k + \sqrt2\, \sigma_k z_{ks})\Big)

    Symbols: :math:`T` -> ``top``, ``[M]``; :math:`v_k, \sigma_k` -> value and standard error of a
    part; :math:`z` -> standard normal numbers of each bond, addressed by seed and edge;
    :math:`\mathrm{std}` -> `standardise`. Two seeds differ by the noise of both, hence
    :math:`\sqrt2`. It is 1 if no part depends on the seed, and nan without bonds or with a single
    noise draw.
    """
    value, slot = parts[0].value, bond_slots(case)
    total, is_known = value.new_zeros(_SEEDS, value.numel()), case.reached  # [S, M], [M]
    for number, part in enumerate(parts):
        changed = part.value
        if part.stderr is not None:
            z = normal_rows(mix(seed, "trust", number), torch.zeros_like(slot), slot, _SEEDS).t()
            changed = changed + math.sqrt(2) * part.stderr * z.to(value.dtype)  # [S, M]
            is_known = is_known & ~part.stderr.isnan()
        total += standardise(case, changed)
    same = (top_bonds(case, total) & top).to(value.dtype).mean(0)
    num, found = (_per_graph_sum(case, one) for one in (top.to(value.dtype), same))
    has_errors = _per_graph_sum(case, (case.reached & ~is_known).to(value.dtype)) == 0
    return torch.where((num > 0) & has_errors, found / num.clamp(min=1), torch.nan)


def against_random(
    queries: Sequence[Query], top: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""Returns kept and lost of the top bonds, of random bonds, and the certainty, ``[B]`` each.

    .. math:: k(T) = \min\Big(1, \frac{p(T)}{p(G)}\Big), \quad
        l(T) = 1 - \min\Big(1, \frac{p(G \setminus T)}{p(G)}\Big), \quad
        c = \max_{q \in \{k, l\}} \frac{\bar q(T) - \bar q(T_r)}
        {\sqrt{\mathrm{var}(q(T)) / N + \mathrm{var}(q(T_r)) / R}}

    Symbols: :math:`p(T)` -> probability of the explained class, all bonds but :math:`T` being
    damaged; :math:`k, l` -> means over mechanisms; :math:`T_r` -> random bonds, as many as the top
    ones; variances are over :math:`N` noise draws and over :math:`R` random sets.

    The certainty is nan if there is at most one bond, or if so much damage ruins the prediction
    whichever bonds are chosen: then nothing can be compared.
    """
    case, size = queries[0].case, _num_reached(queries[0].case)
    streams = [mix(seed, "trust", "random", turn) for turn in range(_SETS)]
    slot = bond_slots(case)
    chance = torch.stack([slot_numbers(stream, slot, kind="uniform") for stream in streams])
    random = top_bonds(case, chance)  # [R, M]
    left: list[Tensor] = []  # share of the top bonds in each draw, then of random sets, [N + R, B]
    without: list[Tensor] = []  # share without them, [N + R, B]
    for query in queries:
        num = query.draws(_DRAWS)
        chosen = torch.cat([top.expand(num, -1), random])
        gate = torch.cat([chosen, ~chosen]).to(query.clean.dtype)
        shares = torch.split(_share_left(query, gate, mix(seed, "trust", "judge")), num + _SETS)
        for found, share in zip((left, without), shares, strict=True):
            found.append(torch.cat([share[:num].expand(_DRAWS, -1), share[num:]]))
    kept, lost = torch.stack(left).mean(0), 1 - torch.stack(without).mean(0)
    certainty = torch.maximum(_gain_in_errors(kept), _gain_in_errors(lost))
    means = [one.mean(0) for value in (kept, lost) for one in torch.split(value, [_DRAWS, _SETS])]
    is_ruined = (torch.maximum(*means[:2]) < RUINED) & (torch.minimum(*means[2:]) > 1 - RUINED)
    certainty = certainty.where((size > 1) & ~is_ruined, torch.nan)
    kept, kept_random, lost, lost_random = (mean.where(size > 0, torch.nan) for mean in means)
    return kept, lost, kept_random, lost_random, certainty


def _gain_in_errors(value: Tensor) -> Tensor:
    """Returns the gain of the top bonds over random ones in standard errors, ``[B]``."""
    own, other = torch.split(value, [_DRAWS, _SETS])  # [N, B], [R, B]
    gain = own.mean(0) - other.mean(0)
    error = (own.var(0) / _DRAWS + other.var(0) / _SETS).sqrt()
    return torch.where(gain.abs() < _SAME, 0.0, gain / error.clamp(min=_SAME))


def _share_left(query: Query, gate: Tensor, stream: int) -> Tensor:
    """Returns the share of the prediction that gates ``[N, M]`` leave, a draw each, ``[N, B]``."""
    if query.target.mode == "regression":  # the last row damages all bonds
        gate = torch.cat([gate, torch.zeros_like(gate[:1])])
    query, parts = query.losing("log-prob"), []
    for first in range(0, gate.size(0), query.chunk_draws):
        some = gate[first : first + query.chunk_draws]
        parts.append(query.degradation(some, some.size(0), stream, first))
    loss = torch.cat(parts)
    if query.target.mode != "regression":
        return (-loss).exp()  # losses of log-probability are not negative
    change = loss.sqrt()
    whole = change[-1:]
    return 1 - torch.where(whole > 0, change[:-1] / whole, 0.0)


def bond_slots(case: Case) -> Tensor:
    """Returns the smallest noise coordinate of each bond's edges, ``[M]``."""
    most = case.slot.new_full((case.bonds.batch.numel(),), torch.iinfo(case.slot.dtype).max)
    return most.scatter_reduce(0, case.bonds.edge_bond, case.slot, "amin")


def _num_reached(case: Case) -> Tensor:
    """Returns how many bonds of each graph are reached, ``[B]``."""
    return torch.bincount(case.bonds.batch[case.reached], minlength=case.num_graphs)


def _per_graph_sum(case: Case, value: Tensor) -> Tensor:
    """Adds up a bond value over each graph, ``[B]``."""
    return value.new_zeros(case.num_graphs).index_add(0, case.bonds.batch, value)
