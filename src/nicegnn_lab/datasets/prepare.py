"""From data files to cached tensors, with a report on every row."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.progress import progress_bar
from nicegnn.store import load_tensors, save_tensors
from nicegnn_lab.datasets.data_files import (
    DamagedFileError,
    MissingDataError,
    cache_folder,
    data_folder,
    sha256_of,
)
from nicegnn_lab.datasets.molecule_tensors import TensorBuilder, Tensors
from nicegnn_lab.datasets.readers import Rejected
from nicegnn_lab.datasets.registry import FAMILIES, Family, facts_of
from nicegnn_lab.datasets.splits import twin_groups

#: Part of every cache key: raise it when reading, rules or tensors change.
VERSION = 1
_KIND = "molecule-dataset"

log = logging.getLogger(__name__)


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

    def __str__(self) -> str:
        lines = [
            f"{self.num_rows} rows read ({self.layout}), {self.num_graphs} graphs kept, "
            f"{len(self.rejected)} rejected, {self.num_twins} twins"
        ]
        lines += [f"left out: {count} ({reason})" for reason, count in self.left_out.items()]
        lines += [f"rejected row {item.row}: {item.reason}" for item in self.rejected[:10]]
        if len(self.rejected) > 10:
            lines.append(f"... and {len(self.rejected) - 10} more rejected rows")
        if self.num_moved:
            lines.append(f"moved to train: {self.num_moved} (equal molecules in different parts)")
        return "\n".join(lines)


def find_files(family: Family, root: Path) -> dict[str, Path]:
    """Returns the files of a family by role, else raises `MissingDataError`."""
    files = {role: root / place for role, place in family.files.items()}
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing and family.recipe:
        raise MissingDataError(
            f"`table` of {family.name} must be a file that exists (got {missing[0]}). Correct its "
            "place in the plugin."
        )
    if missing:
        raise MissingDataError(
            f"{root} must hold {' and '.join(family.files.values())} (got no {missing[0]}). Set "
            "NICEGNN_DATA or pass root= to use another folder; `python scripts/published_data.py "
            "FOLDER` makes the tables of published sets."
        )
    return files


def prepare_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    cache: str | Path | None = None,
    progress: bool = False,
) -> tuple[Tensors, LoadReport, Path]:
    """Returns the tensors of a dataset's family, from the cache if its files are unchanged.

    Single unreadable rows are left out and reported. The name of the cache file, which is returned
    too, changes with the content of the data files.

    Raises:
        MissingDataError: If the files are not in the data folder.
        DamagedFileError: If a file is damaged, or no row of it can be used.
    """
    family = FAMILIES[facts_of(name).family]
    files = find_files(family, data_folder(root))
    sums = {path.name: sha256_of(path) for path in files.values()}
    parts = [VERSION, family.name, family.form, "error", sums]
    parts += [family.recipe] if family.recipe else []
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder(cache) / "datasets" / f"{family.name}-{family.form}-{key}.safetensors"
    tensors: Tensors | None = None
    if path.is_file():
        try:
            tensors, about = load_tensors(path, _KIND)
            known = {one.name: about["report"][one.name] for one in fields(LoadReport)}
            known["rejected"] = tuple(Rejected(**item) for item in known["rejected"])
            report = LoadReport(**known)
        except StoreError as error:
            log.warning("%s It is built again.", error)
    if tensors is None:
        tensors, report = _read(family, files, sums, progress)
        try:
            save_tensors(path, tensors, {"report": asdict(report), "kind": _KIND})
        except StoreError as error:
            log.warning("%s Set NICEGNN_CACHE to keep prepared data.", error)
    return tensors, report, path


def _read(
    family: Family, files: Mapping[str, Path], sums: dict[str, str], progress: bool
) -> tuple[dict[str, Tensor], LoadReport]:
    content = family.read(files)
    builder = TensorBuilder(family.vocabulary, family.unknown)
    rejected: list[Rejected] = []
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
        layout=family.form + (" stand-in" if family.is_stand_in else ""),
        files=sums,
        num_rows=content.num_rows,
        num_graphs=builder.num_graphs - left_out,
        rejected=tuple(rejected),
        left_out={family.left_out: left_out} if left_out else {},
    )
