"""Claims about the parts of NICE: noise corruption, the boundary that SRB finds, BIG, settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf, log, nan
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.paper.claims import READINGS, Finding, Numbers, Part, claim
from nicegnn_lab.paper.evidence import Evidence
from nicegnn_lab.paper.methods import datasets_in
from nicegnn_lab.paper.numbers import (
    PAPER_DATASETS,
    PAPER_DISTANCES,
    PAPER_REDUCTION,
    PAPER_SRB,
    Pair,
)

if TYPE_CHECKING:
    import pandas as pd

PAPER = READINGS[0]
LEAST_DISTANCE = 0.01  # below it, a share in percent says nothing
_RINGS = ("rings-count", "rings-max")
_GATES = {"gt": "true", "rand": "random"}
#: Columns of Table 3: title, metric, protocol.
_SRB_COLUMNS = (
    ("mean degradation", "degradation_mean", ""),
    ("its deviation", "degradation_std", ""),
    ("restored share", "restored", ""),
    ("AUC", "roc_auc", "paper"),
)
LEAST_RESTORED, MOST_RESTORED = 0.03, 0.97  # beyond these all gates are shut or open


@claim("scale", "Theorem 1, Figures 3 and 5", study="scale")
def scale_drift(evidence: Evidence, method: str = PAPER) -> Finding:
    """EM shrinks message scale in every layer and NC keeps it.

    NC keeps it where it stays nearer to the clean scale than EM in every layer.
    """
    parts, rows = [], []
    for name, em, nc in _ratios(evidence, method):
        shrinks = all(value < 1 for value in em)
        nearer = all(abs(n - 1) < abs(e - 1) for e, n in zip(em, nc, strict=True))
        shown = " ".join(f"{value:.2f}" for value in em), " ".join(f"{value:.2f}" for value in nc)
        parts += [
            Part(f"{name}: EM below 1 in every layer ({shown[0]})", shrinks),
            Part(f"{name}: NC nearer to 1 than EM in every layer ({shown[1]})", nearer),
        ]
        rows.append([name, *shown])
    title = "Message scale over clean scale, layer by layer"
    numbers = Numbers(title, ["dataset, target", "EM", "NC"], rows)
    return _about_study(evidence, "scale", parts, numbers, num=len(rows))


@claim("depth", "Corollary 2", study="scale")
def depth_drift(evidence: Evidence, method: str = PAPER) -> Finding:
    """Scale Drift under EM, cumulated over layers, grows with every layer."""
    parts = []
    for name, em, _ in _ratios(evidence, method):
        drift = list(accumulate(-log(max(value, 1e-30)) for value in em))
        shown = " ".join(f"{value:.2f}" for value in drift)
        grows = drift[0] > 0 and all(one < other for one, other in pairwise(drift))
        parts.append(Part(f"{name}: {shown}", grows))
    return _about_study(evidence, "scale", parts, num=len(parts))


@claim("persists", "Section 5.3, Figure 5", study="scale")
def drift_persists(evidence: Evidence, method: str = PAPER) -> Finding:
    """EM contracts messages from the first layer on, and the gap persists or widens.

    The last layer's share of the clean scale must not exceed the first layer's by over 0.05.
    """
    parts = [
        Part(
            f"{name}: {em[0]:.2f} in the first layer, {em[-1]:.2f} in the last",
            em[0] < 1 and em[-1] <= em[0] + 0.05,
        )
        for name, em, _ in _ratios(evidence, method)
        if len(em) > 1
    ]
    return _about_study(evidence, "scale", parts, num=len(parts))


@claim("distances", "Table 2, Appendix G", study="mechanisms")
def distances(evidence: Evidence, method: str = PAPER) -> Finding:
    """With the same gates, NC moves the representation less than EM, on Rings also the prediction.

    The paper's percentages are those of Rings under true gates; ours must reach half of them.
    """
    found = _distances(evidence, method)
    parts = []
    for metric, paper in PAPER_REDUCTION.items():
        wanted = found if metric == "D_repr" else {d: v for d, v in found.items() if d in _RINGS}
        for gates, name in _GATES.items():
            pairs = [values[metric, gates] for values in wanted.values()]
            fewer = sum(nc < em for em, nc in pairs)
            text = f"{metric}, {name} gates: less under NC on {fewer} of {len(pairs)} datasets"
            parts += [Part(text, fewer == len(pairs))] if pairs else []
        rings = [values[metric, "gt"] for d, values in found.items() if d in _RINGS]
        cuts = [100 * (em - nc) / em for em, nc in rings if em >= LEAST_DISTANCE]
        if cuts:
            text = f"{metric}, true gates, Rings: {fmean(cuts):.0f}% less (paper {paper}%)"
            parts.append(Part(text, fmean(cuts) >= paper / 2))
    return _about_study(evidence, "mechanisms", parts, _distance_numbers(found), num=len(found))


@claim("distances-paper", study="mechanisms", is_ours=True, given={"method": "nice-paper"})
@claim(
    "distances-paper-propagated",
    statement="D_repr and D_pred do so with noise on propagated messages.",
    study="mechanisms",
    is_ours=True,
    given={"method": "nice-propagated"},
)
def distances_match(evidence: Evidence, method: str = PAPER) -> Finding:
    """D_repr and D_pred under NC lie within two of the paper's standard deviations."""
    found = _distances(evidence, method)
    parts = []
    for dataset, values in found.items():
        for (metric, gates), (_, nc) in values.items():
            paper = _paper_distance(dataset, "nc", metric, gates)
            if paper is not None:
                mean, spread = paper
                text = f"{dataset}, {metric}, {_GATES[gates]} gates: {nc:.2f}"
                text += f" (paper {mean:.2f} ± {spread:.2f})"
                parts.append(Part(text, abs(nc - mean) <= 2 * spread))
    return _about_study(evidence, "mechanisms", parts, _distance_numbers(found), num=len(found))


@claim("confidence", "Appendix G", study="mechanisms")
def confidence(evidence: Evidence, method: str = PAPER) -> Finding:
    """Under NC the target's confidence stays nearer to the clean one than under EM."""
    parts, rows, added = [], [], _added(method)
    for dataset, some in _by_dataset(evidence, "mechanisms", evidence.target):
        names = ("clean", f"em{added}/gt", f"nc{added}/gt")
        clean, em, nc = (_mean(some, name, "confidence") for name in names)
        if clean == clean and em == em and nc == nc:
            text = f"{dataset}: clean {clean:.2f}, EM {em:.2f}, NC {nc:.2f}"
            parts.append(Part(text, abs(nc - clean) < abs(em - clean)))
            rows.append([dataset, f"{clean:.3f}", f"{em:.3f}", f"{nc:.3f}"])
    title = "Mean probability of the target class, true gates"
    numbers = Numbers(title, ["dataset", "clean", "EM", "NC"], rows)
    return _about_study(evidence, "mechanisms", parts, numbers, num=len(parts))


@claim("boundary", "Section 4.2, Table 3", explainers=READINGS)
def boundary_found(evidence: Evidence, method: str = PAPER) -> Finding:
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


@claim("big", "Section 5.4, Figure 7", explainers=READINGS)
def attribution_over_gate(evidence: Evidence, method: str = PAPER) -> Finding:
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


@claim("variation", "Table 3, Section 5.4", study="ablation")
def without_variation(evidence: Evidence, method: str = PAPER) -> Finding:
    """Without the variation term, degradation rises by 61% and its deviation by 217%, more is
    restored and AUC falls.

    See `_ablated` for what a part must show.
    """
    return _ablated(evidence, method, "no-variation", (1, 1, 1, -1))


@claim("compactness", "Table 3, Section 5.4", study="ablation")
def without_compactness(evidence: Evidence, method: str = PAPER) -> Finding:
    """Without the compactness term, 211% more is restored and AUC falls by 6.9%.

    See `_ablated` for what a part must show.
    """
    return _ablated(evidence, method, "no-compactness", (0, 0, 1, -1))


@claim("coefficients", "Figure 6", study="sensitivity")
def coefficients(evidence: Evidence, method: str = PAPER) -> Finding:
    """A larger β steadies the boundary and a larger λ makes it more compact."""
    rows, parts, missing = evidence.studies.get("sensitivity"), [], []
    for name, metric, text in (
        ("beta", "degradation_std", "deviation over draws"),
        ("penalty", "restored", "restored share"),
    ):
        curve = _by_level(rows, f"{_base(method)}/{name}", metric)
        if len(curve) > 1:
            low, high = min(curve), max(curve)
            shown = f"{text} {curve[low]:.3f} at {name} {low:g}, {curve[high]:.3f} at {high:g}"
            parts.append(Part(shown, curve[high] < curve[low]))
        else:
            missing.append(f"{text} by {name}")
    return _about_study(evidence, "sensitivity", parts, missing=missing)


@claim("saturation", "Figure 6", study="sensitivity")
def saturation(evidence: Evidence, method: str = PAPER) -> Finding:
    """Quality is saturated at 16 draws and 16 nodes, while time goes on growing.

    More of them must gain at most a point of AUC, and take longer.
    """
    rows, parts, missing = evidence.studies.get("sensitivity"), [], []
    for name, title in (("num_draws", "draws"), ("num_nodes", "nodes")):
        auc = _by_level(rows, f"{_base(method)}/{name}", "roc_auc", "paper")
        cost = _by_level(rows, f"{_base(method)}/{name}", "explain_milliseconds")
        more = [level for level in auc if level > 16]
        if 16 not in auc or not more:
            missing.append(f"more than 16 {title}")
            continue
        gain = max(auc[level] for level in more) - auc[16]
        text = f"{title}: more than 16 gain {100 * gain:+.1f} points of AUC"
        parts.append(Part(text, gain <= 0.01))
        if 16 in cost and max(more) in cost:
            longer = cost[max(more)] / cost[16]
            text = f"{title}: {max(more):g} take {longer:.1f} times as long as 16"
            parts.append(Part(text, longer > 1))
    return _about_study(evidence, "sensitivity", parts, missing=missing)


@claim("riemann", "Appendix E", study="convergence")
def riemann_converged(evidence: Evidence, method: str = PAPER) -> Finding:
    """BIG by 16 nodes and 16 draws as the paper computes it is converged.

    They must order bonds as many nodes and draws do, with a rank correlation of at least 0.9.
    """
    parts = []
    for dataset, some in _by_dataset(evidence, "convergence"):
        value = _by_level(some, f"{_base(method)}/riemann/fresh/16", "spearman").get(16.0)
        if value is not None:
            text = f"{dataset}: rank correlation {value:.2f} with the reference"
            parts.append(Part(text, value >= 0.9))
    return _about_study(evidence, "convergence", parts)


def _ablated(evidence: Evidence, method: str, variant: str, signs: Sequence[int]) -> Finding:
    """Whether the columns of Table 3 rise (1) or fall (-1) from the full SRB to a variant.

    On each dataset a change must have the sign, be larger than twice its standard error over seeds,
    and be at least half as large as the paper's, in percent; 0 asks for nothing.
    """
    parts, rows = [], []
    base, told = _base(method), (PAPER_SRB["paper"], PAPER_SRB[f"paper/{variant}"])
    columns = [*zip(_SRB_COLUMNS, signs, *told, strict=True)]
    for dataset, some in _by_dataset(evidence, "ablation"):
        for (title, metric, protocol), sign, full_paper, left_paper in columns:
            settings = (base, f"{base}/{variant}")
            full, left = (_by_seed(some, name, metric, protocol) for name in settings)
            seeds = [seed for seed in full if seed in left]
            if not seeds:
                continue
            whole = fmean(full[seed] for seed in seeds)
            changes = [left[seed] - full[seed] for seed in seeds]
            change = fmean(changes)
            error = stdev(changes) / len(seeds) ** 0.5 if len(seeds) > 1 else inf
            percent = 100 * change / whole if abs(whole) >= LEAST_DISTANCE else nan
            paper = 100 * (left_paper[0] / full_paper[0] - 1)
            shown = f"{whole:.3f}", f"{whole + change:.3f}", f"{percent:+.0f}%", f"{paper:+.0f}%"
            rows.append([dataset, title, *shown, str(len(seeds))])
            if sign:
                is_large = percent != percent or abs(percent) >= abs(paper) / 2
                text = f"{dataset}: {title} {shown[0]}, without the term {shown[1]}, {shown[2]}"
                text += f" (paper {shown[3]} on Benzene), {len(seeds)} seed(s)"
                parts.append(Part(text, sign * change > 2 * error and is_large))
    names = ["dataset", "quantity", "full SRB", "without", "change", "paper's", "seeds"]
    found, num = {row[1] for row in rows}, len({row[0] for row in rows})
    missing = [title for (title, *_), sign, *_ in columns if sign and title not in found]
    numbers = Numbers(variant, names, rows)
    return _about_study(evidence, "ablation", parts, numbers, missing if parts else (), num)


def _distances(
    evidence: Evidence, method: str
) -> dict[str, dict[tuple[str, str], tuple[float, float]]]:
    """Returns means under EM and under NC by dataset, then by metric and gates."""
    found, added = {}, _added(method)
    for dataset, some in _by_dataset(evidence, "mechanisms", evidence.target):
        pairs = {
            (metric, gates): (
                _mean(some, f"em{added}/{gates}", metric),
                _mean(some, f"nc{added}/{gates}", metric),
            )
            for metric in PAPER_REDUCTION
            for gates in _GATES
        }
        if all(value == value for pair in pairs.values() for value in pair):
            found[dataset] = pairs
    return found


def _distance_numbers(
    found: Mapping[str, Mapping[tuple[str, str], tuple[float, float]]],
) -> Numbers:
    """Returns distances beside the paper's."""
    rows = []
    for dataset, values in found.items():
        for (metric, gates), ours in values.items():
            papers = (_paper_distance(dataset, way, metric, gates) for way in ("em", "nc"))
            shown = [f"{p[0]:.2f} ± {p[1]:.2f}" if p else "-" for p in papers]
            rows.append([dataset, metric, _GATES[gates], *(f"{v:.3f}" for v in ours), *shown])
    columns = ["dataset", "metric", "gates", "EM", "NC", "paper's EM", "paper's NC"]
    return Numbers("Distance from the clean computation", columns, rows)


def _paper_distance(dataset: str, way: str, metric: str, gates: str) -> Pair | None:
    row = PAPER_DISTANCES.get(dataset, {}).get(way)
    place = 2 * list(PAPER_REDUCTION).index(metric) + list(_GATES).index(gates)
    return None if row is None else row[place]


def _base(method: str) -> str:
    """Returns the first word of settings in rows of studies."""
    return "paper" if method == PAPER else "propagated"


def _added(method: str) -> str:
    """Returns what names of EM and NC end with in rows of study ``mechanisms``."""
    return "-clean" if method == PAPER else ""


def _ratios(evidence: Evidence, method: str) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yields each dataset and target with its mean ratio in each layer under EM and under NC.

    With clean messages, the inputs of every layer are those that Theorem 1 holds fixed.
    """
    metric = "ratio_fixed" if method == PAPER else "ratio"
    for dataset, here in _by_dataset(evidence, "scale"):
        for target in sorted(here["target"].unique(), key=list(TARGETS).index):
            some = here[here["target"] == target]
            em, nc = (_by_level(some, way, metric) for way in ("em", "nc"))
            known = [level for level in em if level in nc]
            if known:
                yield f"{dataset}, {target}", [em[k] for k in known], [nc[k] for k in known]


def _by_dataset(
    evidence: Evidence, study: str, target: str | None = None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the rows of a study, dataset by dataset, of one target or of all."""
    rows = evidence.studies.get(study)
    if rows is not None:
        rows = rows if target is None else rows[rows["target"] == target]
        for dataset in datasets_in(rows):
            yield dataset, rows[rows["dataset"] == dataset]


def _mean(rows: pd.DataFrame, setting: str, metric: str, protocol: str = "") -> float:
    """Returns the mean over graphs and seeds, nan if there is none."""
    return float(_values(rows, setting, metric, protocol)["value"].mean())


def _by_seed(rows: pd.DataFrame, setting: str, metric: str, protocol: str) -> dict[int, float]:
    """Returns the mean of each seed that has one."""
    means = _values(rows, setting, metric, protocol).groupby("seed")["value"].mean().dropna()
    return {int(seed): float(mean) for seed, mean in means.items()}


def _by_level(
    rows: pd.DataFrame | None, setting: str, metric: str, protocol: str = ""
) -> dict[float, float]:
    """Returns the mean at each level that has one."""
    if rows is None:
        return {}
    means = _values(rows, setting, metric, protocol).groupby("level")["value"].mean().dropna()
    return {float(level): float(mean) for level, mean in means.items()}


def _values(rows: pd.DataFrame, setting: str, metric: str, protocol: str) -> pd.DataFrame:
    is_it = (rows["setting"] == setting) & (rows["metric"] == metric)
    return rows[is_it & (rows["protocol"] == protocol)].astype({"value": "float64"})


def _about_study(
    evidence: Evidence,
    study: str,
    parts: Sequence[Part],
    numbers: Numbers | None = None,
    missing: Sequence[str] = (),
    num: int | None = None,
) -> Finding:
    """Returns a finding by all datasets of a study, or by so many pairs of dataset and target."""
    scope = f"The study {study!r} has no rows that judge it."
    if parts:
        everything = f"{evidence.studies[study]['dataset'].nunique()} dataset(s)"
        pairs = f"{num} dataset(s) or pairs of dataset and target"
        scope = f"study {study!r}, {everything if num is None else pairs}"
    return Finding(parts, scope, ", ".join(missing), numbers)


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
    return Finding(parts, scope, missing, numbers)
