"""Every figure by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nicegnn_lab.figures.cost import cost_figure, read_speed
from nicegnn_lab.figures.molecules import case_study_figure
from nicegnn_lab.figures.quality import (
    all_fidelity_figures,
    by_confidence_figure,
    confidence_figure,
    mechanisms_figure,
)
from nicegnn_lab.figures.scale_figures import layer_scale_figure, motivation_figure
from nicegnn_lab.figures.sweeps import convergence_figure, sensitivity_figure
from nicegnn_lab.paper.methods import datasets_in
from nicegnn_lab.tables.case_study import cases_from_rows
from nicegnn_lab.tables.registry import Artefact, Sources
from nicegnn_lab.tables.table import read_study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Figures = dict[str, "Figure"]  # by file name without ending


def _one(name: str, make: Callable[[Sources], Figure]) -> Callable[[Sources], Figures]:
    return lambda sources: {name: make(sources)}


def _fidelity(sources: Sources) -> Figures:
    found = all_fidelity_figures(sources.bench(["kept"]))
    return {f"fidelity-{removal}": figure for removal, figure in found.items()}


def _cost(sources: Sources) -> Figure:
    speed = None if sources.speed is None else read_speed(sources.speed)
    return cost_figure(sources.bench(), speed=speed)


def _cases(sources: Sources) -> Figures:
    rows = sources.bench(["bond_score", "bond_gate", "bond_big", "molecule"])
    rows = rows[rows["target"] == "gin"]
    found = {name: cases_from_rows(rows, name) for name in datasets_in(rows)}
    return {f"cases-{name}": case_study_figure(cases) for name, cases in found.items() if cases}


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
        "Confidence clean, under EM and under NC",
        lambda sources: _readings("confidence", confidence_figure, sources),
        ("mechanisms",),
    ),
    "by-confidence": Artefact(
        "Effect of the target's confidence",
        _one(
            "by-confidence",
            lambda sources: by_confidence_figure(
                sources.bench(["roc_auc"]), read_study(sources.studies, "mechanisms")
            ),
        ),
        ("bench", "mechanisms"),
    ),
    "sensitivity": Artefact(
        "NICE under other settings",
        _one("sensitivity", lambda sources: sensitivity_figure(sources.studies)),
        ("sensitivity",),
    ),
    "convergence": Artefact(
        "Convergence of the attribution",
        _one("convergence", lambda sources: convergence_figure(sources.studies)),
        ("convergence",),
    ),
    "rivals-em-nc": Artefact(
        "Each rival with masking and with noise corruption",
        _one("rivals-em-nc", lambda sources: mechanisms_figure(sources.bench(["roc_auc"]))),
    ),
    "cost": Artefact(
        "Seconds per graph against agreement with the truth",
        _one("cost", _cost),
        ("bench", "speed"),
    ),
    "cases": Artefact("Gate, attribution and score on the same molecules", _cases),
}
