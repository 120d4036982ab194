"""Views (mechanisms with their gates), and joined scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import global_mean_pool

from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import corrupted_risk, optimise_logits
from nicegnn.config import NICEConfig
from nicegnn.graph.case import Case, rank_within
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query


@dataclass
class View:
    """A mechanism, and the gates that were fitted under it, if any."""

    mechanism: Mechanism  # for attribution
    boundary_mechanism: Mechanism  # for gates and boundary
    gates: GateNetwork | None = None
    learns: bool = True  # whether bonds are also put in order under this mechanism

    def knows(self, query: Query) -> Tensor:
        """Returns whether the gates were fitted for each graph's class, ``[B]``."""
        if self.gates is None:
            return torch.zeros_like(query.explained, dtype=torch.bool)
        return self.gates.is_trained_for(query.explained.clamp(min=0))

    def order(
        self, query: Query, config: NICEConfig, seed: int, reference: Tensor | None = None
    ) -> Tensor:
        """Returns the logit of each bond, ``[M]``: of the gates, or optimised graph by graph.

        The query must use `boundary_mechanism`; ``reference`` is the risk at full corruption,
        ``[B]``, computed if needed.
        """
        known = self.knows(query)
        if self.gates is not None:
            with torch.no_grad():
                learned = gate_logits(self.gates, query, config)
            if bool(known.all()):
                return learned
        if reference is None:
            reference = corrupted_risk(query, config.boundary, seed)
        found = optimise_logits(query, reference, config.boundary, seed)
        if self.gates is None:
            return found
        return torch.where(known[query.case.bonds.batch], learned, found)


def make_views(config: NICEConfig) -> list[View]:
    """Returns the views of a configuration, noise first.

    Of two views only masking learns an order of bonds: an order under noise besides adds nothing
    that `docs/study.md` could measure.
    """
    names = ("nc", "em") if config.mechanism == "both" else (config.mechanism,)
    views = []
    for name in names:
        own, other = (
            get_mechanism(name, antithetic=config.attribution.antithetic, anchor=part.anchor)
            for part in (config.attribution, config.boundary)
        )
        is_same = config.attribution.anchor == config.boundary.anchor
        same = own if is_same else other  # to share one table of noise
        views.append(View(own, same, learns=name == names[-1]))
    return views


def combine(case: Case, *values: Tensor) -> Tensor:
    r"""Joins several scores of the same bonds into one in (0, 1), ``[M]``.

    .. math:: s_e = \sigma\Big(\sum_k \frac{v_{ke} - \bar v_k}{\mathrm{std}(v_k)}\Big)

    Symbols: :math:`v_k` -> ``values``, ``[M]`` each, with mean and spread over the reached bonds of
    a graph. All parts have equal weight; an average bond has 1/2. The boundary ranks bonds that
    suffice for the prediction high, the attribution bonds that the prediction needs.
    """
    return torch.stack([standardise(case, value) for value in values]).sum(0).sigmoid()


def first_bonds(case: Case, order: Tensor, most: int) -> Tensor:
    """Returns the `most` reached bonds of each graph that an order ranks first, bool ``[M]``."""
    order = torch.where(case.reached, order, -torch.inf)
    return case.reached & (rank_within(order, case.bonds.batch, case.num_graphs) < most)


def put_others_below(case: Case, first: Tensor, score: Tensor, order: Tensor) -> Tensor:
    r"""Ranks bonds that were not damaged one by one below those that were, by the order alone.

    .. math:: s_e = \min_{f \in F} s_f \cdot \sigma(\mathrm{std}(a_e)), \qquad e \notin F

    Symbols: :math:`F` -> ``first``, bool ``[M]``; scores :math:`s` in (0, 1) -> ``score``, ``[M]``;
    :math:`a` -> ``order``, ``[M]``; :math:`\mathrm{std}` -> `standardise`, over the other bonds.
    """
    batch = case.bonds.batch
    lowest = score.new_ones(case.num_graphs)
    lowest = lowest.scatter_reduce(0, batch[first], score[first], "amin")
    others = replace(case, reached=case.reached & ~first)
    return torch.where(first, score, lowest[batch] * standardise(others, order).sigmoid())


def combine_atoms(batch: Batch, *values: Tensor) -> Tensor:
    """Joins several scores of the same atoms as `combine` joins those of bonds, ``[V]``."""
    total = torch.zeros_like(values[0])
    for value in values:
        centred = value - global_mean_pool(value, batch.batch, batch.num_graphs)[batch.batch]
        spread = global_mean_pool(centred.square(), batch.batch, batch.num_graphs).sqrt()
        spread = spread[batch.batch]
        is_even = spread <= 1e-12  # not so for nan, which stays
        total += torch.where(is_even, 0.0, centred / spread.clamp(min=1e-12))
    return total.sigmoid()


def standardise(case: Case, value: Tensor) -> Tensor:
    """Gives the reached bonds of each graph mean 0 and spread 1, or 0 where all are equal.

    Values are ``[..., M]``.
    """
    centred = value - case.per_graph_mean(value)[..., case.bonds.batch]
    spread = case.per_graph_mean(centred.square()).sqrt()[..., case.bonds.batch]
    return torch.where(spread > 1e-12, centred / spread.clamp(min=1e-12), 0.0)
