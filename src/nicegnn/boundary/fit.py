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
from nicegnn.boundary.objective import corrupted_risk, srb_loss
from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError
from nicegnn.graph.case import Case, make_case
from nicegnn.graph.minibatches import GraphStack, gather_items
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target, fingerprint

_NOISE_TABLES = 8  # about one in eight graphs of a training batch have the same noise
_JUDGED_GRAPHS = 128  # per class
_KEPT_NUMBERS = 2**27  # of bond representations that are kept for all steps, 512 MiB


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
    work = _Fit(target, graphs, mechanisms, config, seed, progress)
    fitted = [work.new_network() for _ in mechanisms]
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
            "graphs": mix(len(graphs), *work.stack.num_edges.tolist()),
            "views": len(mechanisms),
        },
        progress=progress,
        checkpoint=checkpoint,
    )
    report = FitReport(
        views=tuple(work.judge(view, net) for view, net in enumerate(fitted)),
        history=history,
        num_graphs=work.kept.numel(),
        num_left_out=work.num_left_out,
        seconds=time.monotonic() - started,
    )
    return fitted, report


class _Fit:
    """The training graphs of a fit, their explained classes and their risks at full corruption."""

    def __init__(
        self,
        target: Target,
        graphs: Sequence[Data],
        mechanisms: Sequence[Mechanism],
        config: NICEConfig,
        seed: int,
        progress: bool,
    ) -> None:
        self.target, self.mechanisms, self.config, self.seed = target, mechanisms, config, seed
        self.stack = stack = GraphStack(graphs, target.device)
        settings = config.boundary
        self.fit_settings = replace(settings, num_draws=settings.fit_draws)
        read = batch_of_step(len(stack), settings.max_graphs, mix(seed, "graphs"), 0).sort().values
        kept, explained = list[Tensor](), list[Tensor]()
        reference, sample = list[Tensor](), list[Tensor]()
        clean, bonds, sizes = list[Tensor](), list[Tensor](), list[Tensor]()
        has_room = True
        with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
            parts = torch.split(read.to(target.device), settings.batch_size)
            for number, part in enumerate(parts):
                query = self._query(part, mechanisms[0])
                wanted = stack.num_edges[part] > 0
                if settings.classes:
                    allowed = torch.tensor(settings.classes, device=target.device)
                    wanted &= torch.isin(query.explained, allowed)
                chosen = wanted.nonzero().view(-1)
                kept.append(part[chosen])
                explained.append(query.explained[chosen])
                risks = [corrupted_risk(query.under(m), settings, seed) for m in mechanisms]
                reference.append(torch.stack(risks)[:, chosen])
                clean.append(query.clean[chosen])
                if len(sample) < 16 or has_room:
                    z, case = bond_representation(query, settings), query.case
                    if len(sample) < 16:
                        sample.append(z)
                    is_ordered = z.size(0) != case.bonds.batch.numel()
                    home = case.edge_batch if is_ordered else case.bonds.batch
                    bonds.append(z[wanted[home]])
                    sizes.append(torch.bincount(home, minlength=part.numel())[chosen])
                    has_room &= sum(one.numel() for one in bonds) <= _KEPT_NUMBERS
                advance(number * settings.batch_size + part.numel(), "")
        self.kept = torch.cat(kept)  # graphs that are trained on, [G]
        if self.kept.numel() == 0:
            raise GraphError(
                f"At least one of the {read.numel()} training graphs must have edges and a "
                f"predicted class among {settings.classes or 'all classes'} (got none)."
            )
        self.explained = torch.cat(explained)  # [G]
        self.reference = torch.cat(reference, dim=1)  # risk at full corruption, [K, G]
        self.sample = torch.cat(sample)  # bond representations, to standardise inputs
        self.num_classes = query.clean.size(1) if target.mode != "regression" else 1
        self.table_width = -(-int(stack.num_edges[self.kept].max()) // 64) * 64
        self.num_left_out = read.numel() - self.kept.numel()
        self.clean = torch.cat(clean)  # clean answers, [G, C]
        self.template = query
        self.bonds: Tensor | None = None  # standardised representations of all bonds, if kept
        if has_room:
            net = self.new_network()  # all networks standardise alike
            self.bonds = torch.cat([net.scaled(bonds.pop(0)) for _ in range(len(bonds))])
            self.bond_ptr = nn.functional.pad(torch.cat(sizes).cumsum(0), (1, 0))  # of each graph

    def new_network(self) -> GateNetwork:
        """Returns an untrained network on the target's device."""
        settings = self.config.boundary
        heads = self.num_classes if settings.class_gates else 1
        start = settings.start if settings.objective == "penalty" else 0.5
        sizes = self.sample.size(1), settings.hidden_size, heads
        with SeededWeights(mix(self.seed, "weights")):
            net = GateNetwork(*sizes, start, is_standardised=settings.standardise)
        net.to(self.sample)
        net.standardise(self.sample)
        if settings.class_gates:
            net.trained[torch.unique(self.explained.clamp(min=0))] = True
        else:
            net.trained.fill_(True)
        return net

    def step(
        self, nets: Sequence[GateNetwork], optimiser: torch.optim.Optimizer, step: int
    ) -> dict[str, Tensor]:
        """Takes one step of all networks and returns their mean loss, risk and restored share."""
        settings, seed = self.fit_settings, self.seed
        chosen = batch_of_step(self.kept.numel(), settings.batch_size, seed, step)
        generator = torch.Generator().manual_seed(mix(seed, "step", step))
        place = torch.rand(chosen.numel(), generator=generator)
        share = settings.budget_low + (settings.budget_high - settings.budget_low) * place
        table = torch.randint(_NOISE_TABLES, (chosen.numel(),), generator=generator)
        offset = (table * self.table_width).to(self.target.device)
        graphs, explained = self.kept[chosen], self.explained[chosen]
        if self.bonds is None:
            query = self._query(graphs, self.mechanisms[0], explained, offset)
            z = bond_representation(query, settings)
        else:
            here = chosen.to(graphs.device)
            query = self.template.about(self._case(graphs, offset), self.clean[here], explained)
            z = self.bonds[gather_items(self.bond_ptr, here)[0]]
        period = settings.noise_period
        stream = mix(seed, "fit", step % period if period else step)
        losses, risks = [], []
        for net, mechanism, risk0 in zip(nets, self.mechanisms, self.reference, strict=True):
            logit = net.bond_logits(z, query, is_scaled=self.bonds is not None)
            seen, budget = query.under(mechanism), share.to(logit)
            loss, risk, restored = srb_loss(
                seen, logit, risk0[chosen], settings, share=budget, stream=stream
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
        judgements = {}
        for label in torch.unique(self.explained).tolist():
            members = (self.explained == label).nonzero().view(-1).cpu()
            size = min(_JUDGED_GRAPHS, members.numel())
            chosen = members[batch_of_step(members.numel(), size, mix(self.seed, "judge"), 0)]
            graphs, explained = self.kept[chosen], self.explained[chosen]
            query = self._query(graphs, self.mechanisms[view], explained)
            logit = gate_logits(net, query, self.config)
            risk0, settings = self.reference[view, chosen], self.config.boundary
            judgements[int(label)] = judge_order(query, logit, risk0, settings, self.seed)
        return judgements

    def _case(self, graphs: Tensor, offset: Tensor | None) -> Case:
        """Returns some graphs, ``[B]``, with their noise slots shifted by ``offset``."""
        case = make_case(self.stack.take(graphs), undirected=self.config.undirected)
        if offset is not None:
            case = replace(case, slot=case.slot + offset[case.edge_batch])
        return case

    def _query(
        self,
        graphs: Tensor,
        mechanism: Mechanism,
        explained: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> Query:
        """Returns a query of some graphs, ``[B]``, with their noise slots shifted by ``offset``."""
        config, case = self.config, self._case(graphs, offset)
        if explained is not None and bool((explained < 0).any()):
            explained = None  # a regression model, all outputs of it
        return Query(
            self.target,
            case,
            mechanism,
            explained=explained,
            chunk_edges=config.chunk_edges,
            degradation=config.boundary.degradation,
        )


def gate_logits(net: GateNetwork, query: Query, config: NICEConfig) -> Tensor:
    """Returns the network's gate logit of each bond, ``[M]``."""
    return net.bond_logits(bond_representation(query, config.boundary), query)
