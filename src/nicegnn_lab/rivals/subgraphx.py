"""Shapley values of bonds, the scoring rule of SubgraphX, by sampling orders of appearance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.explain.explainer import Count, ScoreConfig, ScoreExplainer
from nicegnn.graph.case import Case, rank_within
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.rivals.references import bond_slots, slot_numbers


@dataclass(frozen=True)
class SubgraphXConfig(ScoreConfig):
    num_orders: Count = 16  # of appearance; every second one is the one before it, reversed


class SubgraphX(ScoreExplainer):
    r"""Scores a bond by its Shapley value: its mean gain when bonds appear in random order.

    .. math:: s_b = \mathbb{E}_\pi\big[v(P_b^\pi \cup \{b\}) - v(P_b^\pi)\big], \qquad
        v(S) = f_c(\mathbf 1_S)

    Symbols: :math:`\pi` -> an order of a graph's bonds; :math:`P_b^\pi` -> bonds that appear before
    b, those with a lower ``place``, ``[R, M]``; :math:`v` -> `Query.evidence`, ``[R, B]``, where
    bonds outside the coalition are damaged; :math:`s_b` -> the bond's score, returned on its edges,
    ``[E]``.

    The scores of a graph add up to :math:`v(\text{all}) - v(\emptyset)` for any number of orders.
    With noise corruption, an order is run with `num_draws` noises, each kept along the order.
    Game and sampling are SubgraphX's; its search is not used. With one seed, all graphs use the
    same random numbers, by slot; each estimate is unbiased.
    """

    name = "subgraphx"
    config_type = SubgraphXConfig
    mechanisms = ("em", "nc", "exchange")
    config: SubgraphXConfig

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        case, bonds = query.case, query.case.bonds
        size = torch.bincount(bonds.batch[case.reached], minlength=case.num_graphs)  # [B]
        most, num_rows = int(size.max()), self.config.num_orders * self.num_draws
        everything = query.evidence(query.clean.new_ones(1, case.num_edges))  # [1, B]
        score = query.clean.new_zeros(bonds.batch.numel())

        def value(place: Tensor, number: int, first: int) -> Tensor:
            """The game's value with the first ``number`` bonds of each order, ``[R, B]``."""
            gate = case.edge_gate((place < number).to(score.dtype))
            return query.evidence(gate, mix(seed, "orders"), first)

        for first in range(0, num_rows, query.chunk_draws):
            rows = range(first, min(first + query.chunk_draws, num_rows))
            place = self._places(case, size, rows, seed)  # [R, M]
            before = value(place, 0, first)
            for number in range(1, most + 1):
                after = value(place, number, first) if number < most else everything
                gain = (after - before)[:, bonds.batch]  # [R, M]
                score += torch.where(place == number - 1, gain, 0).sum(0)
                before = after
        return (score / num_rows)[bonds.edge_bond]

    def _places(self, case: Case, size: Tensor, rows: range, seed: int) -> Tensor:
        """Returns the place of each bond in each row's order, from 0, ``[R, M]``."""
        slot, batch, places = bond_slots(case), case.bonds.batch, []
        for row in rows:
            pair, is_reversed = divmod(row // self.num_draws, 2)
            number = slot_numbers(mix(seed, "order", pair), slot, kind="uniform")
            number = torch.where(case.reached, number, -1)  # out of reach: after all others
            place = rank_within(number, batch, case.num_graphs)
            if is_reversed:
                place = torch.where(case.reached, size[batch] - 1 - place, place)
            places.append(place)
        return torch.stack(places)
