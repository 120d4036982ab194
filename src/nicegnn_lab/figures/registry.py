"""Every figure by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nicegnn_lab.figures.cost import cost_figure
from nicegnn_lab.figures.molecules import case_study_figure
from nicegnn_lab.figures.quality import all_fidelity_figures, confidence_figure
from nicegnn_lab.figures.scale_figures import layer_scale_figure, motivation_figure
from nicegnn_lab.figures.sweeps import sensitivity_figure
from nicegnn_lab.figures.wide import wide_figure
from nicegnn_lab.paper.methods import datasets_in
from nicegnn_lab.tables.case_study import cases_from_rows
from nicegnn_lab.tables.registry import Artefact, Sources

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = dict[str, "Figure"]  # by file name without ending


def _one(name: str, make: Callable[[Sources], Figure]) -> Callable[[Sources], Figures]:
    return lambda sources: {name: make(sources)}


def _fidelity(sources: Sources) -> Figures:
    by_removal = all_fidelity_figures(sources.bench(["kept"]))
    return {f"fidelity-{removal}": figure for removal, figure in by_removal.items()}


def _cases(sources: Sources) -> Figures:
    rows = sources.bench(["bond_score", "bond_gate", "bond_big", "molecule"])
    rows = rows[rows["target"] == "gin"]
    cases_of = {name: cases_from_rows(rows, name) for name in datasets_in(rows)}
    return {f"cases-{name}": case_study_figure(cases) for name, cases in cases_of.items() if cases}


def _readings(name: str, draw: Callable[..., Figure], sources: Sources) -> Figures:
    """Returns a figure for each reading of the paper's noise: clean and propagated messages."""
    return {
        name: draw(sources.studies),
        f"{name}-propagated": draw(sources.studies, is_clean=False),
    }


#: Figures by name.
FIGURES: dict[str, Artefact[Figures]] = {
    "motivation": Artefact(
        "Embeddings and message scale under the oracle",
        lambda sources: _readings("motivation", motivation_figure, sources),
        ("scale",),
    ),
    "layer-scale": Artefact(
        "Message scale per layer, datasets by backbones",
        lambda sources: _readings("layer-scale", layer_scale_figure, sources),
        ("scale",),
    ),
    "fidelity": Artefact("Fidelity curves, best 10 to 90 percent", _fidelity),
    "confidence": Artefact(
        "Confidence clean, under EM, NC and exchange",
        lambda sources: _readings("confidence", confidence_figure, sources),
        ("mechanisms",),
    ),
    "sensitivity": Artefact(
        "The paper's NICE under other settings",
        _one("sensitivity", lambda sources: sensitivity_figure(sources.studies)),
        ("sensitivity",),
    ),
    "wide": Artefact(
        "The wide bench: damages, and chances foretold and seen",
        _one("wide", lambda sources: wide_figure(sources.studies)),
        ("wide",),
    ),
    "cost": Artefact(
        "Seconds per graph against agreement with the truth",
        _one("cost", lambda sources: cost_figure(sources.bench())),
    ),
    "cases": Artefact("Gate, attribution and score on the same molecules", _cases),
}
