"""Amortised SRB: fits gate networks on many graphs, can resume a fit, and judges the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

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
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target, fingerprint

_NOISE_TABLES = 8  # graphs of a training batch share noise with about one in eight others
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
    of several mechanisms see the same graphs at the same budgets, and each ends as if it were
    fitted alone. Everything random is addressed by seed and step, so a run that was interrupted and
    resumed from its checkpoint ends exactly as an uninterrupted one. By default noise tables are
    used again after 16 steps, for other graphs at other budgets: new tables for each step keep a
    GPU waiting and were no better on validation graphs. A checkpoint with other ``fit_settings``
    is refused.
    """
    started = time.monotonic()
    settings = config.boundary
    known = _prepare(target, graphs, mechanisms, config, seed, progress)
    fitted = [_new_network(known, config, seed).to(target.device) for _ in mechanisms]
    nets = nn.ModuleList(fitted)
    optimiser = torch.optim.Adam(nets.parameters(), lr=settings.learning_rate)
    of_step = config.with_(boundary__num_draws=settings.fit_draws)
    history = run_steps(
        lambda step: _step(known, fitted, optimiser, target, mechanisms, of_step, seed, step),
        settings.steps,
        nets,
        optimiser,
        title="Fitting gates",
        identity={
            "model": fingerprint(target.model),
            "settings": fit_settings,
            "seed": seed,
            "graphs": mix(len(graphs), *known.stack.num_edges.tolist()),
            "views": len(mechanisms),
        },
        progress=progress,
        checkpoint=checkpoint,
    )
    report = FitReport(
        views=tuple(
            _judge(known, view, net, target, mechanism, config, seed)
            for view, (net, mechanism) in enumerate(zip(fitted, mechanisms, strict=True))
        ),
        history=history,
        num_graphs=known.kept.numel(),
        num_left_out=known.num_left_out,
        seconds=time.monotonic() - started,
    )
    return fitted, report


@dataclass
class _Known:
    """Results of one clean and one corrupted pass over the training graphs."""

    stack: GraphStack  # all graphs
    kept: Tensor  # those that are trained on, [G]
    explained: Tensor  # [G]
    reference: Tensor  # risk at full corruption under each mechanism, [K, G]
    sample: Tensor  # bond representations to standardise by
    num_classes: int
    table_width: int
    num_left_out: int


def _prepare(
    target: Target,
    graphs: Sequence[Data],
    mechanisms: Sequence[Mechanism],
    config: NICEConfig,
    seed: int,
    progress: bool,
) -> _Known:
    settings = config.boundary
    stack = GraphStack(graphs, target.device)
    read = batch_of_step(len(stack), settings.max_graphs, mix(seed, "graphs"), 0).sort().values
    kept, explained = list[Tensor](), list[Tensor]()
    reference, sample = list[Tensor](), list[Tensor]()
    num_classes, num_read = 1, 0
    with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
        for part in torch.split(read.to(target.device), settings.batch_size):
            query = _query(target, stack.take(part), mechanisms[0], config)
            num_classes = query.clean.size(1) if target.mode != "regression" else 1
            wanted = stack.num_edges[part] > 0
            if settings.classes:
                allowed = torch.tensor(settings.classes, device=target.device)
                wanted &= torch.isin(query.explained, allowed)
            chosen = wanted.nonzero().view(-1)
            kept.append(part[chosen])
            explained.append(query.explained[chosen])
            risks = [corrupted_risk(query.under(m), settings, seed) for m in mechanisms]
            reference.append(torch.stack(risks)[:, chosen])
            if len(sample) < 16:
                sample.append(bond_representation(query, settings))
            num_read += part.numel()
            advance(num_read, "")
    usable = torch.cat(kept)
    if usable.numel() == 0:
        raise GraphError(
            f"None of the {read.numel()} training graphs can be used: they have no edges, or the "
            f"model predicts none of them as one of classes={settings.classes or 'all'}."
        )
    longest = int(stack.num_edges[usable].max())
    return _Known(
        stack=stack,
        kept=usable,
        explained=torch.cat(explained),
        reference=torch.cat(reference, dim=1),
        sample=torch.cat(sample),
        num_classes=num_classes,
        table_width=-(-longest // 64) * 64,
        num_left_out=read.numel() - usable.numel(),
    )


def _new_network(known: _Known, config: NICEConfig, seed: int) -> GateNetwork:
    settings = config.boundary
    heads = known.num_classes if settings.class_gates else 1
    start = settings.start if settings.objective == "penalty" else 0.5
    sizes = known.sample.size(1), settings.hidden_size, heads
    with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global generator
        torch.default_generator.manual_seed(mix(seed, "weights"))  # and not CUDA's
        net = GateNetwork(*sizes, start, is_standardised=settings.standardise)
    net.to(known.sample)
    net.standardise(known.sample)
    if settings.class_gates:
        net.trained[torch.unique(known.explained.clamp(min=0))] = True
    else:
        net.trained.fill_(True)
    return net


def _step(
    known: _Known,
    nets: Sequence[GateNetwork],
    optimiser: torch.optim.Optimizer,
    target: Target,
    mechanisms: Sequence[Mechanism],
    config: NICEConfig,
    seed: int,
    step: int,
) -> dict[str, float]:
    settings = config.boundary
    chosen = batch_of_step(known.kept.numel(), settings.batch_size, seed, step)
    generator = torch.Generator().manual_seed(mix(seed, "step", step))
    place = torch.rand(chosen.numel(), generator=generator)
    share = settings.budget_low + (settings.budget_high - settings.budget_low) * place
    table = torch.randint(_NOISE_TABLES, (chosen.numel(),), generator=generator)
    batch, explained = known.stack.take(known.kept[chosen]), known.explained[chosen]
    offset = (table * known.table_width).to(target.device)
    query = _query(target, batch, mechanisms[0], config, explained=explained, offset=offset)
    z = bond_representation(query, settings)
    stream = step % settings.noise_period if settings.noise_period else step
    losses, risks = [], []
    for net, mechanism, reference in zip(nets, mechanisms, known.reference, strict=True):
        logit = net.bond_logits(z, query)
        seen, budget = query.under(mechanism), share.to(logit)
        loss, risk, restored = srb_loss(
            seen, logit, reference[chosen], settings, share=budget, stream=mix(seed, "fit", stream)
        )
        losses.append(loss.mean())
        risks.append(risk.mean())
    weights = [weight for net in nets for weight in net.parameters()]
    descend(torch.stack(losses).sum(), weights, optimiser)
    mean_loss, mean_risk = (torch.stack(values).detach().mean() for values in (losses, risks))
    means = torch.stack([mean_loss, mean_risk, restored.mean()])
    return dict(zip(("loss", "risk", "restored"), means.tolist(), strict=True))


def gate_logits(net: GateNetwork, query: Query, config: NICEConfig) -> Tensor:
    """Returns the network's gate logit of each bond, ``[M]``."""
    return net.bond_logits(bond_representation(query, config.boundary), query)


def _query(
    target: Target,
    batch: Batch,
    mechanism: Mechanism,
    config: NICEConfig,
    *,
    explained: Tensor | None = None,
    offset: Tensor | None = None,
) -> Query:
    case = make_case(batch, undirected=config.undirected)
    if offset is not None:
        case = replace(case, slot=case.slot + offset[case.edge_batch])
    if explained is not None and bool((explained < 0).any()):
        explained = None  # all outputs of a regression model
    return Query(
        target,
        case,
        mechanism,
        explained=explained,
        chunk_edges=config.chunk_edges,
        degradation=config.boundary.degradation,
    )


@torch.no_grad()
def _judge(
    known: _Known,
    view: int,
    net: GateNetwork,
    target: Target,
    mechanism: Mechanism,
    config: NICEConfig,
    seed: int,
) -> dict[int, Judgement]:
    judgements = {}
    for label in torch.unique(known.explained).tolist():
        members = (known.explained == label).nonzero().view(-1).cpu()
        size = min(_JUDGED_GRAPHS, members.numel())
        chosen = members[batch_of_step(members.numel(), size, mix(seed, "judge"), 0)]
        batch, reference = known.stack.take(known.kept[chosen]), known.reference[view, chosen]
        query = _query(target, batch, mechanism, config, explained=known.explained[chosen])
        logit = gate_logits(net, query, config)
        judgements[int(label)] = judge_order(query, logit, reference, config.boundary, seed)
    return judgements
