"""Parts of a score: views of the target with their gates, and how parts are joined."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import corrupted_risk, optimise_logits
from nicegnn.config import NICEConfig
from nicegnn.graph.case import Case
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query


@dataclass
class View:
    """What damages messages, and the gates that were fitted under it, if any."""

    mechanism: Mechanism  # damages the messages of a bond that is attributed
    boundary_mechanism: Mechanism  # damages messages while gates are fitted or a boundary is placed
    gates: GateNetwork | None = None

    def knows(self, query: Query) -> Tensor:
        """Returns whether the gates were fitted for each graph's class, ``[B]``."""
        if self.gates is None:
            return torch.zeros_like(query.explained, dtype=torch.bool)
        return self.gates.is_trained_for(query.explained.clamp(min=0))

    def order(
        self, query: Query, config: NICEConfig, seed: int, reference: Tensor | None = None
    ) -> Tensor:
        """Returns a logit that orders the bonds, ``[M]``: of the gates, or found graph by graph.

        The query is under this view's `boundary_mechanism`; the risk at full corruption is computed
        if ``reference`` is missing and needed, ``[B]``.
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


def combine(case: Case, *values: Tensor) -> Tensor:
    r"""Joins several scores of the same bonds into one in (0, 1), ``[M]``.

    .. math:: s_e = \sigma\Big(\sum_k \frac{v_{ke} - \bar v_k}{\mathrm{std}(v_k)}\Big)

    Symbols: :math:`v_k` -> ``values``, ``[M]`` each; mean and spread are taken over the reached
    bonds of a graph. Each part counts the same whatever its scale; an average bond has 1/2. The
    order of the boundary ranks bonds by what suffices to restore the prediction, the attribution by
    what the prediction cannot lose. Bonds that all parts rank high come first.
    """
    return torch.stack([standardise(case, value) for value in values]).sum(0).sigmoid()


def standardise(case: Case, value: Tensor) -> Tensor:
    """Gives the reached bonds of each graph mean 0 and spread 1, or 0 where all are equal."""
    centred = value - case.per_graph_mean(value)[case.bonds.batch]
    spread = case.per_graph_mean(centred.square()).sqrt()[case.bonds.batch]
    return torch.where(spread > 1e-12, centred / spread.clamp(min=1e-12), 0.0)


def make_views(config: NICEConfig) -> list[View]:
    """Returns the views that a configuration asks for, noise first."""
    names = ("nc", "em") if config.mechanism == "both" else (config.mechanism,)
    views = []
    for name in names:
        own, other = (
            get_mechanism(name, antithetic=config.attribution.antithetic, anchor=part.anchor)
            for part in (config.attribution, config.boundary)
        )
        is_same = config.attribution.anchor == config.boundary.anchor
        views.append(View(own, own if is_same else other))  # one table of noise where it can be
    return views
