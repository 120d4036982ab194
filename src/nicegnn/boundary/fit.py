"""Amortised SRB: fits gate networks on many graphs and judges them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.boundary.fit_report import FitReport, Judgement, judge_order
from nicegnn.boundary.gate_network import GateNetwork, bond_representation
from nicegnn.boundary.objective import srb_loss
from nicegnn.boundary.training_graphs import TrainingGraphs
from nicegnn.config import NICEConfig
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step, descend, run_steps
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target, fingerprint

_NOISE_TABLES = 8  # about one in eight graphs of a training batch have the same noise
_JUDGED_GRAPHS = 128  # per class


def fit_gates(
    target: Target,
    graphs: Sequence[Data],
    mechanism: Mechanism,
    config: NICEConfig,
    *,
    fit_settings: Mapping[str, Any],
    seed: int,
    progress: bool,
    checkpoint: str | Path | None,
) -> tuple[GateNetwork, FitReport]:
    r"""Fits a gate network under a mechanism, with noise that varies over steps (Appendix E).

    .. math:: \min_\theta \tfrac1{|B|} \sum_{G \in B} L(G; \rho_\theta)

    with the objective of `srb_loss`. Only predictions of the frozen target are used. Everything
    random is addressed by seed and step, so an interrupted and resumed fit gives exactly the same
    result. By default noise tables are reused after 16 steps, for other graphs at other budgets:
    new tables in each step were slow on a GPU and no better on validation graphs. A checkpoint with
    other ``fit_settings`` is refused.
    """
    started = time.monotonic()
    training = TrainingGraphs(target, graphs, mechanism, config, seed, progress)
    work = _Fit(training, mechanism, config, seed)
    net = training.new_network()
    optimiser = torch.optim.Adam(net.parameters(), lr=config.boundary.learning_rate)
    history = run_steps(
        lambda step: work.step(net, optimiser, step),
        config.boundary.steps,
        net,
        optimiser,
        title="Fitting gates",
        identity={
            "model": fingerprint(target.model),
            "settings": fit_settings,
            "seed": seed,
            "graphs": mix(len(graphs), *training.stack.num_edges.tolist()),
            "mechanism": repr(mechanism),
        },
        progress=progress,
        checkpoint=checkpoint,
    )
    report = FitReport(
        classes=work.judge(net),
        history=history,
        num_graphs=training.kept.numel(),
        num_left_out=training.num_left_out,
        seconds=time.monotonic() - started,
    )
    return net, report


class _Fit:
    """Steps of a fit on its training graphs, and the judgement of what it learned."""

    def __init__(
        self, graphs: TrainingGraphs, mechanism: Mechanism, config: NICEConfig, seed: int
    ) -> None:
        self.graphs, self.mechanism, self.config, self.seed = graphs, mechanism, config, seed
        self.settings = replace(config.boundary, num_draws=config.boundary.fit_draws)

    def step(
        self, net: GateNetwork, optimiser: torch.optim.Optimizer, step: int
    ) -> dict[str, Tensor]:
        """Takes one step and returns mean loss, risk and restored share."""
        settings, seed, graphs = self.settings, self.seed, self.graphs
        if settings.schedule == "linear":
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / settings.steps)
        chosen = batch_of_step(graphs.kept.numel(), settings.batch_size, seed, step)
        generator = torch.Generator().manual_seed(mix(seed, "step", step))
        place = torch.rand(chosen.numel(), generator=generator)
        share = settings.budget_low + (settings.budget_high - settings.budget_low) * place
        table = torch.randint(_NOISE_TABLES, (chosen.numel(),), generator=generator)
        order = graphs.sorted_by_class(chosen)
        chosen, share, offset = chosen[order], share[order], table[order] * graphs.table_width
        budget, offset = share.to(graphs.clean), offset.to(graphs.kept.device)
        drawn = graphs.draw(chosen, offset, self.mechanism)
        period = settings.noise_period
        stream = mix(seed, "fit", step % period if period else step)
        logit, risk0 = drawn.logits(net, self.config), graphs.reference[drawn.numbers]
        loss, risk, restored = srb_loss(
            drawn.query, logit, risk0, settings, share=budget, stream=stream
        )
        descend(loss.mean(), list(net.parameters()), optimiser)
        return {"loss": loss.detach().mean(), "risk": risk.mean(), "restored": restored.mean()}

    @torch.no_grad()
    def judge(self, net: GateNetwork) -> dict[int, Judgement]:
        """Judges the network on some training graphs of each explained class."""
        judgements, known = {}, self.graphs
        for label in torch.unique(known.explained).tolist():
            members = (known.explained == label).nonzero().view(-1).cpu()
            size = min(_JUDGED_GRAPHS, members.numel())
            chosen = members[batch_of_step(members.numel(), size, mix(self.seed, "judge"), 0)]
            graphs, explained = known.kept[chosen], known.explained[chosen]
            query = known.query(graphs, self.mechanism, explained)
            logit = gate_logits(net, query, self.config)
            risk0, settings = known.reference[chosen], self.config.boundary
            judgements[int(label)] = judge_order(query, logit, risk0, settings, self.seed)
        return judgements


def gate_logits(net: GateNetwork, query: Query, config: NICEConfig) -> Tensor:
    """Returns the network's gate logit of each bond, ``[M]``."""
    return net.bond_logits(bond_representation(query, config.boundary), query)
