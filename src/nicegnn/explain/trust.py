"""Trust: how far to rely on the scores of each graph, in numbers, flags and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from nicegnn.explain.explanation import ORDERS, SHARES, Flag, flags_of
from nicegnn.explain.score_parts import standardise
from nicegnn.graph.case import Case, rank_within
from nicegnn.intervention.fused import masked_answers
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix, normal_rows, slot_numbers
from nicegnn.target.frozen_model import log_odds

TOP = 0.3  # share of the bonds that another seed should choose too
STEADY = 0.5  # less expected overlap is unstable: most of the top bonds would be others
UNMOVED = 0.02  # nats of log-odds, or units of a value; less is no change
CERTAIN = math.log(0.9999 / 0.0001)  # log-odds of a probability of 0.9999
_SEEDS = 16  # other seeds that are imagined
_SAME = 1e-3  # share of the effect; orders that differ by less are equally good


@dataclass(frozen=True)
class Trust:
    """How far to trust the explanation of each graph, ``[B]`` each; nan where it has no meaning.

    An order is judged by keeping its best, or its worst, 50 and 80 % of the bonds; all others
    are masked. What is kept and lost is told for the share at which best and worst differ most. It
    is a share of the clean probability; for regression, of the change that masking all bonds makes.
    """

    overlap: Tensor  # share of the best 30 % of bonds that another seed is expected to choose too
    share: Tensor  # of the bonds, for the next three: 0.5 or 0.8
    kept: Tensor  # left of the prediction with only the best bonds
    needed: Tensor  # lost of the prediction with only the worst bonds
    kept_random: Tensor  # left of the prediction with only random bonds, mean of ten sets
    random_better: Tensor  # random orders, of ten, that are better than the order of the scores
    effect: Tensor  # largest change of the log-odds (or value) that masking made
    log_odds: Tensor  # of the explained class, nan for regression

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What the numbers warn of, ``[B]``; nan warns of nothing."""
        return flags_of(self.flag_numbers)

    @property
    def flag_numbers(self) -> Tensor:
        """The same as sums of flags, ``[B]``."""
        noticed = {
            Flag.UNSTABLE: self.overlap < STEADY,
            Flag.NO_BETTER_THAN_RANDOM: self.random_better > 0,
            Flag.INSENSITIVE: self.effect < UNMOVED,
        }
        return torch.stack([int(flag) * is_so for flag, is_so in noticed.items()]).sum(0)

    @property
    def is_certain(self) -> Tensor:
        """Whether the probability is beyond 0.9999, or below 0.0001, bool ``[B]``."""
        return self.log_odds.abs() > CERTAIN

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

    @staticmethod
    def drawn(value: Tensor, stderr: Tensor, num: int) -> Part:
        r"""Returns a part whose errors come from `num` independent draws, and are too small.

        The spread of few normal numbers is too small in the mean, by
        :math:`c_4 = \sqrt{2 / (n - 1)}\; \Gamma(n / 2) / \Gamma((n - 1) / 2)`: 0.80 for two, 0.92
        for four.
        """
        half = (num - 1) / 2
        if num < 2:
            return Part(value, stderr)
        short = math.exp(math.lgamma(half + 0.5) - math.lgamma(half)) / math.sqrt(half)
        return Part(value, stderr / short)


@torch.no_grad()
def judge_scores(query: Query, score: Tensor, parts: Sequence[Part], seed: int) -> Trust:
    """Returns how far to trust the scores of each graph of a batch.

    Args:
        score: ranks the bonds, ``[M]``.
        parts: what `score` was joined from.
    """
    odds = torch.full_like(query.clean[:, 0], torch.nan)
    if query.target.mode != "regression":
        odds = log_odds(query.clean.unsqueeze(0), query.explained)[0]
    rank = ranks(query.case, random_orders(query.case, score, seed))  # [1 + R / 2, M]
    overlap = expected_overlap(query.case, first_ranks(query.case, rank[0], TOP), parts, seed)
    return Trust(overlap=overlap, log_odds=odds, **against_random(query, rank))


def ranks(case: Case, score: Tensor) -> Tensor:
    """Returns the rank of each reached bond in its graph, 0 for the best, as ``[N, M]`` scores."""
    rows = score.masked_fill(~case.reached, -torch.inf)
    start = case.num_graphs * torch.arange(rows.size(0), device=score.device)
    batch = (case.bonds.batch + start.unsqueeze(1)).view(-1)  # each row has graphs of its own
    return rank_within(rows.view(-1), batch, rows.size(0) * case.num_graphs).view(rows.shape)


def first_ranks(case: Case, rank: Tensor, share: float, *, worst: bool = False) -> Tensor:
    """Returns the best, or worst, bonds of each graph as a mask, from ranks ``[..., M]``.

    The best are those of `Explanation.top`.
    """
    number = _num_reached(case)
    wanted = (share * number).round().clamp(min=1)[case.bonds.batch]  # [M]
    place = number[case.bonds.batch] - 1 - rank if worst else rank
    return (place < wanted) & case.reached


def random_orders(case: Case, score: Tensor, seed: int) -> Tensor:
    """Returns scores, ``[M]``, and below them half of the random ones, ``[1 + R / 2, M]``."""
    slot = bond_slots(case)
    streams = [mix(seed, "trust", "random", turn) for turn in range(ORDERS // 2)]
    chance = [slot_numbers(stream, slot, kind="uniform").to(score.dtype) for stream in streams]
    return torch.stack([score, *chance])


def expected_overlap(case: Case, top: Tensor, parts: Sequence[Part], seed: int) -> Tensor:
    r"""Returns the share of the top bonds that another seed is expected to choose too, ``[B]``.

    .. math:: \tfrac1S \sum_{s} \frac{|T \cap T_s|}{|T|}, \qquad
        T_s = \mathrm{best}\Big(\sum_k \mathrm{std}(v_k + \sqrt2\, \sigma_k z_{ks})\Big)

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
    same = (first_ranks(case, ranks(case, total), TOP) & top).to(value.dtype).mean(0)
    num, found = (_per_graph_sum(case, one) for one in (top.to(value.dtype), same))
    has_errors = _per_graph_sum(case, (case.reached & ~is_known).to(value.dtype)) == 0
    return torch.where((num > 0) & has_errors, found / num.clamp(min=1), torch.nan)


def against_random(query: Query, rank: Tensor) -> dict[str, Tensor]:
    r"""Returns all numbers of `Trust` that compare scores with random ones, ``[B]`` each.

    .. math:: A(s) = \tfrac1{|Q|} \sum_{q \in Q} \big[ f(\mathrm{best}_q(s)) -
        f(\mathrm{worst}_q(s)) \big], \qquad
        b = \sum_{r=1}^{R} \big[ A(s_r) > A(s) \big]

    Symbols: :math:`f(S)` -> log-odds of the explained class (for a value: minus its change), all
    bonds but :math:`S` being masked; :math:`Q` -> `SHARES`; :math:`s_r` -> random scores;
    :math:`b` -> `Trust.random_better`. Half of the random orders are the others reversed, for which
    :math:`A` only changes its sign. If scores are random too, :math:`|A|` is the largest of six in
    one case of six, and positive in half of these: whatever the model, :math:`b = 0` has a chance
    of one in twelve.

    There is no verdict (nan) if masking changes nothing. ``rank`` are the `ranks` of
    `random_orders`.
    """
    case, dtype = query.case, query.clean.dtype
    sets = [first_ranks(case, rank, q, worst=worst) for q in SHARES for worst in (False, True)]
    gate = torch.cat([*sets, torch.zeros_like(sets[0][:1])]).to(dtype)
    fall, share = _masked(query, gate)  # [2 |Q| (1 + R / 2) + 1, B]
    by_set = (len(SHARES), 2, rank.size(0), case.num_graphs)
    worth = -fall[:-1].view(by_set)
    gain = (worth[:, 0] - worth[:, 1]).mean(0)  # A, [1 + R / 2, B]
    effect, size = fall.abs().amax(0), _num_reached(case)
    random_gain = torch.cat([gain[1:], -gain[1:]])  # [R, B]
    better = (random_gain > gain[0] + _SAME * effect).sum(0).to(dtype)
    left = share[:-1].view(by_set)
    best, worst, random = left[:, 0, 0], left[:, 1, 0], left[:, :, 1:].mean((1, 2))  # [|Q|, B]
    place = (best - worst).argmax(0, keepdim=True)  # the first of equal ones
    kept, kept_worst, kept_random = (one.gather(0, place)[0] for one in (best, worst, random))
    shown = torch.tensor(SHARES, dtype=dtype, device=rank.device)[place[0]]
    better = better.where(effect >= UNMOVED, torch.nan)
    told = {
        "share": shown,
        "kept": kept,
        "needed": 1 - kept_worst,
        "kept_random": kept_random,
        "random_better": better,
        "effect": effect,
    }
    return {name: value.where(size > 0, torch.nan) for name, value in told.items()}


def _masked(query: Query, gate: Tensor) -> tuple[Tensor, Tensor]:
    """Returns fall of the log-odds (or change of the value) and share left by gates, ``[N, B]``.

    The last row of gates ``[N, M]`` masks all bonds.
    """
    target, clean, explained = query.target, query.clean, query.explained
    answer = masked_answers(query, query.case.edge_gate(gate))
    fall = target.degradation(clean, answer, explained, "signed-margin")
    loss = target.degradation(clean, answer, explained, "log-prob")
    if target.mode != "regression":
        return fall, (-loss).exp()  # losses of log-probability are not negative
    change = loss.sqrt()
    return change, 1 - torch.where(change[-1] > 0, change / change[-1], 0.0)


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
