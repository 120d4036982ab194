"""Tables of the paper's own studies: mechanisms, message scale, ablation, sensitivity."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from nicegnn_lab.paper.numbers import PAPER_DISTANCES, PAPER_SRB
from nicegnn_lab.studies.ablation import BASES, PARTS, SWEEPS
from nicegnn_lab.studies.mechanisms import DAMAGES
from nicegnn_lab.tables.table import (
    MISSING,
    Table,
    by_subject,
    dataset_titles,
    mean_and_std,
    number,
    read_study,
    values_of,
)

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
}
#: What a damage is called in tables.
TITLES = {"em": "EM", "nc": "NC", "exchange": "exchange"}
_BOUNDARY = ("degradation_mean", "degradation_std", "restored")
_AUC = ("roc_auc paper", "roc_auc strict")
ABLATION = (*_BOUNDARY, *_AUC, "kept_area em", "kept_area nc")
SENSITIVITY = (
    *(*_AUC, "agreement_noise", "agreement_fit"),
    *(*_BOUNDARY, "fit_seconds", "explain_milliseconds"),
)
_SUBJECT = ["dataset", "target"]
_DISTANCES = [(metric, gates) for metric in ("D_repr", "D_pred") for gates in ("gt", "rand")]


def mechanisms_table(studies: str | Path) -> list[Table]:
    """Returns D_repr and D_pred of every mechanism, ours beside the paper's."""
    rows = read_study(studies, "mechanisms")
    titles, marks = dataset_titles(rows)
    nothing, lines = [""] * len(_DISTANCES), []
    for (dataset, target), subject in rows.groupby(_SUBJECT, sort=False):
        title = _subject_title(titles[dataset], target)
        paper = PAPER_DISTANCES.get(dataset, {}) if target == "gin" else {}
        by_graph = subject.groupby(["setting", "metric", "graph"])["value"].mean()  # over seeds
        for messages, added in (("clean", "-clean"), ("propagated", "")):
            means: dict[str, list[float]] = {}
            for name in DAMAGES:
                if f"{name}{added}/gt" not in by_graph:
                    continue
                places = ((f"{name}{added}/{gates}", metric) for metric, gates in _DISTANCES)
                values = [by_graph.get(place, pd.Series(dtype=float)) for place in places]
                means[name] = [float(value.mean()) for value in values]
                theirs = _paper_texts(paper[name]) if name in paper else nothing
                lines.append([title, messages, TITLES[name], *map(mean_and_std, values), *theirs])
                if name == "em":
                    continue
                if name in paper:
                    theirs = reduction(*([mean for mean, _ in paper[way]] for way in ("em", name)))
                word = "Imp." if name == "nc" else f"Imp. by {name}"
                lines.append([title, messages, word, *reduction(means["em"], means[name]), *theirs])
    headings = [f"{metric} {gates.upper()}" for metric, gates in _DISTANCES]
    note = (
        "Mean ± standard deviation over correctly classified test graphs of label 1; lower is "
        "better. GT opens the true bonds, RAND as many random ones. D_pred is in nats, so it "
        "grows with the confidence of the target. Imp. is the relative reduction by NC, or by "
        "exchange. Messages: damage is done to the messages of the clean pass, or to those "
        "that damaged states send."
    )
    title = "EM, NC and exchange with the same gates: distance from the clean computation"
    columns = ["dataset", "messages", "", *headings, *(f"paper {heading}" for heading in headings)]
    return [Table("mechanism_comparison", title, columns, lines, notes=[note, *marks])]


def _subject_title(dataset: str, target: str) -> str:
    return dataset if target == "gin" else f"{dataset}, {target}"


def _paper_texts(numbers: Iterable[tuple[float, float]]) -> list[str]:
    return [f"{mean:.2f} ± {std:.2f}" for mean, std in numbers]


def reduction(em: Sequence[float], other: Sequence[float]) -> list[str]:
    r"""Returns :math:`(D_{EM} - D) / D_{EM}` (Eq. 30) in percent, ``-`` if EM is at 0."""
    return [
        f"{number(100 * (e - d) / e, 1)}%" if e >= 0.005 else MISSING
        for e, d in zip(em, other, strict=True)
    ]


def scale_table(studies: str | Path) -> list[Table]:
    """Returns the message scale under each mechanism over the clean one, layer by layer."""
    every = read_study(studies, "scale")
    damages = [name for name in DAMAGES if (every["setting"] == name).any()]
    lines = []
    for messages, metric in (("clean", "ratio_fixed"), ("propagated", "ratio")):
        rows = every[every["metric"] == metric].rename(columns={"level": "layer"})
        layers = sorted(rows["layer"].unique())
        off = rows["value"].map(lambda ratio: abs(math.log10(max(ratio, 1e-30))))
        for (dataset, target), subject in rows.assign(off=off).groupby(_SUBJECT, sort=False):
            by_layer = subject.groupby(["setting", "layer"])
            ratio, distance = by_layer["value"].mean(), by_layer["off"].median()
            places = [(name, layer) for name in damages for layer in layers]
            values = [ratio.get(place, math.nan) for place in places]
            values += [distance.get((name, layers[-1]), math.nan) for name in damages]
            num = str(subject["graph"].nunique())
            lines.append([dataset, target, messages, num, *map(number, values)])
    heads = [f"{TITLES[name]} {layer:g}" for name in damages for layer in layers]
    off_heads = [f"{TITLES[name]} off" for name in damages]
    columns = ["dataset", "target", "messages", "graphs", *heads, *off_heads]
    title = "Message scale over clean scale by layer, gates open on the true bonds"
    note = (
        "Mean over correctly classified test graphs of label 1 of the mean squared message "
        "norm of a layer over its clean value; 1 is no drift. Damage is done to the messages of "
        "the clean pass, or it runs through all layers (propagated). Off is the median of the "
        "absolute decimal logarithm of the last layer's ratio, 0 being clean: it counts growth and "
        "shrinkage alike."
    )
    return [Table("scale_study", title, columns, lines, notes=[note])]


def ablation_table(studies: str | Path) -> list[Table]:
    """Returns the ablation of the paper's SRB beside the paper's."""
    rows = read_study(studies, "ablation")
    (titles, marks), lines = dataset_titles(rows), []
    for (dataset, target), subject in rows.groupby(_SUBJECT, sort=False):
        is_same = (dataset, target) == ("benzene", "gin")
        for setting, (title, _) in PARTS.items():
            chosen = subject[subject["setting"] == setting]
            if len(chosen) == 0:
                continue
            statuses = chosen.loc[chosen["metric"] == "fit_status", "note"].value_counts()
            status = ", ".join(f"{count} {name}" for name, count in statuses.items())
            paper = PAPER_SRB[setting.replace("propagated", "paper")]
            line = [_subject_title(titles[dataset], target), title]
            line += _cells(chosen, ABLATION, values_of)
            line.append(str(statuses.index[0]) if len(statuses) == 1 else status)
            lines.append(line + (_paper_texts(paper) if is_same else [""] * len(paper)))
    columns = ["dataset", "variant", *(HEADINGS[name][0] for name in ABLATION), "fit"]
    columns += [f"paper {heading}" for heading in columns[2:6]]
    note = (
        "Mean ± standard deviation over seeds. Mean and Std. of the lost log-probability over "
        "noise draws at the boundary, in nats; Rest. is the restored share of edges; AUC by "
        "protocol `paper` and by `strict`; kept is the area under the share of kept predictions "
        "when only the best bonds are left, the others masked (EM) or corrupted (NC); the last "
        "column is what the fit reports about its gates, without truth."
    )
    notes = (note, "The paper reports Benzene only.", *marks)
    title = "Ablation of SRB as the paper writes it"
    return [Table("ablation-srb", title, columns, lines, notes=notes)]


def _cells(
    rows: pd.DataFrame, columns: Sequence[str], values: Callable[[pd.DataFrame, str, str], Any]
) -> list[str]:
    words = [(*name.partition(" "), HEADINGS[name][1]) for name in columns]
    return [mean_and_std(values(rows, word, way), digits) for word, _, way, digits in words]


def sensitivity_table(studies: str | Path) -> list[Table]:
    """Returns all sweeps, mean and deviation over datasets, targets and seeds."""
    rows = read_study(studies, "sensitivity")
    lines = [
        [base, title, f"{level:g}", *_cells(at_level, SENSITIVITY, by_subject)]
        for base, _, title, levels in swept(rows)
        for level, at_level in levels
    ]
    columns = ["base", "varied", "level", *(HEADINGS[name][0] for name in SENSITIVITY)]
    note = (
        f"Mean over seeds, then mean ± standard deviation over "
        f"{rows.groupby(_SUBJECT).ngroups} pair(s) of dataset and "
        "target. Agreement is the rank correlation of two explanations: with other noise and "
        "the same gates, or with gates of another seed. Mean and Std. of the lost "
        "log-probability over draws at the boundary, in nats; Rest. is the restored share."
    )
    title = "Sensitivity of the paper's NICE to its settings"
    return [Table("sensitivity", title, columns, lines, notes=[note])]


def swept(rows: pd.DataFrame) -> Iterator[tuple[str, str, str, list[tuple[float, Any]]]]:
    """Yields base, sweep and its title with the rows at each level, in the order of `SWEEPS`."""
    for sweep in SWEEPS:
        for base in BASES:
            chosen = rows[rows["setting"] == f"{base}/{sweep.name}"]
            if len(chosen):
                levels = [(float(level), at_level) for level, at_level in chosen.groupby("level")]
                yield base, sweep.name, sweep.title, levels
