"""How NICE depends on beta, lambda (or the stated risk), noise draws and nodes of the path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.bench.nice_run import Fitted, boundary_quality, explain_all, fit_once, quality
from nicegnn.bench.scores import Scores
from nicegnn.bench.study_rows import has_part, write_part
from nicegnn.bench.subject import TARGETS_FOLDER, Subject, subjects
from nicegnn.config import NICEConfig
from nicegnn.graph.case import find_bonds
from nicegnn.metrics import spearman
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.tables.study_rows import by_subject, mean_and_std, read_one_run
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT = "sensitivity"
VERSION = 1  # raise it when the same settings give other rows

#: Configurations that are varied. The bond-wise path of our defaults has no nodes and needs no
#: boundary, so our boundary is also looked at with the joint path alone.
BASES = {
    "paper": NICEConfig.paper(),
    "nice": NICEConfig(mechanism="nc"),  # what is swept is about noise
    "nice-joint": NICEConfig(mechanism="nc").with_(attribution__path="joint", score="big"),
}


@dataclass(frozen=True)
class Sweep:
    """One quantity and the levels it takes.

    Attributes:
        name: in rows.
        title: in tables and figures.
        settings: of NICE that take the level together, see `NICEConfig.with_`.
        levels: rising.
        bases: names of `BASES` that it is varied in.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    levels: tuple[float, ...]
    bases: tuple[str, ...]

    def config(self, base: str, level: float, settings: Mapping[str, Any]) -> NICEConfig:
        """Returns a base with `settings`, then with this quantity at a level."""
        changes = dict.fromkeys(self.settings, level)
        return BASES[base].with_(**settings).with_(**changes)


SWEEPS = (
    Sweep(
        "beta",
        "variation coefficient β",
        ("boundary__beta", "attribution__beta"),
        (0.0, 0.1, 0.3, 1.0, 3.0),
        ("paper", "nice"),
    ),
    Sweep(
        "penalty",
        "compactness coefficient λ",
        ("boundary__penalty",),
        (0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
        ("paper",),
    ),
    Sweep(
        "risk_target",
        "stated risk of the boundary",
        ("boundary__risk_target",),
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
        ("nice-joint",),
    ),
    Sweep(
        "num_draws",
        "noise draws N",
        ("boundary__num_draws", "boundary__fit_draws", "attribution__num_draws"),
        (2, 4, 8, 16, 32),
        ("paper", "nice"),
    ),
    Sweep(
        "num_nodes",
        "nodes of the path T",
        ("attribution__num_nodes",),
        (1, 2, 4, 8, 16, 32),
        ("paper", "nice-joint"),
    ),
)

#: Headings of measured columns, the metric behind each, and its digits.
COLUMNS = (
    ("AUC", "roc_auc/paper", 3),
    ("AUC, strict", "roc_auc/strict", 3),
    ("agreement, noise", "agreement_noise", 3),
    ("agreement, fit", "agreement_fit", 3),
    ("Mean", "degradation_mean", 3),
    ("Std.", "degradation_std", 3),
    ("Rest.", "restored", 2),
    ("fit, s", "fit_seconds", 1),
    ("ms per graph", "explain_milliseconds", 2),
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
    sweeps: Sequence[Sweep] = SWEEPS,
    settings: Mapping[str, Any] | None = None,
    fit_graphs: int | None = None,
    num_draws: int = 64,
) -> None:
    """Writes the numbers of every level and seed; finished parts are skipped.

    Rows: ``setting`` is ``base/sweep`` and ``level`` its number; metrics are those of `COLUMNS`.
    ``agreement_noise`` is the rank correlation of two explanations by the same gates with other
    noise, ``agreement_fit`` that with the explanation by the gates of the first seed.

    Args:
        settings: changes of every base, such as ``{"boundary__steps": 200}``.
        fit_graphs: most training graphs to fit on; none for all.
        num_draws: noise draws by which boundaries are judged.
    """
    how = {"version": VERSION, "fit_graphs": fit_graphs, "num_draws": num_draws}
    levels = [(s, base, level) for s in sweeps for base in s.bases for level in s.levels]
    total = len(datasets) * len(targets) * len(levels) * len(seeds)
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        done = 0
        found = subjects(
            datasets, targets, targets_folder=targets_folder, device=device, max_graphs=max_graphs
        )
        for subject in found:
            for sweep, base, level in levels:
                config = sweep.config(base, level, settings or {})
                setting = f"{base}/{sweep.name}"
                trial = _Trial(subject, config, out, how)
                for seed in seeds:
                    note = f"{subject.dataset.name} {subject.target} {setting} {level:g}"
                    advance(done, f"{note}, seed {seed}")
                    about = [how, setting, level, config.to_dict()]
                    key = subject.key(seed, [*about, seeds[0] if seed != seeds[0] else None])
                    if not has_part(out, EXPERIMENT, key):
                        numbers = trial.measure(seed, seeds[0])
                        rows = [
                            subject.row(setting, metric, value, seed=seed, level=level)
                            for metric, value in numbers.items()
                        ]
                        write_part(out, EXPERIMENT, key, rows)
                    done += 1
        advance(done, "")


class _Trial:
    """One configuration on one subject, with any seed."""

    def __init__(
        self, subject: Subject, config: NICEConfig, out: str | Path, how: Mapping[str, Any]
    ) -> None:
        self.subject, self.config, self.out, self.how = subject, config, out, how
        self._found: dict[int, tuple[Fitted, Scores]] = {}

    def explained(self, seed: int) -> tuple[Fitted, Scores]:
        """Returns gates and scores of a seed; those of the first one are needed again."""
        if seed not in self._found:
            fitted = fit_once(self.subject, self.config, seed, self.out, self.how["fit_graphs"])
            self._found[seed] = fitted, explain_all(self.subject, fitted.nice, seed)
        return self._found[seed]

    def measure(self, seed: int, first_seed: int) -> dict[str, float]:
        """Returns all numbers of a seed by metric."""
        fitted, scores = self.explained(seed)
        again = explain_all(self.subject, fitted.nice, mix(seed, "again"))
        found = {
            **quality(self.subject, scores, seed),
            **boundary_quality(self.subject, fitted.nice, scores, self.how["num_draws"], seed),
            "agreement_noise": self._agreement(scores, again),
            "fit_seconds": fitted.seconds,
            "explain_milliseconds": 1000 * again.explain_seconds_per_graph,  # caches are warm
        }
        if seed != first_seed:
            found["agreement_fit"] = self._agreement(scores, self.explained(first_seed)[1])
        return found

    def _agreement(self, first: Scores, second: Scores) -> float:
        """Returns the rank correlation of two scorings, mean over graphs that have one."""
        batch = self.subject.dataset.test.batch(self.subject.positions)
        bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
        found = spearman(first.bond_score, second.bond_score, bonds.batch, first.num_graphs)
        return float(found.nanmean())


def table(out: str | Path) -> Table:
    """Returns all sweeps, mean and deviation over datasets, targets and seeds."""
    rows = read_one_run(out, EXPERIMENT)
    lines = [
        [
            base,
            title,
            f"{level:g}",
            *(mean_and_std(by_subject(some, metric), digits) for _, metric, digits in COLUMNS),
        ]
        for base, _, title, levels in swept(rows)
        for level, some in levels
    ]
    number = rows.groupby(["dataset", "target"]).ngroups
    return Table(
        name=EXPERIMENT,
        title="Sensitivity of NICE to its settings",
        columns=["base", "varied", "level", *(heading for heading, _, _ in COLUMNS)],
        rows=lines,
        notes=(
            f"Mean over seeds, then mean ± standard deviation over {number} pair(s) of dataset and "
            "target. Agreement is the rank correlation of two explanations: with other noise and "
            "the same gates, or with gates of another seed. Mean and Std. of the lost "
            "log-probability over draws at the boundary, in nats; Rest. is the restored share.",
        ),
    )


def swept(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, list[tuple[float, Any]]]]:
    """Yields base, sweep and its title with the rows at each level, in the order of `SWEEPS`."""
    titles = {sweep.name: sweep.title for sweep in SWEEPS}
    order = {f"{b}/{s.name}": n for n, (s, b) in enumerate((s, b) for s in SWEEPS for b in s.bases)}
    for setting in sorted(rows["setting"].unique(), key=lambda name: order.get(name, len(order))):
        base, _, name = setting.partition("/")
        chosen = rows[rows["setting"] == setting]
        levels = [(float(level), some) for level, some in chosen.groupby("level")]
        yield base, name, titles.get(name, name), levels
