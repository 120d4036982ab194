"""Stochastic Restoration Boundary (SRB): the smallest restoration that keeps the prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.config import BoundaryConfig, NICEConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.graph.case import make_case, rank_within
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target

_TINY = 1e-12  # under the root, so that the slope is finite if all draws are equal
RISK_FLOOR = 0.02  # nats; below this risk, full corruption hardly matters
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


def bond_representation(query: Query) -> Tensor:
    r"""Returns the input of the gate network for each directed edge, ``[E, D]``.

    .. math:: z_{uv} = [\, h_u,\; h_v \,]

    Symbols: :math:`h` -> node states of the last layer of the frozen target.
    """
    h = query.states[-1].to(query.clean.dtype)
    return h[query.case.batch.edge_index].transpose(0, 1).flatten(1)


class GateNetwork(nn.Module):
    r"""Maps the bonds of a query to the logits of their restoration gates.

    .. math:: \rho_e = \sigma\Big(\tfrac12 \big(g_\theta(z_{uv}) + g_\theta(z_{vu})\big)\Big)
        \qquad \text{(Appendix E)}

    Symbols: :math:`z` -> `bond_representation`. Gates start near ``settings.start``.
    """

    def __init__(self, in_size: int, settings: BoundaryConfig) -> None:
        super().__init__()
        self.in_size = in_size
        self.last = nn.Linear(settings.hidden_size, 1)
        self.first = nn.Linear(in_size, settings.hidden_size)
        with torch.no_grad():
            self.last.weight.mul_(0.1)
            self.last.bias.fill_(math.log(settings.start / (1 - settings.start)))

    def forward(self, query: Query) -> Tensor:
        """Returns the gate logit of each bond, ``[M]``, a mean over its directed edges."""
        z = bond_representation(query)
        if z.size(1) != self.in_size:
            raise GraphError(
                f"Bonds must be described by {self.in_size} numbers (got {z.size(1)}). Explain "
                "graphs with the features of those in fit()."
            )
        return query.case.bonds.mean(self.last(self.first(z).relu()).squeeze(1))


def restoration_risk(degradation: Tensor, beta: float) -> Tensor:
    r"""Mean degradation plus its spread over draws.

    .. math:: \hat R^{(N)} = \bar d_N + \beta \sqrt{\tfrac1N \sum_n (d_n - \bar d_N)^2}
        \qquad \text{(Eq. 15)}

    Symbols: :math:`d_n` -> ``degradation``, ``[N, B]``; :math:`\beta` -> ``beta``. Returns ``[B]``.
    """
    return degradation.mean(0) + beta * _std(degradation)


def risk_slope(degradation: Tensor, beta: float) -> Tensor:
    r"""Slope of the risk in each draw's degradation, times the number of draws, ``[N, B]``.

    .. math:: c_n = N \frac{\partial \hat R}{\partial d_n}
        = 1 + \beta \frac{d_n - \bar d_N}{\sqrt{\tfrac1N \sum_n (d_n - \bar d_N)^2}}
    """
    return 1 + beta * (degradation - degradation.mean(0)) / _std(degradation)


def _std(value: Tensor) -> Tensor:
    return ((value - value.mean(0)).square().mean(0) + _TINY).sqrt()


def sampled_risk(query: Query, gate: Tensor, config: BoundaryConfig, stream: int) -> Tensor:
    """Returns the risk of each graph under gates ``[M]``, without gradients, ``[B]``."""
    draws = query.draws(config.num_draws)
    return restoration_risk(query.sample(gate, draws, stream), config.beta)


def check_answers(query: Query, risk: Tensor) -> None:
    """Raises `TargetError` if damage has made the model's answers infinite or nan."""
    if not bool(torch.isfinite(risk).all()):
        largest = max(float(state.abs().max()) for state in query.states)
        raise TargetError(
            "The model must return finite values when its messages are corrupted (got NaN or "
            f"infinite ones; node states reach {largest:.2g}, whose squares may overflow "
            f"{query.clean.dtype}). Scale the features, or use float64."
        )


def srb_loss(
    query: Query, logit: Tensor, config: BoundaryConfig, stream: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns loss, risk and restored share of each graph, ``[B]`` each.

    .. math:: \hat R(\rho_G) + \lambda \|\rho_G\|_1 / |E_G|, \qquad \rho = \sigma(a)
        \qquad \text{(Eq. 21)}

    Symbols: :math:`a` -> ``logit``, ``[M]``; :math:`\lambda` -> ``config.penalty``.
    """
    gate = logit.sigmoid()
    degradation = query.degradation(gate, query.draws(config.num_draws), stream)
    risk, restored = restoration_risk(degradation, config.beta), query.case.per_graph_mean(gate)
    return risk + config.penalty * restored, risk.detach(), restored.detach()


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
        self.sample = bond_representation(query)
        if self.kept.numel() == 0:
            raise GraphError("At least one training graph must have edges (got none).")
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
        loss, risk, restored = srb_loss(query, net(query), settings, mix(seed, "fit", step))
        if step == 0:
            check_answers(query, risk)
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
    corrupted = sampled_risk(
        query, torch.zeros_like(logit), settings, mix(seed, "corrupted")
    )  # [B]
    check_answers(query, corrupted)
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
        sampled_risk(query, kept.to(logit.dtype), settings, stream) for kept in (better, worse)
    )
    gain = (reverse - learned) / corrupted.clamp(min=RISK_FLOOR)  # [B]
    mean = float(gain.mean())
    error = float(gain.std()) / gain.numel() ** 0.5 if gain.numel() > 1 else abs(mean)
    if mean < -2 * error:
        return "inverted"
    return "ok" if mean > 2 * error else "uninformative"
