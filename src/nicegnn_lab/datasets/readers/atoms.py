"""Molecules whose atoms have known contributions: counted groups, logP, and activity cliffs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.molecule.featurizers import FEATURIZERS, rich
from nicegnn.molecule.smiles import MoleculeError, parse_smiles, require_rdkit
from nicegnn.seeding import mix
from nicegnn_lab.datasets.data_files import MissingDataError, data_folder
from nicegnn_lab.datasets.readers import Cells, read_table, shuffled

#: Tasks of Matveieva and Polishchuk (2021); those of classes are named apart.
IBENCHMARK = ("N", "N_minus_O", "N_O", "amide", "amide_class", "pharmacophore")
CLASSES = ("amide_class", "pharmacophore")
#: Five of the thirty targets with activity cliffs, of 1,300 to 1,700 molecules.
CLIFFS = ("CHEMBL287_Ki", "CHEMBL2147_Ki", "CHEMBL4792_Ki", "CHEMBL228_Ki", "CHEMBL239_EC50")
#: All tasks, and the files that each reads.
FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(IBENCHMARK, ("ibenchmark.csv.gz",)),
    "crippen": ("crippen.csv.gz",),
    **dict.fromkeys(CLIFFS, ("activity_cliffs_molecules.csv.gz", "activity_cliffs_pairs.csv.gz")),
}
#: Molecules of each part that are read at most, drawn by the seed.
MOST = {"train": 1000, "test": 300}


@dataclass(frozen=True)
class Pair:
    """Two similar molecules of the test part, and what differs between them."""

    place: tuple[int, int]  # of both in the test part
    atoms: tuple[Tensor, Tensor]  # atoms of each that the other does not have
    difference: float  # measured value of the first minus that of the second


@dataclass(frozen=True)
class AtomMolecules:
    """Graphs with ``y`` and ``atom_truth``, ``[V]``, in parts without common molecules."""

    train: list[Data]
    valid: list[Data]
    test: list[Data]
    pairs: tuple[Pair, ...] = ()  # of activity cliffs, whose truth is in pairs alone


def atom_molecules(task: str, seed: int, root: str | Path | None = None) -> AtomMolecules:
    """Returns the molecules of a task of `FILES`.

    Published parts are kept, and a tenth of the training part is drawn for validation. Activity
    cliffs have no published parts: groups of molecules that pairs join are drawn whole.
    """
    check_choice("dataset", task, FILES)
    folder = data_folder(root)
    for name in FILES[task]:
        if not (folder / name).is_file():
            raise MissingDataError(
                f"{folder / name} must be a table of molecules (got no such file). Place it "
                "there, or set NICEGNN_DATA to its folder."
            )
    if task in CLIFFS:
        return _cliffs(task, seed, folder)
    return _crippen(seed, folder) if task == "crippen" else _ibenchmark(task, seed, folder)


def plain_smiles(smiles: str) -> str:
    """Returns the canonical SMILES without stereo: what no featuriser can tell apart."""
    return str(require_rdkit().MolToSmiles(parse_smiles(smiles), isomericSmiles=False))


def _ibenchmark(task: str, seed: int, folder: Path) -> AtomMolecules:
    rows = [row for row in _rows(folder, *FILES[task]) if row["task"] == task]
    kind = torch.long if task in CLASSES else torch.float

    def graph(row: Cells) -> Data:
        made = FEATURIZERS["elements"](row["smiles"])
        made.y = torch.tensor([float(row["activity"])]).to(kind)
        made.atom_truth = torch.tensor([float(value) for value in row["atom_truth"].split()])
        return made

    return _published(task, rows, graph, seed)


def _crippen(seed: int, folder: Path) -> AtomMolecules:
    """Hydrogens are atoms, as in the published graphs: they contribute too."""
    from rdkit.Chem import rdMolDescriptors

    def graph(row: Cells) -> Data:
        chem = require_rdkit()
        mol = chem.AddHs(parse_smiles(row["smiles"]))
        smiles = chem.MolToSmiles(mol)
        order = list(mol.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
        made = rich(chem.RenumberAtoms(mol, order)).update({"smiles": smiles})
        value = torch.tensor([logp for logp, _ in rdMolDescriptors._CalcCrippenContribs(mol)])
        made.y, made.atom_truth = torch.tensor([float(row["logp"])]), value[order]
        return made

    return _published("crippen", list(_rows(folder, *FILES["crippen"])), graph, seed)


def _published(
    task: str, rows: Sequence[Cells], graph: Callable[[Cells], Data], seed: int
) -> AtomMolecules:
    """Keeps the published parts; training molecules that the test part has too are left out."""
    order = shuffled(len(rows), mix(seed, "atoms", task))
    by_part: dict[str, list[Cells]] = {"train": [], "test": []}
    for part, own in by_part.items():
        given = [rows[place] for place in order if rows[place]["part"] == part]
        own.extend(given[: MOST[part]])
    seen = {plain_smiles(row["smiles"]) for row in by_part["test"]}
    train: list[Data] = []
    for row in by_part["train"]:
        if (key := plain_smiles(row["smiles"])) not in seen:
            seen.add(key)
            train.append(graph(row))
    test, tenth = [graph(row) for row in by_part["test"]], len(train) // 10
    return AtomMolecules(train[tenth:], train[:tenth], test)


def _cliffs(task: str, seed: int, folder: Path) -> AtomMolecules:
    """A fifth of the molecules, all of them in pairs, is the test part, and a tenth validation."""
    molecules, pairs = (
        [row for row in _rows(folder, name) if row["target"] == task] for name in FILES[task]
    )
    graphs: dict[int, Data] = {}
    for row in molecules:
        try:
            graphs[int(row["row"])] = made = FEATURIZERS["rich"](row["smiles"])
        except MoleculeError:
            continue
        made.y = torch.tensor([float(row["y"])])
    ends = [(int(row["row_i"]), int(row["row_j"])) for row in pairs]
    known = [k for k, (i, j) in enumerate(ends) if i in graphs and j in graphs]
    first: dict[str, int] = {}
    same = [(first.setdefault(plain_smiles(graph.smiles), n), n) for n, graph in graphs.items()]
    groups = joined(graphs, [*(ends[k] for k in known), *same])
    paired = {n for k in known for n in ends[k]}
    order = [groups[place] for place in shuffled(len(groups), mix(seed, "atoms", task))]
    train: list[int] = []
    valid: list[int] = []
    test: list[int] = []
    for group in order:
        if paired.issuperset(group) and len(test) + len(group) <= len(graphs) // 5:
            test.extend(group)
        else:
            is_open = len(valid) + len(group) <= len(graphs) // 10
            (valid if is_open else train).extend(group)
    train = train[: MOST["train"]]
    place = {n: k for k, n in enumerate(test)}
    found = []
    for k in known:
        i, j = ends[k]
        if i in place:
            atoms = (_numbers(pairs[k]["atoms_i"]), _numbers(pairs[k]["atoms_j"]))
            difference = float(pairs[k]["y_i_minus_y_j"])
            found.append(Pair((place[i], place[j]), atoms, difference))
    own = {"train": train, "valid": valid, "test": test}
    parts = {part: [graphs[n] for n in some] for part, some in own.items()}
    return AtomMolecules(**parts, pairs=tuple(found))


def joined(items: Iterable[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Returns the groups of items that links join, in the order of their first items."""
    every = list(items)
    place = {item: number for number, item in enumerate(every)}
    u, v = [place[one] for one, _ in links], [place[other] for _, other in links]
    graph = coo_matrix(([1] * len(u), (u, v)), (len(every), len(every)))
    number, home = connected_components(graph, directed=False)
    groups: list[list[int]] = [[] for _ in range(number)]
    for item, group in zip(every, home.tolist(), strict=True):
        groups[group].append(item)
    return groups


def _numbers(text: str) -> Tensor:
    return torch.tensor([int(number) for number in text.split()], dtype=torch.long)


@cache
def _rows(folder: Path, name: str) -> tuple[Cells, ...]:
    columns = {
        "ibenchmark.csv.gz": ("task", "part", "smiles", "activity", "atom_truth"),
        "crippen.csv.gz": ("smiles", "logp", "part"),
        "activity_cliffs_molecules.csv.gz": ("target", "row", "smiles", "y"),
        "activity_cliffs_pairs.csv.gz": (
            *("target", "row_i", "row_j", "atoms_i", "atoms_j", "y_i_minus_y_j"),
        ),
    }
    return tuple(read_table(folder / name, columns[name]))
