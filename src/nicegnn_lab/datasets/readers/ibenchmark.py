"""The tidy table of ibenchmark: real molecules with a known contribution of every atom.

Matveieva and Polishchuk, "Benchmarks for interpretation of QSAR models", J. Cheminformatics 13, 41
(2021). Its tasks are no `DATASETS`: their truth is one of -1, 0, 1 per atom, and some of them have
values instead of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.molecule.featurizers import Elements
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.seeding import mix
from nicegnn_lab.datasets.data_files import DamagedFileError, MissingDataError, data_folder
from nicegnn_lab.datasets.readers import Cells, read_table
from nicegnn_lab.datasets.rules import groups_rule

FILE_NAME = "ibenchmark.csv.gz"
#: Published tasks that are read, and whether each has labels; the others have values.
TASKS = {"amide_class": True, "pharmacophore": True, "N": False, "N_minus_O": False, "amide": False}
_COLUMNS = ("task", "part", "smiles", "activity", "atom_truth")


def table_path(root: str | Path | None = None) -> Path:
    """Returns the path of the table; raises `MissingDataError` if it is not there."""
    path = data_folder(root) / FILE_NAME
    if not path.is_file():
        raise MissingDataError(
            f"{path} must be the tidy table of ci-lab-cz/ibenchmark, with the columns "
            f"{', '.join(_COLUMNS)} (got no such file). Place it there, or set NICEGNN_DATA to "
            "its folder."
        )
    return path


def published_graphs(task: str, root: str | Path | None = None) -> dict[str, list[Data]]:
    """Returns the graphs of the published ``train`` and ``test`` part of a task of `TASKS`.

    A graph has ``y``, its label or value; ``node_truth``, the sign of each atom's contribution; and
    ``edge_truth``, the bonds between two atoms that contribute positively.
    """
    check_choice("task", task, TASKS)
    parts: dict[str, list[Data]] = {"train": [], "test": []}
    for row in _rows(root):
        if row["task"] == task:
            value = float(row["activity"])
            truth = [int(word) for word in row["atom_truth"].split()]
            label = int(value) if TASKS[task] else value
            parts[row["part"]].append(_graph(row["smiles"], label, truth))
    return parts


def graphs_with_pattern(
    smarts: str, most: int, seed: int, root: str | Path | None = None
) -> list[Data]:
    """Returns at most `most` molecules that match a pattern and as many that do not, shuffled.

    They are drawn by the seed from all distinct molecules of the table; label 1 is a match, true
    are the atoms of all matches and the bonds between two of them.
    """
    rule = groups_rule(smarts)
    generator = torch.Generator().manual_seed(mix(seed, "ibenchmark", smarts))
    distinct = sorted({row["smiles"] for row in _rows(root)})
    found: dict[int, list[tuple[str, frozenset[int]]]] = {0: [], 1: []}
    for number in torch.randperm(len(distinct), generator=generator).tolist():
        truth = rule(parse_smiles(distinct[number]))
        found[truth.label].append((distinct[number], truth.atoms))
    num = min(most, len(found[0]), len(found[1]))
    drawn = [(label, *one) for label, some in found.items() for one in some[:num]]
    order = torch.randperm(len(drawn), generator=generator).tolist()
    return [_matched_graph(*drawn[number]) for number in order]


def _matched_graph(label: int, smiles: str, atoms: frozenset[int]) -> Data:
    num = parse_smiles(smiles).GetNumAtoms()
    return _graph(smiles, label, [int(atom in atoms) for atom in range(num)])


def _graph(smiles: str, label: float, truth: Sequence[int]) -> Data:
    graph = Elements()(smiles)
    if len(truth) != graph.num_nodes:
        raise DamagedFileError(
            f"{FILE_NAME} must hold one truth per atom (got {len(truth)} for {graph.num_nodes} "
            f"atoms of {smiles}). Copy the file again."
        )
    graph.y = torch.tensor([label])
    graph.node_truth = torch.tensor(truth)  # [V]
    graph.edge_truth = (graph.node_truth == 1)[graph.edge_index].all(0)  # [E]
    return graph


def _rows(root: str | Path | None) -> list[Cells]:
    rows, damage = read_table(table_path(root), _COLUMNS)
    if damage:
        raise DamagedFileError(damage[0])
    return rows
