"""Views: the target under one mechanism, with the gates learned under it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nicegnn.boundary import corrupted_risk, optimise_logits
from nicegnn.config import NICEConfig
from nicegnn.fitting import gate_logits
from nicegnn.gates import GateNetwork
from nicegnn.mechanisms import get_mechanism
from nicegnn.messages import Mechanism
from nicegnn.query import Query


@dataclass
class View:
    """What damages messages, and the gates that were fitted under it, if any."""

    mechanism: Mechanism
    gates: GateNetwork | None = None

    def knows(self, query: Query) -> Tensor:
        """Returns whether the gates were fitted for each graph's class, ``[B]``."""
        if self.gates is None:
            return torch.zeros_like(query.explained, dtype=torch.bool)
        return self.gates.is_trained_for(query.explained.clamp(min=0))

    def order(self, query: Query, config: NICEConfig, seed: int) -> Tensor:
        """Returns a logit that orders the bonds, ``[M]``: of the gates, or found graph by graph.

        Args:
            query: under this view's mechanism.
        """
        known = self.knows(query)
        if self.gates is not None:
            with torch.no_grad():
                learned = gate_logits(self.gates, query, config)
            if bool(known.all()):
                return learned
        reference = corrupted_risk(query, config.boundary, seed)
        found = optimise_logits(query, reference, config.boundary, seed)
        if self.gates is None:
            return found
        return torch.where(known[query.case.bonds.batch], learned, found)


def make_views(config: NICEConfig) -> list[View]:
    """Returns the views that a configuration asks for; the first one leads."""
    names = ("nc", "em") if config.mechanism == "both" else (config.mechanism,)
    antithetic = config.attribution.antithetic
    return [View(get_mechanism(name, antithetic=antithetic)) for name in names]
