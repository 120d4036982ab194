"""Everything that is timed, behind one interface: seconds of a fit, and a call that explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from literal_paper import LiteralPaper
from material import Material
from pyg_rivals import PG_EPOCHS, PyGRival
from timing import cost, fit_cost
from torch import nn
from torch_geometric.data import Batch, Data

from nicegnn import NICE, NICEConfig, get_explainer
from nicegnn.explain.explainer import Explainer
from nicegnn_lab.rivals import EXPLAINERS

PYG = ("gnnexplainer", "pgexplainer", "captum-ig")
#: What a plain run measures; any name of the library's registry can be asked for.
NAMES = (
    *("occlusion", "nice-bonds", "nice", "nice-paper", "literal-paper"),
    *(f"pyg-{name}" for name in PYG),
)
EVERYTHING = tuple(dict.fromkeys((*NAMES, *EXPLAINERS)))
_BONDS = "-bonds"  # behind a name: NICE without scores of atoms, which other methods do not tell
_BACKGROUND = 2000  # training graphs that exchange is given
_SLOW_ON_CPU = ("d4explainer",)  # a step takes tens of seconds there


@dataclass(frozen=True)
class Effort:
    """How long the measurements may take."""

    repeats: int = 5  # timed calls, of which the median counts
    fit_steps: int = 4  # steps of a fit that are timed; all others cost the same
    looped_graphs: int = 3  # graphs for methods that take one after another


@dataclass(frozen=True)
class Fitted:
    """A contender that is ready to explain."""

    explain: Callable[[Any], object]  # takes a Batch, or a list if it is looped
    is_looped: bool  # explains one graph after another
    fit: float = 0.0  # seconds of a whole fit
    steps: int = 0  # steps of a whole fit


@dataclass(frozen=True)
class Times:
    """One row of the result."""

    fit: float  # seconds of a whole fit, 0 without one
    steps: int  # steps of a whole fit
    explain: float  # seconds per graph, explaining a batch
    one: float  # seconds for a single graph
    memory: int  # peak bytes while a batch is explained
    graphs: int  # graphs in that batch


def measure(name: str, material: Material, effort: Effort) -> dict[str, Any]:
    """Returns the times of one contender as plain values."""
    is_slow = name in _SLOW_ON_CPU and material.device.type == "cpu"
    if is_slow:
        effort = Effort(1, 2, min(4, effort.looped_graphs))
    ready = _prepare(name, material, effort)
    number = effort.looped_graphs if ready.is_looped or is_slow else len(material.test)
    graphs = material.test[:number]
    middle = sorted(material.test, key=lambda graph: int(graph.num_edges))[len(material.test) // 2]
    many, single = graphs, [middle]
    if not ready.is_looped:  # joined before the clock starts
        many, single = (Batch.from_data_list(list(some)) for some in (graphs, single))
    batch = cost(lambda: ready.explain(many), material.device, effort.repeats)
    one = cost(lambda: ready.explain(single), material.device, effort.repeats)
    per_graph = batch.seconds / len(graphs)
    times = Times(ready.fit, ready.steps, per_graph, one.seconds, batch.memory, len(graphs))
    return asdict(times)


def record(material: Material, effort: Effort) -> dict[str, float]:
    """Returns the seconds that a background of the training graphs takes, and their number."""
    graphs = list(material.train[:_BACKGROUND])
    made = cost(lambda: NICE(material.model, background=graphs), material.device, effort.repeats)
    return {"graphs": len(graphs), "seconds": made.seconds}


def make_explainer(
    name: str, model: nn.Module, train: Sequence[Data], **settings: Any
) -> Explainer:
    """Returns an explainer of the registry; the default of NICE has a background."""
    if name == "nice":
        return NICE(model, background=list(train[:_BACKGROUND]))
    return get_explainer(name, model, **settings)


def _prepare(name: str, material: Material, effort: Effort) -> Fitted:
    if name == "literal-paper":
        return _literal(material, effort)
    if name.startswith("pyg-"):
        return _pyg(name.removeprefix("pyg-"), material, effort)
    return _library(name, material, effort)


def _library(name: str, material: Material, effort: Effort) -> Fitted:
    """Fits over a few steps and counts all others like them."""
    has_atoms, name = not name.endswith(_BONDS), name.removesuffix(_BONDS)
    make = partial(make_explainer, name, material.model, material.train)
    explainer = make()
    fit, steps = 0.0, 0
    if name != "nice" and EXPLAINERS[name].learns:
        config: Any = explainer.config
        key = "boundary__steps" if hasattr(config, "boundary") else "steps"
        steps = config.boundary.steps if hasattr(config, "boundary") else config.steps
        make(**{key: 1}).fit(material.train[:16], progress=False)
        timed = min(effort.fit_steps, steps)
        explainer = make(**{key: timed})
        fit = fit_cost(
            lambda: explainer.fit(material.train, progress=False), material.device, timed, steps
        )
    return Fitted(
        explainer.explain if has_atoms else partial(explainer.explain, atoms=False),
        is_looped=False,
        fit=fit,
        steps=steps,
    )


def _literal(material: Material, effort: Effort) -> Fitted:
    """Times a fit step on a few graphs and scales it to the mini-batch and steps of `paper()`."""
    literal, settings = LiteralPaper(material.model), NICEConfig.paper().boundary
    graphs = _on_device(material, effort.looped_graphs)
    step = cost(lambda: literal.fit_step(graphs), material.device, effort.repeats).seconds
    size = min(settings.batch_size, len(material.train))
    return Fitted(
        lambda graphs: [literal.explain(graph) for graph in graphs],
        is_looped=True,
        fit=step / len(graphs) * size * settings.steps,
        steps=settings.steps,
    )


def _pyg(name: str, material: Material, effort: Effort) -> Fitted:
    """Times training on a few graphs and scales it to all training graphs and epochs."""
    rival = PyGRival(material.model, name)
    fit, steps = 0.0, 0
    if rival.learns:
        graphs = _on_device(material, 4 * effort.looped_graphs)
        epoch = cost(lambda: rival.fit_epoch(graphs, 0), material.device, effort.repeats).seconds
        steps = PG_EPOCHS * len(material.train)
        fit = epoch / len(graphs) * steps
        rival.skip_fit(graphs[0])
    return Fitted(
        lambda graphs: [rival.explain(graph) for graph in graphs],
        is_looped=True,
        fit=fit,
        steps=steps,
    )


def _on_device(material: Material, number: int) -> list[Data]:
    count = min(number, len(material.train))
    return [material.train[place].to(material.device) for place in range(count)]


def add_ratios(rows: dict[str, dict[str, Any]]) -> None:
    """Adds to each row its time relative to occlusion and to NICE."""
    for row in rows.values():
        row["ratio"] = {
            base: {key: row[key] / rows[base][key] for key in ("explain", "one")}
            for base in ("occlusion", "nice")
            if base in rows
        }
