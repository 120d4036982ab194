"""Every figure by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from nicegnn_lab.figures.molecules import CASE_METRICS, case_figures
from nicegnn_lab.figures.quality import confidence_figure, fidelity_figures
from nicegnn_lab.figures.scale_figures import layer_scale_figure, motivation_figure
from nicegnn_lab.figures.sweeps import sensitivity_figure
from nicegnn_lab.figures.wide import wide_figure
from nicegnn_lab.tables.sources import Artefact, Sources

Figures = dict[str, Figure]  # by file name without ending


def make_figures(name: str, sources: Sources) -> Figures:
    """Returns the figures of a name of `FIGURES`."""
    return FIGURES[name].make(sources)


def _readings(name: str, draw: Callable[..., Figure]) -> Callable[[Sources], Figures]:
    """Returns a figure for each reading of the paper's noise: clean and propagated messages."""
    return lambda sources: {
        name: draw(sources.studies),
        f"{name}-propagated": draw(sources.studies, is_clean=False),
    }


#: Figures by name.
FIGURES: dict[str, Artefact[Figures]] = {
    "motivation": Artefact(
        "Embeddings and message scale under the oracle",
        _readings("motivation", motivation_figure),
        ("scale",),
    ),
    "layer-scale": Artefact(
        "Message scale per layer, datasets by backbones",
        _readings("layer-scale", layer_scale_figure),
        ("scale",),
    ),
    "fidelity": Artefact(
        "Fidelity curves, best 10 to 90 percent",
        lambda sources: fidelity_figures(sources.bench(["kept"])),
    ),
    "confidence": Artefact(
        "Confidence clean, under EM, NC and exchange",
        _readings("confidence", confidence_figure),
        ("mechanisms",),
    ),
    "sensitivity": Artefact(
        "The paper's NICE under other settings",
        lambda sources: {"sensitivity": sensitivity_figure(sources.studies)},
        ("sensitivity",),
    ),
    "wide": Artefact(
        "The wide bench: damages, and chances foretold and seen",
        lambda sources: {"wide": wide_figure(sources.studies)},
        ("wide",),
    ),
    "cases": Artefact(
        "Gate, attribution and score on the same molecules",
        lambda sources: case_figures(sources.bench(CASE_METRICS)),
    ),
}
