"""Teaches a student on graphs that its teacher has explained, and judges it on others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from nicegnn.config import Count, Fraction, Positive, Settings
from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.minibatches import gather_items
from nicegnn.optimisation import batch_of_step, descend
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.student.calibration import Answers, judge
from nicegnn.student.network import BondView, StudentNetwork

_ERROR_WEIGHT = 0.1
_STEPS, _FEWEST, _MOST = 25, 16, 256  # steps of an epoch, and bounds of the graphs of a step
_WEIGHT_DECAY = 0.1  # of AdamW


@dataclass(frozen=True)
class TeachConfig(Settings):
    """How a student is taught."""

    max_graphs: Count = 8192  # most graphs that the teacher explains
    held_out: Fraction = 0.2  # share of them that is only predicted, to judge and to calibrate
    sent: Fraction = 0.1  # share of held-out graphs that count as uncertain
    hidden_size: Count = 64  # width of the network
    epochs: Count = 40  # times that each graph is seen
    learning_rate: Positive = 1e-2  # of AdamW at its highest; it rises and falls (one cycle)


@dataclass(frozen=True)
class Lesson:
    """Graphs that the teacher has explained; bonds and nodes are sorted by graph."""

    view: BondView  # what the student reads of them
    wanted: Tensor  # losses by the teacher, [M]
    reached: Tensor  # bonds in the computation graph of the explained output, [M]
    num_labels: int  # classes that can be explained, and one more, see `BondView`


@dataclass(frozen=True)
class TeachReport:
    """Result of teaching; all numbers but those of graphs and seconds are about held-out graphs."""

    num_graphs: int  # graphs that the teacher has explained
    num_held_out: int  # those of them that were not learned from
    rank_correlation: float  # of student and teacher, over the bonds of a graph, mean
    coverage: float  # share of the bonds whose error is within the bar; at least 0.683 is meant
    coverage_twice: float  # within two error bars; at least 0.954 is meant
    teacher_seconds: float  # explaining by the teacher
    seconds: float  # all of it

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return asdict(self)


def teach_student(
    explain: Callable[[Tensor], Lesson],
    num_graphs: int,
    config: TeachConfig,
    *,
    is_ordered: bool,
    seed: int,
    progress: bool,
    chunk: int = 128,
) -> tuple[StudentNetwork, TeachReport]:
    r"""Returns a student that has learned what its teacher says, and how well.

    .. math:: \min_\theta\; \mathrm{mean}_e\, (v_e - w_e)^2 + a\, \mathrm{mean}_e
        \Big( \log \sigma_e + \frac{(v_e - w_e)^2}{2 \sigma_e^2} \Big)

    Symbols: :math:`v, \log\sigma` -> value and logarithm of the error by the network; :math:`w` ->
    ``wanted`` of a `Lesson`, compressed; :math:`a` -> 0.1. In the second term the difference is a
    constant: it teaches the error. Its weight is small, because both read the same states, and with
    equal weights the values became worse (rank correlation 0.922 against 0.936, on
    Fluoride-Carbonyl).

    Args:
        explain: asks the teacher about numbered graphs, ``[B]``; at most ``chunk`` at a time.
        num_graphs: graphs there are; at most ``config.max_graphs`` of them, drawn at random, are
            explained.
    """
    if not isinstance(config, TeachConfig):
        raise ConfigError(
            f"`config` must be a TeachConfig (got {type(config).__name__}). Pass TeachConfig(...)."
        )
    started, most = time.monotonic(), min(num_graphs, config.max_graphs)
    if most < 2:
        raise GraphError(
            f"`graphs` must hold at least 2 graphs with edges (got {most}). Pass more of them."
        )
    order, parts, done = batch_of_step(num_graphs, most, mix(seed, "teach"), 0), [], 0
    with progress_bar("Explaining by the teacher", most, shown=progress) as advance:
        for chosen in torch.split(order, chunk):
            parts.append(explain(chosen))
            done += chosen.numel()
            advance(done, "")
    teacher_seconds = time.monotonic() - started
    lesson = join_lessons(parts)
    number = torch.arange(most)  # held-out graphs are spread evenly over all
    is_held_out = ((number + 1) * config.held_out).ceil() > (number * config.held_out).ceil()
    held_out, learned = number[is_held_out], number[~is_held_out]
    net = _train(lesson, learned, config, is_ordered, mix(seed, "train"), progress)
    return net, TeachReport(
        num_graphs=most,
        num_held_out=held_out.numel(),
        **_calibrate(net, take_graphs(lesson, held_out), config),
        teacher_seconds=teacher_seconds,
        seconds=time.monotonic() - started,
    )


def join_lessons(parts: Sequence[Lesson]) -> Lesson:
    """Joins lessons into one; nodes and graphs count on from part to part."""
    values: dict[str, list[Tensor]] = {one.name: [] for one in fields(BondView)}
    nodes, graphs = 0, 0
    for part in parts:
        shift = {"home": graphs, "graph": graphs, "ends": nodes}
        for name, held in values.items():
            held.append(getattr(part.view, name) + shift.get(name, 0))
        nodes, graphs = nodes + part.view.state.size(0), graphs + part.view.label.numel()
    dim = {"ends": 1}
    view = BondView(**{name: torch.cat(held, dim.get(name, 0)) for name, held in values.items()})
    wanted, reached = (torch.cat([getattr(p, n) for p in parts]) for n in ("wanted", "reached"))
    return Lesson(view, wanted, reached, parts[0].num_labels)


def take_graphs(lesson: Lesson, chosen: Tensor) -> Lesson:
    """Returns the lesson of some graphs, ``[B]``."""
    view, number = lesson.view, lesson.view.label.numel()
    chosen = chosen.to(view.state.device)
    counts = (torch.bincount(where, minlength=number) for where in (view.home, view.graph))
    first = [torch.cat([count.new_zeros(1), count.cumsum(0)]) for count in counts]  # [G + 1] each
    (nodes, node_ptr), (bonds, bond_ptr) = (gather_items(pointer, chosen) for pointer in first)
    place = torch.arange(chosen.numel(), device=chosen.device)
    graph = place.repeat_interleave(bond_ptr.diff())
    part = BondView(
        state=view.state[nodes],
        home=place.repeat_interleave(node_ptr.diff()),
        ends=view.ends[:, bonds] + (node_ptr[:-1] - first[0][chosen])[graph],
        graph=graph,
        edge=view.edge[bonds],
        label=view.label[chosen],
    )
    return Lesson(part, lesson.wanted[bonds], lesson.reached[bonds], lesson.num_labels)


def _train(
    lesson: Lesson,
    learned: Tensor,
    config: TeachConfig,
    is_ordered: bool,
    seed: int,
    progress: bool,
) -> StudentNetwork:
    """Returns a new network that has learned from some graphs of a lesson, ``[G]``."""
    view = lesson.view
    with SeededWeights(mix(seed, "weights")):
        net = StudentNetwork(
            view.state.size(1),
            view.edge.size(1),
            lesson.num_labels,
            hidden_size=config.hidden_size,
            is_ordered=is_ordered,
        )
    net.to(view.state)
    sample = take_graphs(lesson, learned)
    net.standardise(sample.view)
    net.scale_losses(sample.wanted[sample.reached])
    net.taught[torch.unique(sample.view.label)] = True
    weights = list(net.parameters())
    size = min(max(learned.numel() // _STEPS, _FEWEST), _MOST)
    steps = config.epochs * max(1, learned.numel() // size)
    optimiser = torch.optim.AdamW(weights, config.learning_rate, weight_decay=_WEIGHT_DECAY)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, steps + 1)
    with progress_bar("Teaching", steps, shown=progress) as advance:
        for step in range(steps):
            chosen = learned[batch_of_step(learned.numel(), size, seed, step)]
            descend(teaching_loss(net, take_graphs(lesson, chosen)), weights, optimiser)
            rate.step()
            advance(step + 1, "")
    return net.eval()


def teaching_loss(net: StudentNetwork, lesson: Lesson) -> Tensor:
    """Returns the loss of `teach_student` over the reached bonds of a lesson."""
    value, log_error = net(lesson.view)
    squared = (value - net.compressed(lesson.wanted)).square()
    likelihood = log_error + squared.detach() * (-2 * log_error).exp() / 2
    weight = lesson.reached.to(value.dtype)
    return ((squared + _ERROR_WEIGHT * likelihood) * weight).sum() / weight.sum().clamp(min=1)


@torch.no_grad()
def _calibrate(net: StudentNetwork, lesson: Lesson, config: TeachConfig) -> dict[str, float]:
    """Calibrates a network on held-out graphs, and returns the numbers of the report."""
    value, log_error = net(lesson.view)
    reached = lesson.reached
    answers = Answers(
        value=value[reached],
        error=log_error.exp()[reached],
        wanted=net.compressed(lesson.wanted[reached]),
        graph=lesson.view.graph[reached],
        label=lesson.view.label,
    )
    factors, limit, numbers = judge(answers, config.sent, lesson.num_labels)
    net.factor.copy_(factors)
    net.limit.fill_(limit)
    return numbers
