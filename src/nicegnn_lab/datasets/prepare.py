"""From data files to cached tensors, with a report on every row."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.molecule.splits import scaffold_of
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
from nicegnn_lab.datasets.molecule_tensors import TensorBuilder, Tensors, smiles_at
from nicegnn_lab.datasets.readers import Rejected, ordered_map
from nicegnn_lab.datasets.registry import (
    DATASETS,
    FAMILIES,
    Family,
    Layout,
    facts_of,
    known_checksums,
)
from nicegnn_lab.datasets.splits import twin_groups

OnDamage = Literal["error", "keep"]
Content = tuple[dict[str, Tensor], dict[str, Any]]  # of a cache file

#: Part of every cache key: raise it when reading, rules or tensors change.
VERSION = 1
_KIND = "molecule-dataset"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundFiles:
    """A layout whose files all exist."""

    layout: Layout
    files: Mapping[str, Path]  # for the reader
    masks: Path | None  # only for ``nicegnn lab data verify``

    @property
    def title(self) -> str:
        """Name of the layout; it marks a stand-in."""
        return self.layout.name + (" stand-in" if self.layout.is_stand_in else "")


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

    def scaffold_groups(self) -> Tensor:
        """Returns the scaffold number of each graph, ``[N]``, from a cache file if there is one."""

        def build() -> Content:
            number: dict[str, int] = {}
            texts = [smiles_at(self.tensors, row) for row in range(len(self.tensors["row"]))]
            groups = [number.setdefault(s, len(number)) for s in ordered_map(scaffold_of, texts)]
            return {"scaffold": torch.tensor(groups)}, {}

        path = self.path.with_name(f"{self.path.stem}-scaffolds.safetensors")
        return _cached(path, build)[0]["scaffold"]


def download_dataset(
    name: str, *, root: str | Path | None = None, force: bool = False, progress: bool = False
) -> list[Downloaded]:
    """Fetches the published files of a dataset; with ``force`` also files that exist.

    Raises:
        DownloadError: If a file cannot be fetched from any address.
        ChecksumError: If a file has another content than expected.
    """
    remote, folder = FAMILIES[facts_of(name).family].remote, data_folder(root)
    return [download_file(file, folder, force=force, progress=progress) for file in remote]


def find_files(family: Family, root: Path, layout: str | None = None) -> FoundFiles:
    """Returns the first complete layout, or the named one; else raises `MissingDataError`."""
    if layout is not None:
        check_choice("layout", layout, (item.name for item in family.layouts))
    seen = []
    for item in family.layouts:
        for candidate in item.candidates if layout in (None, item.name) else ():
            files = {role: root / place for role, place in candidate.items()}
            masks = files.pop("masks", None)
            if all(path.is_file() for path in files.values()):
                return FoundFiles(item, files, masks if masks and masks.is_file() else None)
            there = {role: " (there)" if path.is_file() else "" for role, path in files.items()}
            seen.append(f"  {item.name}: {', '.join(candidate[r] + there[r] for r in files)}")
    name = next(facts.name for facts in DATASETS.values() if facts.family == family.name)
    if not family.remote:
        table = family.layouts[0].candidates[0]["table"]
        raise MissingDataError(
            f"`table` of {name} must be a file that exists (got {table}). Correct its place in the "
            "plugin."
        )
    raise MissingDataError(
        f"{root} must hold one of these sets of files for {family.name}:\n" + "\n".join(seen) + "\n"
        "Set NICEGNN_DATA or pass root= to use another folder; "
        f"`nicegnn lab data download {name}` fetches the published files."
    )


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

    With ``on_damage="keep"``, the rows before the damage of a file are used. Single unreadable rows
    are always left out and reported. With ``rebuild``, the cache is not read.

    Raises:
        MissingDataError: If the files are not in the data folder.
        DamagedFileError: If a file is damaged, or no row of it can be used.
    """
    check_choice("on_damage", on_damage, get_args(OnDamage))
    family = FAMILIES[facts_of(name).family]
    found = find_files(family, data_folder(root), layout)
    sums = {path.name: sha256_of(path) for path in found.files.values()}
    parts = [VERSION, family.name, found.layout.name, on_damage, sums]
    parts += [found.layout.recipe] if found.layout.recipe else []
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder(cache) / "datasets"
    path = folder / f"{family.name}-{found.layout.name}-{key}.safetensors"

    def build() -> Content:
        tensors, report = _read(family, found, sums, on_damage, progress)
        return tensors, {"report": asdict(report)}

    tensors, description = _cached(path, build, rebuild=rebuild)
    rejected = tuple(Rejected(**item) for item in description["report"]["rejected"])
    report = LoadReport(**{**description["report"], "rejected": rejected})
    return Prepared(tensors, report, found.layout.is_stand_in, path)


def _cached(path: Path, build: Callable[[], Content], *, rebuild: bool = False) -> Content:
    """Returns the content of a cache file; writes it first if it is missing or damaged."""
    if path.is_file() and not rebuild:
        try:
            return load_tensors(path, _KIND)
        except StoreError as error:
            log.warning("%s It is built again.", error)
    tensors, description = build()
    try:
        save_tensors(path, tensors, {**description, "kind": _KIND, "version": VERSION})
    except StoreError as error:
        log.warning("%s Set NICEGNN_CACHE to keep prepared data.", error)
    return tensors, description


def _read(
    family: Family, found: FoundFiles, sums: dict[str, str], on_damage: OnDamage, progress: bool
) -> tuple[dict[str, Tensor], LoadReport]:
    content = found.layout.read(found.files)
    if content.damage and on_damage == "error":
        raise DamagedFileError(
            " ".join(content.damage) + f" To use the {content.num_rows} rows before the damage, "
            "pass on_damage='keep' (--keep-damaged)."
        )
    builder = TensorBuilder(family.vocabulary, family.unknown)
    rejected: list[Rejected] = []
    remarks: list[str] = []
    left_out = 0
    records = content.records()  # before the bar: its thread would prevent forking
    with progress_bar(f"preparing {family.name}", content.num_rows, shown=progress) as advance:
        for position, record in enumerate(records):
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
    unknown = [
        f"{file} has unknown content (sha256 {value[:12]}...)."
        for file, value in sums.items()
        if value not in (known_checksums(file) or {value})
    ]
    return tensors, LoadReport(
        layout=found.title,
        files=sums,
        num_rows=content.num_rows,
        num_graphs=builder.num_graphs - left_out,
        rejected=tuple(rejected),
        left_out={family.left_out: left_out} if left_out else {},
        notes=(*content.damage, *remarks, *_empty_truths(family, tensors), *unknown),
    )


def _empty_truths(family: Family, tensors: Tensors) -> list[str]:
    """Returns a note for each task that has positives without true bonds."""
    notes = []
    for name, facts in DATASETS.items():
        if facts.family == family.name and facts.has_bond_truth:
            is_empty = (tensors[f"{name}/y"] == 1) & (tensors[f"{name}/first"].diff() == 0)
            number = int((is_empty & tensors["is_kept"]).sum())
            notes += [f"{name}: {number} positives have no true bond."] if number else []
    return notes
