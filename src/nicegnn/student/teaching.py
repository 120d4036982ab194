"""Teaches a student on graphs that its teacher has explained, and judges it on others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from nicegnn.config import Count, Settings
from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.case import rank_within
from nicegnn.optimisation import batch_of_step, descend
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.student.network import BondView, StudentNetwork

#: Share of the bonds that a number of bars must cover: 0.683 and 0.954, as for a normal error.
COVERED = MappingProxyType({bars: math.erf(bars / math.sqrt(2)) for bars in (1, 2)})
_FEWEST_BONDS = 100  # of a class, to have its own factor
_HELD_OUT = 0.2  # share of the graphs that is only predicted, to judge and to calibrate
_UNCERTAIN = 0.1  # share of held-out graphs that count as uncertain
_ERROR_WEIGHT = 0.1
_STEPS, _FEWEST, _MOST = 25, 16, 256  # steps of an epoch, and bounds of the graphs of a step
_RATE, _WEIGHT_DECAY = 1e-2, 0.1  # of AdamW; the rate rises to this and falls (one cycle)


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
