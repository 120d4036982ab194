"""From data files to cached tensors."""

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.store import load_tensors, save_tensors
from nicegnn_lab.datasets import data_files
from nicegnn_lab.datasets.molecule_tensors import TensorBuilder, Tensors
from nicegnn_lab.datasets.registry import FAMILIES, Family, facts_of
from nicegnn_lab.datasets.splits import twin_groups

#: Part of every cache key: raise it when reading, rules or tensors change.
VERSION = 1
_KIND = "molecule-dataset"
_SHOWN = 5  # rows that do not fit in one message

log = logging.getLogger(__name__)


def prepare_dataset(
    name: str, root: str | Path | None = None, cache: str | Path | None = None
) -> tuple[Tensors, dict[str, str]]:
    """Returns the tensors of a dataset's family, and the SHA-256 of each of its files.

    Tensors come from the cache if the files are unchanged: its name changes with their content.
    """
    family = FAMILIES[facts_of(name).family]
    files = {role: data_files.data_file(name, root) for role, name in family.files.items()}
    sums = {path.name: data_files.sha256_of(path) for path in files.values()}
    parts = [VERSION, family.name, family.form, "error", sums, *filter(None, [family.recipe])]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    file = f"{family.name}-{family.form}-{key}.safetensors"
    path = data_files.cache_folder(cache) / "datasets" / file
    if path.is_file():
        try:
            return load_tensors(path, _KIND)[0], sums
        except StoreError as error:
            log.warning("%s It is built again.", error)
    tensors = _read(family, files)
    try:
        save_tensors(path, tensors, {"kind": _KIND})
    except StoreError as error:
        log.warning("%s Set NICEGNN_CACHE to keep prepared data.", error)
    return tensors, sums


def _read(family: Family, files: Mapping[str, Path]) -> dict[str, Tensor]:
    """Returns the tensors of all rows; rows that do not fit are an error."""
    rows, convert = family.read(files)
    builder, misfits = TensorBuilder(family.vocabulary), []
    for number, row in enumerate(rows):
        try:
            builder.add(convert(number, row))
        except (ValueError, KeyError, TypeError) as error:
            said = error if isinstance(error, ValueError) else f"{type(error).__name__} {error}"
            misfits.append(f"line {number + 2} ({row.get('smiles', '')}): {said}")
    if misfits or not rows:
        more = [f"{len(misfits) - _SHOWN} more"] if len(misfits) > _SHOWN else []
        listed = "; ".join([*misfits[:_SHOWN], *more])
        raise data_files.DamagedFileError(
            f"{next(iter(files.values()))} must hold molecules with labels and truths that fit "
            f"them (got {len(misfits)} of {len(rows)} rows that do not: {listed}). Correct these "
            "rows, or fetch the file again."
        )
    tensors = builder.finish()
    return {**tensors, "twin": twin_groups(tensors)}
