"""What each part of NICE is worth: the paper's ablation of SRB, and one of our own defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.bench.nice_run import boundary_quality, explain_all, fit_once, quality
from nicegnn.bench.study_rows import has_part, write_part
from nicegnn.bench.subject import TARGETS_FOLDER, Subject, subjects
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.progress import progress_bar
from nicegnn.tables.methods import datasets_in, stand_in_note, stand_ins
from nicegnn.tables.study_rows import mean_and_std, read_one_run, subject_title, values_of
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT = "ablation"
VERSION = 1  # raise it when the same settings give other rows

Pair = tuple[float, float]


@dataclass(frozen=True)
class Variant:
    """One change of a base configuration.

    Attributes:
        name: in rows; begins with its base, ``paper`` or ``nice``.
        title: in tables.
        changes: settings that differ from the base, see `NICEConfig.with_`.
    """

    name: str
    title: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def config(self, settings: Mapping[str, Any]) -> NICEConfig:
        """Returns the base with `settings`, then with this change."""
        base = NICEConfig.paper() if self.name.startswith("paper") else NICEConfig()
        return base.with_(**settings).with_(**self.changes)


_NO_VARIATION = {"boundary__beta": 0.0, "attribution__beta": 0.0}
_LOG_PROB = {"boundary__degradation": "log-prob", "attribution__degradation": "log-prob"}

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("paper", "Full SRB"),
        Variant("paper/no-variation", "w/o Var.", _NO_VARIATION),
        Variant("paper/no-compactness", "w/o Comp.", {"boundary__penalty": 0.0}),
        Variant("nice", "our defaults"),
        Variant("nice/noise-alone", "noise alone, without masking", {"mechanism": "nc"}),
        Variant("nice/masking-alone", "masking alone, without noise", {"mechanism": "em"}),
        Variant("nice/no-variation", "without variation (beta 0)", _NO_VARIATION),
        Variant("nice/log-prob", "log-probability instead of margin", _LOG_PROB),
        Variant(
            "nice/one-gate-for-all",
            "one gate network for all classes",
            {"boundary__class_gates": False},
        ),
        Variant("nice/no-context", "without graph context", {"boundary__graph_context": False}),
        Variant("nice/contrast", "contrast 0.5 instead of 0", {"boundary__contrast": 0.5}),
        Variant("nice/score-gate", "score: gate alone", {"score": "gate"}),
        Variant("nice/score-big", "score: attribution alone", {"score": "big"}),
        Variant("nice/joint-path", "joint path, corrupted context", {"attribution__path": "joint"}),
        Variant(
            "nice/joint-path-clean",
            "joint path, clean context",
            {"attribution__path": "joint", "attribution__context": "clean"},
        ),
        Variant(
            "nice/joint-path-big",
            "joint path, attribution alone",
            {"attribution__path": "joint", "score": "big"},
        ),
    )
}

#: The paper's table of SRB on Benzene: mean, std, restored share, AUC, each with its deviation.
PAPER_SRB: dict[str, tuple[Pair, Pair, Pair, Pair]] = {
    "paper": ((0.23, 0.06), (0.06, 0.02), (0.27, 0.11), (0.87, 0.00)),
    "paper/no-variation": ((0.37, 0.08), (0.19, 0.07), (0.41, 0.13), (0.83, 0.06)),
    "paper/no-compactness": ((0.25, 0.11), (0.09, 0.04), (0.84, 0.42), (0.81, 0.02)),
}

#: Headings of measured columns, the metric behind each, and its digits.
COLUMNS = (
    ("Mean", "degradation_mean", 3),
    ("Std.", "degradation_std", 3),
    ("Rest.", "restored", 2),
    ("AUC", "roc_auc/paper", 3),
    ("AUC, strict", "roc_auc/strict", 3),
    ("kept, EM", "kept_area/em", 3),
    ("kept, NC", "kept_area/nc", 3),
)


def compute(
    datasets: Sequence[str],
    *,
    targets: Sequence[str] = ("gin",),
    seeds: Sequence[int] = (0,),
    out: str | Path,
    device: str | None = None,
    max_graphs: int | None = None,
    progress: bool = True,
    targets_folder: str | Path = TARGETS_FOLDER,
    variants: Sequence[str] = tuple(VARIANTS),
    settings: Mapping[str, Any] | None = None,
    fit_graphs: int | None = None,
    num_draws: int = 64,
    removals: Sequence[str] = ("em", "nc"),
) -> None:
    """Writes the numbers of every variant and seed; finished parts are skipped.

    Rows: ``setting`` is the variant's name; metrics are those of `COLUMNS`, ``f1/...``,
    ``fit_status/<status>`` (1 for the one it has), ``fit_seconds`` and ``explain_seconds`` (per
    graph).

    Args:
        variants: names of `VARIANTS`.
        settings: changes of every base, such as ``{"boundary__steps": 200}``.
        fit_graphs: most training graphs to fit on; none for all.
        num_draws: noise draws by which boundaries are judged.
        removals: of the area of prediction kept.
    """
    unknown = sorted(set(variants) - set(VARIANTS))
    if unknown:
        raise ConfigError(f"`variants` must be of {tuple(VARIANTS)} (got {unknown}).")
    how = {
        "version": VERSION,
        "fit_graphs": fit_graphs,
        "num_draws": num_draws,
        "removals": sorted(removals),
    }
    total = len(datasets) * len(targets) * len(seeds) * len(variants)
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        done = 0
        found = subjects(
            datasets, targets, targets_folder=targets_folder, device=device, max_graphs=max_graphs
        )
        for subject in found:
            for seed in seeds:
                for name in variants:
                    advance(done, f"{subject.dataset.name} {subject.target} {name}, seed {seed}")
                    config = VARIANTS[name].config(settings or {})
                    key = subject.key(seed, [how, name, config.to_dict()])
                    if not has_part(out, EXPERIMENT, key):
                        rows = list(_measure(subject, name, config, seed, out, how))
                        write_part(out, EXPERIMENT, key, rows)
                    done += 1
        advance(done, "")


def _measure(
    subject: Subject,
    name: str,
    config: NICEConfig,
    seed: int,
    out: str | Path,
    how: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    fitted = fit_once(subject, config, seed, out, how["fit_graphs"])
    scores = explain_all(subject, fitted.nice, seed)
    numbers = {
        **quality(subject, scores, seed, removals=how["removals"]),
        **boundary_quality(subject, fitted.nice, scores, how["num_draws"], seed),
        f"fit_status/{fitted.status}": 1.0,
        "fit_seconds": fitted.seconds,
        "explain_seconds": scores.explain_seconds_per_graph,
    }
    for metric, value in numbers.items():
        yield subject.row(name, metric, value, seed=seed)


def tables(out: str | Path) -> list[Table]:
    """Returns the ablation of the paper's SRB beside the paper's, and that of our defaults."""
    rows = read_one_run(out, EXPERIMENT)
    note = (
        "Mean ± standard deviation over seeds. Mean and Std. of the lost log-probability over "
        "noise draws at the boundary, in nats; Rest. is the restored share of edges; AUC by "
        "protocol `paper` and by `strict`; kept is the area under the share of kept predictions "
        "when only the best bonds are left, the others masked (EM) or corrupted (NC); the last "
        "column is what the fit reports about its gates, without truth."
    )
    headings = [heading for heading, _, _ in COLUMNS]
    names = datasets_in(rows)
    marks = stand_in_note(names, stand_ins(names))
    found = []
    is_paper = rows["setting"].str.startswith("paper")
    if is_paper.any():
        paper = [f"paper {heading}" for heading in headings[:4]]
        found.append(
            Table(
                name="ablation-srb",
                title="Ablation of SRB as the paper writes it",
                columns=["dataset", "variant", *headings, "fit", *paper],
                rows=[line + _paper_cells(*about) for about, line in _lines(rows[is_paper])],
                notes=(note, "The paper reports Benzene only.", *marks),
            )
        )
    if not is_paper.all():
        found.append(
            Table(
                name="ablation-nice",
                title="Ablation of our defaults",
                columns=["dataset", "variant", *headings, "fit"],
                rows=[line for _, line in _lines(rows[~is_paper])],
                notes=(note, *marks),
            )
        )
    return found


def _lines(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], list[str]]]:
    """Yields dataset, target and variant with the cells of its line, in the order of `VARIANTS`."""
    marked = stand_ins(datasets_in(rows))
    for (dataset, target), some in rows.groupby(["dataset", "target"], sort=False):
        for name, variant in VARIANTS.items():
            chosen = some[some["setting"] == name]
            if len(chosen) == 0:
                continue
            cells = [mean_and_std(values_of(chosen, m), digits) for _, m, digits in COLUMNS]
            line = [subject_title(dataset, target, marked), variant.title, *cells, _status(chosen)]
            yield (dataset, target, name), line


def _status(rows: pd.DataFrame) -> str:
    """Returns what the fits of all seeds report, such as ``ok`` or ``3 ok, 2 inverted``."""
    names = rows["metric"][rows["metric"].str.startswith("fit_status/")]
    count = names.str.removeprefix("fit_status/").value_counts()
    if len(count) == 1:
        return str(count.index[0])
    return ", ".join(f"{number} {name}" for name, number in count.items())


def _paper_cells(dataset: str, target: str, name: str) -> list[str]:
    if (dataset, target) != ("benzene", "gin"):
        return [""] * 4
    return [f"{mean:.2f} ± {std:.2f}" for mean, std in PAPER_SRB[name]]
