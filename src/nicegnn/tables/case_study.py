"""Cases: gate, attribution and score of the same molecules, with the truth beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.bench.cell import Cell, data_key
from nicegnn.bench.folder import BenchFolder
from nicegnn.bench.rows import describe, read_table
from nicegnn.bench.scores import KIND, Scores, load_scores
from nicegnn.datasets import MoleculeDataset, load_dataset, parse_smiles
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explanation import Explanation
from nicegnn.graph.case import find_bonds
from nicegnn.metrics import roc_auc
from nicegnn.seeding import mix
from nicegnn.store import load_tensors
from nicegnn.tables.methods import own_mechanism

#: What is shown of a case: title, name of the value, palette of `nicegnn.molecule.drawing`.
SHOWN = (
    ("gate (SRB)", "gate", "gate"),
    ("attribution (BIG)", "big", "score"),
    ("score (both)", "score", "score"),
)


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
        if bool(
            value.isnan().any()
        ):  # a method without gates, say; nan would be ranked like a number
            return torch.nan
        return float(roc_auc(value, self.truth, torch.zeros_like(self.truth, dtype=torch.long), 1))


def cases_from_explanation(
    explanation: Explanation, graphs: Sequence[Data], titles: Sequence[str] | None = None
) -> list[MoleculeCase]:
    """Returns the cases of an explanation; graphs need ``smiles`` and ``edge_truth``."""
    found = []
    for number, (part, graph) in enumerate(zip(explanation.split(), graphs, strict=True)):
        title = f"molecule {number}" if titles is None else titles[number]
        values = (part.bond_gate.cpu(), part.bond_big.cpu(), part.bond_score.cpu())
        chance = float(part.prediction[0, int(part.target)].exp())
        found.append(_case(title, graph, values, chance))
    return found


def cases_from_bench(
    out: str | Path,
    dataset: str,
    *,
    target: str = "gin",
    explainer: str = "nice",
    mechanism: str | None = None,
    seed: int = 0,
    num: int = 3,
    max_bonds: int = 32,
    positions: Sequence[int] | None = None,
    draw_seed: int = 0,
) -> list[MoleculeCase]:
    """Returns explained test molecules from the stored scores of a benchmark.

    By default molecules are drawn at random, so that nobody has chosen them by how they look:
    correctly classified ones of label 1 with a true and a false bond and at most `max_bonds` bonds.

    Args:
        out: folder of the benchmark.
        mechanism: by default the explainer's own.
        positions: of graphs in the test part, instead of random ones.
    """
    data = load_dataset(dataset)
    mechanism = own_mechanism(explainer) if mechanism is None else mechanism
    wanted = (dataset, target, explainer, mechanism, seed)
    scores = find_scores(out, wanted, data)
    missing = [name for name in ("bond_gate", "bond_big") if name not in scores.extras]
    if missing:
        raise StoreError(f"The stored scores of {explainer!r} have no {' and no '.join(missing)}.")
    rows = _chosen(scores, data.test, num, max_bonds, draw_seed)
    if positions is not None:
        place = {position: row for row, position in enumerate(scores.positions.tolist())}
        unknown = [position for position in positions if position not in place]
        if unknown:
            raise ConfigError(f"`positions` must be explained graphs of {dataset} (got {unknown}).")
        rows = [place[position] for position in positions]
    found = []
    for row in rows:
        some = slice(int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1]))
        position = int(scores.positions[row])
        values = (scores.extras["bond_gate"], scores.extras["bond_big"], scores.bond_score)
        chance = float(scores.prediction[row, int(scores.explained[row])].exp())
        gate, big, score = (value[some] for value in values)
        title = f"{dataset}, test graph {position}"
        found.append(_case(title, data.test[position], (gate, big, score), chance))
    return found


def find_scores(
    out: str | Path, wanted: tuple[str, str, str, str, int], data: MoleculeDataset
) -> Scores:
    """Returns the scores of a cell by name, those of the run that was asked for last."""
    folder = BenchFolder(Path(out))
    names = ("dataset", "target", "explainer", "mechanism", "seed")
    for run in folder.read_runs():  # the newest first
        for asked in run["cells"]:
            rows = folder.rows(asked["rows"])
            if tuple(asked[name] for name in names) != wanted or not rows.is_file():
                continue
            path = folder.scores(describe(read_table(rows))["key"])
            _, description = load_tensors(path, KIND)
            cell = Cell(*wanted, settings={}, identity=description["identity"])
            if cell.identity["data"] != data_key(data):
                raise StoreError(f"{path} was made with other data than {data.name} is now.")
            if cell.identity["part"] != "test":
                continue
            return load_scores(path, cell)
    raise StoreError(
        f"{out} holds no scores of {dict(zip(names, wanted, strict=True))}; run them with "
        "`nicegnn bench`."
    )


def _chosen(
    scores: Scores, test: MoleculeDataset, num: int, max_bonds: int, seed: int
) -> list[int]:
    """Returns rows of random molecules that suit a picture, in rising order."""
    batch = test.batch(scores.positions)
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    true = bonds.sum(batch.edge_truth.float()) > 0  # [M]
    size = torch.bincount(bonds.batch, minlength=scores.num_graphs)
    num_true = torch.bincount(bonds.batch[true], minlength=scores.num_graphs)
    is_correct = scores.prediction.argmax(1) == test.y[scores.positions]
    suits = is_correct & (size <= max_bonds) & (num_true > 0) & (num_true < size)
    known = suits.nonzero().view(-1)
    generator = torch.Generator().manual_seed(mix(seed, "cases"))
    order = torch.randperm(known.numel(), generator=generator)[:num]
    rows: list[int] = known[order].sort().values.tolist()
    return rows


def _case(
    title: str, graph: Data, values: tuple[Tensor, Tensor, Tensor], probability: float
) -> MoleculeCase:
    bonds = find_bonds(graph.edge_index, torch.zeros_like(graph.edge_index[0]))
    order = molecule_order(graph.get("smiles") or "", bonds.index)
    truth = bonds.sum(graph.edge_truth.cpu().float()) > 0
    gate, big, score = (value[order] for value in values)
    return MoleculeCase(title, graph.smiles, truth[order], gate, big, score, probability)


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
