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
from nicegnn_lab.bench.rows import Folder
from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.metrics import own_metrics
from nicegnn_lab.tables import score_studies, studies
from nicegnn_lab.tables.comparison import comparison_table, mechanism_table
from nicegnn_lab.tables.motif_tables import motif_seconds_table, motif_table, shapes_table
from nicegnn_lab.tables.quality import (
    TABLE_METRICS,
    all_quality_tables,
    confidence_table,
    gap_table,
)
from nicegnn_lab.tables.ranks import backbones_table, ceiling_table, criterion_table, rank_table
from nicegnn_lab.tables.table import Table, read_study, targets_in
from nicegnn_lab.tables.trust import trust_tables
from nicegnn_lab.tables.unseen import unseen_tables
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
    speed: Path | None = None  # file of times of one machine; none for those of the rows

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

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Returns a hash of each source: ``bench``, ``speed``, or the name of a study."""
        places = {"bench": self.rows, "speed": self.speed}
        paths = {name: places.get(name, self.studies / name) for name in names}
        return {name: digest(path) for name, path in paths.items() if path is not None}


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
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    known = (found if isinstance(found, dict) else {}) | {file.name: about for file in files}
    write_json(path, {n: known[n] for n in sorted(known) if (path.parent / n).is_file()})


@dataclass(frozen=True)
class Artefact(Generic[Made]):
    """A table or a figure."""

    title: str  # what it shows, in a line
    make: Callable[[Sources], Made]  # builds it from rows
    reads: tuple[str, ...] = ("bench",)  # ``bench``, ``speed``, or names of studies
    is_in_all: bool = True  # whether ``all`` makes it, or its name alone


def find_artefacts(name: str, known: Mapping[str, Artefact[Any]]) -> list[str]:
    """Returns the names that a word asks for, ``all`` among them."""
    plain = name.replace("_", "-")
    check_choice("name", plain, (*known, "all"))
    if plain == "all":
        return [name for name, artefact in known.items() if artefact.is_in_all]
    return [plain]


def _quality(rows: pd.DataFrame, target: str) -> list[Table]:
    """Returns all tables of quality, a file each for the paper's target, one file for another."""
    found = all_quality_tables(rows, protocols=("paper", "strict"), target=target)
    if target == MAIN_TARGET:
        return found
    return [replace(table, name=f"quality-{target}") for table in found]


def _listed(found: Table | list[Table]) -> list[Table]:
    return [found] if isinstance(found, Table) else found


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
    kinds = [
        (target, with_variants) for target in targets_in(rows) for with_variants in (False, True)
    ]
    found = [rank_table(rows, target, with_variants=variants) for target, variants in kinds]
    return [backbones_table(rows), *found]


def _by_confidence(sources: Sources) -> list[Table]:
    known = read_study(sources.studies, "mechanisms")
    return [confidence_table(sources.bench(TABLE_METRICS), known)]


#: Tables of studies: title, and the function of the folder of all studies that makes them.
_OF_STUDIES: dict[str, tuple[str, Callable[[Path], Table | list[Table]]]] = {
    "mechanism": ("EM against NC under true and random gates", studies.mechanisms_table),
    "ablation": ("What each part of NICE contributes", studies.ablation_tables),
    "sensitivity": ("NICE under other settings", studies.sensitivity_table),
    "convergence": ("Convergence of the attribution", studies.convergence_table),
    "scale": ("Message scale under EM and NC", studies.scale_table),
    "motifs": ("All methods on graphs with planted motifs", motif_table),
    "motifs-seconds": ("Seconds of all methods on planted motifs", motif_seconds_table),
    "shapes": ("Targets of one recipe on BA-Shapes", shapes_table),
    "gates": ("Gates under one change at a time", score_studies.gates_tables),
    "depth": ("Gates on targets of other readout and depth", score_studies.depth_table),
    "scores": ("Scores side by side", score_studies.scores_tables),
    "parts": ("Parts of the score, by noise and by masking", score_studies.parts_tables),
    "joins": ("Parts joined into a score", score_studies.joins_tables),
    "removal": ("Bonds masked or taken out of the graph", score_studies.removal_tables),
    "ensembles": ("One gate network or several", score_studies.ensembles_tables),
    "quick": ("The default fit and a short one", score_studies.quick_table),
    "rivals": ("Rivals as benchmarked, and with one thing changed", score_studies.rivals_tables),
    "truth": ("What targets lose without a true bond", score_studies.truth_table),
    "trust": ("Warnings beside the truth, and two seeds", trust_tables),
    "unseen": ("NICE on targets that nobody tuned for", unseen_tables),
    "wide": ("What should replace a message?", wide_tables),
}
#: Studies that a table reads where its name is not that of its study.
_READS = {
    "mechanism": ("mechanisms",),
    "motifs-seconds": ("motifs",),
    "quick": ("parts", "removal", "ensembles"),
}


def _of_study(name: str) -> Artefact[list[Table]]:
    title, make = _OF_STUDIES[name]
    return Artefact(
        title,
        lambda sources: _listed(make(sources.studies)),
        _READS.get(name, (name,)),
        is_in_all=name != "motifs-seconds",  # methods may have run on different machines
    )


#: Tables by name.
TABLES: dict[str, Artefact[list[Table]]] = {
    "quality": _of_bench("F1, recall, precision, AUC and fidelity of all methods", _quality),
    "ranks": Artefact("Mean rank of each method by truth, by fidelity, and together", _ranks),
    "ceilings": _of_bench("What the truth itself reaches as an explanation", ceiling_table),
    "comparison": _of_bench(
        "NICE against each method, paired over graphs",
        lambda rows, target: comparison_table(rows, target=target),
    ),
    "rivals-em-nc": _of_bench("Each rival with masking and with noise corruption", mechanism_table),
    "criterion": _of_bench("Does fidelity tell which method is right?", criterion_table),
    "by-confidence": Artefact(
        "Effect of the target's confidence", _by_confidence, ("bench", "mechanisms")
    ),
    "gaps": Artefact(
        "Rivals beside the paper's rows",
        lambda sources: [gap_table(sources.bench(TABLE_METRICS))],
    ),
    **{name: _of_study(name) for name in _OF_STUDIES},
}
