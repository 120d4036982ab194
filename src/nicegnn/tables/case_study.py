"""Cases: gate, attribution and score of the same molecules, with the truth beside them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.bench.measure import GALLERY_SEED
from nicegnn.errors import ConfigError, StoreError
from nicegnn.metrics import roc_auc
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.paper.methods import own_mechanism

if TYPE_CHECKING:
    import pandas as pd

#: What is shown of a case: title, name of the value, palette of `nicegnn.molecule.drawing`.
SHOWN = (
    ("gate (SRB)", "gate", "gate"),
    ("attribution (BIG)", "big", "score"),
    ("score (both)", "score", "score"),
)
_METRICS = {"score": "bond_score", "gate": "bond_gate", "big": "bond_big"}


@dataclass(frozen=True)
class MoleculeCase:
    """One explained molecule; values per bond are in RDKit's bond order, ``[M]`` each.

    Attributes:
        title: where it comes from.
        truth: whether each bond is true, bool.
        gate, big, score: restoration gate, boundary-integrated gradient, and what ranks the bonds.
        probability: of the explained class on the whole graph.
    """

    title: str
    smiles: str
    truth: Tensor
    gate: Tensor
    big: Tensor
    score: Tensor
    probability: float

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
    target: str = "gin",
    explainer: str = "nice",
    mechanism: str | None = None,
    num: int = 3,
    max_bonds: int = 32,
    positions: Sequence[int] | None = None,
) -> list[MoleculeCase]:
    """Returns explained molecules whose bonds have rows in a benchmark.

    The benchmark has drawn them at random, so nobody has chosen them by how they look. Of these the
    first ones are taken that are predicted right, have a true and a false bond, and at most
    `max_bonds` bonds.

    Args:
        rows: of the benchmark, from `read_rows`.
        mechanism: by default the explainer's own.
        positions: of graphs, instead of the first ones.
    """
    mechanism = own_mechanism(explainer) if mechanism is None else mechanism
    chosen = rows[
        (rows["dataset"] == dataset)
        & (rows["target"] == target)
        & (rows["explainer"] == explainer)
        & (rows["mechanism"] == mechanism)
        & (rows["seed"] == GALLERY_SEED)
    ]
    notes = chosen[chosen["metric"] == "molecule"].sort_values("graph")
    if notes.empty:
        raise StoreError(
            f"The rows hold no molecules of {explainer!r} on {dataset} and target {target}; run "
            f"`nicegnn bench -d {dataset} -t {target} -e {explainer} -s {GALLERY_SEED}`."
        )
    about = {int(row.graph): json.loads(row.note) for row in notes.itertuples(index=False)}
    if positions is None:
        positions = [place for place, one in about.items() if _suits(one, max_bonds)][:num]
    unknown = [place for place in positions if place not in about]
    if unknown:
        raise ConfigError(
            f"`positions` must be of {sorted(about)}, graphs of {dataset} with rows of their bonds "
            f"(got {unknown})."
        )
    bonds = chosen[chosen["metric"].isin(_METRICS.values())].sort_values("level")
    return [_case(dataset, place, about[place], bonds) for place in positions]


def _suits(about: dict[str, Any], max_bonds: int) -> bool:
    num = len(about["bonds"])
    is_right = about["explained"] == about["label"] and about["probability"] > 0.5
    return is_right and num <= max_bonds and 0 < len(about["true"]) < num


def _case(dataset: str, position: int, about: dict[str, Any], bonds: pd.DataFrame) -> MoleculeCase:
    ends = torch.tensor([bond[:2] for bond in about["bonds"]], dtype=torch.long).view(-1, 2).t()
    order = molecule_order(about["smiles"], ends)
    truth = torch.zeros(order.numel(), dtype=torch.bool)
    truth[torch.tensor(about["true"], dtype=torch.long)] = True
    here = bonds[bonds["graph"] == position]
    values = {}
    for name, metric in _METRICS.items():
        found = here.loc[here["metric"] == metric, "value"].to_numpy(dtype="float64")
        if found.size == 0:
            raise StoreError(
                f"The rows of {dataset} hold no {metric!r} of graph {position}: the explainer has "
                "none. Name an explainer with gates."
            )
        values[name] = torch.tensor(found, dtype=torch.double)[order]
    title = f"{dataset}, test graph {position}"
    return MoleculeCase(
        title, about["smiles"], truth[order], **values, probability=about["probability"]
    )


def molecule_order(smiles: str, bond_index: Tensor) -> Tensor:
    """Returns the place among a graph's bonds of each bond that RDKit reads, ``[M]``.

    Args:
        bond_index: ends of the graph's bonds, ``[2, M]``.
    """
    if not smiles:
        raise ConfigError("A case needs a molecule with SMILES; Mutagenicity has none.")
    place = {
        frozenset(ends): number
        for number, ends in enumerate(zip(*bond_index.tolist(), strict=True))
    }
    pairs = [
        frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        for bond in parse_smiles(smiles).GetBonds()
    ]
    if set(pairs) != set(place):
        raise ConfigError(f"{smiles} and its graph number their atoms in different orders.")
    return torch.tensor([place[pair] for pair in pairs], dtype=torch.long)
