"""Tables of the paper's own studies: mechanisms, message scale, ablation, sensitivity, BIG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.bench.targets import TARGETS
from nicegnn.paper.methods import datasets_in
from nicegnn.paper.numbers import PAPER_DISTANCES, PAPER_SRB
from nicegnn.studies.ablation import PARTS
from nicegnn.studies.sensitivity import SWEEPS
from nicegnn.tables.cells import (
    by_subject,
    mean_and_std,
    number,
    read_study,
    stand_in_note,
    stand_ins,
    subject_title,
    values_of,
)
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

#: Measured columns: metric with its protocol or removal to heading and digits.
HEADINGS = {
    "degradation_mean": ("Mean", 3),
    "degradation_std": ("Std.", 3),
    "restored": ("Rest.", 2),
    "roc_auc paper": ("AUC", 3),
    "roc_auc strict": ("AUC, strict", 3),
    "kept_area em": ("kept, EM", 3),
    "kept_area nc": ("kept, NC", 3),
    "agreement_noise": ("agreement, noise", 3),
    "agreement_fit": ("agreement, fit", 3),
    "fit_seconds": ("fit, s", 1),
    "explain_milliseconds": ("ms per graph", 2),
    "gap": ("gap", 4),
    "error": ("error", 3),
    "spearman": ("rank correlation", 3),
    "milliseconds": ("ms per graph", 2),
}
_BOUNDARY = ("degradation_mean", "degradation_std", "restored")
_AUC = ("roc_auc paper", "roc_auc strict")
ABLATION = (*_BOUNDARY, *_AUC, "kept_area em", "kept_area nc")
SENSITIVITY = (
    *(*_AUC, "agreement_noise", "agreement_fit"),
    *(*_BOUNDARY, "fit_seconds", "explain_milliseconds"),
)
CONVERGENCE = ("gap", "error", "spearman", *_AUC, "milliseconds")
_DISTANCES = [(metric, gates) for metric in ("D_repr", "D_pred") for gates in ("gt", "rand")]


def mechanisms_table(studies: str | Path) -> Table:
    """Returns D_repr and D_pred of both mechanisms, ours beside the paper's."""
    rows = read_study(studies, "mechanisms")
    marked = stand_ins(rows)
    lines = []
    for (dataset, target), some in rows.groupby(["dataset", "target"], sort=False):
        title = subject_title(dataset, target, marked)
        paper = PAPER_DISTANCES.get(dataset) if target == "gin" else None
        means: dict[str, list[float]] = {}
        for name in ("em", "nc"):
            values = [_by_graph(some, name, *cell) for cell in _DISTANCES]
            means[name] = [float(value.mean()) for value in values]
            theirs = [""] * len(_DISTANCES)
            if paper is not None:
                theirs = [f"{mean:.2f} ± {std:.2f}" for mean, std in paper[name]]
            lines.append([title, name.upper(), *map(mean_and_std, values), *theirs])
        theirs = [""] * len(_DISTANCES)
        if paper is not None:
            theirs = reduction(*([mean for mean, _ in paper[name]] for name in ("em", "nc")))
        lines.append([title, "Imp.", *reduction(means["em"], means["nc"]), *theirs])
    headings = [f"{metric} {gates.upper()}" for metric, gates in _DISTANCES]
    return Table(
        name="mechanism_comparison",
        title="EM and NC with the same gates: distance from the clean computation",
        columns=["dataset", "", *headings, *(f"paper {heading}" for heading in headings)],
        rows=lines,
        notes=(
            "Mean ± standard deviation over correctly classified test graphs of label 1; lower is "
            "better. GT opens the true bonds, RAND as many random ones. D_pred is in nats, so it "
            "grows with the confidence of the target. Imp. is the relative reduction by NC.",
            *stand_in_note(datasets_in(rows), marked),
        ),
    )


def reduction(em: Sequence[float], nc: Sequence[float]) -> list[str]:
    r"""Returns :math:`(D_{EM} - D_{NC}) / D_{EM}` (Eq. 30) in percent, ``-`` if EM is at 0.

    Example:
        >>> reduction([2.0, 0.0], [1.0, 1.0])
        ['50.0%', '-']
    """
    return [
        f"{number(100 * (e - n) / e, 1)}%" if e >= 0.005 else "-"
        for e, n in zip(em, nc, strict=True)
    ]


def _by_graph(rows: pd.DataFrame, mechanism: str, metric: str, gates: str) -> Any:
    """Returns a value per graph, the mean over seeds."""
    chosen = rows[(rows["setting"] == f"{mechanism}/{gates}") & (rows["metric"] == metric)]
    return chosen.groupby("graph")["value"].mean()


def scale_table(studies: str | Path) -> Table:
    """Returns the message scale under EM and NC over the clean one, layer by layer."""
    rows = read_scales(studies, "ratio")
    layers = sorted(rows["layer"].unique())
    means = rows.groupby(["dataset", "target", "setting", "layer"])["value"].mean()
    last = rows[rows["layer"] == layers[-1]]
    last = last.assign(value=last["value"].map(lambda ratio: abs(math.log10(max(ratio, 1e-30)))))
    distance = last.groupby(["dataset", "target", "setting"])["value"].median()
    lines = []
    for dataset in datasets_in(rows):
        here = rows[rows["dataset"] == dataset]
        for target in targets_in(here):
            num = here[here["target"] == target]["graph"].nunique()
            cells = [
                number(float(means.get((dataset, target, setting, layer), math.nan)))
                for setting in ("em", "nc")
                for layer in layers
            ]
            far = [
                number(float(distance.get((dataset, target, setting), math.nan)))
                for setting in ("em", "nc")
            ]
            lines.append([dataset, target, str(num), *cells, *far])
    heads = [f"{name} {layer}" for name in ("EM", "NC") for layer in layers]
    return Table(
        name="scale_study",
        title="Message scale over clean scale by layer, gates open on the true bonds",
        columns=["dataset", "target", "graphs", *heads, "EM off", "NC off"],
        rows=lines,
        notes=[
            "Mean over correctly classified test graphs of label 1 of the mean squared message "
            "norm of a layer over its clean value; 1 is no drift. The perturbation runs through "
            "all layers. Off is the median of the absolute decimal logarithm of the last layer's "
            "ratio, 0 being clean: it counts growth and shrinkage alike."
        ],
    )


def read_scales(studies: str | Path, metric: str = "scale") -> pd.DataFrame:
    """Returns one row per dataset, target, setting, layer and graph.

    Args:
        metric: ``scale``, ``ratio`` or ``ratio_fixed``.
    """
    rows = read_study(studies, "scale")
    rows = rows[rows["metric"] == metric]
    rows = rows.assign(layer=rows["level"].astype(int))
    names = ["dataset", "stand_in", "target", "setting", "seed", "layer", "graph", "value"]
    return rows[names]


def targets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the targets that rows hold, in the order of `TARGETS`."""
    found = {str(name) for name in rows["target"].unique()}
    return [name for name in TARGETS if name in found] + sorted(found - set(TARGETS))


def ablation_tables(studies: str | Path) -> list[Table]:
    """Returns the ablation of the paper's SRB beside the paper's, and that of our defaults."""
    rows = read_study(studies, "ablation")
    note = (
        "Mean ± standard deviation over seeds. Mean and Std. of the lost log-probability over "
        "noise draws at the boundary, in nats; Rest. is the restored share of edges; AUC by "
        "protocol `paper` and by `strict`; kept is the area under the share of kept predictions "
        "when only the best bonds are left, the others masked (EM) or corrupted (NC); the last "
        "column is what the fit reports about its gates, without truth."
    )
    headings = _headings(ABLATION)
    marks = stand_in_note(datasets_in(rows), stand_ins(rows))
    found = []
    is_paper = rows["setting"].str.startswith("paper")
    if is_paper.any():
        paper = [f"paper {heading}" for heading in headings[:4]]
        found.append(
            Table(
                name="ablation-srb",
                title="Ablation of SRB as the paper writes it",
                columns=["dataset", "variant", *headings, "fit", *paper],
                rows=[line + _paper_srb(*about) for about, line in _ablation(rows[is_paper])],
                notes=(note, "The paper reports Benzene only.", *marks),
            )
        )
    if not is_paper.all():
        found.append(
            Table(
                name="ablation-nice",
                title="Ablation of our defaults",
                columns=["dataset", "variant", *headings, "fit"],
                rows=[line for _, line in _ablation(rows[~is_paper])],
                notes=(note, *marks),
            )
        )
    return found


def _ablation(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], list[str]]]:
    """Yields dataset, target and setting with the cells of its line, in the order of `PARTS`."""
    marked = stand_ins(rows)
    for (dataset, target), some in rows.groupby(["dataset", "target"], sort=False):
        for setting, (title, _) in PARTS.items():
            chosen = some[some["setting"] == setting]
            if len(chosen) == 0:
                continue
            statuses = chosen.loc[chosen["metric"] == "fit_status", "note"].value_counts()
            status = ", ".join(f"{count} {name}" for name, count in statuses.items())
            status = str(statuses.index[0]) if len(statuses) == 1 else status
            line = [
                subject_title(dataset, target, marked),
                title,
                *_cells(chosen, ABLATION, values_of),
            ]
            yield (dataset, target, setting), [*line, status]


def _headings(columns: Sequence[str]) -> list[str]:
    return [HEADINGS[name][0] for name in columns]


def _cells(
    rows: pd.DataFrame, columns: Sequence[str], values: Callable[[pd.DataFrame, str, str], Any]
) -> list[str]:
    """Returns mean and deviation of the values that each column takes from rows."""
    found = []
    for name in columns:
        metric, _, protocol = name.partition(" ")
        found.append(mean_and_std(values(rows, metric, protocol), HEADINGS[name][1]))
    return found


def _paper_srb(dataset: str, target: str, setting: str) -> list[str]:
    if (dataset, target) != ("benzene", "gin"):
        return [""] * 4
    return [f"{mean:.2f} ± {std:.2f}" for mean, std in PAPER_SRB[setting]]


def sensitivity_table(studies: str | Path) -> Table:
    """Returns all sweeps, mean and deviation over datasets, targets and seeds."""
    rows = read_study(studies, "sensitivity")
    lines = [
        [base, title, f"{level:g}", *_cells(some, SENSITIVITY, by_subject)]
        for base, _, title, levels in swept(rows)
        for level, some in levels
    ]
    num = rows.groupby(["dataset", "target"]).ngroups
    return Table(
        name="sensitivity",
        title="Sensitivity of NICE to its settings",
        columns=["base", "varied", "level", *_headings(SENSITIVITY)],
        rows=lines,
        notes=(
            f"Mean over seeds, then mean ± standard deviation over {num} pair(s) of dataset and "
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


def convergence_table(studies: str | Path) -> Table:
    """Returns all combinations, mean and deviation over datasets, targets and seeds."""
    rows = read_study(studies, "convergence")
    lines = []
    for (setting, level), some in rows.groupby(["setting", "level"], sort=False):
        base, *way = setting.split("/")
        if len(way) == 1:
            way = ["reference, other noise", "", ""]
        cells = _cells(some, CONVERGENCE, by_subject)
        place = (base, *way[:2], int(way[2] or 0), level)
        lines.append((place, [base, *way, f"{level:g}", *cells]))
    lines.sort(key=lambda line: line[0])
    return Table(
        name="convergence",
        title="Convergence of BIG along the joint path",
        columns=["base", "quadrature", "noise", "draws", "nodes", *_headings(CONVERGENCE)],
        rows=[line for _, line in lines],
        notes=(
            "Gap is the relative distance of a graph's scores from completeness, error and rank "
            "correlation are against a reference with many nodes and draws. A gap of shared noise "
            "is quadrature alone; with fresh noise it also holds the noise of both ends.",
        ),
    )
