"""Claims about the parts of NICE: the boundary that SRB finds, what BIG makes of it, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from nicegnn.paper.claims import Finding, Numbers, Part, claim
from nicegnn.paper.evidence import Evidence
from nicegnn.paper.methods import datasets_in
from nicegnn.paper.numbers import PAPER_DATASETS

if TYPE_CHECKING:
    import pandas as pd

LEAST_RESTORED, MOST_RESTORED = 0.03, 0.97  # beyond these all gates are shut or open


_OURS: dict[str, Any] = {"given": {"method": "nice"}, "explainers": ("nice",), "is_ours": True}


@claim("boundary", "Section 4.2, Table 3", explainers=("nice-paper",))
@claim("boundary-ours", statement="SRB with our changes finds a boundary.", **_OURS)
def boundary_found(evidence: Evidence, method: str = "nice-paper") -> Finding:
    """SRB as written finds a boundary that restores the prediction with some of the messages.

    Gates must rank bonds, and restore some messages but not all. A fit is judged without truth, see
    `fit_report`: it is ``ok`` if the learned order restores the prediction better than a shuffled
    one, and neither saturated nor inverted.
    """
    parts, rows = [], []
    for dataset, found in evidence.gates(method).items():
        some = [one for one in found if one.restored == one.restored]
        if not some:
            continue
        statuses = Counter(one.status for one in some)
        restored = fmean(one.restored for one in some)
        is_sound = statuses["ok"] > len(some) / 2
        told = ", ".join(f"{name or 'unknown'} in {num}" for name, num in statuses.most_common())
        text = f"{dataset}: {told}, restored share {restored:.2f}"
        parts.append(Part(text, is_sound and LEAST_RESTORED < restored < MOST_RESTORED))
        left = 100 * fmean(one.not_restored for one in some)
        known = [one.gate_auc for one in some if one.gate_auc == one.gate_auc]
        auc = f"{100 * fmean(known):.1f}" if known else "-"
        rows.append([dataset, str(len(some)), told, f"{restored:.2f}", f"{left:.0f}", auc])
    columns = ["dataset", "seeds", "gates", "restored share", "% not restored", "AUC of gates"]
    return _about_gates(evidence, method, parts, Numbers(f"Boundaries of {method}", columns, rows))


@claim("big", "Section 5.4, Figure 7", explainers=("nice-paper",))
@claim(
    "big-ours",
    statement="With our changes, the attribution ranks bonds better than the gate.",
    **_OURS,
)
def attribution_over_gate(evidence: Evidence, method: str = "nice-paper") -> Finding:
    """BIG ranks bonds better than the gate (NICE as written)."""
    parts, rows = [], []
    for dataset, some in evidence.gates(method).items():
        known = [one for one in some if one.big_auc == one.big_auc and one.gate_auc == one.gate_auc]
        if not known:
            continue
        big = 100 * fmean(one.big_auc for one in known)
        gate = 100 * fmean(one.gate_auc for one in known)
        parts.append(Part(f"{dataset}: BIG {big:.1f}, gate {gate:.1f}", big > gate))
        rows.append([dataset, str(len(known)), f"{big:.1f}", f"{gate:.1f}", f"{big - gate:+.1f}"])
    columns = ["dataset", "seeds", "BIG", "gate", "difference"]
    title = f"AUC in percent of {method}, protocol paper"
    return _about_gates(evidence, method, parts, Numbers(title, columns, rows))


@claim("variation", "Table 3", study="ablation")
def without_variation(evidence: Evidence) -> Finding:
    """Without the variation term, degradation and its deviation rise."""
    changes = [
        ("degradation_mean", "", 1, "mean degradation"),
        ("degradation_std", "", 1, "its deviation"),
    ]
    return _ablated(evidence, "paper/no-variation", changes)


@claim("compactness", "Table 3", study="ablation")
def without_compactness(evidence: Evidence) -> Finding:
    """Without the compactness term, more is restored and AUC falls."""
    changes = [("restored", "", 1, "restored share"), ("roc_auc", "paper", -1, "AUC")]
    return _ablated(evidence, "paper/no-compactness", changes)


@claim("coefficients", "Figure 6", study="sensitivity")
def coefficients(evidence: Evidence, base: str = "paper") -> Finding:
    """A larger β steadies the boundary and a larger λ makes it more compact."""
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
    return Finding(parts, _study_scope(evidence, "sensitivity", parts), ", ".join(missing))


@claim("saturation", "Figure 6", study="sensitivity")
def saturation(evidence: Evidence, base: str = "paper", most: float = 0.01) -> Finding:
    """Quality is saturated at 16 draws and 16 nodes, while time goes on growing.

    More of them must gain at most `most` of AUC, and take longer.
    """
    parts, missing = [], []
    for name, title in (("num_draws", "draws"), ("num_nodes", "nodes")):
        auc = _curve(evidence, f"{base}/{name}", "roc_auc", "paper")
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
    return Finding(parts, _study_scope(evidence, "sensitivity", parts), ", ".join(missing))


@claim("riemann", "Appendix E", study="convergence", is_ours=True)
def riemann_converged(evidence: Evidence, least: float = 0.9) -> Finding:
    """BIG by 16 nodes and 16 draws as the paper computes it is converged.

    They must order bonds as many nodes and draws do, with a rank correlation of at least `least`.
    """
    parts = []
    for dataset, some in _by_dataset(evidence, "convergence"):
        value = _curve_of(some, "paper/riemann/fresh/16", "spearman").get(16.0)
        if value is not None:
            text = f"{dataset}: rank correlation {value:.2f} with the reference"
            parts.append(Part(text, value >= least))
    return Finding(parts, _study_scope(evidence, "convergence", parts))


def _ablated(
    evidence: Evidence, variant: str, changes: Sequence[tuple[str, str, int, str]]
) -> Finding:
    """Whether metrics rise (1) or fall (-1) from the full SRB to a variant, on every dataset.

    Args:
        changes: metric, protocol, sign of the expected change, and title of each.
    """
    parts, lines = [], []
    for dataset, some in _by_dataset(evidence, "ablation"):
        for metric, protocol, sign, title in changes:
            chosen = some[(some["metric"] == metric) & (some["protocol"] == protocol)]
            means = chosen.groupby("setting", observed=True)["value"].mean()
            full, left = (float(means.get(name, float("nan"))) for name in ("paper", variant))
            if full == full and left == left:
                text = f"{dataset}: {title} {full:.3f}, without the term {left:.3f}"
                parts.append(Part(text, sign * (left - full) > 0))
                lines.append([dataset, title, f"{full:.3f}", f"{left:.3f}"])
    found = {line[1] for line in lines}
    missing = [title for *_, title in changes if title not in found]
    numbers = Numbers(variant, ["dataset", "quantity", "full SRB", "without"], lines)
    return Finding(parts, _study_scope(evidence, "ablation", parts), ", ".join(missing), numbers)


def _curve(evidence: Evidence, setting: str, metric: str, protocol: str = "") -> dict[float, float]:
    """Returns the mean over datasets and seeds at each level of a sweep."""
    rows = evidence.studies.get("sensitivity")
    return {} if rows is None else _curve_of(rows, setting, metric, protocol)


def _curve_of(
    rows: pd.DataFrame, setting: str, metric: str, protocol: str = ""
) -> dict[float, float]:
    """Returns the mean of a metric under a setting at each level."""
    chosen = rows[
        (rows["setting"] == setting) & (rows["metric"] == metric) & (rows["protocol"] == protocol)
    ].astype({"value": "float64"})
    return {float(level): float(some["value"].mean()) for level, some in chosen.groupby("level")}


def _by_dataset(evidence: Evidence, study: str) -> Iterable[tuple[str, pd.DataFrame]]:
    rows = evidence.studies.get(study)
    if rows is not None:
        plain = rows.astype({"value": "float64"})
        for dataset in datasets_in(plain):
            yield dataset, plain[plain["dataset"] == dataset]


def _study_scope(evidence: Evidence, study: str, parts: Sequence[Part]) -> str:
    rows = evidence.studies.get(study)
    if rows is None or not parts:
        return f"The study {study!r} has no rows that judge it."
    return f"study {study!r}, {rows['dataset'].nunique()} dataset(s)"


def _about_gates(
    evidence: Evidence, method: str, parts: Sequence[Part], numbers: Numbers
) -> Finding:
    """Returns a finding about a method's gates; the first column of the numbers is the dataset."""
    datasets = [row[0] for row in numbers.rows]
    absent = [name for name in PAPER_DATASETS if name not in datasets]
    scope = f"The rows tell nothing about gates of {method}, target {evidence.target}."
    if method in evidence.means("roc_auc"):
        scope += " They are from before this was stored; finished cells need another `--out`."
    if datasets:
        scope = f"{len(datasets)} dataset(s), rows of {method}, target {evidence.target}"
    missing = f"datasets {', '.join(absent)}" if absent and datasets else ""
    return Finding(parts, scope, missing, numbers, frozenset((name, method) for name in datasets))
