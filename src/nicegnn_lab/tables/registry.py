"""Every table by name: each is one function over stored rows, and its source is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nicegnn.config import check_choice
from nicegnn.errors import StoreError
from nicegnn.store import write_json
from nicegnn_lab.bench import read_rows
from nicegnn_lab.bench.rows import Folder, finished_cells
from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.metrics import own_metrics
from nicegnn_lab.rivals import EXPLAINERS
from nicegnn_lab.studies import STUDIES, make_study
from nicegnn_lab.tables import studies
from nicegnn_lab.tables.atoms import atom_tables
from nicegnn_lab.tables.claims import claim_table
from nicegnn_lab.tables.comparison import comparison_table, mechanism_table
from nicegnn_lab.tables.motif_tables import motif_table
from nicegnn_lab.tables.quality import TABLE_METRICS, all_quality_tables
from nicegnn_lab.tables.ranks import backbones_table, rank_table
from nicegnn_lab.tables.table import Table, targets_in
from nicegnn_lab.tables.wide import wide_tables

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "manifest.json"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Sources:
    """Where rows lie."""

    rows: Path = Path("results/bench")  # folder of the benchmark (`nicegnn lab bench`)
    studies: Path = Path("results/studies")  # folder of all studies (`nicegnn lab experiment`)

    def bench(self, metrics: Sequence[str] = ()) -> pd.DataFrame:
        """Returns the rows of the benchmark, of some metrics or of all."""
        rows = read_rows(self.rows, {"metric": metrics} if metrics else None)
        if len(rows) == 0:
            what = f" of {', '.join(metrics)}" if metrics else ""
            raise StoreError(
                f"There are no rows{what} in {self.rows}; compute them with `nicegnn lab bench "
                f"--out {self.rows}`."
            )
        return rows

    def folder(self, name: str) -> Path:
        """Returns the folder of ``bench`` or of a study."""
        return self.rows if name == "bench" else self.studies / name

    def older(self, names: Iterable[str]) -> list[str]:
        """Returns a note on rows that an older version measured, if there are any."""
        versions: dict[str, set[int]] = {}
        for name in names:
            for what, then in older_rows(self.folder(name)).items():
                versions.setdefault(what, set()).update(then)
        outdated = [
            f"{what} ({', '.join(map(str, sorted(versions[what])))}; now {version_of(what)})"
            for what in sorted(versions)
        ]
        return [f"Measured by an older version: {', '.join(outdated)}."] if outdated else []

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Returns a hash of each source: ``bench``, or the name of a study."""
        return {name: digest(self.folder(name)) for name in names}


def older_rows(folder: Path) -> dict[str, set[int]]:
    """Returns the versions of rows that are not of today, by explainer or name of a study."""
    versions_of: dict[str, set[int]] = {}
    for cell in finished_cells(folder).values():
        identity = cell.description["identity"]
        scores = identity["scores"]
        versions = {
            scores.get("explainer", ""): scores.get("defaults", 1),
            str(identity["study"]): identity.get("version", 1),
        }
        for name, then in versions.items():
            if then != version_of(name, then):
                versions_of.setdefault(name, set()).add(then)
    return versions_of


def version_of(name: str, otherwise: int = 1) -> int:
    """Returns the version of an explainer's defaults, or that of a study."""
    if name in EXPLAINERS:
        return EXPLAINERS[name].defaults_version
    return make_study(name).version if name in STUDIES else otherwise


def digest(source: str | Path) -> str:
    """Returns a short hash of a file, or of the rows of a family in its folder.

    Of a packed family it begins what ``sha256sum packed.parquet`` prints. Rows that are not packed
    yet count too, by their names and contents.
    """
    source, folder = Path(source), Folder(Path(source))
    if source.is_file():
        return _hash(source.read_bytes())[:24]
    packed = [folder.packed] if folder.packed.is_file() else []
    files = packed + sorted(folder.rows("*").parent.glob("*.parquet"))
    if files == packed != []:
        return _hash(folder.packed.read_bytes())[:24]
    lines = [f"{file.relative_to(source).as_posix()} {_hash(file.read_bytes())}" for file in files]
    return _hash("\n".join(lines).encode())[:24]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record(files: Iterable[Path], artefact: str, command: str, sources: Mapping[str, str]) -> None:
    """Writes what files of one folder were made from into its manifest, beside what is there.

    Entries of files that are gone are dropped. The manifest has no entry about itself, and one
    that cannot be read is begun anew.

    Args:
        files: just written, all in one folder.
        artefact: its name.
        command: that makes them again.
        sources: digests of the rows by the name of what was read.
    """
    from nicegnn import __version__

    files = list(files)
    if not files:
        return
    path = files[0].parent / MANIFEST
    about: dict[str, Any] = {"artefact": artefact, "command": command}
    about |= {"sources": dict(sources), "nicegnn": __version__}
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        old = {}
    manifest = (old if isinstance(old, dict) else {}) | {file.name: about for file in files}
    write_json(path, {n: manifest[n] for n in sorted(manifest) if (path.parent / n).is_file()})


@dataclass(frozen=True)
class Artefact(Generic[Made]):
    """A table or a figure."""

    title: str  # what it shows, in a line
    make: Callable[[Sources], Made]  # builds it from rows
    reads: tuple[str, ...] = ("bench",)  # ``bench``, or names of studies


def find_artefacts(name: str, known: Mapping[str, Artefact[Any]]) -> list[str]:
    """Returns the names that a word asks for, ``all`` among them."""
    plain = name.replace("_", "-")
    check_choice("name", plain, (*known, "all"))
    return list(known) if plain == "all" else [plain]


def make_tables(name: str, sources: Sources) -> list[Table]:
    """Returns the tables of a name of `TABLES`; a note names rows of an older version."""
    notes = sources.older(TABLES[name].reads)
    made = TABLES[name].make(sources)
    return [replace(table, notes=[*table.notes, *notes]) for table in made]


def _quality(rows: pd.DataFrame, target: str) -> list[Table]:
    """Returns all tables of quality, a file each for the paper's target, one file for another."""
    tables = all_quality_tables(rows, protocols=("paper", "strict"), target=target)
    if target == MAIN_TARGET:
        return tables
    return [replace(table, name=f"quality-{target}") for table in tables]


def _mechanisms(rows: pd.DataFrame, target: str) -> list[Table]:
    """Returns EM against NC and, where rows hold it, against exchange."""
    tables = [mechanism_table(rows, way, target=target) for way in ("nc", "exchange")]
    return [table for table in tables if table.rows or table is tables[0]]


def _of_bench(
    title: str, make: Callable[[pd.DataFrame, str], Table | list[Table]]
) -> Artefact[list[Table]]:
    """Returns the tables of every target that the benchmark has rows of."""

    def made(sources: Sources) -> list[Table]:
        rows = sources.bench((*TABLE_METRICS, *own_metrics()))
        targets = sorted(str(target) for target in rows["target"].unique())
        return [table for target in targets for table in _listed(make(rows, target))]

    return Artefact(title, made)


def _ranks(sources: Sources) -> list[Table]:
    rows = sources.bench(TABLE_METRICS)
    return [backbones_table(rows), *(rank_table(rows, target) for target in targets_in(rows))]


def _of_study(
    title: str, study: str, make: Callable[[Path], Table | list[Table]]
) -> Artefact[list[Table]]:
    """Returns the tables of one study, made from the folder of all studies."""
    return Artefact(title, lambda sources: _listed(make(sources.studies)), (study,))


def _listed(made: Table | list[Table]) -> list[Table]:
    return [made] if isinstance(made, Table) else made


#: Tables by name.
TABLES: dict[str, Artefact[list[Table]]] = {
    "quality": _of_bench("F1, recall, precision, AUC and fidelity of all methods", _quality),
    "ranks": Artefact("Mean rank of each method by truth, by fidelity, and together", _ranks),
    "comparison": _of_bench(
        "NICE against each method, paired over graphs",
        lambda rows, target: comparison_table(rows, target=target),
    ),
    "rivals-em-nc": _of_bench("Each rival with masking, with noise and with exchange", _mechanisms),
    "mechanism": _of_study(
        "EM, NC and exchange under true and random gates", "mechanisms", studies.mechanisms_table
    ),
    "scale": _of_study("Message scale under EM, NC and exchange", "scale", studies.scale_table),
    "ablation": _of_study(
        "What each part of the boundary contributes", "ablation", studies.ablation_table
    ),
    "sensitivity": _of_study(
        "The paper's NICE under other settings", "sensitivity", studies.sensitivity_table
    ),
    "motifs": _of_study("All methods on graphs with planted motifs", "motifs", motif_table),
    "wide": _of_study("What should replace a message?", "wide", wide_tables),
    "atoms": _of_study("What should replace an atom?", "atoms", atom_tables),
    "claims": Artefact(
        "What of the paper holds",
        lambda sources: [claim_table(sources)],
        ("bench", "mechanisms", "scale", "ablation", "sensitivity"),
    ),
}
