"""From data files to cached tensors, with a report on every row."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.progress import progress_bar
from nicegnn.store import load_tensors, save_tensors
from nicegnn_lab.datasets.data_files import (
    DamagedFileError,
    Downloaded,
    MissingDataError,
    cache_folder,
    data_folder,
    download_file,
    sha256_of,
)
from nicegnn_lab.datasets.molecule_tensors import TensorBuilder, Tensors
from nicegnn_lab.datasets.readers import Rejected
from nicegnn_lab.datasets.registry import DATASETS, FAMILIES, Family, Layout, facts_of
from nicegnn_lab.datasets.splits import twin_groups

#: Part of every cache key: raise it when reading, rules or tensors change.
VERSION = 1
_KIND = "molecule-dataset"

log = logging.getLogger(__name__)


def title_of(layout: Layout) -> str:
    """Returns the name of a layout; it marks a stand-in."""
    return layout.name + (" stand-in" if layout.is_stand_in else "")


@dataclass(frozen=True)
class LoadReport:
    """Rows of a dataset that were read, rejected and left out."""

    layout: str  # form of the files
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file that was read
    num_rows: int = 0  # molecules in the files
    num_graphs: int = 0  # molecules in the dataset
    rejected: Sequence[Rejected] = ()  # rows that could not be read, with the reason
    left_out: Mapping[str, int] = field(default_factory=dict)  # readable, but not used, by reason
    num_twins: int = 0  # graphs equal to an earlier one; see `splits.graph_hashes`
    num_moved: int = 0  # graphs moved to train, because an equal molecule was in another part
    num_parted: int = 0  # graphs that have a twin in another part of a published split
    notes: Sequence[str] = ()  # other remarks

    def __str__(self) -> str:
        left_out = sum(self.left_out.values())
        lines = [
            f"{self.num_rows} rows read ({self.layout}), {self.num_graphs} graphs kept, "
            f"{len(self.rejected)} rejected, {left_out} left out, {self.num_twins} twins"
        ]
        lines += [f"left out: {count} ({reason})" for reason, count in self.left_out.items()]
        lines += [f"rejected row {item.row}: {item.reason}" for item in self.rejected[:10]]
        if len(self.rejected) > 10:
            lines.append(f"... and {len(self.rejected) - 10} more rejected rows")
        if self.num_moved:
            lines.append(f"moved to train: {self.num_moved} (equal molecules in different parts)")
        if self.num_parted:
            lines.append(f"left as published: {self.num_parted} graphs have a twin in another part")
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True)
class Prepared:
    """Tensors of a family, ready to use."""

    tensors: Tensors
    report: LoadReport
    is_stand_in: bool
    path: Path  # the cache file; its name changes with the content of the data files


def download_dataset(
    names: Iterable[str], *, root: str | Path | None = None, force: bool = False
) -> list[Downloaded]:
    """Fetches the published files of datasets; with ``force`` also files that exist.

    Raises:
        DownloadError: If a file cannot be fetched from any address.
        ChecksumError: If a file has another content than expected.
    """
    families = dict.fromkeys(facts_of(name).family for name in names)
    remote = [file for family in families for file in FAMILIES[family].remote]
    return [download_file(file, data_folder(root), force=force) for file in remote]


def find_files(family: Family, root: Path) -> tuple[Layout, dict[str, Path]]:
    """Returns the first complete layout with its files by role, else raises `MissingDataError`."""
    seen = []
    for layout in family.layouts:
        files = {role: root / place for role, place in layout.files.items()}
        if all(path.is_file() for path in files.values()):
            return layout, files
        there = {role: " (there)" if path.is_file() else "" for role, path in files.items()}
        seen.append(f"  {layout.name}: {', '.join(layout.files[r] + there[r] for r in files)}")
    name = next(facts.name for facts in DATASETS.values() if facts.family == family.name)
    if family.layouts[0].recipe:
        raise MissingDataError(
            f"`table` of {name} must be a file that exists (got "
            f"{family.layouts[0].files['table']}). Correct its place in the plugin."
        )
    raise MissingDataError(
        f"{root} must hold one of these sets of files for {family.name}:\n" + "\n".join(seen) + "\n"
        "Set NICEGNN_DATA or pass root= to use another folder."
        + f" `nicegnn lab data download {name}` fetches the published files."
        * bool(family.remote)
    )


def prepare_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    progress: bool = False,
) -> Prepared:
    """Returns the tensors of a dataset's family, from the cache if its files are unchanged.

    Single unreadable rows are left out and reported.

    Raises:
        MissingDataError: If the files are not in the data folder.
        DamagedFileError: If a file is damaged, or no row of it can be used.
    """
    family = FAMILIES[facts_of(name).family]
    layout, files = find_files(family, data_folder(root))
    sums = {path.name: sha256_of(path) for path in files.values()}
    parts = [VERSION, family.name, layout.name, "error", sums]
    parts += [layout.recipe] if layout.recipe else []
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder(cache) / "datasets"
    path = folder / f"{family.name}-{layout.name}-{key}.safetensors"
    tensors, description = _cached(path, family, layout, files, sums, progress)
    rejected = tuple(Rejected(**item) for item in description["report"]["rejected"])
    report = LoadReport(**{**description["report"], "rejected": rejected})
    return Prepared(tensors, report, layout.is_stand_in, path)


def _cached(
    path: Path,
    family: Family,
    layout: Layout,
    files: Mapping[str, Path],
    sums: dict[str, str],
    progress: bool,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the content of a cache file; writes it first if it is missing or damaged."""
    if path.is_file():
        try:
            return load_tensors(path, _KIND)
        except StoreError as error:
            log.warning("%s It is built again.", error)
    tensors, report = _read(family, layout, files, sums, progress)
    description = {"report": asdict(report), "kind": _KIND, "version": VERSION}
    try:
        save_tensors(path, tensors, description)
    except StoreError as error:
        log.warning("%s Set NICEGNN_CACHE to keep prepared data.", error)
    return tensors, description


def _read(
    family: Family, layout: Layout, files: Mapping[str, Path], sums: dict[str, str], progress: bool
) -> tuple[dict[str, Tensor], LoadReport]:
    content = layout.read(files)
    builder = TensorBuilder(family.vocabulary, family.unknown)
    rejected: list[Rejected] = []
    remarks: list[str] = []
    left_out = 0
    with progress_bar(f"preparing {family.name}", content.num_rows, shown=progress) as advance:
        for position, record in enumerate(content.records()):
            if isinstance(record, Rejected):
                rejected.append(record)
            else:
                try:
                    builder.add(record)
                    left_out += not record.is_kept
                except MoleculeError as error:
                    rejected.append(Rejected(record.row, str(error), record.smiles))
                if record.remark:
                    remarks.append(f"row {record.row}: {record.remark}")
            if position % 500 == 0 or position + 1 == content.num_rows:
                advance(position + 1, f"{len(rejected)} rejected")
    if not builder.num_graphs:
        first = rejected[0].reason if rejected else "no rows"
        raise DamagedFileError(
            f"{', '.join(sums)} must hold molecules of {family.name} (got none that can be used: "
            f"{first}). Fetch the files again."
        )
    tensors = builder.finish()
    tensors["twin"] = twin_groups(tensors)
    if rejected:
        log.warning("%s: %d rows rejected; see the dataset's report.", family.name, len(rejected))
    return tensors, LoadReport(
        layout=title_of(layout),
        files=sums,
        num_rows=content.num_rows,
        num_graphs=builder.num_graphs - left_out,
        rejected=tuple(rejected),
        left_out={family.left_out: left_out} if left_out else {},
        notes=(*remarks, *_empty_truths(family, tensors)),
    )


def _empty_truths(family: Family, tensors: Tensors) -> list[str]:
    """Returns a note for each task that has positives without true bonds."""
    notes = []
    for name, facts in DATASETS.items():
        if facts.family == family.name:
            is_empty = (tensors[f"{name}/y"] == 1) & (tensors[f"{name}/first"].diff() == 0)
            number = int((is_empty & tensors["is_kept"]).sum())
            notes += [f"{name}: {number} positives have no true bond."] if number else []
    return notes
