"""Teaches a student in rounds of more and more explained graphs, until it is good enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from nicegnn.config import Settings, check_at_least, check_count, check_inside, check_positive
from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.minibatches import gather_items
from nicegnn.optimisation import batch_of_step, descend
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.student.calibration import Answers, judge
from nicegnn.student.network import BondView, StudentNetwork

_ERROR_WEIGHT = 0.1
_STEPS, _FEWEST = 25, 16  # steps of an epoch, if they have that many graphs at least

STOPPED = {
    "good": "Held-out graphs are ranked as the teacher ranks them.",
    "no-gain": "More graphs hardly changed how well held-out graphs are ranked.",
    "all-graphs": "All graphs were explained: more graphs may help.",
    "most-graphs": "As many graphs as max_graphs were explained: more may help.",
}


@dataclass(frozen=True)
class TeachConfig(Settings):
    """How a student is taught."""

    first_graphs: int = 512  # graphs that the teacher explains in the first round
    growth: int = 4  # in each further round it has explained so many times more
    max_graphs: int = 8192  # most graphs that the teacher explains
    held_out: float = 0.2  # share of them that is only predicted, to judge and to calibrate
    enough: float = 0.97  # rank correlation with the teacher, in every class, that ends teaching
    least_gain: float = 0.003  # smaller gains of rank correlation in a round stop it too
    sent: float = 0.1  # share of held-out graphs that student="auto" would send to the teacher
    hidden_size: int = 64  # width of the network
    num_rounds: int = 2  # rounds in which bonds hear from their neighbours
    epochs: int = 40  # times that each graph is seen in a round
    batch_size: int = 256  # most graphs per step; less if there would be less than 25 steps
    learning_rate: float = 1e-2  # of AdamW at its highest; it rises and falls (one cycle)
    weight_decay: float = 0.1  # of AdamW

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "first_graphs", "max_graphs", "hidden_size", "epochs", "batch_size")
        check_at_least(self, 2, "growth")
        check_inside(self, 0, 1, "held_out", "sent")
        check_inside(self, 0, 1, "enough", with_high=True)
        check_at_least(self, 0, "least_gain", "weight_decay", "num_rounds")
        check_positive(self, "learning_rate")
        if self.max_graphs < self.first_graphs:
            raise ConfigError(
                f"`max_graphs` must be at least `first_graphs`, {self.first_graphs} (got "
                f"{self.max_graphs})."
            )


@dataclass(frozen=True)
class Lesson:
    """Graphs that the teacher has explained."""

    view: BondView  # what the student reads of them
    wanted: Tensor  # losses that the teacher found, [M]
    reached: Tensor  # bonds in the computation graph of the explained output, [M]
    num_labels: int  # classes that can be explained, and one more, see `BondView`


@dataclass(frozen=True)
class TeachReport:
    """Course and result of teaching; all numbers but the seconds are about held-out graphs."""

    num_graphs: int  # graphs that the teacher has explained
    num_held_out: int  # those of them that were not learned from
    history: tuple[dict[str, float], ...]  # graphs, rank correlation and explained of each round
    rank_correlation: float  # of student and teacher, over the bonds of a graph, mean
    overlap: float  # share of the teacher's top 30 % of bonds that the student's top has, mean
    explained: float  # share of the variance of compressed losses
    coverage: float  # share of the bonds whose error is within the bar; at least 0.683 is meant
    coverage_twice: float  # within two error bars; at least 0.954 is meant
    rank_correlation_sent: float  # of the graphs that student="auto" would send to the teacher
    rank_correlation_kept: float  # of the others
    stopped: str  # a key of `STOPPED`, empty while teaching goes on
    teacher_seconds: float  # explaining by the teacher
    seconds: float  # all of it
    rank_correlation_worst: float = math.nan  # of the class with the lowest, of 10 graphs or more

    @property
    def advice(self) -> str:
        """Why teaching stopped."""
        return STOPPED.get(self.stopped, "Teaching was interrupted after this round.")

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TeachReport:
        """Returns the report from plain values."""
        return cls(**{**values, "history": tuple(values["history"])})


def teach_rounds(
    explain: Callable[[Tensor], Lesson],
    num_graphs: int,
    config: TeachConfig,
    *,
    is_ordered: bool,
    seed: int,
    progress: bool,
    chunk: int = 128,
) -> Iterator[tuple[StudentNetwork, TeachReport]]:
    r"""Yields the student and its report after each round.

    .. math:: \min_\theta\; \mathrm{mean}_e\, (v_e - w_e)^2 + a\, \mathrm{mean}_e
        \Big( \log \sigma_e + \frac{(v_e - w_e)^2}{2 \sigma_e^2} \Big)

    Symbols: :math:`v, \log\sigma` -> value and logarithm of the error by the network; :math:`w` ->
    ``wanted`` of a `Lesson`, compressed; :math:`a` -> 0.1. In the second term the difference is a
    constant: it teaches the error. Its weight is small, because both read the same states, and with
    equal weights the values became worse (rank correlation 0.922 against 0.936, on
    Fluoride-Carbonyl).
    Every round the network starts anew, on all graphs so far but those held out.

    Args:
        explain: asks the teacher about some graphs, ``[B]``; at most ``chunk`` at a time.
        num_graphs: graphs there are.
    """
    started, asked = time.monotonic(), 0.0
    most = min(num_graphs, config.max_graphs)
    if most < 2:
        raise GraphError(f"`graphs` must hold at least 2 graphs with edges (got {most}).")
    order = batch_of_step(num_graphs, most, mix(seed, "teach"), 0)
    lessons, history = _Lessons(config.held_out), list[dict[str, float]]()
    stopped, wanted = "", config.first_graphs
    while not stopped:
        done, wanted = lessons.num_graphs, min(wanted, most)
        begun = time.monotonic()
        with progress_bar("Explaining by the teacher", wanted, shown=progress) as advance:
            for some in torch.split(order[done:wanted], chunk):
                lessons.add(explain(some))
                advance(lessons.num_graphs, "")
        asked += time.monotonic() - begun
        net = _train(lessons, config, is_ordered, mix(seed, "round", wanted), progress)
        values = _hold_out(net, lessons, config)
        before = history[-1]["rank_correlation"] if history else -1.0
        numbers = {key: values[key] for key in ("rank_correlation", "explained")}
        history.append({"graphs": lessons.num_graphs, **numbers})
        gain = values["rank_correlation"] - before
        if values["rank_correlation_worst"] >= config.enough:
            stopped = "good"
        elif wanted == most:
            stopped = "all-graphs" if most == num_graphs else "most-graphs"
        elif gain < config.least_gain:
            stopped = "no-gain"
        wanted *= config.growth
        report = TeachReport(
            num_graphs=lessons.num_graphs,
            num_held_out=lessons.held_out.numel(),
            history=tuple(history),
            stopped=stopped,
            teacher_seconds=asked,
            seconds=time.monotonic() - started,
            **values,
        )
        yield net, report


@dataclass
class _Lessons:
    """All lessons so far as one, and mini-batches of it."""

    share: float  # of the graphs that is held out
    joined: Lesson | None = field(default=None, repr=False)

    @property
    def num_graphs(self) -> int:
        return 0 if self.joined is None else self.joined.view.label.numel()

    @property
    def held_out(self) -> Tensor:
        """Graphs that are not learned from: spread evenly over all, ``[K]``."""
        number = torch.arange(self.num_graphs)
        return number[((number + 1) * self.share).ceil() > (number * self.share).ceil()]

    @property
    def learned(self) -> Tensor:
        """Graphs that are learned from, ``[G]``."""
        number = torch.arange(self.num_graphs)
        return number[~torch.isin(number, self.held_out)]

    @property
    def whole(self) -> Lesson:
        """All lessons as one."""
        if self.joined is None:
            raise GraphError("`graphs` must hold at least one graph with edges (got none).")
        return self.joined

    def add(self, lesson: Lesson) -> None:
        """Adds a lesson, whose bonds and nodes are sorted by graph."""
        old, new = self.joined, lesson.view
        if old is None:
            self.joined = lesson
            return
        start, nodes = old.view.label.numel(), old.view.state.size(0)
        shift = {"home": start, "graph": start, "ends": nodes}
        view = BondView(
            **{
                one.name: torch.cat(
                    [getattr(old.view, one.name), getattr(new, one.name) + shift.get(one.name, 0)],
                    dim=1 if one.name == "ends" else 0,
                )
                for one in fields(BondView)
            }
        )
        self.joined = Lesson(
            view,
            wanted=torch.cat([old.wanted, lesson.wanted]),
            reached=torch.cat([old.reached, lesson.reached]),
            num_labels=old.num_labels,
        )

    def pointers(self) -> tuple[Tensor, Tensor]:
        """Returns the first node and the first bond of each graph, ``[G + 1]`` each."""
        view = self.whole.view
        counts = (torch.bincount(w, minlength=self.num_graphs) for w in (view.home, view.graph))
        nodes, bonds = (torch.cat([c.new_zeros(1), c.cumsum(0)]) for c in counts)
        return nodes, bonds

    def take(self, chosen: Tensor, pointers: tuple[Tensor, Tensor]) -> Lesson:
        """Returns the lesson of some graphs, ``[B]``."""
        whole, view = self.whole, self.whole.view
        chosen = chosen.to(view.state.device)
        nodes, node_ptr = gather_items(pointers[0], chosen)
        bonds, bond_ptr = gather_items(pointers[1], chosen)
        number = torch.arange(chosen.numel(), device=chosen.device)
        graph = number.repeat_interleave(bond_ptr.diff())
        shift = (node_ptr[:-1] - pointers[0][chosen])[graph]
        part = BondView(
            state=view.state[nodes],
            home=number.repeat_interleave(node_ptr.diff()),
            ends=view.ends[:, bonds] + shift,
            graph=graph,
            edge=view.edge[bonds],
            label=view.label[chosen],
        )
        return Lesson(part, whole.wanted[bonds], whole.reached[bonds], whole.num_labels)


def _train(
    lessons: _Lessons, config: TeachConfig, is_ordered: bool, seed: int, progress: bool
) -> StudentNetwork:
    """Returns a new network that has learned from all graphs but those held out."""
    view, learned, pointers = lessons.whole.view, lessons.learned, lessons.pointers()
    sizes = view.state.size(1), view.edge.size(1), lessons.whole.num_labels
    with SeededWeights(mix(seed, "weights")):
        net = StudentNetwork(
            *sizes,
            hidden_size=config.hidden_size,
            num_rounds=config.num_rounds,
            is_ordered=is_ordered,
        )
    net.to(view.state)
    sample = lessons.take(learned, pointers)
    net.standardise(sample.view)
    net.scale_losses(sample.wanted[sample.reached])
    net.taught[torch.unique(view.label[learned.to(view.label.device)])] = True
    weights = list(net.parameters())
    size = min(max(learned.numel() // _STEPS, _FEWEST), config.batch_size)
    steps = config.epochs * max(1, learned.numel() // size)
    optimiser = torch.optim.AdamW(weights, config.learning_rate, weight_decay=config.weight_decay)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, steps + 1)
    with progress_bar("Teaching", steps, shown=progress) as advance:
        for step in range(steps):
            chosen = learned[batch_of_step(learned.numel(), size, seed, step)]
            some = lessons.take(chosen, pointers)
            descend(teaching_loss(net, some), weights, optimiser)
            rate.step()
            advance(step + 1, "")
    return net.eval()


def teaching_loss(net: StudentNetwork, lesson: Lesson) -> Tensor:
    """Returns the loss of `teach_rounds` over the reached bonds of a lesson."""
    value, log_error = net(lesson.view)
    squared = (value - net.compressed(lesson.wanted)).square()
    likelihood = log_error + squared.detach() * (-2 * log_error).exp() / 2
    weight = lesson.reached.to(value.dtype)
    return ((squared + _ERROR_WEIGHT * likelihood) * weight).sum() / weight.sum().clamp(min=1)


@torch.no_grad()
def _hold_out(net: StudentNetwork, lessons: _Lessons, config: TeachConfig) -> dict[str, float]:
    """Calibrates a network on the held-out graphs and returns the numbers of the report."""
    lesson = lessons.take(lessons.held_out, lessons.pointers())
    value, log_error = net(lesson.view)
    own = lesson.reached
    answers = Answers(
        value=value[own],
        error=log_error.exp()[own],
        wanted=net.compressed(lesson.wanted[own]),
        graph=lesson.view.graph[own],
        label=lesson.view.label,
    )
    factors, limit, numbers = judge(answers, config.sent, lesson.num_labels)
    net.factor.copy_(factors)
    net.limit.fill_(limit)
    return numbers
