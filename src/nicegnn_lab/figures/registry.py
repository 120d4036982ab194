"""Every figure by name: each is one function over stored rows."""

from matplotlib.figure import Figure

from nicegnn_lab.figures.studies import layer_scale_figures, sensitivity_figure
from nicegnn_lab.figures.wide import wide_figure
from nicegnn_lab.tables.sources import Artefact

#: Figures by name; each makes some by file name without ending.
FIGURES: dict[str, Artefact[dict[str, Figure]]] = {
    "layer-scale": Artefact(lambda sources: layer_scale_figures(sources.studies), ("scale",)),
    "sensitivity": Artefact(
        lambda sources: {"sensitivity": sensitivity_figure(sources.studies)}, ("sensitivity",)
    ),
    "wide": Artefact(lambda sources: {"wide": wide_figure(sources.studies)}, ("wide",)),
}
