"""Molecules of a benchmark in rows of panels: gate, attribution and score."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nicegnn.errors import ConfigError
from nicegnn.molecule.drawing import Panel, draw_panels, unchecked_molecule
from nicegnn.molecule.picture import PALETTES
from nicegnn_lab.figures.panels import LABEL_SIZE, TITLE_SIZE, new_figure, set_caption
from nicegnn_lab.tables.case_study import SHOWN, MoleculeCase

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = (900, 600)  # pixels of a picture before its rim is cut off


def case_study_figure(cases: Sequence[MoleculeCase]) -> Figure:
    """Returns a grid: a molecule per row; gate, attribution and score in columns."""
    if not cases:
        raise ConfigError("`cases` must hold at least one molecule (got none).")
    figure = new_figure(3.6 * len(SHOWN), 2.2 * len(cases) + 0.3)
    grid = figure.subplots(len(cases), len(SHOWN), squeeze=False)
    for line, case in zip(grid, cases, strict=True):
        images = cropped(
            [
                _image(case, getattr(case, name).nan_to_num(0.0), palette)
                for _, name, palette in SHOWN
            ]
        )
        for place, image, (title, name, _) in zip(line, images, SHOWN, strict=True):
            place.imshow(image)
            place.set(xticks=[], yticks=[])  # a label at its side stays possible
            place.spines[:].set_visible(False)
            auc = case.auc(name)
            shown = "undefined" if math.isnan(auc) else f"{auc:.2f}"
            place.set_title(f"{title}, AUC ↑ {shown}", fontsize=TITLE_SIZE)
        line[0].set_ylabel(f"{case.title}\np = {case.probability:.2f}", fontsize=LABEL_SIZE)
    set_caption(
        figure,
        "The same molecules with their bonds coloured by restoration gate, by boundary-integrated "
        "gradient and by the score that ranks them; true bonds are outlined in green.",
        "Colours and widths are relative to the largest value of a picture; negative values are "
        f"not drawn. p is the probability of the explained class. {len(cases)} molecule(s).",
    )
    return figure


def cropped(images: Sequence[Any], rim: int = 12) -> list[Any]:
    """Cuts the same empty rim off pictures of one molecule, ``[H, W, 4]``; `rim` pixels stay."""
    drawn = sum(image[..., 3] for image in images) > 0  # opaque in any of them, [H, W]
    rows, columns = drawn.any(1).nonzero()[0], drawn.any(0).nonzero()[0]
    if rows.size == 0:
        return list(images)
    high = slice(max(0, rows[0] - rim), rows[-1] + rim + 1)
    wide = slice(max(0, columns[0] - rim), columns[-1] + rim + 1)
    return [image[high, wide] for image in images]


def _image(case: MoleculeCase, score: Tensor, palette: str) -> Any:
    """Returns a molecule without title and legend as an array, ``[H, W, 4]``."""
    from matplotlib.image import imread

    molecule = None
    if not case.smiles:  # Mutagenicity has none
        molecule = unchecked_molecule(case.elements, case.bonds)
    panel = Panel(case.bond_index, score, smiles=case.smiles, molecule=molecule, truth=case.truth)
    colours = replace(PALETTES[palette], ground=None)
    picture = draw_panels([panel], size=_SIZE, palette=colours, signed=False)
    return imread(io.BytesIO(picture.png(scale=1)))
