"""From data files to tensors: read once, cache by content, report every row."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from nicegnn.datasets.errors import DamagedFileError
from nicegnn.datasets.files import Found, find_files
from nicegnn.datasets.folders import cache_folder, data_folder, sha256_of
from nicegnn.datasets.records import LoadReport, Record, Rejected
from nicegnn.datasets.registry import DATASETS, FAMILIES, Family, facts_of
from nicegnn.datasets.sources import checksum_note
from nicegnn.datasets.tensors import TensorBuilder, Tensors
from nicegnn.datasets.twins import twin_groups
from nicegnn.errors import ConfigError, StoreError
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.progress import progress_bar
from nicegnn.store import load_tensors, save_tensors

OnDamage = Literal["error", "keep"]

#: Part of every cache key: raise it when reading, rules or tensors change.
VERSION = 1
_KIND = "molecule-dataset"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """Tensors of a family, ready to use."""

    tensors: Tensors
    report: LoadReport
    is_stand_in: bool
    key: str  # changes with the content of the files
    path: Path  # the cache file


def prepare_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    layout: str | None = None,
    on_damage: OnDamage = "error",
    rebuild: bool = False,
    progress: bool = False,
) -> Prepared:
    """Returns the tensors of a dataset's family, from the cache if its files are unchanged.

    Args:
        on_damage: what to do with a file that ends too early: ``"error"``, or ``"keep"`` to use
            the rows before the damage. Single rows that cannot be read are always left out and
            reported.
        rebuild: read the files even if the cache is fresh.

    Raises:
        MissingDataError: If the files are not in the data folder.
        DamagedFileError: If a file is damaged, or no row of it can be used.
    """
    if on_damage not in ("error", "keep"):
        raise ConfigError(f"on_damage: expected 'error' or 'keep', got {on_damage!r}.")
    family = FAMILIES[facts_of(name).family]
    found = find_files(family, data_folder(root), layout)
    sums = {path.name: sha256_of(path) for path in found.files.values()}
    key = _digest(VERSION, family.name, found.layout.name, on_damage, sums)
    file_name = f"{family.name}-{found.layout.name}-{key}.safetensors"
    path = cache_folder(cache) / "datasets" / file_name

    def build() -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, report = _read(family, found, sums, on_damage, progress)
        return tensors, {"report": report.to_json()}

    tensors, description = cached(path, build, rebuild=rebuild)
    report = LoadReport.from_json(description["report"])
    return Prepared(tensors, report, found.layout.is_stand_in, key, path)


def cached(
    path: Path,
    build: Callable[[], tuple[dict[str, Tensor], dict[str, Any]]],
    *,
    rebuild: bool = False,
) -> tuple[Tensors, dict[str, Any]]:
    """Returns the content of a cache file; writes it first if it is missing or damaged."""
    if path.is_file() and not rebuild:
        try:
            return load_tensors(path, _KIND)
        except StoreError as error:
            log.warning("%s Building it anew.", error)
    tensors, description = build()
    try:
        save_tensors(path, tensors, {**description, "kind": _KIND, "version": VERSION})
    except OSError as error:
        log.warning(
            "%s cannot be written (%s); set NICEGNN_CACHE to keep prepared data.", path, error
        )
    return tensors, description


def _read(
    family: Family, found: Found, sums: dict[str, str], on_damage: OnDamage, progress: bool
) -> tuple[dict[str, Tensor], LoadReport]:
    reading = found.layout.read(found.files)
    if reading.damage and on_damage == "error":
        raise DamagedFileError(
            " ".join(reading.damage) + f" To use the {reading.total} rows before the damage, pass "
            "on_damage='keep' (--keep-damaged)."
        )
    builder = TensorBuilder(family.vocabulary, family.unknown)
    rejected: list[Rejected] = []
    remarks: list[str] = []
    left_out = 0
    records = reading.records()  # before the bar, whose thread would keep processes from forking
    with progress_bar(f"preparing {family.name}", reading.total, shown=progress) as advance:
        for position, record in enumerate(records):
            if isinstance(record, Record):
                rejection = _add(builder, record)
                left_out += rejection is None and not record.is_kept
                if record.remark:
                    remarks.append(f"row {record.row}: {record.remark}")
            else:
                rejection = record
            if rejection is not None:
                rejected.append(rejection)
            if position % 500 == 0 or position + 1 == reading.total:
                advance(position + 1, f"{len(rejected)} rejected")
    if not builder.num_graphs:
        first = rejected[0].reason if rejected else "they hold no rows"
        raise DamagedFileError(
            f"{family.name}: expected molecules in {', '.join(sums)}, but none can be used "
            f"({first}). Fetch or copy the files again."
        )
    tensors = builder.finish()
    tensors["twin"] = twin_groups(tensors)
    if rejected:
        log.warning("%s: %d rows rejected; see the dataset's report.", family.name, len(rejected))
    notes = [*reading.damage, *remarks, *_empty_truths(family, tensors)]
    notes += [note for file, value in sums.items() if (note := checksum_note(file, value))]
    return tensors, LoadReport(
        layout=found.layout.name + (" stand-in" if found.layout.is_stand_in else ""),
        files=sums,
        num_rows=reading.total,
        num_graphs=builder.num_graphs - left_out,
        rejected=tuple(rejected),
        left_out={family.left_out: left_out} if left_out else {},
        notes=tuple(notes),
    )


def _add(builder: TensorBuilder, record: Record) -> Rejected | None:
    try:
        builder.add(record)
    except MoleculeError as error:
        return Rejected(record.row, str(error), record.smiles)
    return None


def _empty_truths(family: Family, tensors: Tensors) -> list[str]:
    """Positives that nothing explains, by task."""
    notes = []
    for facts in DATASETS.values():
        if facts.family != family.name or not facts.has_bond_truth:
            continue
        y, first = tensors[f"{facts.name}/y"], tensors[f"{facts.name}/first"]
        is_empty = (y == 1) & (first.diff() == 0) & tensors["is_kept"]
        if is_empty.any():
            notes.append(f"{facts.name}: {int(is_empty.sum())} positives have no true bond.")
    return notes


def _digest(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
