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
from nicegnn.boundary.objective import corrupted_risk, srb_loss
from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError
from nicegnn.graph.case import make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target, fingerprint

_NOISE_TABLES = 8  # about one in eight graphs of a training batch have the same noise
_JUDGED_GRAPHS = 128  # per class
_SAMPLED_PARTS = 16  # batches whose bonds fix mean and scale of the gate network's inputs


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
    work = _Fit(target, graphs, mechanism, config, seed, progress)
    net = work.new_network()
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
            "graphs": mix(len(graphs), *work.stack.num_edges.tolist()),
            "mechanism": repr(mechanism),
        },
        progress=progress,
        checkpoint=checkpoint,
    )
    report = FitReport(
        classes=work.judge(net),
        history=history,
        num_graphs=work.kept.numel(),
        num_left_out=work.num_left_out,
        seconds=time.monotonic() - started,
    )
    return net, report


class _Fit:
    """Graphs that gates are fitted on, the steps of a fit, and the judgement of what it learned.

    Graphs without edges, or explained for a class that is not wanted, are left out. Explained
    classes and risks at full corruption are worked out once.
    """

    def __init__(
        self,
        target: Target,
        graphs: Sequence[Data],
        mechanism: Mechanism,
        config: NICEConfig,
        seed: int,
        progress: bool,
    ) -> None:
        self.target, self.mechanism, self.config, self.seed = target, mechanism, config, seed
        self.settings = settings = replace(config.boundary, num_draws=config.boundary.fit_draws)
        self.stack = stack = GraphStack(graphs, target.device)
        read = batch_of_step(len(stack), settings.max_graphs, mix(seed, "graphs"), 0).sort().values
        kept, explained, reference = list[Tensor](), list[Tensor](), list[Tensor]()
        sample, number_classes = list[Tensor](), 1
        with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
            parts = torch.split(read.to(target.device), settings.batch_size)
            for number, part in enumerate(parts):
                query = self.query(part)
                wanted = stack.num_edges[part] > 0
                if settings.classes:
                    allowed = torch.tensor(settings.classes, device=target.device)
                    wanted &= torch.isin(query.explained, allowed)
                kept.append(part[wanted])
                explained.append(query.explained[wanted])
                reference.append(corrupted_risk(query, config.boundary, seed)[wanted])
                if number < _SAMPLED_PARTS:
                    sample.append(bond_representation(query, settings))
                number_classes = query.clean.size(1)
                advance(number * settings.batch_size + part.numel(), "")
        self.kept = torch.cat(kept)  # numbers in the stack, [G]
        if self.kept.numel() == 0:
            raise GraphError(
                f"At least one of the {read.numel()} training graphs must have edges and a "
                f"predicted class among {settings.classes or 'all classes'} (got none)."
            )
        self.explained = torch.cat(explained)  # [G]
        self.reference = torch.cat(reference)  # risk at full corruption, [G]
        self.num_left_out = read.numel() - self.kept.numel()
        self.table_width = -(-int(stack.num_edges[self.kept].max()) // 64) * 64
        is_single = target.mode == "regression" or not settings.class_gates
        self.num_heads = 1 if is_single else number_classes
        self.sample = torch.cat(sample)  # bond representations, [M, D]

    def new_network(self) -> GateNetwork:
        """Returns an untrained network; sampled bonds fix how it standardises."""
        settings, sample = self.settings, self.sample
        start = settings.start if settings.objective == "penalty" else 0.5
        sizes = sample.size(1), settings.hidden_size, self.num_heads
        with SeededWeights(mix(self.seed, "weights")):
            net = GateNetwork(*sizes, start, is_standardised=settings.standardise)
        net.to(sample)
        net.standardise(sample)
        label = self.explained if self.num_heads > 1 else torch.zeros_like(self.explained)
        net.trained[torch.unique(label).to(net.trained.device)] = True
        return net

    def query(
        self,
        graphs: Tensor,
        explained: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> Query:
        """Returns a query of some graphs of the stack, ``[B]``, with noise slots shifted."""
        config = self.config
        case = make_case(self.stack.take(graphs), undirected=config.undirected)
        if offset is not None:
            case = replace(case, slot=case.slot + offset[case.edge_batch])
        if explained is not None and bool((explained < 0).any()):
            explained = None  # a regression model, all outputs of it
        return Query(
            self.target,
            case,
            self.mechanism,
            explained=explained,
            chunk_edges=config.chunk_edges,
            degradation=self.settings.degradation,
        )

    def step(
        self, net: GateNetwork, optimiser: torch.optim.Optimizer, step: int
    ) -> dict[str, Tensor]:
        """Takes one step and returns mean loss, risk and restored share."""
        settings, seed, device = self.settings, self.seed, self.kept.device
        if settings.schedule == "linear":
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / settings.steps)
        chosen = batch_of_step(self.kept.numel(), settings.batch_size, seed, step)
        generator = torch.Generator().manual_seed(mix(seed, "step", step))
        place = torch.rand(chosen.numel(), generator=generator)
        share = settings.budget_low + (settings.budget_high - settings.budget_low) * place
        table = torch.randint(_NOISE_TABLES, (chosen.numel(),), generator=generator)
        chosen, offset = chosen.to(device), table.to(device) * self.table_width
        query = self.query(self.kept[chosen], self.explained[chosen], offset)
        period = settings.noise_period
        stream = mix(seed, "fit", step % period if period else step)
        loss, risk, restored = srb_loss(
            query,
            gate_logits(net, query, self.config),
            self.reference[chosen],
            settings,
            share=share.to(self.reference),
            stream=stream,
        )
        descend(loss.mean(), list(net.parameters()), optimiser)
        return {"loss": loss.detach().mean(), "risk": risk.mean(), "restored": restored.mean()}

    @torch.no_grad()
    def judge(self, net: GateNetwork) -> dict[int, Judgement]:
        """Judges the network on some training graphs of each explained class."""
        judgements = {}
        for label in torch.unique(self.explained).tolist():
            members = (self.explained == label).nonzero().view(-1).cpu()
            size = min(_JUDGED_GRAPHS, members.numel())
            chosen = members[batch_of_step(members.numel(), size, mix(self.seed, "judge"), 0)]
            query = self.query(self.kept[chosen], self.explained[chosen])
            logit, risk0 = gate_logits(net, query, self.config), self.reference[chosen]
            judgements[int(label)] = judge_order(
                query, logit, risk0, self.config.boundary, self.seed
            )
        return judgements


def gate_logits(net: GateNetwork, query: Query, config: NICEConfig) -> Tensor:
    """Returns the network's gate logit of each bond, ``[M]``."""
    return net.bond_logits(bond_representation(query, config.boundary), query)
