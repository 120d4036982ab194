"""Every figure by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from nicegnn_lab.bench.measure import GALLERY_METRICS
from nicegnn_lab.figures.molecules import case_figures
from nicegnn_lab.figures.quality import confidence_figure, fidelity_figures
from nicegnn_lab.figures.scale_figures import layer_scale_figure, motivation_figure
from nicegnn_lab.figures.sweeps import sensitivity_figure
from nicegnn_lab.figures.wide import wide_figure
from nicegnn_lab.tables.sources import Artefact, Sources

Figures = dict[str, Figure]  # by file name without ending


def _readings(title: str, name: str, study: str, draw: Callable[..., Figure]) -> Artefact[Figures]:
    """Returns a figure for each reading of the paper's noise: clean and propagated messages."""

    def made(sources: Sources) -> Figures:
        clean, propagated = (draw(sources.studies, is_clean=one) for one in (True, False))
        return {name: clean, f"{name}-propagated": propagated}

    return Artefact(title, made, (study,))


def _of_study(title: str, study: str, draw: Callable[..., Figure]) -> Artefact[Figures]:
    return Artefact(title, lambda sources: {study: draw(sources.studies)}, (study,))


_SCALE = "Message scale per layer, datasets by backbones"
#: Figures by name.
FIGURES: dict[str, Artefact[Figures]] = {
    "motivation": _readings(
        "Embeddings and message scale under the oracle", "motivation", "scale", motivation_figure
    ),
    "layer-scale": _readings(_SCALE, "layer-scale", "scale", layer_scale_figure),
    "fidelity": Artefact(
        "Fidelity curves, best 10 to 90 percent",
        lambda sources: fidelity_figures(sources.bench(["kept"])),
    ),
    "confidence": _readings(
        "Confidence clean, under EM, NC and exchange", "confidence", "mechanisms", confidence_figure
    ),
    "sensitivity": _of_study(
        "The paper's NICE under other settings", "sensitivity", sensitivity_figure
    ),
    "wide": _of_study(
        "The wide bench: damages, and chances foretold and seen", "wide", wide_figure
    ),
    "cases": Artefact(
        "Gate, attribution and score on the same molecules",
        lambda sources: case_figures(sources.bench(GALLERY_METRICS)),
    ),
}
