"""Claims about explanation quality: agreement with the truth, fidelity, EM against NC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from nicegnn_lab.metrics import METRICS, REMOVALS
from nicegnn_lab.paper.claims import PAPER_RIVALS, READINGS, Finding, Numbers, Part, claim
from nicegnn_lab.paper.evidence import Evidence, Means, compared, complete, places_of, rank_methods
from nicegnn_lab.paper.methods import Method, own_mechanism
from nicegnn_lab.paper.numbers import (
    PAPER_DATASETS,
    PAPER_MARGIN,
    PAPER_PRECISION_PLACES,
    PAPER_RESULTS,
    PAPER_TOP_TWO,
    paper_value,
)
from nicegnn_lab.rivals import EXPLAINERS

_OURS: dict[str, Any] = {
    "given": {"method": "nice"},
    "explainers": ("nice", *PAPER_RIVALS),
    "is_ours": True,
}
MAIN = ("f1", "recall", "roc_auc")  # metrics of the paper's main table
PAPER = READINGS[0]
TOLERANCE = 2.0  # points by which our Random row may differ from the paper's

Places = set[tuple[str, str]]  # (dataset, method) of the rows behind a finding


@claim("rank", "Table 1", shown=("f1", "paper"))
@claim(
    "rank-ours",
    statement="NICE with our changes ranks first in F1, Recall and AUC among the paper's rivals.",
    **_OURS,
)
@claim(
    "rank-of-all",
    statement="NICE with our changes ranks first also among methods that the paper leaves out.",
    **{**_OURS, "given": {"method": "nice", "rivals": None}, "explainers": tuple(EXPLAINERS)},
)
def first_in_rank(
    evidence: Evidence, method: str = PAPER, rivals: Collection[str] | None = PAPER_RIVALS
) -> Finding:
    """NICE ranks first in F1, Recall and AUC.

    A method must have the best average rank over datasets, metric by metric. A rival that lacks one
    of the method's datasets gets no rank: a rank over fewer datasets, perhaps easier ones, cannot
    be compared; means on the datasets that it has are compared instead. `rivals`: see `compared`.
    """
    parts, rest, rows = [], [], []
    used: Places = set()
    for metric in MAIN:
        everyone, title = compared(evidence.means(metric), method, rivals), METRICS[metric].title
        rest += [*_against_the_rest(everyone, method, title)]
        used |= places_of(everyone) if len(everyone) > 1 else set()
        table = complete(everyone, method)
        if len(table) < 2:
            continue
        ranks = rank_methods(table, metric)
        best = min((name for name in ranks if name != method), key=lambda name: ranks[name])
        text = f"{title}: average rank {ranks[method]:.2f} of {len(table)}, best other {best} "
        parts.append(Part(f"{text}{ranks[best]:.2f}", ranks[method] < ranks[best]))
        order = sorted(ranks, key=lambda name: (ranks[name], name == method))
        rows += [[title, name, f"{ranks[name]:.2f}"] for name in order]
    numbers = Numbers("Average ranks", ["metric", "method", "rank"], rows)
    return _finding(evidence, method, parts + rest, used, numbers)


@claim("gains", "Section 5.2")
@claim("gains-ours", statement="Our gains over the best rival show on every dataset.", **_OURS)
def consistent_gains(evidence: Evidence, method: str = PAPER) -> Finding:
    """Gains over the best rival are consistent: they show on every dataset.

    On each dataset the method must beat the best rival of that dataset in F1, Recall and AUC.
    """
    ahead: dict[str, dict[str, float]] = {}
    used: Places = set()
    for metric in MAIN:
        table = complete(compared(evidence.means(metric), method, PAPER_RIVALS), method)
        used |= places_of(table) if len(table) > 1 else set()
        for dataset, mine in table.pop(method, {}).items():
            if table:
                best = max(row[dataset] for row in table.values())
                ahead.setdefault(dataset, {})[METRICS[metric].title] = 100 * (mine - best)
    parts, rows = [], []
    for dataset, found in ahead.items():
        shown = ", ".join(f"{title} {points:+.1f}" for title, points in found.items())
        parts.append(Part(f"{dataset}: {shown} points", min(found.values()) > 0))
        rows.append([dataset, *(f"{points:+.1f}" for points in found.values())])
    columns = ["dataset", *(METRICS[metric].title for metric in MAIN)]
    numbers = Numbers("Points ahead of the best rival of each dataset", columns, rows)
    return _finding(evidence, method, parts, used, numbers)


@claim("margin", "Section 5.2")
@claim("margin-ours", statement="With our changes the lead is as large as the paper's.", **_OURS)
def margin(evidence: Evidence, method: str = PAPER) -> Finding:
    """NICE is ahead of the strongest baseline by 6.42, 8.67 and 7.57 points of F1, Recall and AUC
    on average.
    """
    parts, rows = [], []
    used: Places = set()
    for metric in MAIN:
        best = _best_rival(evidence.means(metric), method)
        if best is not None:
            ahead, wanted, title = best.ahead, PAPER_MARGIN[metric], METRICS[metric].title
            text = f"{title}: {best.mine:.1f} against {best.mean:.1f} of {best.name}"
            parts += [
                Part(f"{text}, {ahead:+.1f} points", ahead > 0),
                Part(f"{title}: {ahead:+.1f} points, paper {wanted:+.2f}", ahead >= wanted),
            ]
            means = f"{best.mine:.1f}", best.name, f"{best.mean:.1f}"
            rows.append([title, *means, f"{ahead:+.1f}", f"{wanted:+.2f}"])
            used |= places_of(best.table)
    columns = ["metric", method, "strongest rival", "its mean", "difference", "paper"]
    numbers = Numbers("Means over datasets in percent", columns, rows)
    return _finding(evidence, method, parts, used, numbers)


@claim("precision", "Appendix F", shown=("precision", "paper"))
@claim(
    "precision-ours",
    statement="NICE with our changes is as good in Precision as the paper says.",
    **_OURS,
)
def precision(evidence: Evidence, method: str = PAPER) -> Finding:
    """NICE has the highest mean Precision and is among the best two on 7 of 8 datasets."""
    best = _best_rival(evidence.means("precision"), method)
    if best is None:
        return _finding(evidence, method, (), set())
    table, datasets, num = best.table, list(best.table[method]), len(PAPER_DATASETS)
    top_two = sum(
        sum(row[name] > table[method][name] for row in table.values()) < 2 for name in datasets
    )
    text = f"among the best two on {top_two} of {len(datasets)} datasets"
    parts = [
        Part(f"mean {best.mine:.1f} against {best.mean:.1f} of {best.name}", best.ahead > 0),
        Part(
            f"{text} (paper: {PAPER_TOP_TWO} of {num})",
            top_two >= PAPER_TOP_TWO / num * len(datasets),
        ),
    ]
    for name, wanted in PAPER_PRECISION_PLACES.items():
        if name in datasets:
            place = 1 + sum(row[name] > table[method][name] for row in table.values())
            parts.append(Part(f"{name}: place {place} (paper: {wanted})", place <= wanted))
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    rows = [
        [name, f"{average[name]:.1f}", *(f"{100 * table[name][d]:.1f}" for d in datasets)]
        for name in sorted(table, key=lambda name: -average[name])
    ]
    numbers = Numbers("Precision in percent", ["method", "mean", *datasets], rows)
    return _finding(evidence, method, parts, places_of(table), numbers)


@claim("budgets", "Figure 4, Appendix F", shown=("kept@0.1", "em"))
@claim(
    "budgets-ours",
    statement="NICE with our changes keeps the prediction better with few bonds left.",
    **_OURS,
)
def small_budgets(evidence: Evidence, method: str = PAPER) -> Finding:
    """With few bonds left, NICE keeps the prediction better than its rivals."""
    parts, rows = [], []
    used: Places = set()
    for removal in _removals(evidence, method):
        for budget in (0.1, 0.3):
            best = _best_rival(evidence.means("kept", removal, budget), method)
            if best is not None:
                mine, other, left = f"{best.mine:.1f}", f"{best.mean:.1f}", f"{100 * budget:g}%"
                text = f"{left} of bonds, removal {removal}: kept {mine}, {best.name} {other}"
                parts.append(Part(text, best.ahead > 0))
                rows.append([removal, left, mine, best.name, other])
                used |= places_of(best.table)
    columns = ["removal", "bonds left", method, "best rival", "its value"]
    numbers = Numbers("Predictions kept, mean over datasets in percent", columns, rows)
    return _finding(evidence, method, parts, used, numbers)


@claim("carbonyls", "Appendix F", shown=("kept@0.1", "em"))
def carbonyls(evidence: Evidence, method: str = PAPER) -> Finding:
    """NICE keeps most at 10% of bonds on Alkane-Carbonyl, at 10% and 30% on Fluoride-Carbonyl."""
    parts = []
    for dataset, budgets in (("alkane-carbonyl", (0.1,)), ("fluoride-carbonyl", (0.1, 0.3))):
        for removal in _removals(evidence, method):
            for budget in budgets:
                means = evidence.means("kept", removal, budget)
                here = {m: {dataset: row[dataset]} for m, row in means.items() if dataset in row}
                best = _best_rival(here, method)
                if best is not None:
                    text = f"{dataset}, {100 * budget:g}% of bonds, removal {removal}: kept "
                    text += f"{best.mine:.1f}, {best.name} {best.mean:.1f}"
                    parts.append(Part(text, best.ahead > 0))
    scope = f"target {evidence.target}" if parts else f"There are no rows of {method}."
    return Finding(parts, scope)


@claim("gap-narrows", "Section 5.2", shown=("kept@0.9", "em"))
def gap_narrows(evidence: Evidence, method: str = PAPER) -> Finding:
    """NICE's advantage in fidelity shrinks as more bonds are left."""
    parts = []
    used: Places = set()
    for removal in _removals(evidence, method):
        few, many = (
            _best_rival(evidence.means("kept", removal, budget), method) for budget in (0.1, 0.9)
        )
        if few is not None and many is not None:
            text = f"removal {removal}: {few.ahead:+.1f} points at 10%, {many.ahead:+.1f} at 90%"
            parts.append(Part(text, few.ahead > 0 and few.ahead > many.ahead))
            used |= places_of(few.table) | places_of(many.table)
    return _finding(evidence, method, parts, used)


@claim(
    "nc-for-rivals",
    "Section 3, as a consequence",
    explainers=("gnnexplainer", "gnnexplainer+nc", "pgexplainer", "pgexplainer+nc"),
)
def nc_for_rivals(evidence: Evidence) -> Finding:
    """NC serves each rival better than EM."""
    table = evidence.means("roc_auc")
    parts, rows = [], []
    used: Places = set()
    for name in dict.fromkeys(label.partition("+")[0] for label in table):
        if Method(name, own_mechanism(name)).group == "ours":
            continue
        em, nc = (Method(name, mechanism).label for mechanism in ("em", "nc"))
        shared = [d for d in table.get(em, {}) if d in table.get(nc, {})] if em != nc else []
        if not shared:
            continue
        gains = {d: 100 * (table[nc][d] - table[em][d]) for d in shared}
        wins, mean = sum(gain > 0 for gain in gains.values()), fmean(gains.values())
        text = f"{name}: {mean:+.1f} points of AUC on average, better on {wins} of {len(shared)}"
        parts.append(Part(text, mean > 0))
        for d in shared:
            values = f"{100 * table[em][d]:.1f}", f"{100 * table[nc][d]:.1f}"
            rows.append([name, d, *values, f"{gains[d]:+.1f}"])
        used |= {(d, label) for d in shared for label in (em, nc)}
    columns = ["explainer", "dataset", "EM", "NC", "difference"]
    numbers = Numbers("AUC in percent with EM and with NC", columns, rows)
    scope = (
        f"{len(parts)} explainers with both mechanisms, target {evidence.target}, protocol paper"
    )
    return Finding(parts, scope, _missing(used), numbers)


@claim("random-row", "Table 1, Random", explainers=("random",), is_ours=True)
def random_row(evidence: Evidence) -> Finding:
    """Random scores agree with the truth as in the paper, so its protocol is read rightly."""
    parts, rows = [], []
    used: Places = set()
    for dataset in PAPER_DATASETS:
        off: dict[str, float] = {}  # points by which each metric differs
        for metric in PAPER_RESULTS:
            ours = evidence.means(metric).get("random", {}).get(dataset)
            paper = paper_value(metric, "random", dataset)
            if ours is not None and paper is not None:
                title, difference = METRICS[metric].title, 100 * ours - paper[0]
                off[title] = abs(difference)
                values = f"{100 * ours:.1f}", f"{paper[0]:.1f}", f"{difference:+.1f}"
                rows.append([dataset, title, *values])
        if off:
            worst = max(off, key=lambda title: off[title])
            text = f"{dataset}: at most {off[worst]:.1f} points off ({worst})"
            parts.append(Part(text, off[worst] <= TOLERANCE))
            used.add((dataset, "random"))
    columns = ["dataset", "metric", "ours", "paper", "difference"]
    numbers = Numbers("Random scores, in percent", columns, rows)
    return _finding(evidence, "random", parts, used, numbers, rivals=())


def _removals(evidence: Evidence, method: str) -> Iterator[str]:
    """Yields the removals that differ: where bonds only send messages, deletion is masking."""
    seen: list[Mapping[str, float]] = []
    for removal in REMOVALS:
        found = evidence.means("kept_area", removal).get(method, {})
        is_known = any(
            found.keys() == other.keys() and all(abs(found[d] - other[d]) < 1e-6 for d in found)
            for other in seen
        )
        if not (is_known and found):
            seen.append(found)
            yield removal


class _BestRival(NamedTuple):
    name: str
    mean: float  # over datasets, in percent
    mine: float  # that of the method which is compared with it
    table: Means  # all that were compared

    @property
    def ahead(self) -> float:
        return self.mine - self.mean


def _best_rival(means: Means, method: str) -> _BestRival | None:
    """Returns the rival with the best mean, of those that have all datasets of the method."""
    table = complete(compared(means, method, PAPER_RIVALS), method)
    if len(table) < 2:
        return None
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    mine = average.pop(method)
    best = max(average, key=lambda name: average[name])
    return _BestRival(best, average[best], mine, table)


def _against_the_rest(table: Means, method: str, title: str) -> Iterator[Part]:
    """Compares a method with rivals that lack some of its datasets, on those that they have."""
    for name, row in table.items():
        if set(row) != set(table[method]):
            mine, other = (100 * fmean(some[d] for d in row) for some in (table[method], row))
            where = ", ".join(row)
            yield Part(f"{title}: {mine:.1f}, {name} {other:.1f} on {where} alone", mine > other)


def _finding(
    evidence: Evidence,
    method: str,
    parts: Sequence[Part],
    used: Places,
    numbers: Numbers | None = None,
    rivals: Sequence[str] = PAPER_RIVALS,
) -> Finding:
    """Returns a finding about a method, which says what it was measured on and what is missing."""
    scope = f"There are no rows of {method} beside those of rivals, target {evidence.target}."
    if used:
        datasets = {dataset for dataset, _ in used} & set(PAPER_DATASETS)
        others = {name for _, name in used} & set(PAPER_RIVALS) - {method}
        scope = f"{len(datasets)} of the paper's {len(PAPER_DATASETS)} datasets"
        scope += f", {len(others)} of its {len(PAPER_RIVALS)} rivals" if others else ""
        scope += f", {evidence.num_seeds(method)} seed(s), target {evidence.target}"
    return Finding(parts, scope, _missing(used, rivals), numbers)


def _missing(used: Places, rivals: Sequence[str] = ()) -> str:
    """Names the paper's datasets that are not there, and its rivals that are not on all of them."""
    if not used:
        return ""
    datasets = {dataset for dataset, _ in used}
    absent = [name for name in PAPER_DATASETS if name not in datasets]
    wanted = [name for name in PAPER_DATASETS if name in datasets]
    lacking = [name for name in rivals if any((d, name) not in used for d in wanted)]
    texts = [f"datasets {', '.join(absent)}"] if absent else []
    texts += [f"rivals, on all datasets here, {', '.join(lacking)}"] if lacking else []
    return "; ".join(texts)
