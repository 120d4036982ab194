"""Claims about explanation quality: agreement with the truth, fidelity, EM against NC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from nicegnn.metrics import METRICS, REMOVALS
from nicegnn.paper.claims import PAPER_RIVALS, Finding, Numbers, Part, claim
from nicegnn.paper.evidence import (
    Evidence,
    Means,
    compared,
    complete,
    places_of,
    rank_methods,
)
from nicegnn.paper.methods import Method, own_mechanism
from nicegnn.paper.numbers import (
    PAPER_DATASETS,
    PAPER_MARGIN,
    PAPER_RESULTS,
    PAPER_TOP_TWO,
    paper_value,
)
from nicegnn.rivals.registry import EXPLAINERS

MAIN = ("f1", "recall", "roc_auc")  # metrics of the paper's main table
TOLERANCE = 2.0  # points by which our Random row may differ from the paper's

#: (dataset, method) of the rows behind a finding.
Places = Collection[tuple[str, str]]


@claim("rank", "Table 1", shown=("f1", "paper"))
@claim(
    "rank-as-written",
    "Table 1, Appendix E",
    "NICE exactly as the paper writes it ranks first in F1, Recall and AUC.",
    {"method": "nice-paper"},
    explainers=("nice-paper", *PAPER_RIVALS),
)
@claim(
    "rank-of-all",
    statement="NICE ranks first also among methods and mechanisms that the paper leaves out.",
    given={"rivals": None},
    explainers=tuple(EXPLAINERS),
    is_ours=True,
)
def first_in_rank(
    evidence: Evidence,
    method: str = "nice",
    metrics: Sequence[str] = MAIN,
    rivals: Collection[str] | None = PAPER_RIVALS,
) -> Finding:
    """NICE ranks first in F1, Recall and AUC.

    A method must have the best average rank over datasets, metric by metric. A rival that lacks one
    of the method's datasets gets no rank: a rank over fewer datasets, perhaps easier ones, cannot
    be compared. Means on the datasets that it has are compared instead.

    Args:
        rivals: names of methods; none for all that are neither ours, nor supervised, nor the truth.
    """
    parts, rest, rows = [], [], []
    used: set[tuple[str, str]] = set()
    for metric in metrics:
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


@claim("margin", "Section 5.2")
def margin(evidence: Evidence, method: str = "nice") -> Finding:
    """NICE is ahead of the strongest baseline by 6.42, 8.67 and 7.57 points of F1, Recall and AUC
    on average.
    """
    parts, rows = [], []
    used: set[tuple[str, str]] = set()
    for metric in MAIN:
        found = _best_mean(evidence.means(metric), method)
        if found is None:
            continue
        mine, best, other, places = found
        ahead, wanted, title = mine - other, PAPER_MARGIN[metric], METRICS[metric].title
        parts += [
            Part(
                f"{title}: {mine:.1f} against {other:.1f} of {best}, {ahead:+.1f} points", ahead > 0
            ),
            Part(f"{title}: {ahead:+.1f} points, paper {wanted:+.2f}", ahead >= wanted),
        ]
        rows.append([title, f"{mine:.1f}", best, f"{other:.1f}", f"{ahead:+.1f}", f"{wanted:+.2f}"])
        used |= places
    columns = ["metric", method, "strongest rival", "its mean", "difference", "paper"]
    numbers = Numbers("Means over datasets in percent", columns, rows)
    return _finding(evidence, method, parts, used, numbers)


@claim("precision", "Appendix F", shown=("precision", "paper"))
def precision(evidence: Evidence, method: str = "nice") -> Finding:
    """NICE has the highest mean Precision and is among the best two on 7 of 8 datasets."""
    table = complete(compared(evidence.means("precision"), method, PAPER_RIVALS), method)
    if len(table) < 2:
        return _finding(evidence, method, (), ())
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    best = max((name for name in average if name != method), key=lambda name: average[name])
    datasets, all_of_paper = list(table[method]), len(PAPER_DATASETS)
    top_two = sum(
        sum(row[name] > table[method][name] for row in table.values()) < 2 for name in datasets
    )
    text = f"among the best two on {top_two} of {len(datasets)} datasets"
    parts = [
        Part(
            f"mean {average[method]:.1f} against {average[best]:.1f} of {best}",
            average[method] > average[best],
        ),
        Part(
            f"{text} (paper: {PAPER_TOP_TWO} of {all_of_paper})",
            top_two >= PAPER_TOP_TWO / all_of_paper * len(datasets),
        ),
    ]
    rows = [
        [name, f"{average[name]:.1f}", *(f"{100 * table[name][d]:.1f}" for d in datasets)]
        for name in sorted(table, key=lambda name: -average[name])
    ]
    numbers = Numbers("Precision in percent", ["method", "mean", *datasets], rows)
    return _finding(evidence, method, parts, places_of(table), numbers)


@claim("budgets", "Figure 4, Appendix F", shown=("kept@0.1", "em"))
def small_budgets(evidence: Evidence, method: str = "nice") -> Finding:
    """With few bonds left, NICE keeps the prediction better than its rivals."""
    parts, rows = [], []
    used: set[tuple[str, str]] = set()
    for removal in REMOVALS:
        for budget in (0.1, 0.3):
            found = _best_mean(evidence.means("kept", removal, budget), method)
            if found is None:
                continue
            mine, best, other, places = found
            left = f"{100 * budget:g}% of bonds, removal {removal}"
            parts.append(Part(f"{left}: kept {mine:.1f}, {best} {other:.1f}", mine > other))
            rows.append([removal, f"{100 * budget:g}%", f"{mine:.1f}", best, f"{other:.1f}"])
            used |= places
    columns = ["removal", "bonds left", method, "best rival", "its value"]
    numbers = Numbers("Predictions kept, mean over datasets in percent", columns, rows)
    return _finding(evidence, method, parts, used, numbers)


@claim("gap-narrows", "Section 5.2", shown=("kept@0.9", "em"))
def gap_narrows(evidence: Evidence, method: str = "nice") -> Finding:
    """NICE's advantage in fidelity shrinks as more bonds are left."""
    parts = []
    used: set[tuple[str, str]] = set()
    for removal in REMOVALS:
        few, many = (
            _best_mean(evidence.means("kept", removal, budget), method) for budget in (0.1, 0.9)
        )
        if few is not None and many is not None:
            first, last = few[0] - few[2], many[0] - many[2]
            text = f"removal {removal}: {first:+.1f} points at 10%, {last:+.1f} at 90%"
            parts.append(Part(text, first > 0 and first > last))
            used |= few[3] | many[3]
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
    used: set[tuple[str, str]] = set()
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
    return Finding(
        parts,
        f"{len(parts)} explainers with both mechanisms, target {evidence.target}, protocol paper",
        _missing(used),
        Numbers("AUC in percent with EM and with NC", columns, rows),
        frozenset(used),
    )


@claim("random-row", "Table 1, Random", explainers=("random",), is_ours=True)
def random_row(evidence: Evidence) -> Finding:
    """Random scores agree with the truth as in the paper, so its protocol is read rightly."""
    parts, rows = [], []
    used: set[tuple[str, str]] = set()
    for dataset in PAPER_DATASETS:
        differences = {}
        for metric in PAPER_RESULTS:
            ours = evidence.means(metric).get("random", {}).get(dataset)
            paper = paper_value(metric, "random", dataset)
            if ours is not None and paper is not None:
                differences[metric] = 100 * ours - paper[0]
                values = f"{100 * ours:.1f}", f"{paper[0]:.1f}", f"{differences[metric]:+.1f}"
                rows.append([dataset, METRICS[metric].title, *values])
        if differences:
            worst = max(differences, key=lambda name: abs(differences[name]))
            text = f"{dataset}: at most {abs(differences[worst]):.1f} points off"
            within = abs(differences[worst]) <= TOLERANCE
            parts.append(Part(f"{text} ({METRICS[worst].title})", within))
            used.add((dataset, "random"))
    columns = ["dataset", "metric", "ours", "paper", "difference"]
    numbers = Numbers("Random scores, in percent", columns, rows)
    return _finding(evidence, "random", parts, used, numbers, rivals=())


def _best_mean(means: Means, method: str) -> tuple[float, str, float, set[tuple[str, str]]] | None:
    """Returns the method's mean over datasets, the best rival and its mean, in percent.

    The last item is what was used. Rivals that lack a dataset of the method are left out.
    """
    table = complete(compared(means, method, PAPER_RIVALS), method)
    if len(table) < 2:
        return None
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    mine = average.pop(method)
    best = max(average, key=lambda name: average[name])
    return mine, best, average[best], places_of(table)


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
    *,
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
    return Finding(parts, scope, _missing(used, rivals), numbers, frozenset(used))


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
