"""TUDataset's Mutagenicity: five text files, in a folder or still in the zip they come in."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nicegnn.datasets.errors import DamagedFileError
from nicegnn.datasets.records import Reading, Record, Rejected
from nicegnn.datasets.toxicophores import toxicophore_matches, toxicophore_truth
from nicegnn.molecule.smiles import ATOMS_MUTAGENICITY

#: Files of the set, without the common beginning ``Mutagenicity_``.
PARTS = ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels")

_Numbers = npt.NDArray[np.int64]


def read_published(files: Mapping[str, Path]) -> Reading:
    """Reads a zip (``files["zip"]``) or the five text files, keyed as in `PARTS`.

    Atoms without a bond are removed, as GraphXAI does; the truth comes from `toxicophores`. A
    graph is kept in the paper's set if it is of class 1 exactly when it has a match.

    Raises:
        DamagedFileError: If a file is missing in the zip, is not numbers, or ends too early.
    """
    if "zip" in files:
        place, text = files["zip"], _unzip(files["zip"])
    else:
        place, text = files["A"].parent, {part: files[part].read_text() for part in PARTS}
    table = {part: _numbers(place, part, content) for part, content in text.items()}
    ends = table["A"].reshape(-1, 2) - 1  # [E, 2], both directions
    graph = table["graph_indicator"] - 1  # [V]
    labels = table["graph_labels"]
    expected = {"node_labels": len(graph), "edge_labels": len(ends), "graph_labels": _last(graph)}
    for part, length in expected.items():
        if len(table[part]) != length:
            raise DamagedFileError(
                f"{place}: expected {length} lines in Mutagenicity_{part}.txt, as the other files "
                f"say, got {len(table[part])}. Fetch or copy the files again."
            )
    if len(ends) and not 0 <= ends.min() <= ends.max() < len(graph):
        raise DamagedFileError(
            f"{place}: expected atom numbers from 1 to {len(graph)} in Mutagenicity_A.txt, got "
            f"{ends.min() + 1} to {ends.max() + 1}. Fetch or copy the files again."
        )
    return Reading(len(labels), partial(_records, ends, graph, labels, table))


def _records(
    ends: _Numbers, graph: _Numbers, labels: _Numbers, table: Mapping[str, _Numbers]
) -> Iterator[Record | Rejected]:
    forward = ends[:, 0] < ends[:, 1]
    pairs, types = ends[forward], table["edge_labels"][forward] + 1
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, types = pairs[order], types[order]
    bond_graph = graph[pairs[:, 0]]
    first_bond = np.searchsorted(bond_graph, np.arange(len(labels) + 1))
    for index, label in enumerate(labels.tolist()):
        mine = slice(first_bond[index], first_bond[index + 1])
        used = np.unique(pairs[mine])  # atoms with a bond, in order
        symbols = table["node_labels"][used].tolist()
        if not all(0 <= symbol < len(ATOMS_MUTAGENICITY) for symbol in symbols):
            yield Rejected(index, f"node labels outside 0 to {len(ATOMS_MUTAGENICITY) - 1}")
            continue
        atoms = [ATOMS_MUTAGENICITY[symbol] for symbol in symbols]
        renumbered = np.searchsorted(used, pairs[mine])
        bonds = [(u, v, t) for (u, v), t in zip(renumbered.tolist(), types[mine].tolist())]  # noqa: B905
        matches = [match for _, match in toxicophore_matches(atoms, bonds)]
        truth = toxicophore_truth(label, matches, bonds)
        is_kept = (label == 1) == bool(matches)
        yield Record(index, "", atoms, bonds, {"mutagenicity": truth}, is_kept=is_kept)


def _unzip(path: Path) -> dict[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}
            missing = [p for p in PARTS if f"Mutagenicity_{p}.txt" not in names]
            if missing:
                raise DamagedFileError(
                    f"{path}: expected Mutagenicity_{missing[0]}.txt inside, got "
                    f"{', '.join(sorted(names)) or 'nothing'}. Fetch or copy the file again."
                )
            return {p: archive.read(names[f"Mutagenicity_{p}.txt"]).decode() for p in PARTS}
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            f"{path}: expected a zip file of text files, but it cannot be read "
            f"({type(error).__name__}: {error}). Fetch or copy it again."
        ) from error


def _numbers(place: Path, part: str, content: str) -> _Numbers:
    try:
        values = np.array(content.replace(",", " ").split(), dtype=np.int64)
    except ValueError as error:
        raise DamagedFileError(
            f"{place}: expected whole numbers in Mutagenicity_{part}.txt, got others ({error}). "
            "Fetch or copy the file again."
        ) from error
    if part == "A" and len(values) % 2:
        raise DamagedFileError(
            f"{place}: expected two numbers in each line of Mutagenicity_A.txt, got an odd number "
            "of them. Fetch or copy the file again."
        )
    return values


def _last(graph: _Numbers) -> int:
    return int(graph.max()) + 1 if len(graph) else 0
