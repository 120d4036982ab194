"""Claims about the parts of NICE: the boundary that SRB finds, what BIG makes of it, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from nicegnn.paper.numbers import PAPER_DATASETS
from nicegnn.report.evidence import Evidence
from nicegnn.report.finding import Finding, Part
from nicegnn.tables.table import Table

LEAST_RESTORED, MOST_RESTORED = 0.03, 0.97  # beyond these all gates are shut or open


def boundary_found(evidence: Evidence, method: str = "nice-paper") -> Finding:
    """Whether the fitted gates carry a ranking and restore some messages but not all.

    A fit is judged without truth, see `fit_report`: it is ``ok`` if the learned order restores
    the prediction better than a shuffled one, and neither saturated nor inverted.
    """
    parts, rows = [], []
    for dataset, some in _by_dataset(evidence, method):
        statuses = Counter(str(row.status) for row in some)
        restored = fmean(float(row.restored) for row in some)
        sound = statuses["ok"] > len(some) / 2
        parts.append(
            Part(
                f"{dataset}: {_counted(statuses)}, restored share {restored:.2f}",
                sound and LEAST_RESTORED < restored < MOST_RESTORED,
            )
        )
        left = fmean(float(row.not_restored) for row in some)
        values = f"{restored:.2f}", f"{100 * left:.0f}", _auc(some, "gate")
        rows.append([dataset, str(len(some)), _counted(statuses), *values])
    columns = ["dataset", "seeds", "gates", "restored share", "% not restored", "AUC of gates"]
    return Finding(
        parts,
        _scope(evidence, method, len(parts)),
        _missing([row[0] for row in rows]),
        Table(f"claim-boundary-{method}", f"Boundaries of {method}", columns, rows),
        frozenset((row[0], method) for row in rows),
    )


def attribution_over_gate(evidence: Evidence, method: str = "nice-paper") -> Finding:
    """Whether BIG ranks the true bonds better than the gates it was computed from."""
    parts, rows = [], []
    for dataset, some in _by_dataset(evidence, method):
        known = [row for row in some if row.big_auc + row.gate_auc == row.big_auc + row.gate_auc]
        if not known:
            continue
        big = 100 * fmean(float(row.big_auc) for row in known)
        gate = 100 * fmean(float(row.gate_auc) for row in known)
        parts.append(Part(f"{dataset}: BIG {big:.1f}, gate {gate:.1f}", big > gate))
        values = f"{big:.1f}", f"{gate:.1f}", f"{big - gate:+.1f}"
        rows.append([dataset, str(len(known)), str(known[0].num_graphs), *values])
    columns = ["dataset", "seeds", "graphs", "BIG", "gate", "difference"]
    return Finding(
        parts,
        _scope(evidence, method, len(parts)),
        _missing([row[0] for row in rows]),
        Table(f"claim-big-{method}", f"AUC in percent of {method}, protocol paper", columns, rows),
        frozenset((row[0], method) for row in rows),
    )


def without_variation(evidence: Evidence) -> Finding:
    """Whether boundaries fitted without the variation term degrade more, and vary more."""
    changes = {"degradation_mean": "mean degradation", "degradation_std": "its deviation"}
    return _ablated(evidence, "paper/no-variation", {name: (1, t) for name, t in changes.items()})


def without_compactness(evidence: Evidence) -> Finding:
    """Whether boundaries fitted without the compactness term restore more and rank worse."""
    changes = {"restored": (1, "restored share"), "roc_auc/paper": (-1, "AUC")}
    return _ablated(evidence, "paper/no-compactness", changes)


def saturation(evidence: Evidence, base: str = "paper", most: float = 0.01) -> Finding:
    """Whether more than 16 draws or nodes gain less than a point of AUC but cost more time."""
    parts, missing = [], []
    for name, title in (("num_draws", "draws"), ("num_nodes", "nodes")):
        auc = _curve(evidence, f"{base}/{name}", "roc_auc/paper")
        cost = _curve(evidence, f"{base}/{name}", "explain_milliseconds")
        more = [level for level in auc if level > 16]
        if 16 not in auc or not more:
            missing.append(f"more than 16 {title}")
            continue
        gain = max(auc[level] for level in more) - auc[16]
        text = f"{title}: more than 16 gain {100 * gain:+.1f} points of AUC"
        parts.append(Part(text, gain <= most))
        if 16 in cost and max(more) in cost:
            longer = cost[max(more)] / cost[16]
            text = f"{title}: {max(more):g} take {longer:.1f} times as long as 16"
            parts.append(Part(text, longer > 1))
    scope = _experiment_scope(evidence, "sensitivity", parts)
    return Finding(parts, scope, ", ".join(missing))


def coefficients(evidence: Evidence, base: str = "paper") -> Finding:
    """Whether a larger beta steadies the boundary, and a larger lambda makes it more compact."""
    parts, missing = [], []
    for name, metric, text in (
        ("beta", "degradation_std", "deviation over draws"),
        ("penalty", "restored", "restored share"),
    ):
        curve = _curve(evidence, f"{base}/{name}", metric)
        if len(curve) > 1:
            low, high = min(curve), max(curve)
            shown = f"{text} {curve[low]:.3f} at {name} {low:g}, {curve[high]:.3f} at {high:g}"
            parts.append(Part(shown, curve[high] < curve[low]))
        else:
            missing.append(f"{text} by {name}")
    scope = _experiment_scope(evidence, "sensitivity", parts)
    return Finding(parts, scope, ", ".join(missing))


def riemann_converged(evidence: Evidence, least: float = 0.9) -> Finding:
    """Whether 16 nodes and 16 draws order bonds as many nodes and draws do."""
    rows = evidence.experiments.get("convergence")
    parts = []
    if rows is not None:
        chosen = rows[
            (rows["setting"] == "paper/riemann/fresh/16")
            & (rows["level"] == 16)
            & (rows["metric"] == "spearman")
        ]
        for dataset, some in chosen.groupby("dataset", sort=False):
            value = float(some["value"].mean())
            text = f"{dataset}: rank correlation {value:.2f} with the reference"
            parts.append(Part(text, value >= least))
    return Finding(parts, _experiment_scope(evidence, "convergence", parts))


def _ablated(evidence: Evidence, variant: str, changes: dict[str, tuple[int, str]]) -> Finding:
    """Whether metrics rise (1) or fall (-1) from the full SRB to a variant, on every dataset."""
    rows = evidence.experiments.get("ablation")
    parts, lines = [], []
    for dataset, some in () if rows is None else rows.groupby("dataset", sort=False):
        means = some.groupby(["setting", "metric"])["value"].mean()
        for metric, (sign, title) in changes.items():
            full = float(means.get(("paper", metric), float("nan")))
            left = float(means.get((variant, metric), float("nan")))
            if full == full and left == left:
                text = f"{dataset}: {title} {full:.3f}, without the term {left:.3f}"
                parts.append(Part(text, sign * (left - full) > 0))
                lines.append([str(dataset), title, f"{full:.3f}", f"{left:.3f}"])
    name = variant.replace("/", "-")
    missing = [title for _, title in changes.values() if title not in {line[1] for line in lines}]
    return Finding(
        parts,
        _experiment_scope(evidence, "ablation", parts),
        ", ".join(missing),
        Table(f"claim-{name}", variant, ["dataset", "quantity", "full SRB", "without"], lines),
    )


def _curve(evidence: Evidence, setting: str, metric: str) -> dict[float, float]:
    """Returns the mean over datasets and seeds at each level."""
    rows = evidence.experiments.get("sensitivity")
    if rows is None:
        return {}
    chosen = rows[(rows["setting"] == setting) & (rows["metric"] == metric)]
    return {float(level): float(some["value"].mean()) for level, some in chosen.groupby("level")}


def _experiment_scope(evidence: Evidence, name: str, parts: Sequence[Part]) -> str:
    rows = evidence.experiments.get(name)
    if rows is None or not parts:
        return f"There are no rows of the experiment {name} for it."
    return f"experiment {name}, {rows['dataset'].nunique()} dataset(s)"


def _by_dataset(evidence: Evidence, method: str) -> list[tuple[str, list[Any]]]:
    table = evidence.boundaries
    chosen = table[(table["method"] == method) & (table["target"] == evidence.target)]
    return [
        (str(dataset), list(some.itertuples(index=False)))
        for dataset, some in chosen.groupby("dataset", sort=False)
    ]


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{name or 'unknown'} in {num}" for name, num in statuses.most_common())


def _auc(some: Sequence[Any], name: str) -> str:
    values = [value for row in some if (value := float(getattr(row, f"{name}_auc"))) == value]
    return f"{100 * fmean(values):.1f}" if values else "-"


def _scope(evidence: Evidence, method: str, num: int) -> str:
    if num == 0:
        return f"There are no stored scores of {method} with gates, target {evidence.target}."
    return f"{num} dataset(s), stored scores of {method}, target {evidence.target}"


def _missing(datasets: Sequence[str]) -> str:
    absent = [name for name in PAPER_DATASETS if name not in datasets]
    return f"datasets {', '.join(absent)}" if absent else ""
