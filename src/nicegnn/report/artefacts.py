"""Every table and figure by name: each is one function over stored rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from nicegnn.tables.table import Table


@dataclass(frozen=True)
class Sources:
    """Where rows lie.

    Attributes:
        rows: folder of the benchmark (`nicegnn bench`).
        experiments: folder of the other experiments (`nicegnn experiment`).
        speed: file of times that were measured on one machine; none for those of the rows.
    """

    rows: Path = Path("results/bench")
    experiments: Path = Path("results/experiments")
    speed: Path | None = None

    def bench(self) -> pd.DataFrame:
        """Returns the rows of the benchmark."""
        from nicegnn.bench import read_rows

        rows = read_rows(self.rows)
        if len(rows) == 0:
            raise StoreError(
                f"There are no rows in {self.rows}; compute them with `nicegnn bench --out "
                f"{self.rows}`."
            )
        return rows


@dataclass(frozen=True)
class Artefact:
    """A table or a figure.

    Attributes:
        title: what it shows, in a line.
        make: builds it from rows: tables, or figures by file name.
        reads: ``bench``, ``speed``, or the name of an experiment.
    """

    title: str
    make: Callable[[Sources], Any]
    reads: tuple[str, ...] = ("bench",)

    def digests(self, sources: Sources) -> dict[str, str]:
        """Returns a hash of the rows behind it by the name of what it reads."""
        from nicegnn.tables.manifest import digest

        places = {"bench": sources.rows, "speed": sources.speed}
        paths = {name: places.get(name, sources.experiments / name) for name in self.reads}
        return {name: digest(path) for name, path in paths.items() if path is not None}


def _each_target(sources: Sources, make: Callable[[pd.DataFrame, str], list[Table]]) -> list[Table]:
    """Returns the tables of every target that the benchmark has rows of."""
    rows = sources.bench()
    targets = sorted(str(target) for target in rows["target"].unique())
    return [table for target in targets for table in make(rows, target)]


def _quality(sources: Sources) -> list[Table]:
    from nicegnn.tables.quality import all_quality_tables

    protocols = ("paper", "strict")
    return _each_target(
        sources, lambda rows, target: all_quality_tables(rows, protocols=protocols, target=target)
    )


def _ranks(sources: Sources) -> list[Table]:
    from nicegnn.tables.quality import rank_table

    return _each_target(sources, lambda rows, target: [rank_table(rows, target)])


def _ceilings(sources: Sources) -> list[Table]:
    from nicegnn.tables.quality import ceiling_table

    return _each_target(sources, lambda rows, target: [ceiling_table(rows, target)])


def _rivals_em_nc(sources: Sources) -> list[Table]:
    from nicegnn.tables.comparison import mechanism_table

    return _each_target(sources, lambda rows, target: [mechanism_table(rows, target=target)])


def _against(sources: Sources) -> list[Table]:
    from nicegnn.tables.comparison import comparison_table

    return _each_target(sources, lambda rows, target: [comparison_table(rows, target=target)])


def _criterion(sources: Sources) -> list[Table]:
    from nicegnn.tables.quality import criterion_table

    return _each_target(sources, lambda rows, target: [criterion_table(rows, target=target)])


def _by_confidence(sources: Sources) -> list[Table]:
    from nicegnn.tables.by_confidence import confidence_table
    from nicegnn.tables.study_rows import read_one_run

    known = read_one_run(sources.experiments, "mechanism_comparison")
    return [confidence_table(sources.bench(), known)]


def _gaps(sources: Sources) -> list[Table]:
    from nicegnn.tables.quality import gap_table

    return [gap_table(sources.bench())]


def _mechanism(sources: Sources) -> list[Table]:
    from nicegnn.studies.mechanisms import table

    return [table(sources.experiments)]


def _ablation(sources: Sources) -> list[Table]:
    from nicegnn.studies.ablation import tables

    return list(tables(sources.experiments))


def _sensitivity_table(sources: Sources) -> list[Table]:
    from nicegnn.studies.sensitivity import table

    return [table(sources.experiments)]


def _convergence_table(sources: Sources) -> list[Table]:
    from nicegnn.studies.convergence import table

    return [table(sources.experiments)]


def _scale_table(sources: Sources) -> list[Table]:
    from nicegnn.studies.scale import table

    return [table(sources.experiments)]


def _motifs(sources: Sources) -> list[Table]:
    from nicegnn.tables.motifs import tables

    return tables(sources.experiments)


#: Tables by name.
TABLES: dict[str, Artefact] = {
    "quality": Artefact("F1, recall, precision, AUC and fidelity of all methods", _quality),
    "ranks": Artefact("Mean rank of each method over truth and fidelity", _ranks),
    "ceilings": Artefact("What the truth itself reaches as an explanation", _ceilings),
    "comparison": Artefact("NICE against each method, paired over graphs", _against),
    "rivals-em-nc": Artefact("Each rival with masking and with noise corruption", _rivals_em_nc),
    "criterion": Artefact("Does fidelity tell which method is right?", _criterion),
    "by-confidence": Artefact(
        "Effect of the target's confidence", _by_confidence, ("bench", "mechanism_comparison")
    ),
    "gaps": Artefact("Rivals beside the paper's rows", _gaps),
    "mechanism": Artefact(
        "EM against NC under true and random gates", _mechanism, ("mechanism_comparison",)
    ),
    "ablation": Artefact("What each part of NICE contributes", _ablation, ("ablation",)),
    "sensitivity": Artefact("NICE under other settings", _sensitivity_table, ("sensitivity",)),
    "convergence": Artefact("Convergence of the attribution", _convergence_table, ("convergence",)),
    "scale": Artefact("Message scale under EM and NC", _scale_table, ("scale_study",)),
    "motifs": Artefact("All methods on graphs with planted motifs", _motifs, ("motifs",)),
}


def _motivation(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.motivation import motivation_figure

    return {"motivation": motivation_figure(sources.experiments)}


def _layer_scale(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.layer_scale import layer_scale_figure
    from nicegnn.studies.scale import read_scales

    return {"layer-scale": layer_scale_figure(read_scales(sources.experiments))}


def _fidelity(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.fidelity import all_fidelity_figures

    found = all_fidelity_figures(sources.bench())
    return {f"fidelity-{removal}": figure for removal, figure in found.items()}


def _confidence(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.confidence import confidence_figure
    from nicegnn.tables.study_rows import read_one_run

    rows = read_one_run(sources.experiments, "mechanism_comparison")
    return {"confidence": confidence_figure(rows)}


def _by_confidence_figure(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.by_confidence import by_confidence_figure
    from nicegnn.tables.study_rows import read_one_run

    known = read_one_run(sources.experiments, "mechanism_comparison")
    return {"by-confidence": by_confidence_figure(sources.bench(), known)}


def _sensitivity(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.sensitivity import figure

    return {"sensitivity": figure(sources.experiments)}


def _convergence(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.convergence import figure

    return {"convergence": figure(sources.experiments)}


def _rivals(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.mechanisms import mechanisms_figure

    return {"rivals-em-nc": mechanisms_figure(sources.bench())}


def _cost(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.cost import cost_figure, read_speed

    speed = None if sources.speed is None else read_speed(sources.speed)
    return {"cost": cost_figure(sources.bench(), speed=speed)}


def _cases(sources: Sources) -> dict[str, Figure]:
    from nicegnn.figures.case_study import case_study_figure
    from nicegnn.tables.case_study import cases_from_bench

    found = {}
    for dataset in map(str, sources.bench()["dataset"].unique()):
        if dataset != "mutagenicity":  # its graphs have no SMILES to draw
            found[f"cases-{dataset}"] = case_study_figure(cases_from_bench(sources.rows, dataset))
    return found


#: Figures by name.
FIGURES: dict[str, Artefact] = {
    "motivation": Artefact(
        "Embeddings and message scale under the oracle", _motivation, ("scale_study",)
    ),
    "layer-scale": Artefact(
        "Message scale per layer, datasets by backbones", _layer_scale, ("scale_study",)
    ),
    "fidelity": Artefact("Fidelity curves, best 10 to 90 percent", _fidelity),
    "confidence": Artefact(
        "Confidence clean, under EM and under NC", _confidence, ("mechanism_comparison",)
    ),
    "by-confidence": Artefact(
        "Effect of the target's confidence",
        _by_confidence_figure,
        ("bench", "mechanism_comparison"),
    ),
    "sensitivity": Artefact("NICE under other settings", _sensitivity, ("sensitivity",)),
    "convergence": Artefact("Convergence of the attribution", _convergence, ("convergence",)),
    "rivals-em-nc": Artefact("Each rival with masking and with noise corruption", _rivals),
    "cost": Artefact(
        "Seconds per graph against agreement with the truth", _cost, ("bench", "speed")
    ),
    "cases": Artefact("Gate, attribution and score on the same molecules", _cases),
}

#: Experiments that compute rows of their own, by name, with their module.
EXPERIMENTS = {
    "mechanism-comparison": "nicegnn.studies.mechanisms",
    "ablation": "nicegnn.studies.ablation",
    "sensitivity": "nicegnn.studies.sensitivity",
    "convergence": "nicegnn.studies.convergence",
    "scale-study": "nicegnn.studies.scale",
    "motifs": "nicegnn.studies.motifs",
}


def find(name: str, known: dict[str, Any], what: str) -> list[str]:
    """Returns the names that a word asks for, ``all`` among them."""
    name = name.replace("_", "-")
    if name == "all":
        return list(known)
    if name not in known:
        raise ConfigError(f"`{what}` must be one of {[*known, 'all']} (got {name!r}).")
    return [name]
