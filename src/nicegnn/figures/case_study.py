"""The case study: gate, attribution and score of the same molecules, true bonds outlined."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError
from nicegnn.figures.drawing import new_figure
from nicegnn.figures.style import LABEL_SIZE, TITLE_SIZE, set_caption
from nicegnn.molecule.drawing import molecule_png
from nicegnn.tables.case_study import SHOWN, MoleculeCase

_SIZE = (900, 600)  # pixels of a picture before its rim is cut off

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def case_study_figure(cases: Sequence[MoleculeCase], *, note: str = "") -> Figure:
    """Returns a grid: a molecule per row; gate, attribution and score in columns.

    Args:
        cases: from `cases_from_bench` or `cases_from_explanation`.
        note: sentence for the caption on where the cases come from.
    """
    from matplotlib.image import imread

    if not cases:
        raise ConfigError("`cases` must hold at least one molecule (got none).")
    figure = new_figure(3.6 * len(SHOWN), 2.2 * len(cases) + 0.3)
    grid = figure.subplots(len(cases), len(SHOWN), squeeze=False)
    for line, case in zip(grid, cases, strict=True):
        truth = case.truth.nonzero().view(-1).tolist()
        pictures = [
            molecule_png(
                case.smiles,
                getattr(case, name).nan_to_num(0.0).tolist(),
                bond_truth=truth,
                palette=palette,
                size=_SIZE,
            )
            for _, name, palette in SHOWN
        ]
        images = cropped([imread(io.BytesIO(picture)) for picture in pictures])
        for place, image, (title, name, _) in zip(line, images, SHOWN, strict=True):
            place.imshow(image)
            place.set_xticks([])
            place.set_yticks([])
            place.spines[:].set_visible(False)
            auc = case.auc(name)
            known = "undefined" if math.isnan(auc) else f"{auc:.2f}"
            place.set_title(f"{title}, AUC ↑ {known}", fontsize=TITLE_SIZE)
        line[0].set_ylabel(f"{case.title}\np = {case.probability:.2f}", fontsize=LABEL_SIZE)
    set_caption(
        figure,
        "The same molecules with their bonds coloured by restoration gate, by boundary-integrated "
        "gradient and by the score that ranks them; true bonds are outlined in green.",
        "Colours and widths are relative to the largest value of a picture; negative values are "
        f"not drawn. p is the probability of the explained class. {len(cases)} molecule(s).",
        note,
    )
    return figure


def cropped(images: Sequence[Any], rim: int = 12) -> list[Any]:
    """Cuts the same empty rim off pictures of one molecule, ``[H, W, 4]`` each.

    Args:
        rim: empty pixels that are left.
    """
    drawn = sum(image[..., 3] for image in images) > 0  # opaque in any of them, [H, W]
    rows, columns = drawn.any(1).nonzero()[0], drawn.any(0).nonzero()[0]
    if rows.size == 0:
        return list(images)
    high = slice(max(0, rows[0] - rim), rows[-1] + rim + 1)
    wide = slice(max(0, columns[0] - rim), columns[-1] + rim + 1)
    return [image[high, wide] for image in images]
