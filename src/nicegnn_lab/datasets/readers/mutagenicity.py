"""TUDataset's Mutagenicity: five text files in a zip."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nicegnn.molecule.smiles import ATOMS_MUTAGENICITY
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.readers import FileContent, Files, Record, Rejected
from nicegnn_lab.datasets.rules import toxicophore_matches, toxicophore_truth

#: Files of the set, by role.
FILE_NAMES = {
    role: f"Mutagenicity_{role}.txt"
    for role in ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels")
}

_Numbers = npt.NDArray[np.int64]


def read_published(files: Files) -> FileContent:
    """Reads the five text files of a zip, by role as in `FILE_NAMES`.

    Atoms without a bond are removed, as in GraphXAI. The paper's set keeps graphs of class 1 with
    a toxicophore and of class 0 without.
    """
    place = files["zip"]
    table = {role: _numbers(place, role, content) for role, content in _unzip(place).items()}
    ends = table["A"].reshape(-1, 2) - 1  # [E, 2], both directions
    graph = table["graph_indicator"] - 1  # [V]
    num_graphs = int(graph.max()) + 1 if len(graph) else 0
    expected = {"node_labels": len(graph), "edge_labels": len(ends), "graph_labels": num_graphs}
    for role, length in expected.items():
        if len(table[role]) != length:
            wanted = f"have {length} lines in {FILE_NAMES[role]}, to fit its other files"
            raise _damaged(place, wanted, len(table[role]))
    if len(ends) and not 0 <= ends.min() <= ends.max() < len(graph):
        wanted = f"have atom numbers from 1 to {len(graph)} in {FILE_NAMES['A']}"
        raise _damaged(place, wanted, f"{ends.min() + 1} to {ends.max() + 1}")
    return FileContent(num_graphs, partial(_records, ends, graph, table))


def _records(
    ends: _Numbers, graph: _Numbers, table: dict[str, _Numbers]
) -> Iterator[Record | Rejected]:
    forward = ends[:, 0] < ends[:, 1]
    pairs, types = ends[forward], table["edge_labels"][forward] + 1
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, types = pairs[order], types[order]
    labels = table["graph_labels"].tolist()
    first_bond = np.searchsorted(graph[pairs[:, 0]], np.arange(len(labels) + 1))
    for index, label in enumerate(labels):
        mine = slice(first_bond[index], first_bond[index + 1])
        used = np.unique(pairs[mine])  # atoms with a bond, in order
        symbols = table["node_labels"][used].tolist()
        if not all(0 <= symbol < len(ATOMS_MUTAGENICITY) for symbol in symbols):
            reason = f"node labels must lie between 0 and {len(ATOMS_MUTAGENICITY) - 1}"
            yield Rejected(index, f"{reason} (got {max(symbols, key=abs)})")
            continue
        atoms = [ATOMS_MUTAGENICITY[symbol] for symbol in symbols]
        renumbered = np.searchsorted(used, pairs[mine]).tolist()
        bonds = [(u, v, t) for (u, v), t in zip(renumbered, types[mine].tolist(), strict=True)]
        matches = [match for _, match in toxicophore_matches(atoms, bonds)]
        truth = toxicophore_truth(label, matches, bonds)
        is_kept = (label == 1) == bool(matches)
        yield Record(index, "", atoms, bonds, {"mutagenicity": truth}, is_kept=is_kept)


def _unzip(path: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
            missing = [name for name in FILE_NAMES.values() if name not in inside]
            if missing:
                raise _damaged(path, f"hold {missing[0]}", ", ".join(sorted(inside)) or "nothing")
            return {role: archive.read(inside[n]).decode() for role, n in FILE_NAMES.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise _damaged(path, "be a zip of text files", reason) from error


def _numbers(place: Path, role: str, content: str) -> _Numbers:
    try:
        values = np.array(content.replace(",", " ").split(), dtype=np.int64)
    except ValueError as error:
        raise _damaged(place, f"have whole numbers in {FILE_NAMES[role]}", error) from error
    if role == "A" and len(values) % 2:
        wanted = f"have two numbers in each line of {FILE_NAMES[role]}"
        raise _damaged(place, wanted, "an odd number of them in all")
    return values


def _damaged(place: Path, wanted: str, got: object) -> DamagedFileError:
    return DamagedFileError(f"{place} must {wanted} (got {got}). Fetch or copy the files again.")
