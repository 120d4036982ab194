"""Bond-wise attribution: the loss of the prediction when one bond alone is damaged."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.attribution.joint_path import Attribution, standard_error
from nicegnn.boundary.objective import check_answers, restoration_risk
from nicegnn.config import AttributionConfig
from nicegnn.graph.case import merge_equal
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.losses import value_fall


@torch.no_grad()
def bond_wise_loss(query: Query, config: AttributionConfig, seed: int) -> Attribution:
    r"""Returns what the prediction loses when one bond is damaged and all others stay clean.

    .. math:: s_e = \frac1K \sum_k \big[ m(G) - m(G; e \leftarrow b_k) \big]_+
        \;\text{(classes)}, \qquad
        s_e = \frac1K \sum_k f(G) - f(G; e \leftarrow b_k) \;\text{(values)}

    Symbols: :math:`m` -> log-odds of the explained class (the loss ``config.degradation``);
    :math:`f` -> the value; :math:`e \leftarrow b_k` -> the messages of bond e in all layers, as the
    query's mechanism changes them with gate 0 in draw k: those of prototype k, noise, or nothing.

    It is also the integral of the fall of risk along a path on which the bond alone moves from
    damage to clean. With ``config.beta`` the spread over draws counts too, as in the paper's risk.
    Losses that differ by rounding alone are made equal, see `merge_equal`.

    Note:
        The paper moves all bonds together from full corruption to the boundary. Here all other
        bonds are clean. Completeness is lost: an effect that needs several bonds counts for each of
        them, or for none.
    """
    query = query.losing(config.degradation)
    bonds, stream = query.case.bonds, mix(seed, "bonds")
    num_draws = query.draws(config.num_draws)
    change = query.clean.new_zeros(num_draws, bonds.batch.numel())  # of each draw, [N, M]
    is_value = query.target.mode == "regression"
    signed = query.losing("signed-margin" if config.degradation == "margin" else config.degradation)
    for part in damage_each_bond(query, num_draws, stream):
        change[part.draw, part.item] = lost_of(signed, part.output, bonds.batch[part.item])
    share = change if is_value else change.clamp(min=0)
    score = share.mean(0) if is_value else restoration_risk(share, config.beta)
    check_answers(query, score)
    stderr = torch.zeros_like(score)
    if num_draws > 1 or query.is_random:
        stderr = standard_error(share)
    size = query.clean.abs().amax(1)  # of numbers that were subtracted from each other, [B]
    score, stderr, mean = (
        merge_equal(one, bonds.batch, size) for one in (score, stderr, change.mean(0))
    )
    unknown = torch.full_like(query.clean[:, 0], torch.nan)
    return Attribution(score, stderr, unknown, unknown, completeness_gap=unknown, change=mean)


def lost_of(query: Query, output: Tensor, graph: Tensor) -> Tensor:
    """Returns what each graph, ``[K]``, loses in raw output ``[K, C]``; of values, their fall."""
    if query.target.mode != "regression":
        return query.loss_of(output, graph)
    answer = query.target.read(output).unsqueeze(0)
    return value_fall(query.clean[graph], answer, query.explained[graph])[0]
