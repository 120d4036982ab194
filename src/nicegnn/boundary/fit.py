"""Amortised SRB: fits gate networks on many graphs and judges them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
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
    mechanisms: Sequence[Mechanism],
    config: NICEConfig,
    *,
    fit_settings: Mapping[str, Any],
    seed: int,
    progress: bool,
    checkpoint: str | Path | None,
) -> tuple[list[GateNetwork], FitReport]:
    r"""Fits a gate network per mechanism, with noise that varies over steps (Appendix E).

    .. math:: \min_\theta \tfrac1{|B|} \sum_{G \in B} L(G; \rho_\theta)

    with the objective of `srb_loss`. Only predictions of the frozen target are used. The networks
    of several mechanisms see the same graphs at the same budgets, and each becomes what it would be
    if fitted alone. Everything random is addressed by seed and step, so an interrupted and resumed
    fit gives exactly the same result. By default noise tables are reused after 16 steps, for other
    graphs at other budgets: new tables in each step were slow on a GPU and no better on validation
    graphs. A checkpoint with other ``fit_settings`` is refused.
    """
    started = time.monotonic()
    training = TrainingGraphs(target, graphs, mechanisms, config, seed, progress)
    work = _Fit(training, mechanisms, config, seed)
    fitted = [training.new_network() for _ in mechanisms]
    nets = nn.ModuleList(fitted)
    optimiser = torch.optim.Adam(nets.parameters(), lr=config.boundary.learning_rate)
    history = run_steps(
        lambda step: work.step(fitted, optimiser, step),
        config.boundary.steps,
        nets,
        optimiser,
        title="Fitting gates",
        identity={
            "model": fingerprint(target.model),
            "settings": fit_settings,
            "seed": seed,
            "graphs": mix(len(graphs), *training.stack.num_edges.tolist()),
            "views": len(mechanisms),
        },
        progress=progress,
        checkpoint=checkpoint,
    )
    report = FitReport(
        views=tuple(work.judge(view, net) for view, net in enumerate(fitted)),
        history=history,
        num_graphs=training.kept.numel(),
        num_left_out=training.num_left_out,
        seconds=time.monotonic() - started,
    )
    return fitted, report


class _Fit:
    """Steps of a fit on its training graphs, and the judgement of what it learned."""

    def __init__(
        self, graphs: TrainingGraphs, mechanisms: Sequence[Mechanism], config: NICEConfig, seed: int
    ) -> None:
        self.graphs, self.mechanisms, self.config, self.seed = graphs, mechanisms, config, seed
        self.settings = replace(config.boundary, num_draws=config.boundary.fit_draws)

    def step(
        self, nets: Sequence[GateNetwork], optimiser: torch.optim.Optimizer, step: int
    ) -> dict[str, Tensor]:
        """Takes one step of all networks and returns their mean loss, risk and restored share."""
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
        drawn = graphs.draw(chosen, offset, self.mechanisms[0])
        period = settings.noise_period
        stream = mix(seed, "fit", step % period if period else step)
        losses, risks = [], []
        for net, mechanism, risk0 in zip(nets, self.mechanisms, graphs.reference, strict=True):
            logit, seen = drawn.logits(net, self.config), drawn.query.under(mechanism)
            loss, risk, restored = srb_loss(
                seen, logit, risk0[drawn.numbers], settings, share=budget, stream=stream
            )
            losses.append(loss.mean())
            risks.append(risk.mean())
        weights = [weight for net in nets for weight in net.parameters()]
        descend(torch.stack(losses).sum(), weights, optimiser)
        mean_loss, mean_risk = (torch.stack(values).detach().mean() for values in (losses, risks))
        return {"loss": mean_loss, "risk": mean_risk, "restored": restored.mean()}

    @torch.no_grad()
    def judge(self, view: int, net: GateNetwork) -> dict[int, Judgement]:
        """Judges one network on some training graphs of each explained class."""
        judgements, known = {}, self.graphs
        for label in torch.unique(known.explained).tolist():
            members = (known.explained == label).nonzero().view(-1).cpu()
            size = min(_JUDGED_GRAPHS, members.numel())
            chosen = members[batch_of_step(members.numel(), size, mix(self.seed, "judge"), 0)]
            graphs, explained = known.kept[chosen], known.explained[chosen]
            query = known.query(graphs, self.mechanisms[view], explained)
            logit = gate_logits(net, query, self.config)
            risk0, settings = known.reference[view, chosen], self.config.boundary
            judgements[int(label)] = judge_order(query, logit, risk0, settings, self.seed)
        return judgements


def gate_logits(net: GateNetwork, query: Query, config: NICEConfig) -> Tensor:
    """Returns the network's gate logit of each bond, ``[M]``."""
    return net.bond_logits(bond_representation(query, config.boundary), query)
