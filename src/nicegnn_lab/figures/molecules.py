"""Molecules in rows of panels: cases of a benchmark, and the picture of the demo."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nicegnn.errors import ConfigError
from nicegnn.intervention.scale import ScaleProfile
from nicegnn.molecule.canvas import unchecked_molecule
from nicegnn.molecule.drawing import draw_graph
from nicegnn_lab.figures.panels import LABEL_SIZE, TITLE_SIZE, new_figure, set_caption
from nicegnn_lab.figures.scale_figures import draw_profile
from nicegnn_lab.tables.case_study import SHOWN, MoleculeCase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (900, 600)  # pixels of a picture before its rim is cut off


@dataclass(frozen=True)
class Panels:
    """One molecule with its true bonds, gates and scores, ``[M]`` each."""

    smiles: str
    bond_index: Tensor  # the two atoms of each bond, [2, M]
    truth: Tensor
    gate: Tensor
    score: Tensor
    caption: str


def case_study_figure(cases: Sequence[MoleculeCase], *, note: str = "") -> Figure:
    """Returns a grid: a molecule per row; gate, attribution and score in columns.

    `note` is a sentence for the caption on where the cases come from.
    """
    if not cases:
        raise ConfigError("`cases` must hold at least one molecule (got none).")
    figure = new_figure(3.6 * len(SHOWN), 2.2 * len(cases) + 0.3)
    grid = figure.subplots(len(cases), len(SHOWN), squeeze=False)
    for line, case in zip(grid, cases, strict=True):
        images = cropped(
            [
                _image(case, getattr(case, name).nan_to_num(0.0), case.truth, palette, _SIZE)
                for _, name, palette in SHOWN
            ]
        )
        for place, image, (title, name, _) in zip(line, images, SHOWN, strict=True):
            _show(place, image)
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


def panels_figure(rows: Sequence[Panels], profile: ScaleProfile) -> Figure:
    """Returns molecules with truth, gate and score side by side, and the scale per layer."""
    figure = new_figure(13.0, 2.6 * len(rows))
    left, right = (figure.subfigures(1, 2, width_ratios=[2.5, 1], squeeze=False))[0]
    grid = left.subplots(len(rows), 3, squeeze=False)
    for axes, row in zip(grid, rows, strict=True):
        images = (
            _image(row, None, row.truth),
            _image(row, row.gate, palette="gate"),
            _image(row, row.score),
        )
        for place, image in zip(axes, images, strict=True):
            _show(place, image)
    for place, title in zip(grid[0], ("truth", "gate (SRB)", "score (NICE)"), strict=True):
        place.set_title(title)
    axes = right.subplots()
    draw_profile(axes, profile)
    axes.set_title("Scale Drift")
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


def _image(
    case: MoleculeCase | Panels,
    score: Tensor | None,
    truth: Tensor | None = None,
    palette: str = "score",
    size: tuple[int, int] = (640, 480),
) -> Any:
    """Returns a molecule without title and legend as an array, ``[H, W, 4]``."""
    from matplotlib.image import imread

    molecule = None
    if not case.smiles and isinstance(case, MoleculeCase):  # Mutagenicity has none
        molecule = unchecked_molecule(case.elements, case.bonds)
    picture = draw_graph(
        case.bond_index,
        score,
        smiles=case.smiles,
        molecule=molecule,
        bond_truth=truth,
        palette=palette,
        signed=False,
        size=size,
        legend=False,
        background=None,
    )
    return imread(io.BytesIO(picture.png(scale=1)))


def _show(axes: Axes, image: Any) -> None:
    """Shows a picture without axes; a label at its side stays possible."""
    axes.imshow(image)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
