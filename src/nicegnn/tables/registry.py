"""Every table by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from nicegnn.bench import read_rows
from nicegnn.bench.targets import MAIN_TARGET
from nicegnn.errors import ConfigError, StoreError
from nicegnn.tables import score_studies, studies
from nicegnn.tables.cells import read_study
from nicegnn.tables.comparison import comparison_table, mechanism_table
from nicegnn.tables.confidence import confidence_table
from nicegnn.tables.gaps import criterion_table, gap_table
from nicegnn.tables.manifest import digest
from nicegnn.tables.motifs import motif_seconds_table, motif_table, shapes_table
from nicegnn.tables.quality import TABLE_METRICS, all_quality_tables
from nicegnn.tables.ranks import ceiling_table, rank_table
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

Made = TypeVar("Made")


@dataclass(frozen=True)
class Sources:
    """Where rows lie.

    Attributes:
        rows: folder of the benchmark (`nicegnn bench`).
        studies: folder of all studies (`nicegnn experiment`).
        speed: file of times that were measured on one machine; none for those of the rows.
    """

    rows: Path = Path("results/bench")
    studies: Path = Path("results/studies")
    speed: Path | None = None

    def bench(self, metrics: Iterable[str] | None = None) -> pd.DataFrame:
        """Returns the rows of the benchmark, of some metrics or of all."""
        wanted = None if metrics is None else list(metrics)
        rows = read_rows(self.rows, None if wanted is None else {"metric": wanted})
        if len(rows) == 0:
            what = "" if wanted is None else f" of {', '.join(wanted)}"
            raise StoreError(
                f"There are no rows{what} in {self.rows}; compute them with `nicegnn bench --out "
                f"{self.rows}`."
            )
        return rows

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Returns a hash of each source: ``bench``, ``speed``, or the name of a study."""
        places = {"bench": self.rows, "speed": self.speed}
        paths = {name: places.get(name, self.studies / name) for name in names}
        return {name: digest(path) for name, path in paths.items() if path is not None}


@dataclass(frozen=True)
class Artefact(Generic[Made]):
    """A table or a figure.

    Attributes:
        title: what it shows, in a line.
        make: builds it from rows.
        reads: ``bench``, ``speed``, or names of studies.
        is_in_all: whether ``all`` makes it, or its name alone.
    """

    title: str
    make: Callable[[Sources], Made]
    reads: tuple[str, ...] = ("bench",)
    is_in_all: bool = True


def find_artefacts(name: str, known: Mapping[str, Artefact[Any]]) -> list[str]:
    """Returns the names that a word asks for, ``all`` among them."""
    plain = name.replace("_", "-")
    if plain == "all":
        return [name for name, artefact in known.items() if artefact.is_in_all]
    if plain not in known:
        raise ConfigError(f"`name` must be one of {[*known, 'all']} (got {name!r}).")
    return [plain]


def _each_target(
    make: Callable[[pd.DataFrame, str], Iterable[Table]], sources: Sources
) -> list[Table]:
    """Returns the tables of every target that the benchmark has rows of."""
    rows = sources.bench(TABLE_METRICS)
    targets = sorted(str(target) for target in rows["target"].unique())
    return [table for target in targets for table in make(rows, target)]


def _quality(rows: pd.DataFrame, target: str) -> list[Table]:
    """Returns all tables of quality, a file each for the paper's target, one file for another."""
    found = all_quality_tables(rows, protocols=("paper", "strict"), target=target)
    if target == MAIN_TARGET:
        return found
    return [replace(table, name=f"quality-{target}") for table in found]


def _of_bench(
    title: str, make: Callable[[pd.DataFrame, str], Iterable[Table]]
) -> Artefact[list[Table]]:
    return Artefact(title, partial(_each_target, make))


def _of_study(
    title: str, make: Callable[[Path], Table | list[Table]], *reads: str, is_in_all: bool = True
) -> Artefact[list[Table]]:
    def made(sources: Sources) -> list[Table]:
        found = make(sources.studies)
        return [found] if isinstance(found, Table) else found

    return Artefact(title, made, reads, is_in_all)


def _by_confidence(sources: Sources) -> list[Table]:
    known = read_study(sources.studies, "mechanisms")
    return [confidence_table(sources.bench(TABLE_METRICS), known)]


#: Tables by name.
TABLES: dict[str, Artefact[list[Table]]] = {
    "quality": _of_bench("F1, recall, precision, AUC and fidelity of all methods", _quality),
    "ranks": _of_bench(
        "Mean rank of each method over truth and fidelity",
        lambda rows, target: [rank_table(rows, target)],
    ),
    "ceilings": _of_bench(
        "What the truth itself reaches as an explanation",
        lambda rows, target: [ceiling_table(rows, target)],
    ),
    "comparison": _of_bench(
        "NICE against each method, paired over graphs",
        lambda rows, target: [comparison_table(rows, target=target)],
    ),
    "rivals-em-nc": _of_bench(
        "Each rival with masking and with noise corruption",
        lambda rows, target: [mechanism_table(rows, target=target)],
    ),
    "criterion": _of_bench(
        "Does fidelity tell which method is right?",
        lambda rows, target: [criterion_table(rows, target=target)],
    ),
    "by-confidence": Artefact(
        "Effect of the target's confidence", _by_confidence, ("bench", "mechanisms")
    ),
    "gaps": Artefact(
        "Rivals beside the paper's rows",
        lambda sources: [gap_table(sources.bench(TABLE_METRICS))],
    ),
    "mechanism": _of_study(
        "EM against NC under true and random gates", studies.mechanisms_table, "mechanisms"
    ),
    "ablation": _of_study(
        "What each part of NICE contributes", studies.ablation_tables, "ablation"
    ),
    "sensitivity": _of_study("NICE under other settings", studies.sensitivity_table, "sensitivity"),
    "convergence": _of_study(
        "Convergence of the attribution", studies.convergence_table, "convergence"
    ),
    "scale": _of_study("Message scale under EM and NC", studies.scale_table, "scale"),
    "motifs": _of_study("All methods on graphs with planted motifs", motif_table, "motifs"),
    "motifs-seconds": _of_study(  # methods may have run on different machines
        "Seconds of all methods on planted motifs", motif_seconds_table, "motifs", is_in_all=False
    ),
    "shapes": _of_study("Targets of one recipe on BA-Shapes", shapes_table, "shapes"),
    "gates": _of_study("What becomes of gates", score_studies.gates_tables, "gates"),
    "depth": _of_study(
        "Gates on targets of other readout and depth", score_studies.depth_table, "depth"
    ),
    "scores": _of_study("Scores side by side", score_studies.scores_tables, "scores"),
    "parts": _of_study(
        "Parts of the score, by noise and by masking", score_studies.parts_tables, "parts"
    ),
    "removal": _of_study(
        "Bonds masked or taken out of the graph", score_studies.removal_tables, "removal"
    ),
    "ensembles": _of_study(
        "One gate network or several", score_studies.ensembles_tables, "ensembles"
    ),
    "quick": _of_study(
        "The default fit and a short one",
        score_studies.quick_table,
        *("parts", "removal", "ensembles"),
    ),
    "rivals": _of_study(
        "Rivals as benchmarked, and with one thing changed", score_studies.rivals_tables, "rivals"
    ),
    "truth": _of_study("What targets lose without a true bond", score_studies.truth_table, "truth"),
    "fallback": _of_study("Noise and masking as judges", score_studies.fallback_table, "fallback"),
    "fallback-test": _of_study(
        "Masking where noise cannot judge", score_studies.fallback_test_table, "fallback-test"
    ),
}
