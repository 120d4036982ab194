"""Cases: gate, attribution and score of the same molecules, with the truth beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn_lab.bench.measure import GALLERY_SEED
from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.metrics import roc_auc
from nicegnn_lab.paper.methods import Method, own_mechanism
from nicegnn_lab.tables.table import rows_by

if TYPE_CHECKING:
    import pandas as pd

#: What is shown of a case: title, name of the value, palette of `nicegnn.molecule.drawing`.
SHOWN = (
    ("gate (SRB)", "gate", "gate"),
    ("attribution (BIG)", "big", "score"),
    ("score (both)", "score", "score"),
)
MAX_BONDS = 32  # of a molecule that is shown
NUM_SHOWN = 3  # molecules of a dataset
# of stored rows; `bond_big` is what `Explanation.bond_loss` was called when they were written
_METRICS = {"score": "bond_score", "gate": "bond_gate", "big": "bond_big"}


@dataclass(frozen=True)
class MoleculeCase:
    """One explained molecule; values per bond are in the order of its graph, ``[M]`` each."""

    title: str  # where it comes from
    smiles: str
    bond_index: Tensor  # the two atoms of each bond, [2, M]
    truth: Tensor  # whether each bond is true, bool
    gate: Tensor  # restoration gate
    big: Tensor  # boundary-integrated gradient
    score: Tensor  # what ranks the bonds
    probability: float  # of the explained class on the whole graph
    elements: Sequence[str] = ()  # of the atoms
    bonds: Sequence[tuple[int, int, int]] = ()  # two atoms and the type of each bond, from 1

    def auc(self, name: str) -> float:
        """Returns the AUC of ``gate``, ``big`` or ``score`` with the truth; nan if undefined."""
        value: Tensor = getattr(self, name)
        if bool(value.isnan().any()):  # a method without gates; nan would be ranked like a number
            return math.nan
        return float(roc_auc(value, self.truth, torch.zeros_like(self.truth, dtype=torch.long), 1))


def cases_from_rows(
    rows: pd.DataFrame,
    dataset: str,
    *,
    explainer: str = "nice-paper",
) -> list[MoleculeCase]:
    """Returns explained molecules whose bonds have rows in a benchmark.

    The benchmark has drawn them at random, so nobody has chosen them by how they look. Of these the
    first `NUM_SHOWN` are taken that are predicted right, have a true and a false bond, and at most
    `MAX_BONDS` bonds.
    """
    mine = rows_by(rows, Method(explainer, own_mechanism(explainer)))
    is_here = (mine["dataset"] == dataset) & (mine["target"] == MAIN_TARGET)
    chosen = mine[is_here & (mine["seed"] == GALLERY_SEED)]
    notes = chosen[chosen["metric"] == "molecule"].sort_values("graph")
    if notes.empty:
        raise StoreError(
            f"The rows hold no molecules of {explainer!r} on {dataset} and target {MAIN_TARGET}; "
            f"run `nicegnn lab bench -d {dataset} -t {MAIN_TARGET} -e {explainer} -s "
            f"{GALLERY_SEED}`."
        )
    about = {int(row.graph): json.loads(row.note) for row in notes.itertuples(index=False)}
    positions = [place for place, one in about.items() if _suits(one)][:NUM_SHOWN]
    bonds = chosen[chosen["metric"].isin(_METRICS.values())].sort_values("level")
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
    for name, metric in _METRICS.items():
        stored = here.loc[here["metric"] == metric, "value"].to_numpy(dtype="float64")
        if stored.size == 0:
            raise StoreError(
                f"The rows of {dataset} hold no {metric!r} of graph {position}: the explainer has "
                "none. Name an explainer with gates."
            )
        values[name] = torch.tensor(stored, dtype=torch.double)
    return MoleculeCase(
        title=f"{dataset}, test graph {position}",
        smiles=about["smiles"],
        bond_index=ends,
        truth=truth,
        probability=about["probability"],
        elements=about["atoms"],
        bonds=[(u, v, kind + 1) for u, v, kind in about["bonds"]],
        **values,
    )
