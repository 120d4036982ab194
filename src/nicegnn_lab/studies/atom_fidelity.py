"""What a target predicts without the best atoms of a score, and from these alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.metrics.atoms import distance_left, evidence
from nicegnn_lab.metrics.ranking import is_selected, random_rank, random_ties
from nicegnn_lab.studies.atom_scores import NO_SIGN, Ground, only

#: How atoms are removed: they become prototypes, their features zero, or they are taken out.
REMOVALS = ("exchange", "zero", "out")
SHARES = (0.1, 0.2, 0.3, 0.5)  # of the atoms of a molecule


@torch.no_grad()
def fidelity(ground: Ground, scores: Mapping[str, Tensor]) -> Iterator[Block]:
    """Yields what is ``lost`` without the best atoms by each score, ``[V]``, and ``kept`` by these.

    Best is what holds the prediction away from the mean of the background, see `evidence`; atoms
    of scores without a sign go by their size. The protocol is one of `REMOVALS`, the level a share
    of atoms in percent. ``lost_area`` and ``kept_area`` are the mean heights of both curves by the
    trapezoidal rule. Every score is judged by every way, so that none is at home in all of them.
    """
    batch, clean, home = ground.batch, ground.clean, ground.batch.batch
    order = [
        own.to(clean) if name in NO_SIGN else evidence(own.to(clean), ground.rise, home)
        for name, own in scores.items()
    ]
    tie = random_ties(None, home, batch.num_graphs, 0)
    ranks = [random_rank(own, home, batch.num_graphs, tie) for own in order]
    best = torch.stack(  # [S Q, V]
        [is_selected(rank, home, batch.num_graphs, share) for rank in ranks for share in SHARES]
    )
    shares = torch.tensor(SHARES, dtype=torch.double)
    for way in REMOVALS:
        for metric, gone in (("lost", best), ("kept", ~best)):
            left = distance_left(answers_without(ground, gone, way), clean, ground.base)
            found = left.view(-1, len(SHARES)).double().cpu()
            found = 1 - found if metric == "lost" else found
            area = torch.trapezoid(found, shares) / (shares[-1] - shares[0])
            for setting, curve, mean in zip(scores, found, area.tolist(), strict=True):
                yield Block(metric, curve, way, setting=setting, level=100 * shares)
                yield Block(f"{metric}_area", mean, way, setting=setting)


@torch.no_grad()
def answers_without(ground: Ground, gone: Tensor, way: str) -> Tensor:
    """Returns value or log-odds of each graph without some atoms, bool ``[N, V]``, ``[N, B]``.

    Of an exchange it is the mean over the prototypes of the background.
    """
    number, found = ground.batch.num_graphs, []
    every = torch.arange(number, device=gone.device)
    for some in torch.split(gone, max(1, ground.at_once // number)):
        copies = ground.query.stack.take(every.repeat(len(some)))
        place = some.flatten()
        if way == "out":
            left = only(copies, ~place, copies.batch)
            left._num_graphs = copies.num_graphs
            found.append(ground.asked(left).view(-1, number))
            continue
        x = copies.x
        kinds = ground.background.features["x"] if way == "exchange" else torch.zeros_like(x[:1])
        answers = []
        for kind in kinds:
            copies.x = torch.where(place.unsqueeze(1), kind, x)
            answers.append(ground.asked(copies))
        found.append(torch.stack(answers).mean(0).view(-1, number))
    return torch.cat(found)
