"""Molecules whose atoms have known contributions: counted groups, logP, and activity cliffs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.seeding import mix
from nicegnn_lab.datasets.data_files import MissingDataError, data_folder
from nicegnn_lab.datasets.readers import Cells, read_table, shuffled
from nicegnn_lab.datasets.table_molecules import TableMolecules, table_molecules

#: Tasks of Matveieva and Polishchuk (2021); those of classes are named apart.
IBENCHMARK = ("N", "N_minus_O", "N_O", "amide", "amide_class", "pharmacophore")
CLASSES = ("amide_class", "pharmacophore")
#: Targets with activity cliffs.
CLIFFS = (
    *("CHEMBL1862_Ki", "CHEMBL1871_Ki", "CHEMBL2034_Ki", "CHEMBL2047_EC50", "CHEMBL204_Ki"),
    *("CHEMBL2147_Ki", "CHEMBL214_Ki", "CHEMBL218_EC50", "CHEMBL219_Ki", "CHEMBL228_Ki"),
    *("CHEMBL231_Ki", "CHEMBL233_Ki", "CHEMBL234_Ki", "CHEMBL235_EC50", "CHEMBL236_Ki"),
    *("CHEMBL237_EC50", "CHEMBL237_Ki", "CHEMBL238_Ki", "CHEMBL239_EC50", "CHEMBL244_Ki"),
    *("CHEMBL262_Ki", "CHEMBL264_Ki", "CHEMBL2835_Ki", "CHEMBL287_Ki", "CHEMBL2971_Ki"),
    *("CHEMBL3979_EC50", "CHEMBL4005_Ki", "CHEMBL4203_Ki", "CHEMBL4616_EC50", "CHEMBL4792_Ki"),
)
#: All tasks, and the files that each reads.
FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(IBENCHMARK, ("ibenchmark.csv.gz",)),
    "crippen": ("crippen.csv.gz",),
    **dict.fromkeys(CLIFFS, ("activity_cliffs_molecules.csv.gz", "activity_cliffs_pairs.csv.gz")),
}
#: Molecules of a part that are read at most, drawn by the seed.
MOST: Mapping[str, int] = {"test": 1000}


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


def atom_molecules(
    task: str, seed: int, root: str | Path | None = None, most: Mapping[str, int] = MOST
) -> AtomMolecules:
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
        return _cliffs(task, seed, folder, most)
    return (_crippen if task == "crippen" else _ibenchmark)(task, seed, folder, most)


def _ibenchmark(task: str, seed: int, folder: Path, most: Mapping[str, int]) -> AtomMolecules:
    name = FILES[task][0]
    rows = [(place, row) for place, row in enumerate(_rows(folder, name)) if row["task"] == task]
    kind = torch.long if task in CLASSES else torch.float
    molecules = table_molecules(folder / name, FEATURIZERS["elements"], "elements")

    def graph(place: int, row: Cells) -> Data:
        made = molecules.graph(place)
        made.y = torch.tensor([float(row["activity"])]).to(kind)
        made.atom_truth = torch.tensor([float(value) for value in row["atom_truth"].split()])
        return made

    return _published(task, rows, molecules, graph, seed, most)


def _crippen(task: str, seed: int, folder: Path, most: Mapping[str, int]) -> AtomMolecules:
    """Hydrogens are atoms, as in the published graphs: they contribute too."""
    name = FILES[task][0]
    molecules = table_molecules(folder / name, _with_logp, "logp")

    def graph(place: int, row: Cells) -> Data:
        made = molecules.graph(place)
        made.y, made.atom_truth = torch.tensor([float(row["logp"])]), made.value
        del made.value
        return made

    return _published(task, [*enumerate(_rows(folder, name))], molecules, graph, seed, most)


def _with_logp(smiles: str) -> Data:
    """Returns a molecule with its hydrogens, and what each atom adds to logP as ``value``."""
    from rdkit.Chem import rdMolDescriptors

    chem = require_rdkit()
    mol = chem.AddHs(parse_smiles(smiles))
    written = chem.MolToSmiles(mol)
    order = list(mol.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    graph = rich(chem.RenumberAtoms(mol, order)).update({"smiles": written})
    value = torch.tensor([logp for logp, _ in rdMolDescriptors._CalcCrippenContribs(mol)])
    graph.value = value[order]
    return graph


def _published(
    task: str,
    rows: Sequence[tuple[int, Cells]],
    molecules: TableMolecules,
    graph: Callable[[int, Cells], Data],
    seed: int,
    most: Mapping[str, int],
) -> AtomMolecules:
    """Keeps the published parts; training molecules that the test part has too are left out."""
    order = shuffled(len(rows), mix(seed, "atoms", task))
    by_part: dict[str, list[tuple[int, Cells]]] = {"train": [], "test": []}
    for part, own in by_part.items():
        given = [rows[number] for number in order if rows[number][1]["part"] == part]
        own.extend(given[: most.get(part)])
    seen = {molecules.same(place) for place, _ in by_part["test"]}
    train: list[Data] = []
    for place, row in by_part["train"]:
        if (key := molecules.same(place)) not in seen:
            seen.add(key)
            train.append(graph(place, row))
    test, tenth = [graph(*one) for one in by_part["test"]], len(train) // 10
    return AtomMolecules(train[tenth:], train[:tenth], test)


def _cliffs(task: str, seed: int, folder: Path, most: Mapping[str, int]) -> AtomMolecules:
    """A fifth of the molecules, all of them in pairs, is the test part, and a tenth validation."""
    table, of_pairs = FILES[task]
    molecules = table_molecules(folder / table, FEATURIZERS["rich"], "rich")
    pairs = [row for row in _rows(folder, of_pairs) if row["target"] == task]
    graphs: dict[int, Data] = {}
    first: dict[int, int] = {}
    same = []
    for line, row in enumerate(_rows(folder, table)):
        if row["target"] == task and molecules.same(line) >= 0:
            number = int(row["row"])
            graphs[number] = made = molecules.graph(line)
            made.y = torch.tensor([float(row["y"])])
            same.append((first.setdefault(molecules.same(line), number), number))
    ends = [(int(row["row_i"]), int(row["row_j"])) for row in pairs]
    known = [k for k, (i, j) in enumerate(ends) if i in graphs and j in graphs]
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
    train = train[: most.get("train")]
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
