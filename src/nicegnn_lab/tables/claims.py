"""What the paper claims, what we measured, and whether it holds: one table.

A claim is a function of rows, and of one reading of the paper's method. It returns numbers in words
and statements that are true or false of them; its docstring is the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from itertools import accumulate, pairwise
from math import log
from typing import Any

import pandas as pd

from nicegnn.errors import StoreError
from nicegnn_lab.metrics.metric import METRICS
from nicegnn_lab.paper.methods import Method, our_method, own_mechanism
from nicegnn_lab.paper.numbers import PAPER_MARGIN, PAPER_RESULTS, PAPER_SRB, paper_value
from nicegnn_lab.tables.quality import means_of, ranks_of
from nicegnn_lab.tables.sources import Sources
from nicegnn_lab.tables.studies import by_graph
from nicegnn_lab.tables.table import MISSING, Table, cells_of, read_study, rows_of, values_of

#: Readings of the paper's method: its name in the benchmark, the first word of settings of studies,
#: what names of damages end with, and the metric of message scale.
CLEAN = ("nice-paper", "paper", "-clean", "ratio_fixed")
PROPAGATED = ("nice-propagated", "propagated", "", "ratio")
Reading = tuple[str, str, str, str]
Finding = tuple[str, Sequence[bool]]  # numbers in words; statements about them
_METRICS = (*PAPER_RESULTS, "kept", "fit_status", "restored", "gate_roc_auc", "big_roc_auc")
_NOTE = (
    "A verdict follows from statements about the numbers: all, some or none of them are true. "
    "Numbers are those of noise on clean messages, as the paper's notation and proofs have it; the "
    "second verdict is by noise on propagated messages."
)


class Rows:
    """Rows of the benchmark and of studies, read once."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.study = cache(lambda name: read_study(sources.studies, name))

    @cached_property
    def bench(self) -> pd.DataFrame:
        rows = self.sources.bench(_METRICS)
        return rows[rows["target"] == "gin"]

    def of_gin(self, study: str) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yields the rows of a study on the paper's target, dataset by dataset."""
        every = self.study(study)
        yield from every[every["target"] == "gin"].groupby("dataset", sort=False)


def claim_table(sources: Sources) -> list[Table]:
    """Returns a line per claim: the verdict by both readings, and the numbers of the first."""
    lines, rows = [], Rows(sources)
    for place, judge in CLAIMS:
        statement = " ".join((judge.__doc__ or "").partition("\n\n")[0].split())
        found: list[Finding] = []
        for reading in (CLEAN, PROPAGATED):
            try:
                found.append(judge(rows, reading))
            except StoreError:  # no rows
                found.append(("", []))
        verdicts = [verdict(parts) for _, parts in found]
        lines.append([statement, place, *verdicts, found[0][0] or found[1][0] or MISSING])
    columns = ["claim", "where", "clean messages", "propagated messages", "measured"]
    title = "What of the paper holds, target gin unless said otherwise"
    return [Table("claims", title, columns, lines, notes=[_NOTE], num_left=5)]


def verdict(parts: Sequence[bool]) -> str:
    """Returns what statements say about a claim."""
    if not parts:
        return "not measured"
    return "holds" if all(parts) else "holds in part" if any(parts) else "does not hold"


def first_in_rank(rows: Rows, reading: Reading) -> Finding:
    """NICE ranks first in F1, recall and AUC among the paper's rivals."""
    return _ranks(rows, Method(reading[0], "nc"))


def ours_first_in_rank(rows: Rows, reading: Reading) -> Finding:
    """NICE as it is here does so (our check, not the paper's)."""
    ours = our_method(rows.bench)
    text, parts = _ranks(rows, ours)
    return f"{ours.label}, {text}", parts


def _ranks(rows: Rows, method: Method) -> Finding:
    texts, parts = [], []
    for metric in PAPER_MARGIN:
        table = _beside_rivals(rows, method, metric)
        ranks = ranks_of(table).mean(axis=1)
        texts.append(f"{METRICS[metric].title} {ranks[method]:.2f}")
        parts.append(bool(ranks[method] < ranks.drop(method).min()))
    return f"mean ranks of {len(table)}: {', '.join(texts)}", parts


def margin(rows: Rows, reading: Reading) -> Finding:
    """NICE is ahead of the strongest baseline by 6.42, 8.67 and 7.57 points on average."""
    ahead = {}
    for metric in PAPER_MARGIN:
        mean, best = _means(rows, reading, metric)
        ahead[metric] = mean - best
    texts = [f"{METRICS[metric].title} {gap:+.1f}" for metric, gap in ahead.items()]
    parts = [holds for m, gap in ahead.items() for holds in (gap > 0, gap >= PAPER_MARGIN[m])]
    return f"points ahead: {', '.join(texts)}", parts


def precision(rows: Rows, reading: Reading) -> Finding:
    """NICE has the highest mean precision and is among the best two on 7 of 8 datasets."""
    mean, best = _means(rows, reading, "precision")
    table = _beside_rivals(rows, Method(reading[0], "nc"), "precision")
    better = (table.iloc[1:] > table.iloc[0]).sum()
    top = int((better < 2).sum())
    text = f"mean {mean:.1f}, best rival {best:.1f}; among two on {top} of {len(better)}"
    return text, [mean > best, 8 * top >= 7 * len(better)]


def small_budgets(rows: Rows, reading: Reading) -> Finding:
    """With 10 or 30 percent of bonds left, NICE keeps the prediction better than its rivals."""
    found = {
        f"{level:.0%} {removal}": _means(rows, reading, "kept", removal, level)
        for removal in ("em", "nc")
        for level in (0.1, 0.3)
    }
    texts = [f"{name} {mean:.1f} to {best:.1f}" for name, (mean, best) in found.items()]
    parts = [mean > best for mean, best in found.values()]
    return f"kept, NICE to best rival: {', '.join(texts)}", parts


def scale_drift(rows: Rows, reading: Reading) -> Finding:
    """EM shrinks message scale in every layer, and NC stays nearer to the clean scale."""
    pairs = list(_ratios(rows, reading))
    shrinks = [all(value < 1 for value in em) for em, _ in pairs]
    nearer = [all(abs(n - 1) < abs(e - 1) for e, n in zip(*pair, strict=True)) for pair in pairs]
    return f"{_of(shrinks)} targets; {_of(nearer)}", shrinks + nearer


def depth_drift(rows: Rows, reading: Reading) -> Finding:
    """Scale drift under EM, cumulated over layers, grows with every layer."""
    drifts = [
        list(accumulate(-log(max(value, 1e-30)) for value in em))
        for em, _ in _ratios(rows, reading)
    ]
    parts = [drift[0] > 0 and all(a < b for a, b in pairwise(drift)) for drift in drifts]
    return f"{_of(parts)} targets", parts


def drift_persists(rows: Rows, reading: Reading) -> Finding:
    """The gap under EM persists or widens: the last layer has at most the first one's scale."""
    parts = [em[0] < 1 and em[-1] <= em[0] + 0.05 for em, _ in _ratios(rows, reading)]
    return f"{_of(parts)} targets", parts


def distances(rows: Rows, reading: Reading) -> Finding:
    """NC moves the representation less than EM does, on Rings also the prediction."""
    texts, parts = [], []
    for metric in ("D_repr", "D_pred"):
        for gates in ("gt", "rand"):
            less = []
            for dataset, here in rows.of_gin("mechanisms"):
                names = f"em{reading[2]}", f"nc{reading[2]}"
                em, nc = (by_graph(here, name, metric, gates).mean() for name in names)
                if em == em and nc == nc and (metric == "D_repr" or dataset.startswith("rings")):
                    less.append(bool(nc < em))
            texts.append(f"{metric} {gates} {_of(less)}")
            parts += less
    return f"less under NC: {', '.join(texts)} datasets", parts


def confidence(rows: Rows, reading: Reading) -> Finding:
    """Under NC the target's confidence stays nearer to the clean one than under EM."""
    parts = []
    for _, here in rows.of_gin("mechanisms"):
        names = ("clean", f"em{reading[2]}/gt", f"nc{reading[2]}/gt")
        clean, em, nc = (_mean_of(here, name, "confidence") for name in names)
        parts.append(abs(nc - clean) < abs(em - clean))
    return f"{_of(parts)} datasets", parts


def boundary(rows: Rows, reading: Reading) -> Finding:
    """SRB restores the prediction with some of the messages, by gates that rank bonds."""
    ours = rows.bench[rows.bench["explainer"] == reading[0]]
    status, texts, parts = ours[ours["metric"] == "fit_status"], [], []
    for dataset, fits in status.groupby("dataset", observed=True):
        sound = float((fits["note"].astype("str") == "ok").mean())
        is_it = (ours["dataset"] == dataset) & (ours["metric"] == "restored")
        restored = float(ours.loc[is_it, "value"].mean())
        texts.append(f"{dataset} {restored:.2f}")
        parts.append(sound > 0.5 and 0.03 < restored < 0.97)  # beyond, all gates are shut or open
    return f"sound on {_of(parts)}; restored {', '.join(texts)}", parts


def attribution_over_gate(rows: Rows, reading: Reading) -> Finding:
    """BIG ranks bonds better than the gate."""
    ours = rows.bench[rows.bench["explainer"] == reading[0]]
    means = ours.groupby(["metric", "dataset"], observed=True)["value"].mean().unstack("dataset")
    if not {"gate_roc_auc", "big_roc_auc"} <= set(means.index):
        return "", []
    parts = (means.loc["big_roc_auc"] > means.loc["gate_roc_auc"]).tolist()
    return f"{_of(parts)} datasets", parts


def without_variation(rows: Rows, reading: Reading) -> Finding:
    """Without the variation term degradation rises by 61%, its deviation by 217%, AUC falls."""
    return _ablated(rows, reading, "no-variation", (1, 1, 1, -1))


def without_compactness(rows: Rows, reading: Reading) -> Finding:
    """Without the compactness term 211% more is restored and AUC falls by 6.9%."""
    return _ablated(rows, reading, "no-compactness", (0, 0, 1, -1))


def _ablated(rows: Rows, reading: Reading, part: str, signs: Sequence[int]) -> Finding:
    """A change must have its sign and be half as large as the paper's; 0 asks for nothing."""
    columns = ("degradation_mean", "degradation_std", "restored", "roc_auc paper")
    paper = zip(PAPER_SRB["paper"], PAPER_SRB[f"paper/{part}"], strict=True)
    wanted = [100 * (left[0] / full[0] - 1) for full, left in paper]
    texts, parts = [], []
    for dataset, here in rows.of_gin("ablation"):
        full, left = (
            [_mean_of(here, name, *column.split()) for column in columns]
            for name in (reading[1], f"{reading[1]}/{part}")
        )
        percent = [100 * (b / a - 1) for a, b in zip(full, left, strict=True)]
        if percent[0] != percent[0]:  # no rows of this reading
            continue
        for change, sign, published in zip(percent, signs, wanted, strict=True):
            parts += [sign * change >= abs(published) / 2] if sign else []
        texts.append(f"{dataset} {' '.join(f'{change:+.0f}%' for change in percent)}")
    shown = " ".join(f"{published:+.0f}%" for published in wanted)
    return f"mean, deviation, restored, AUC: {'; '.join(texts)} (paper {shown})", parts


def coefficients(rows: Rows, reading: Reading) -> Finding:
    """A larger beta steadies the boundary and a larger lambda makes it more compact."""
    texts, parts = [], []
    for name, metric in (("beta", "degradation_std"), ("penalty", "restored")):
        curve = _curve(rows, reading, name, metric)
        if len(curve) > 1:
            low, high = curve.iloc[0], curve.iloc[-1]
            texts.append(f"{name}: {low:.3f} to {high:.3f}")
            parts.append(bool(high < low))
    return ", ".join(texts), parts


def saturation(rows: Rows, reading: Reading) -> Finding:
    """Quality is saturated at 16 draws and 16 nodes: more gain at most a point of AUC."""
    texts, parts = [], []
    for name in ("num_draws", "num_nodes"):
        curve = _curve(rows, reading, name, "roc_auc", "paper")
        if 16 in curve.index and curve.index.max() > 16:
            gain = 100 * float(curve[curve.index > 16].max() - curve[16])
            texts.append(f"{name} {gain:+.1f}")
            parts.append(gain <= 1)
    return f"points gained beyond 16: {', '.join(texts)}", parts


def random_row(rows: Rows, reading: Reading) -> Finding:
    """Random scores agree with the truth as in the paper, so its protocol is read rightly."""
    worst: dict[str, float] = {}
    for metric in PAPER_RESULTS:
        cells = cells_of(rows_of(rows.bench, metric, protocol="paper"))
        for (method, dataset), cell in cells.items():
            paper = paper_value(metric, "random", dataset)
            if method.explainer == "random" and paper is not None:
                off = abs(100 * cell.mean - paper[0])
                worst[dataset] = max(off, worst.get(dataset, 0.0))
    texts = [f"{dataset} {off:.1f}" for dataset, off in worst.items()]
    return f"most points off: {', '.join(texts)}", [off <= 2 for off in worst.values()]


#: Where the paper says so, and the claim.
CLAIMS: tuple[tuple[str, Callable[[Any, Reading], Finding]], ...] = (
    ("Table 1", first_in_rank),
    ("Section 5.2", margin),
    ("Appendix F", precision),
    ("Figure 4", small_budgets),
    ("Theorem 1, Figures 3 and 5", scale_drift),
    ("Corollary 2", depth_drift),
    ("Section 5.3", drift_persists),
    ("Table 2", distances),
    ("Appendix G", confidence),
    ("Section 4.2", boundary),
    ("Figure 7", attribution_over_gate),
    ("Table 3", without_variation),
    ("Table 3", without_compactness),
    ("Figure 6", coefficients),
    ("Figure 6", saturation),
    ("Table 1, Random", random_row),
    ("not in the paper", ours_first_in_rank),
)


def _beside_rivals(
    rows: Rows, method: Method, metric: str, protocol: str = "paper", level: float = 0.0
) -> pd.DataFrame:
    """Returns a method and, after it, the paper's rivals on its datasets, in percent."""
    chosen = rows_of(rows.bench, metric, protocol=protocol)
    cells = cells_of(chosen[chosen["level"] == level] if level else chosen)
    datasets = [dataset for one, dataset in cells if one == method]
    if not datasets:
        raise StoreError(f"The rows hold no {method.label!r}. Run it.")
    rivals = [Method(name, own_mechanism(name)) for name in PAPER_RESULTS["f1"] if name != "nice"]
    return 100 * means_of(cells, [method, *rivals], datasets).dropna()


def _means(rows: Rows, reading: Reading, *asked: Any) -> tuple[float, float]:
    """Returns the means over datasets of a reading, and of the best rival."""
    mean = _beside_rivals(rows, Method(reading[0], "nc"), *asked).mean(axis=1)
    return float(mean.iloc[0]), float(mean.iloc[1:].max())


def _mean_of(rows: pd.DataFrame, setting: str, metric: str, protocol: str = "") -> float:
    return float(values_of(rows[rows["setting"] == setting], metric, protocol).mean())


def _ratios(rows: Rows, reading: Reading) -> Iterator[tuple[list[float], list[float]]]:
    """Yields the mean ratio in each layer under EM and under NC, target by target."""
    every = rows.study("scale")
    for _, here in every[every["metric"] == reading[3]].groupby(["dataset", "target"], sort=False):
        mean = here.groupby(["setting", "level"])["value"].mean()
        yield mean["em"].tolist(), mean["nc"].tolist()


def _curve(
    rows: Rows, reading: Reading, sweep: str, metric: str, protocol: str = ""
) -> pd.Series[float]:
    """Returns the mean at each level of a sweep."""
    every = rows.study("sensitivity")
    chosen = every[every["setting"] == f"{reading[1]}/{sweep}"].set_index("level")
    return values_of(chosen, metric, protocol).groupby("level").mean().dropna()


def _of(parts: Sequence[bool]) -> str:
    """Returns how many statements are true of how many."""
    return f"{sum(parts)} of {len(parts)}"
