"""Fits a gate network on many graphs, and judges without truth what it has learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.boundary import gates
from nicegnn.boundary.gates import RISK_FLOOR, GateNetwork
from nicegnn.config import BoundaryConfig, NICEConfig
from nicegnn.errors import GraphError
from nicegnn.graph.case import make_case, rank_within
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target

_MOST_GRAPHS = 50_000  # that are read, drawn at random
_NOISE_TABLES = 8  # about one in eight graphs of a training batch have the same noise
_JUDGED_GRAPHS = 128  # per class

_SATURATED = "All gates are {} and give no ranking: beside the risk the penalty is too {}. Use {}."
#: What each status of a fit means, and what to do; the worst comes first.
FIT_ADVICE = {
    "inverted": "The learned order is worse than its reverse: training ended in a local optimum. "
    "Start with open gates (start=0.95), or use NICEConfig(), which needs no gates.",
    "saturated-high": _SATURATED.format("open", "small", "a larger one"),
    "saturated-low": _SATURATED.format("closed", "large", "a smaller one, or start=0.95"),
    "uninformative": "The learned order is no better than its reverse. Fit longer, or check that "
    "the model's predictions depend on edges at all.",
    "ok": "The learned order of bonds restores the prediction better than its reverse.",
    "insensitive": "Corrupting every message hardly changes these predictions: no order of bonds "
    "restores them better than another.",
}


@dataclass(frozen=True)
class FitReport:
    """Course and result of a fit."""

    classes: dict[int, str]  # status of each explained class, a key of `FIT_ADVICE`
    history: History = field(repr=False)  # loss, risk, restored share at each step
    num_graphs: int  # graphs used; those without edges are left out

    @property
    def status(self) -> str:
        """The worst status of any class; ``ok`` if all classes that depend on edges are ok."""
        return next(status for status in FIT_ADVICE if status in self.classes.values())


def fit_gates(
    target: Target,
    graphs: Sequence[Data],
    mechanism: Mechanism,
    config: NICEConfig,
    seed: int,
    progress: bool,
) -> tuple[GateNetwork, FitReport]:
    r"""Fits a gate network under a mechanism, with new draws in each step (Appendix E).

    .. math:: \min_\theta \tfrac1{|B|} \sum_{G \in B} L(G; \rho_\theta)

    with the objective of `srb_loss`. Everything random is addressed by seed and step.
    """
    work = _Fit(target, GraphStack(graphs, target.device), mechanism, config, seed)
    work.read(progress)
    with SeededWeights(mix(seed, "weights")):
        net = GateNetwork(work.sample.size(1), config.boundary)
    net.to(work.sample)
    optimiser = torch.optim.Adam(net.parameters(), lr=config.boundary.learning_rate)

    step = partial(work.step, net, optimiser)
    history = run_steps(step, config.boundary.steps, title="Fitting gates", progress=progress)
    return net, FitReport(work.judge(net), history, work.kept.numel())


@dataclass
class _Fit:
    """The steps of a fit, and the judgement of what it learned."""

    target: Target
    stack: GraphStack
    mechanism: Mechanism
    config: NICEConfig
    seed: int

    def read(self, progress: bool) -> None:
        """Runs the target on all graphs once, to learn which classes are explained."""
        read = batch_of_step(len(self.stack), _MOST_GRAPHS, mix(self.seed, "graphs"), 0)
        read, size = read.sort().values.to(self.target.device), self.config.boundary.batch_size
        kept = list[tuple[Tensor, ...]]()
        with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
            for number, part in enumerate(torch.split(read, size)):
                query, wanted = self.query(part), self.stack.num_edges[part] > 0
                kept.append((part[wanted], query.explained[wanted]))
                advance(number * size + part.numel(), "")
        # numbers in the stack, and explained classes, [G] each; what describes some edges
        self.kept, self.explained = map(torch.cat, zip(*kept, strict=True))
        self.sample = gates.bond_representation(query)
        if self.kept.numel() == 0:
            raise GraphError(
                f"At least one of the {read.numel()} training graphs must have edges (got none)."
            )
        self.table_width = -(-int(self.stack.num_edges[self.kept].max()) // 64) * 64

    def query(
        self, graphs: Tensor, explained: Tensor | None = None, offset: Tensor | None = None
    ) -> Query:
        """Returns a query of some graphs of the stack, ``[B]``, with noise slots shifted."""
        chunk = self.config.chunk_edges
        case = make_case(self.stack.take(graphs), undirected=self.config.undirected)
        if offset is not None:
            case = replace(case, slot=case.slot + offset[case.edge_batch])
        if explained is not None and bool((explained < 0).any()):
            explained = None  # a regression model, all outputs of it
        return Query(self.target, case, self.mechanism, explained=explained, chunk_edges=chunk)

    def step(self, net: GateNetwork, optimiser: torch.optim.Adam, step: int) -> dict[str, Tensor]:
        """Takes one step and returns mean loss, risk and restored share."""
        settings, seed, device = self.config.boundary, self.seed, self.kept.device
        chosen = batch_of_step(self.kept.numel(), settings.batch_size, seed, step)
        generator = torch.Generator().manual_seed(mix(seed, "step", step))
        torch.rand(chosen.numel(), generator=generator)  # so that stored fits can be repeated
        table = torch.randint(_NOISE_TABLES, (chosen.numel(),), generator=generator)
        chosen, offset = chosen.to(device), table.to(device) * self.table_width
        query = self.query(self.kept[chosen], self.explained[chosen], offset)
        loss, risk, restored = gates.srb_loss(query, net(query), settings, mix(seed, "fit", step))
        if step == 0:
            gates.check_answers(query, risk)
        descend(loss.mean(), list(net.parameters()), optimiser)
        return {"loss": loss.detach().mean(), "risk": risk.mean(), "restored": restored.mean()}

    @torch.no_grad()
    def judge(self, net: GateNetwork) -> dict[int, str]:
        """Judges the network on some training graphs of each explained class."""
        judged = {}
        for label in torch.unique(self.explained).tolist():
            own = (self.explained == label).nonzero().view(-1).cpu()
            chosen = own[batch_of_step(own.numel(), _JUDGED_GRAPHS, mix(self.seed, "judge"), 0)]
            query = self.query(self.kept[chosen], self.explained[chosen])
            judged[int(label)] = judge_order(query, net(query), self.config.boundary, self.seed)
        return judged


@torch.no_grad()
def judge_order(query: Query, logit: Tensor, settings: BoundaryConfig, seed: int) -> str:
    """Returns the status of gate logits, ``[M]``: whether their order restores the prediction.

    The order is useful if the better half of each graph's bonds, restored alone, leaves a lower
    risk than the worse half, and inverted if a higher one. Two standard errors decide.
    """
    gate = logit.sigmoid()
    if float((gate > 0.97).float().mean()) > 0.95:
        return "saturated-high"
    if float((gate < 0.03).float().mean()) > 0.95:
        return "saturated-low"
    corrupted = gates.sampled_risk(
        query, torch.zeros_like(logit), settings, mix(seed, "corrupted")
    )  # [B]
    gates.check_answers(query, corrupted)
    if float(corrupted.median()) < RISK_FLOOR:
        return "insensitive"
    case, where = query.case, query.case.bonds.batch
    half = torch.bincount(where[case.reached], minlength=case.num_graphs) / 2
    better, worse = (
        rank_within(order.masked_fill(~case.reached, -torch.inf), where, case.num_graphs)
        < half[where]
        for order in (logit, -logit)
    )
    stream = mix(seed, "judge")
    learned, reverse = (
        gates.sampled_risk(query, kept.to(logit.dtype), settings, stream)
        for kept in (better, worse)
    )
    gain = (reverse - learned) / corrupted.clamp(min=RISK_FLOOR)  # [B]
    mean = float(gain.mean())
    error = float(gain.std()) / gain.numel() ** 0.5 if gain.numel() > 1 else abs(mean)
    if mean < -2 * error:
        return "inverted"
    return "ok" if mean > 2 * error else "uninformative"
