"""Claims about explanation quality: agreement with the truth, fidelity, EM against NC."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from nicegnn.metrics import METRICS, REMOVALS
from nicegnn.paper.numbers import PAPER_DATASETS, PAPER_RESULTS, paper_value
from nicegnn.report.comparing import Means, cells_of, compared, complete, rank_methods, sorted_ranks
from nicegnn.report.evidence import Evidence
from nicegnn.report.finding import Finding, Part
from nicegnn.tables.methods import Method, own_mechanism
from nicegnn.tables.table import Table

MAIN = ("f1", "recall", "roc_auc")  # metrics of the paper's main table
PAPER_RIVALS = tuple(name for name in PAPER_RESULTS["f1"] if name != "nice")
PAPER_MARGIN = {"f1": 6.42, "recall": 8.67, "roc_auc": 7.57}  # points over its strongest baseline
TOLERANCE = 2.0  # points by which our Random row may differ from the paper's


def first_in_rank(
    evidence: Evidence,
    method: str = "nice",
    metrics: Sequence[str] = MAIN,
    rivals: Collection[str] | None = PAPER_RIVALS,
) -> Finding:
    """Whether a method has the best average rank over datasets, metric by metric.

    A rival without a value on one of the method's datasets has no rank, for over fewer of them,
    perhaps easier ones, it would be no rank among the same; the means on those that it has are
    compared instead.

    Args:
        rivals: names of methods; none for all that are neither ours, nor supervised, nor the truth.
    """
    parts, rest, rows, used = [], [], [], set()
    for metric in metrics:
        everyone, title = compared(evidence.means(metric), method, rivals), METRICS[metric].title
        rest += [*_against_the_rest(everyone, method, title)]
        used |= cells_of(everyone) if len(everyone) > 1 else set()
        table = complete(everyone, method)
        if len(table) < 2:
            continue
        ranks = rank_methods(table, metric)
        mine = ranks.pop(method)
        best = min(ranks, key=lambda name: ranks[name])
        parts.append(
            Part(
                f"{title}: average rank {mine:.2f} of {len(table)}, best other {best} "
                f"{ranks[best]:.2f}",
                mine < ranks[best],
            )
        )
        rows += [[title, name, f"{rank:.2f}"] for name, rank in sorted_ranks(ranks, method, mine)]
    return Finding(
        parts + rest,
        _scope(evidence, method, used),
        _missing(used, PAPER_RIVALS),
        Table(f"claim-rank-{method}", "Average ranks", ["metric", "method", "rank"], rows),
        frozenset(used),
    )


def margin(evidence: Evidence, method: str = "nice") -> Finding:
    """Whether the mean over datasets is above that of the strongest rival, and by how much."""
    parts, rows, used = [], [], set()
    for metric in MAIN:
        table = complete(compared(evidence.means(metric), method, PAPER_RIVALS), method)
        if len(table) < 2:
            continue
        average = {name: 100 * fmean(row.values()) for name, row in table.items()}
        mine = average.pop(method)
        best = max(average, key=lambda name: average[name])
        ahead, wanted = mine - average[best], PAPER_MARGIN[metric]
        title = METRICS[metric].title
        text = f"{title}: {mine:.1f} against {average[best]:.1f} of {best}"
        parts += [
            Part(f"{text}, {ahead:+.1f} points", ahead > 0),
            Part(f"{title}: {ahead:+.1f} points, paper {wanted:+.2f}", ahead >= wanted),
        ]
        rows.append([title, f"{mine:.1f}", best, f"{average[best]:.1f}", f"{ahead:+.1f}"])
        rows[-1].append(f"{wanted:+.2f}")
        used |= cells_of(table)
    columns = ["metric", method, "strongest rival", "its mean", "difference", "paper"]
    return Finding(
        parts,
        _scope(evidence, method, used),
        _missing(used, PAPER_RIVALS),
        Table("claim-margin", "Means over datasets in percent", columns, rows),
        frozenset(used),
    )


def precision(evidence: Evidence, method: str = "nice") -> Finding:
    """Whether precision is the highest on average, and among the best two nearly everywhere."""
    table = complete(compared(evidence.means("precision"), method, PAPER_RIVALS), method)
    if len(table) < 2:
        return Finding(scope=_scope(evidence, method, ()))
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    best = max((name for name in average if name != method), key=lambda name: average[name])
    datasets = list(table[method])
    top_two = [
        name
        for name in datasets
        if sum(row[name] > table[method][name] for row in table.values()) < 2
    ]
    parts = [
        Part(
            f"mean {average[method]:.1f} against {average[best]:.1f} of {best}",
            average[method] > average[best],
        ),
        Part(
            f"among the best two on {len(top_two)} of {len(datasets)} datasets (paper: 7 of 8)",
            len(top_two) >= 7 / 8 * len(datasets),
        ),
    ]
    rows = [
        [name, f"{average[name]:.1f}", *(f"{100 * table[name][d]:.1f}" for d in datasets)]
        for name in sorted(table, key=lambda name: -average[name])
    ]
    return Finding(
        parts,
        _scope(evidence, method, cells_of(table)),
        _missing(cells_of(table), PAPER_RIVALS),
        Table("claim-precision", "Precision in percent", ["method", "mean", *datasets], rows),
        frozenset(cells_of(table)),
    )


def small_budgets(evidence: Evidence, method: str = "nice") -> Finding:
    """Whether the prediction is kept best when few bonds are left, however they are removed."""
    parts, rows, used = [], [], set()
    for removal in REMOVALS:
        for budget in ("0.1", "0.3"):
            found = _kept(evidence, method, budget, removal)
            if found is None:
                continue
            mine, best, other, cells = found
            left = f"{100 * float(budget):g}% of bonds, removal {removal}"
            parts.append(Part(f"{left}: kept {mine:.1f}, {best} {other:.1f}", mine > other))
            rows.append([removal, f"{100 * float(budget):g}%", f"{mine:.1f}", best, f"{other:.1f}"])
            used |= cells
    columns = ["removal", "bonds left", method, "best rival", "its value"]
    return Finding(
        parts,
        _scope(evidence, method, used),
        _missing(used, PAPER_RIVALS),
        Table("claim-budgets", "Predictions kept, mean over datasets in percent", columns, rows),
        frozenset(used),
    )


def gap_narrows(evidence: Evidence, method: str = "nice") -> Finding:
    """Whether the advantage over the best rival shrinks from small to large budgets."""
    parts, used = [], set()
    for removal in REMOVALS:
        few = _kept(evidence, method, "0.1", removal)
        many = _kept(evidence, method, "0.9", removal)
        if few is not None and many is not None:
            first, last = few[0] - few[2], many[0] - many[2]
            text = f"removal {removal}: {first:+.1f} points at 10%, {last:+.1f} at 90%"
            parts.append(Part(text, first > 0 and first > last))
            used |= few[3] | many[3]
    return Finding(
        parts,
        _scope(evidence, method, used),
        _missing(used, PAPER_RIVALS),
        sources=frozenset(used),
    )


def nc_for_rivals(evidence: Evidence) -> Finding:
    """Whether each rival explains better with noise corruption than with masking."""
    table = evidence.means("roc_auc")
    parts, rows, used = [], [], set()
    for name in dict.fromkeys(label.partition("+")[0] for label in table):
        if Method(name, own_mechanism(name)).group == "ours":
            continue
        em, nc = (Method(name, mechanism).label for mechanism in ("em", "nc"))
        shared = [d for d in table.get(em, {}) if d in table.get(nc, {})] if em != nc else []
        if not shared:
            continue
        gains = {d: 100 * (table[nc][d] - table[em][d]) for d in shared}
        wins = sum(gain > 0 for gain in gains.values())
        mean = fmean(gains.values())
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
        Table("claim-nc-for-rivals", "AUC in percent with EM and with NC", columns, rows),
        frozenset(used),
    )


def random_row(evidence: Evidence) -> Finding:
    """Whether random scores agree with the truth as much as in the paper."""
    parts, rows, used = [], [], set()
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
            parts.append(
                Part(f"{text} ({METRICS[worst].title})", abs(differences[worst]) <= TOLERANCE)
            )
            used.add((dataset, "random"))
    return Finding(
        parts,
        _scope(evidence, "random", used),
        _missing(used),
        Table(
            "claim-random",
            "Random scores, in percent",
            ["dataset", "metric", "ours", "paper", "difference"],
            rows,
        ),
        frozenset(used),
    )


def _kept(
    evidence: Evidence, method: str, budget: str, removal: str
) -> tuple[float, str, float, set[tuple[str, str]]] | None:
    """Returns the method's mean, the best rival and its mean, in percent, and what was used."""
    means = evidence.means(f"kept@{budget}", removal)
    table = complete(compared(means, method, PAPER_RIVALS), method)
    if len(table) < 2:
        return None
    average = {name: 100 * fmean(row.values()) for name, row in table.items()}
    mine = average.pop(method)
    best = max(average, key=lambda name: average[name])
    return mine, best, average[best], cells_of(table)


def _against_the_rest(table: Means, method: str, title: str) -> Iterator[Part]:
    """Compares a method with rivals that lack some of its datasets, on those that they have."""
    for name, row in table.items():
        if set(row) != set(table[method]):
            mine, other = (100 * fmean(some[d] for d in row) for some in (table[method], row))
            where = ", ".join(row)
            yield Part(f"{title}: {mine:.1f}, {name} {other:.1f} on {where} alone", mine > other)


def _scope(evidence: Evidence, method: str, used: Collection[tuple[str, str]]) -> str:
    if not used:
        return f"There are no rows of {method} beside those of rivals, target {evidence.target}."
    datasets = {dataset for dataset, _ in used} & set(PAPER_DATASETS)
    rivals = {name for _, name in used} & set(PAPER_RIVALS) - {method}
    of_paper = f"{len(datasets)} of the paper's {len(PAPER_DATASETS)} datasets"
    against = f", {len(rivals)} of its {len(PAPER_RIVALS)} rivals" if rivals else ""
    seeds = evidence.num_seeds(method)
    return f"{of_paper}{against}, {seeds} seed(s), target {evidence.target}"


def _missing(used: Collection[tuple[str, str]], rivals: Sequence[str] = ()) -> str:
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
