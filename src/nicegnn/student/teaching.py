"""The student: predicts the scores of bonds, and their errors, as its teacher has taught it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from nicegnn.config import Count, Settings
from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.case import rank_within
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step, descend
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix

_ERRORS = -5.0, 1.0  # logarithms of the smallest and largest error; values have spread 1
_HIDDEN = 64  # width of the network
_ROUNDS = 2  # in which bonds hear from their neighbours
_CLAMP = 10.0  # spreads; states further out than that are cut
#: Share of the bonds that a number of bars must cover: 0.683 and 0.954, as for a normal error.
COVERED = MappingProxyType({bars: math.erf(bars / math.sqrt(2)) for bars in (1, 2)})
_FEWEST_BONDS = 100  # of a class, to have its own factor
_HELD_OUT = 0.2  # share of the graphs that is only predicted, to judge and to calibrate
_UNCERTAIN = 0.1  # share of held-out graphs that count as uncertain
_ERROR_WEIGHT = 0.1
_STEPS, _FEWEST, _MOST = 25, 16, 256  # steps of an epoch, and bounds of the graphs of a step
_RATE, _WEIGHT_DECAY = 1e-2, 0.1  # of AdamW; the rate rises to this and falls (one cycle)


@dataclass(frozen=True)
class BondView:
    """What the student reads of a batch; one clean pass of the target gives it."""

    state: Tensor  # states of each node: input and all layers, [V, D]
    home: Tensor  # graph of each node, [V]
    ends: Tensor  # the two nodes of each bond, [2, M]
    edge: Tensor  # mean ``edge_attr`` of each bond if the model reads it, [M, K]
    label: Tensor  # explained class of each graph, counted from 1; 0 for all outputs, [B]

    @property
    def graph(self) -> Tensor:
        """Graph of each bond, ``[M]``."""
        return self.home[self.ends[0]]


def view_bonds(query: Query) -> BondView:
    """Returns what the student reads of a query."""
    case, batch, states = query.case, query.case.batch, list(query.states)
    if isinstance(batch.get("x"), Tensor):
        x = batch.x.flatten(1) if batch.x.dim() > 1 else batch.x.unsqueeze(1)
        states.insert(0, x.nan_to_num(0, 0, 0))  # a model that does not read x may have NaN there
    state = torch.cat([one.to(query.clean.dtype) for one in states], dim=1)
    edge, edge_attr = query.clean.new_zeros(case.bonds.batch.numel(), 0), batch.get("edge_attr")
    if isinstance(edge_attr, Tensor) and query.target.may_read("edge_attr"):
        feature = edge_attr.flatten(1) if edge_attr.dim() > 1 else edge_attr.unsqueeze(1)
        edge = case.bonds.mean(feature.to(edge.dtype).t()).t()
    return BondView(state, batch.batch, case.bonds.index, edge, query.explained + 1)


class StudentNetwork(nn.Module):
    r"""Predicts the loss of each bond, compressed, and the error of that.

    .. math:: e_{uv} = \phi\big(A (h_u + h_v) + B |h_u - h_v| + C \bar h_G + D a_{uv} + c_y\big),
        \qquad
        e_{uv} \leftarrow e_{uv} + \phi\big(P n_{uv} + Q (\bar n_u + \bar n_v) + R \bar n_G +
        c'_y\big)

    Symbols: :math:`h` -> ``state`` of a `BondView`, ``[V, D]``, standardised; :math:`a` ->
    ``edge``; :math:`n` -> :math:`e` normalised to mean 0 and spread 1;
    :math:`\bar n_u, \bar n_G` -> means over the bonds of a node and of a graph; :math:`y` ->
    ``label``. The second line runs twice. It tells a bond what its neighbours and its graph are
    like. A linear map of :math:`n_{uv}` for each class, of which there are ``num_labels`` with the
    0 of a `BondView`, gives the value :math:`t` and the logarithm of its error; a loss is
    :math:`s = u \sinh(c + d\, t)`, with ``unit``, ``centre`` and ``spread``.
    """

    mean: Tensor  # of the inputs, [D + K]
    scale: Tensor  # spread of the inputs, [D + K]
    taught: Tensor  # classes that were taught, [C + 1]
    factor: Tensor  # makes the error bars of a class cover what they say, [C + 1]
    limit: Tensor  # error above which a graph counts as uncertain, a number
    unit: Tensor  # losses beyond it are compressed, a number
    centre: Tensor  # mean of compressed losses, a number
    spread: Tensor  # spread of compressed losses, a number

    def __init__(self, state_size: int, edge_size: int, num_labels: int) -> None:
        super().__init__()
        self.shape = {"state_size": state_size, "edge_size": edge_size, "num_labels": num_labels}
        self.register_buffer("mean", torch.zeros(state_size + edge_size))
        self.register_buffer("scale", torch.ones(state_size + edge_size))
        self.register_buffer("taught", torch.zeros(num_labels, dtype=torch.bool))
        self.register_buffer("factor", torch.ones(num_labels))
        self.register_buffer("limit", torch.tensor(torch.inf))
        for name, value in (("unit", 1.0), ("centre", 0.0), ("spread", 1.0)):
            self.register_buffer(name, torch.tensor(value))
        self.first = nn.Linear(state_size, _HIDDEN, bias=False)
        self.gap = nn.Linear(state_size, _HIDDEN, bias=False)
        self.context = nn.Linear(state_size, _HIDDEN, bias=False)
        self.edge = nn.Linear(edge_size, _HIDDEN, bias=False) if edge_size else None
        self.rounds = nn.ModuleList(_Round(_HIDDEN) for _ in range(_ROUNDS))
        self.offset = nn.Parameter(torch.zeros(_ROUNDS + 1, num_labels, _HIDDEN))
        self.norm = nn.LayerNorm(_HIDDEN)
        self.last = nn.Linear(_HIDDEN, 2 * num_labels)

    def standardise(self, view: BondView, loss: Tensor) -> None:
        """Fixes mean and spread of the inputs, and how losses are compressed, from a sample."""
        size = view.state.size(1)
        for part, value in ((slice(size), view.state), (slice(size, None), view.edge)):
            if value.numel():
                self.mean[part] = value.mean(0)
                self.scale[part] = value.std(0, unbiased=False).clamp(min=1e-6)
        self.unit.copy_(loss.abs().mean().clamp(min=1e-6))
        small = (loss / self.unit).asinh()
        self.centre.copy_(small.mean())
        self.spread.copy_(small.std(unbiased=False).clamp(min=1e-6))

    def compressed(self, loss: Tensor) -> Tensor:
        """Returns the values that stand for losses, with mean 0 and spread 1 over the sample."""
        return ((loss / self.unit).asinh() - self.centre) / self.spread

    def losses(self, value: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the losses that values stand for, and their errors."""
        small = self.centre + self.spread * value
        return self.unit * small.sinh(), self.unit * self.spread * small.cosh() * error

    def forward(self, view: BondView) -> tuple[Tensor, Tensor]:
        """Returns the value of each bond and the logarithm of its error, ``[M]`` each."""
        size, edge_size = view.state.size(1), view.edge.size(1)
        wanted = self.shape["state_size"], self.shape["edge_size"]
        if (size, edge_size) != wanted:
            raise GraphError(
                f"Nodes and bonds must be described by {wanted[0]} and {wanted[1]} numbers (got "
                f"{size} and {edge_size}). Explain graphs with the features of those in teach()."
            )
        h = ((view.state - self.mean[:size]) / self.scale[:size]).clamp(-_CLAMP, _CLAMP)  # [V, D]
        (u, v), graph = view.ends, view.graph
        num_nodes, num_graphs = h.size(0), view.label.numel()
        degree = _count(view.ends.reshape(-1), num_nodes, h)  # bonds of each node, [V, 1]
        atoms, number = (_count(where, num_graphs, h) for where in (view.home, graph))  # [B, 1]
        mean_state = _sum(h, view.home, num_graphs) / atoms  # [B, D]
        first = self.first(h)
        e = first[u] + first[v] + self.gap((h[u] - h[v]).abs())  # [M, H]
        e = e + (self.context(mean_state) + self.offset[0][view.label])[graph]
        if self.edge is not None:
            e = e + self.edge((view.edge - self.mean[size:]) / self.scale[size:])
        e = e.relu()
        for one, offset in zip(self.rounds, self.offset[1:], strict=True):
            e = one(e, view, degree, number, offset[view.label])
        out = self.last(self.norm(e)).view(e.size(0), self.taught.numel(), 2)  # [M, C + 1, 2]
        chosen = view.label[graph].view(-1, 1, 1).expand(-1, 1, 2)
        value, raw = out.gather(1, chosen).squeeze(1).unbind(1)
        low, high = _ERRORS
        return value, low + (high - low) * (raw + 1).sigmoid()


class _Round(nn.Module):
    """A round in which bonds hear from their neighbours and from their graph."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.own, self.near, self.whole = (nn.Linear(size, size, bias=False) for _ in range(3))

    def forward(
        self, e: Tensor, view: BondView, degree: Tensor, number: Tensor, offset: Tensor
    ) -> Tensor:
        """Returns new states of the bonds, ``[M, H]``, with offsets by graph, ``[B, H]``."""
        (u, v), graph, n = view.ends, view.graph, self.norm(e)
        near = self.near(_sum(n, u, degree.size(0)).index_add(0, v, n) / degree)  # [V, H]
        whole = self.whole(_sum(n, graph, number.size(0)) / number) + offset  # [B, H]
        return e + (self.own(n) + near[u] + near[v] + whole[graph]).relu()


def _sum(value: Tensor, where: Tensor, number: int) -> Tensor:
    return value.new_zeros(number, value.size(1)).index_add(0, where, value)


def _count(where: Tensor, number: int, like: Tensor) -> Tensor:
    """Returns how many items each place has, at least 1, ``[number, 1]``."""
    return _sum(like.new_ones(where.numel(), 1), where, number).clamp(min=1)


@dataclass(frozen=True)
class TeachConfig(Settings):
    """How a student is taught."""

    max_graphs: Count = 8192  # most graphs that the teacher explains
    epochs: Count = 40  # times that each graph is seen


@dataclass(frozen=True)
class Lesson:
    """Graphs that the teacher has explained."""

    view: BondView  # what the student reads of them
    wanted: Tensor  # losses by the teacher, [M]
    reached: Tensor  # bonds in the computation graph of the explained output, [M]
    num_labels: int  # classes that can be explained, and one more, see `BondView`

    def take(self, chosen: Tensor) -> Lesson:
        """Returns the lesson of some graphs, ``[B]``."""
        view, chosen = self.view, chosen.to(self.view.label.device)
        place = torch.full_like(view.label, -1)  # of each graph among the chosen ones
        place[chosen] = torch.arange(chosen.numel(), device=chosen.device)
        home = place[view.home]
        node, bond = home >= 0, home[view.ends[0]] >= 0
        ends = (node.cumsum(0) - 1)[view.ends[:, bond]]
        part = BondView(view.state[node], home[node], ends, view.edge[bond], view.label[chosen])
        return Lesson(part, self.wanted[bond], self.reached[bond], self.num_labels)


@dataclass(frozen=True)
class TeachReport:
    """Result of teaching, of held-out graphs."""

    num_graphs: int  # graphs that the teacher has explained
    num_held_out: int  # those of them that were not learned from
    rank_correlation: float  # of student and teacher, over the bonds of a graph, mean
    coverage: float  # share of the bonds whose error is within the bar; at least 0.683 is meant


def teach_student(
    explain: Callable[[Tensor], Lesson],
    num_graphs: int,
    config: TeachConfig,
    seed: int,
    progress: bool,
    chunk: int,
) -> tuple[StudentNetwork, TeachReport]:
    r"""Returns a student that has learned what its teacher says, and how well.

    .. math:: \min_\theta\; \mathrm{mean}_e\, (v_e - w_e)^2 + a\, \mathrm{mean}_e
        \Big( \log \sigma_e + \frac{(v_e - w_e)^2}{2 \sigma_e^2} \Big)

    Symbols: :math:`v, \log\sigma` -> value and logarithm of the error by the network; :math:`w` ->
    ``wanted`` of a `Lesson`, compressed; :math:`a` -> 0.1. In the second term the difference is a
    constant: it teaches the error. Its weight is small, because both read the same states, and with
    equal weights the values became worse.

    ``explain`` asks the teacher about numbered graphs, ``[B]``, at most ``chunk`` at a time.
    """
    if not isinstance(config, TeachConfig):
        raise ConfigError(f"`config` must be a TeachConfig (got {type(config).__name__}).")
    most = min(num_graphs, config.max_graphs)
    if most < 2:
        raise GraphError(f"`graphs` must hold at least 2 graphs with edges (got {most}).")
    order, parts = batch_of_step(num_graphs, most, mix(seed, "teach"), 0), []
    with progress_bar("Explaining by the teacher", most, shown=progress) as advance:
        for first in range(0, most, chunk):
            parts.append(explain(order[first : first + chunk]))
            advance(min(first + chunk, most), "")
    lesson = _joined(parts)
    number = torch.arange(most)  # held-out graphs are spread evenly over all
    is_held_out = ((number + 1) * _HELD_OUT).ceil() > (number * _HELD_OUT).ceil()
    learned, held_out = (lesson.take(number[one]) for one in (~is_held_out, is_held_out))
    net = _train(learned, config.epochs, mix(seed, "train"), progress)
    return net, TeachReport(most, int(is_held_out.sum()), *_calibrate(net, held_out))


def _joined(parts: Sequence[Lesson]) -> Lesson:
    """Joins lessons into one; nodes and graphs count on from part to part."""
    values: dict[str, list[Tensor]] = {one.name: [] for one in fields(BondView)}
    nodes, graphs = 0, 0
    for part in parts:
        shift = {"home": graphs, "ends": nodes}
        for name, held in values.items():
            held.append(getattr(part.view, name) + shift.get(name, 0))
        nodes, graphs = nodes + part.view.state.size(0), graphs + part.view.label.numel()
    joined = {name: torch.cat(held, int(name == "ends")) for name, held in values.items()}
    wanted, reached = (torch.cat([getattr(p, n) for p in parts]) for n in ("wanted", "reached"))
    return Lesson(BondView(**joined), wanted, reached, parts[0].num_labels)


def _train(lesson: Lesson, epochs: int, seed: int, progress: bool) -> StudentNetwork:
    """Returns a new network that has learned from a lesson."""
    view, num_graphs = lesson.view, lesson.view.label.numel()
    with SeededWeights(mix(seed, "weights")):
        net = StudentNetwork(view.state.size(1), view.edge.size(1), lesson.num_labels)
    net.to(view.state)
    net.standardise(view, lesson.wanted[lesson.reached])
    net.taught[torch.unique(view.label)] = True
    weights = list(net.parameters())
    size = min(max(num_graphs // _STEPS, _FEWEST), _MOST)
    steps = epochs * max(1, num_graphs // size)
    optimiser = torch.optim.AdamW(weights, _RATE, weight_decay=_WEIGHT_DECAY)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, steps + 1)
    with progress_bar("Teaching", steps, shown=progress) as advance:
        for step in range(steps):
            part = lesson.take(batch_of_step(num_graphs, size, seed, step))
            value, log_error = net(part.view)
            squared = (value - net.compressed(part.wanted)).square()
            likelihood = log_error + squared.detach() * (-2 * log_error).exp() / 2
            loss = (squared + _ERROR_WEIGHT * likelihood)[part.reached]
            descend(loss.sum() / max(1, loss.numel()), weights, optimiser)
            rate.step()
            advance(step + 1, "")
    return net.eval()


@torch.no_grad()
def _calibrate(net: StudentNetwork, lesson: Lesson) -> tuple[float, float]:
    """Sets error bars and the limit of uncertain graphs; returns rank correlation and coverage."""
    view, num, reached = lesson.view, lesson.num_labels, lesson.reached
    value, error = net(view)
    value, error, graph = value[reached], error.exp()[reached], view.graph[reached]
    wanted, label = net.compressed(lesson.wanted[reached]), view.label[graph]
    ratio, num_graphs = (value - wanted).abs() / error, view.label.numel()
    net.factor.copy_(error_factors(ratio, label, num))
    whole = graph_error(net.factor[label] * error, graph, num_graphs)  # [B]
    net.limit.fill_(float(torch.quantile(whole.double(), 1 - _UNCERTAIN)))
    ranks = rank_correlation(value, wanted, graph, num_graphs)
    return float(ranks.nanmean()), coverage(ratio, label, graph, 1, num)


def error_factor(ratio: Tensor, covered: Mapping[int, float] = COVERED) -> float:
    r"""Returns the factor that makes one error bar, and two, cover at least a share of the bonds.

    .. math:: c = \max_k \frac{1}{k}\, r_{(\lceil (M + 1)\, q_k \rceil)}, \qquad
        r_e = |v_e - w_e| / \sigma_e

    Symbols: :math:`r` -> ``ratio``, ``[M]``, of a bond's error to the one that the student expects;
    :math:`r_{(n)}` -> the n-th smallest; :math:`q_k` -> ``covered``, of :math:`k` bars. This is
    split-conformal calibration: bars of new graphs cover that share on average, whatever the
    network says, if they are like the held-out ones. Errors have longer tails than a normal one,
    so one bar alone would leave two too short.
    """
    num = ratio.numel()
    if num == 0:
        return 1.0
    places = {bars: min(math.ceil((num + 1) * share), num) for bars, share in covered.items()}
    return max(float(ratio.kthvalue(place).values) / bars for bars, place in places.items())


def error_factors(ratio: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """Returns the factor for each class, ``[C + 1]``; that of all for classes with few bonds."""
    factors = torch.full((num_labels,), error_factor(ratio)).to(ratio)
    for one, number in enumerate(torch.bincount(label).tolist()):
        if number >= _FEWEST_BONDS:
            factors[one] = error_factor(ratio[label == one])
    return factors


def coverage(ratio: Tensor, label: Tensor, graph: Tensor, bars: float, num_labels: int) -> float:
    """Returns the share of bonds within some error bars, each half calibrated on the other."""
    shares = []
    for half in (graph % 2 == 0, graph % 2 == 1):
        factors = error_factors(ratio[~half], label[~half], num_labels)
        shares.append((ratio[half] <= bars * factors[label[half]]).float().mean())
    return float(torch.stack(shares).nanmean())


def graph_error(error: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """Returns the root mean square of the bonds' errors in each graph, 0 without bonds, ``[B]``."""
    return scatter(error.square(), graph, 0, num_graphs, "mean").sqrt()


def rank_correlation(value: Tensor, wanted: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    r"""Returns Spearman's rank correlation of two values of bonds in each graph, ``[B]``.

    .. math:: 1 - \frac{6 \sum_e d_e^2}{n (n^2 - 1)}

    Symbols: :math:`d` -> difference of ranks; :math:`n` -> bonds of the graph, nan for less than 3.
    """
    ranks = [rank_within(one, graph, num_graphs) for one in (value, wanted)]
    total = scatter((ranks[0] - ranks[1]).square().to(value.dtype), graph, 0, num_graphs, "sum")
    n = torch.bincount(graph, minlength=num_graphs).to(total)
    return torch.where(n < 3, torch.nan, 1 - 6 * total / (n * (n.square() - 1)).clamp(min=1))
