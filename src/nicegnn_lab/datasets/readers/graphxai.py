"""The published benzene and carbonyl files of graph-attribution (also in GraphXAI).

A folder holds ``*_smiles.csv`` (molecules; its ``label`` column is not the target of the carbonyl
sets), ``y_true.npz`` (labels) and ``true_raw_attribution_datadicts.npz`` (masks, pickled). The
truth comes from the rule that reproduces the masks; only ``nicegnn lab data verify`` reads the
masks. No code in the pickle can run: it may use four names only, each replaced by a class of this
file.
"""

from __future__ import annotations

import pickle
import random
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nicegnn.molecule.smiles import MoleculeError, molecule_tables, parse_smiles
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.readers import (
    FileContent,
    Files,
    Record,
    Rejected,
    ordered_map,
    read_table,
)
from nicegnn_lab.datasets.rules import Indices, MoleculeTruth, truth_of, truth_of_atom_sets

_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
# row, SMILES, label, whether it is kept, and true atoms (None: use the rule)
_Molecule = tuple[int, str, int, bool, list[Indices] | None]


def read_published(
    files: Files, task: str, rule: str, *, negatives_per_positive: int | None = None
) -> FileContent:
    """Reads ``smiles`` and ``labels``; the truth is that of ``rule``, or of ``masks`` if given.

    ``negatives_per_positive`` negatives are kept, drawn as in GraphXAI with ``downsample_seed=0``.
    """
    rows, damage = read_table(files["smiles"], ("smiles",))
    labels = read_plain_array(files["labels"], "y").reshape(-1)
    if not damage and len(labels) != len(rows):
        damage.append(
            f"{files['labels']} must hold {len(rows)} labels, one for each row of "
            f"{files['smiles'].name} (got {len(labels)}). Take both files from the same place."
        )
    if not set(labels.tolist()) <= {0, 1}:
        raise DamagedFileError(
            f"{files['labels']} must hold only labels 0 and 1 (got others). Fetch the file again."
        )
    positives, negatives = (np.flatnonzero(labels == label).tolist() for label in (1, 0))
    if negatives_per_positive is not None:
        wanted = min(len(negatives), negatives_per_positive * len(positives))
        negatives = random.Random(0).sample(negatives, wanted)
    kept = {*positives, *negatives}
    masks = published_masks(files["masks"]) if "masks" in files else [None] * len(labels)
    if len(masks) != len(labels):
        damage.append(
            f"{files['masks']} must hold masks for {len(labels)} molecules (got {len(masks)}). "
            "Take all files from the same place."
        )
    molecules = [
        (row, cells["smiles"], int(label), row in kept, mask)
        for row, (cells, label, mask) in enumerate(zip(rows, labels, masks, strict=False))
    ]
    convert = partial(_convert, task=task, rule=rule)
    return FileContent(len(molecules), partial(ordered_map, convert, molecules), damage)


def _convert(molecule: _Molecule, task: str, rule: str) -> Record | Rejected:
    row, smiles, label, is_kept, masks = molecule
    try:
        mol = parse_smiles(smiles)
        atoms, bonds = molecule_tables(mol)
    except MoleculeError as error:
        return Rejected(row, str(error), smiles)
    truth = truth_of(mol, rule) if masks is None else truth_of_atom_sets(label, masks, bonds)
    remark = ""
    if truth.label != label:
        remark = f"published label {label}, but the rule {rule!r} gives {truth.label}"
        truth = MoleculeTruth(label)  # the label has no explanation
    return Record(row, smiles, atoms, bonds, {task: truth}, is_kept=is_kept, remark=remark)


def read_plain_array(path: Path, key: str) -> npt.NDArray[Any]:
    """Returns an array of numbers of an ``.npz`` file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays[key])
    except _UNREADABLE as error:
        raise _damaged(path, key, error) from error


def published_masks(path: Path) -> list[list[Indices]]:
    """Returns the atom sets of each molecule in ``true_raw_attribution_datadicts.npz``."""
    masks: list[list[Indices]] = []
    for entry in read_object_array(path, "datadict_list"):
        item = entry[0] if isinstance(entry, list) else entry
        nodes = item["nodes"] if isinstance(item, dict) else None
        if nodes is None or getattr(nodes, "ndim", 0) != 2:
            raise DamagedFileError(
                f"{path} must hold a mask of atoms by alternatives for molecule {len(masks)} (got "
                f"{type(nodes).__name__}). Check that it is the right file."
            )
        sets = [frozenset(column.nonzero()[0].tolist()) for column in nodes.T]
        masks.append([atoms for atoms in sets if atoms])
    return masks


def read_object_array(path: Path, key: str) -> list[Any]:
    """Returns the items of a pickled object array: arrays, numbers, dictionaries, lists.

    Raises `DamagedFileError` if the file holds anything but plain NumPy arrays.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as file:
            is_first = np.lib.format.read_magic(file) == (1, 0)
            version = "read_array_header_1_0" if is_first else "read_array_header_2_0"
            _, _, dtype = getattr(np.lib.format, version)(file)
            if dtype != np.dtype(object):
                raise ValueError(f"it is an array of {dtype}, not of objects")
            return list(_plain(_InertReader(file).load()))
    except (*_UNREADABLE, pickle.UnpicklingError, AttributeError, TypeError, IndexError) as error:
        raise _damaged(path, key, error) from error


def _damaged(path: Path, key: str, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f"{path} must be an .npz file with the array {key!r} (got {type(error).__name__}: "
        f"{error}). Fetch or copy the file again."
    )


class _DType:
    """Replaces ``numpy.dtype``."""

    def __init__(self, code: str, *_: Any) -> None:
        self.code = code
        self.order = "|"

    def __setstate__(self, state: Sequence[Any]) -> None:
        self.order = state[1]

    def real(self) -> np.dtype[Any]:
        order: Any = self.order if self.order in ("<", ">") else "="
        dtype = np.dtype(self.code).newbyteorder(order)
        if dtype.kind not in "biuf":  # booleans, integers, floats
            raise ValueError(f"it holds the type {self.code!r}, not numbers")
        return dtype


class _Array:
    """Replaces an array; its state is shape, type and bytes, or a list."""

    def __init__(self, *_: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.value = content
        if not isinstance(content, list):
            flat = np.frombuffer(content, dtype=dtype.real())
            self.value = flat.reshape(shape, order="F" if is_fortran else "C")


def _scalar(dtype: _DType, content: bytes) -> Any:
    return np.frombuffer(content, dtype=dtype.real())[0].item()


# ``numpy.ndarray`` appears only as an argument.
_NAMES = {"_reconstruct": _Array, "ndarray": object, "dtype": _DType, "scalar": _scalar}
_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")


class _InertReader(pickle.Unpickler):
    """Allows four names, which only hold data."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in _MODULES or name not in _NAMES:
            raise pickle.UnpicklingError(f"the file uses {module}.{name}, which is not allowed")
        return _NAMES[name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"the file uses an outside object {pid!r}")


def _plain(value: Any) -> Any:
    """Replaces `_Array` objects by their values."""
    if isinstance(value, _Array):
        return _plain(value.value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
