"""Molecules of a benchmark in rows of panels: gate, attribution and score, and the truth."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread
from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.molecule.drawing import Panel, draw_panels, unchecked_molecule
from nicegnn.molecule.picture import PALETTES
from nicegnn_lab.bench.measure import GALLERY_SEED
from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.figures.panels import LABEL_SIZE, TITLE_SIZE, new_figure, set_caption
from nicegnn_lab.metrics.ranking import roc_auc
from nicegnn_lab.paper.methods import Method, datasets_in, own_mechanism
from nicegnn_lab.tables.table import rows_by

#: What is shown of a case by its metric in rows: title, palette of `nicegnn.molecule.drawing`.
SHOWN = {
    "bond_gate": ("gate (SRB)", "gate"),
    "bond_big": ("attribution (BIG)", "score"),
    "bond_score": ("score (both)", "score"),
}
MAX_BONDS = 32  # of a molecule that is shown
NUM_SHOWN = 3  # molecules of a dataset
_SIZE = (900, 600)  # pixels of a picture before its rim is cut off
_RIM = 12  # pixels of it that stay


def case_figures(rows: pd.DataFrame) -> dict[str, Figure]:
    """Returns a figure of some molecules for each dataset, by file name without ending."""
    rows = rows[rows["target"] == MAIN_TARGET]
    cases_of = {name: cases_from_rows(rows, name) for name in datasets_in(rows)}
    return {f"cases-{name}": case_study_figure(cases) for name, cases in cases_of.items() if cases}


@dataclass(frozen=True)
class MoleculeCase:
    """One explained molecule; values per bond are in the order of its graph, ``[M]`` each."""

    title: str  # where it comes from
    about: Mapping[str, Any]  # its smiles, atoms and bonds, see `describe_molecule`
    bond_index: Tensor  # the two atoms of each bond, [2, M]
    truth: Tensor  # whether each bond is true, bool
    values: Mapping[str, Tensor]  # by the names of `SHOWN`


def cases_from_rows(
    rows: pd.DataFrame, dataset: str, *, explainer: str = "nice-paper"
) -> list[MoleculeCase]:
    """Returns explained molecules whose bonds have rows in a benchmark.

    The benchmark has drawn them at random, so nobody has chosen them by how they look. Of these the
    first `NUM_SHOWN` are taken that are predicted right, have a true and a false bond, and at most
    `MAX_BONDS` bonds.
    """
    mine = rows_by(rows, Method(explainer, own_mechanism(explainer)))
    chosen = mine[(mine["dataset"] == dataset) & (mine["seed"] == GALLERY_SEED)]
    notes = chosen[chosen["metric"] == "molecule"].sort_values("graph")
    if notes.empty:
        raise StoreError(
            f"The rows hold no molecules of {explainer!r} on {dataset} and target {MAIN_TARGET}; "
            f"run `nicegnn lab bench -d {dataset} -t {MAIN_TARGET} -e {explainer} -s "
            f"{GALLERY_SEED}`."
        )
    about = {int(row.graph): json.loads(row.note) for row in notes.itertuples(index=False)}
    positions = [place for place, one in about.items() if _suits(one)][:NUM_SHOWN]
    bonds = chosen[chosen["metric"].isin(list(SHOWN))].sort_values("level")
    return [_case(dataset, place, about[place], bonds) for place in positions]


def _suits(about: dict[str, Any]) -> bool:
    num = len(about["bonds"])
    is_right = about["explained"] == about["label"] and about["probability"] > 0.5
    return is_right and num <= MAX_BONDS and 0 < len(about["true"]) < num


def _case(dataset: str, position: int, about: dict[str, Any], bonds: pd.DataFrame) -> MoleculeCase:
    ends = torch.tensor([bond[:2] for bond in about["bonds"]], dtype=torch.long).view(-1, 2).t()
    truth = torch.zeros(ends.size(1), dtype=torch.bool)
    truth[torch.tensor(about["true"], dtype=torch.long)] = True
    here = bonds[bonds["graph"] == position]
    values = {}
    for metric in SHOWN:
        stored = here.loc[here["metric"] == metric, "value"].to_numpy(dtype="float64")
        if stored.size == 0:
            raise StoreError(
                f"The rows of {dataset} hold no {metric!r} of graph {position}: the explainer has "
                "none. Name an explainer with gates."
            )
        values[metric] = torch.tensor(stored, dtype=torch.double)
    return MoleculeCase(f"{dataset}, test graph {position}", about, ends, truth, values)


def case_study_figure(cases: Sequence[MoleculeCase]) -> Figure:
    """Returns a grid: a molecule per row; gate, attribution and score in columns."""
    figure = new_figure(3.6 * len(SHOWN), 2.2 * len(cases) + 0.3)
    grid = figure.subplots(len(cases), len(SHOWN), squeeze=False)
    for line, case in zip(grid, cases, strict=True):
        for place, image, (metric, (title, _)) in zip(
            line, _images(case), SHOWN.items(), strict=True
        ):
            place.imshow(image)
            place.set(xticks=[], yticks=[])  # a label at its side stays possible
            place.spines[:].set_visible(False)
            auc = _auc(case.values[metric], case.truth)
            shown = "undefined" if math.isnan(auc) else f"{auc:.2f}"
            place.set_title(f"{title}, AUC ↑ {shown}", fontsize=TITLE_SIZE)
        said = f"{case.title}\np = {case.about['probability']:.2f}"
        line[0].set_ylabel(said, fontsize=LABEL_SIZE)
    set_caption(
        figure,
        "The same molecules with their bonds coloured by restoration gate, by boundary-integrated "
        "gradient and by the score that ranks them; true bonds are outlined in green.",
        "Colours and widths are relative to the largest value of a picture; negative values are "
        f"not drawn. p is the probability of the explained class. {len(cases)} molecule(s).",
    )
    return figure


def _auc(value: Tensor, truth: Tensor) -> float:
    if bool(value.isnan().any()):  # a fit without gates; nan would be ranked like a number
        return math.nan
    return float(roc_auc(value, truth, torch.zeros_like(truth, dtype=torch.long), 1))


def _images(case: MoleculeCase) -> list[Any]:
    """Returns a molecule in each of its values, ``[H, W, 4]``, without title, legend and rim."""
    about, molecule = case.about, None
    if not about["smiles"]:  # Mutagenicity has none
        types = [(u, v, kind + 1) for u, v, kind in about["bonds"]]
        molecule = unchecked_molecule(about["atoms"], types)
    images = []
    for metric, (_, palette) in SHOWN.items():
        shown = {"smiles": about["smiles"], "molecule": molecule, "truth": case.truth}
        panel = Panel(case.bond_index, case.values[metric].nan_to_num(0.0), **shown)
        colours = replace(PALETTES[palette], ground=None)
        picture = draw_panels([panel], size=_SIZE, palette=colours, signed=False)
        images.append(imread(io.BytesIO(picture.png(scale=1)))[: _SIZE[1]])  # above the legend
    drawn: Any = sum(image[..., 3] for image in images) > 0  # opaque in any of them, [H, W]
    rows, columns = drawn.any(1).nonzero()[0], drawn.any(0).nonzero()[0]
    high = slice(max(0, rows[0] - _RIM), rows[-1] + _RIM + 1)
    wide = slice(max(0, columns[0] - _RIM), columns[-1] + _RIM + 1)
    return [image[high, wide] for image in images]
