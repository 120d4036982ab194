"""Claims about EM and NC with the same gates: message scale, representation, prediction."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from nicegnn.bench.targets import TARGETS
from nicegnn.paper.claims import Finding, Numbers, Part, claim
from nicegnn.paper.evidence import Evidence
from nicegnn.paper.methods import datasets_in
from nicegnn.paper.numbers import PAPER_REDUCTION

if TYPE_CHECKING:
    import pandas as pd

_GATES = {"gt": "true", "rand": "random"}


@claim("scale", "Theorem 1, Figures 3 and 5", study="scale")
def scale_drift(evidence: Evidence) -> Finding:
    """EM shrinks message scale in every layer and NC keeps it.

    NC keeps it where it stays nearer to the clean scale than EM in every layer.
    """
    parts, rows = [], []
    for name, em, nc in _ratios(evidence):
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
    return Finding(parts, _scope(len(rows), "scale"), numbers=numbers)


@claim("depth", "Corollary 2, Figure 5", study="scale")
def depth_drift(evidence: Evidence) -> Finding:
    """Scale Drift under EM grows with depth.

    The last layer's messages are compared with the first layer's.
    """
    parts = [
        Part(f"{name}: {em[0]:.2f} in the first layer, {em[-1]:.2f} in the last", em[-1] < em[0])
        for name, em, _ in _ratios(evidence)
        if len(em) > 1
    ]
    return Finding(parts, _scope(len(parts), "scale"))


@claim("distances", "Table 2, Appendix G", study="mechanisms")
def distances(evidence: Evidence) -> Finding:
    """With the same gates, NC moves representation and prediction less than EM."""
    by_dataset = dict(_by_dataset(evidence))
    parts, lines = [], []
    for metric, paper in PAPER_REDUCTION.items():
        for gates, name in _GATES.items():
            pairs = {
                dataset: (_mean(some, f"em/{gates}", metric), _mean(some, f"nc/{gates}", metric))
                for dataset, some in by_dataset.items()
            }
            cuts = {d: 100 * (em - nc) / em for d, (em, nc) in pairs.items() if em > 0 and nc >= 0}
            if not cuts:
                continue
            fewer = sum(cut > 0 for cut in cuts.values())
            text = f"{metric}, {name} gates: less under NC on {fewer} of {len(cuts)} datasets, "
            text += f"mean reduction {fmean(cuts.values()):.0f}% (paper {paper}% on two)"
            parts.append(Part(text, fewer == len(cuts)))
            lines += [
                [metric, name, d, f"{pairs[d][0]:.3f}", f"{pairs[d][1]:.3f}", f"{cut:.0f}%"]
                for d, cut in cuts.items()
            ]
    columns = ["metric", "gates", "dataset", "EM", "NC", "reduction"]
    numbers = Numbers("Distance from the clean computation", columns, lines)
    return Finding(parts, _scope(len({line[2] for line in lines}), "mechanisms"), numbers=numbers)


@claim("confidence", "Appendix G", study="mechanisms")
def confidence(evidence: Evidence) -> Finding:
    """Under NC the target's confidence stays nearer to the clean one than under EM."""
    parts, lines = [], []
    for dataset, some in _by_dataset(evidence):
        clean, em, nc = (_mean(some, name, "confidence") for name in ("clean", "em/gt", "nc/gt"))
        if clean == clean and em == em and nc == nc:
            text = f"{dataset}: clean {clean:.2f}, EM {em:.2f}, NC {nc:.2f}"
            parts.append(Part(text, abs(nc - clean) < abs(em - clean)))
            lines.append([dataset, f"{clean:.3f}", f"{em:.3f}", f"{nc:.3f}"])
    title = "Mean probability of the target class, true gates"
    numbers = Numbers(title, ["dataset", "clean", "EM", "NC"], lines)
    return Finding(parts, _scope(len(parts), "mechanisms"), numbers=numbers)


def _ratios(evidence: Evidence) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yields each dataset and target with its mean ratio in each layer under EM and under NC."""
    rows = evidence.studies.get("scale")
    if rows is None:
        return
    ratios = rows[rows["metric"] == "ratio"].astype({"dataset": "str", "target": "str"})
    for dataset in datasets_in(ratios):
        here = ratios[ratios["dataset"] == dataset]
        for target in sorted(here["target"].unique(), key=list(TARGETS).index):
            some = here[here["target"] == target]
            pairs = [
                tuple(_mean(some[some["level"] == layer], way, "ratio") for way in ("em", "nc"))
                for layer in sorted(some["level"].unique())
            ]
            known = [(em, nc) for em, nc in pairs if em == em and nc == nc]
            if known:
                yield f"{dataset}, {target}", [em for em, _ in known], [nc for _, nc in known]


def _by_dataset(evidence: Evidence) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the rows of study ``mechanisms`` on the judged target, dataset by dataset."""
    rows = evidence.studies.get("mechanisms")
    if rows is not None:
        here = rows[rows["target"] == evidence.target]
        for dataset in datasets_in(here):
            yield dataset, here[here["dataset"] == dataset]


def _mean(rows: pd.DataFrame, setting: str, metric: str) -> float:
    """Returns the mean over graphs and seeds, nan if there is none."""
    chosen = rows[(rows["setting"] == setting) & (rows["metric"] == metric)]
    return float(chosen["value"].astype("float64").mean())


def _scope(num: int, study: str) -> str:
    if num == 0:
        return f"There are no rows of the study {study!r}."
    return f"study {study!r}, {num} dataset(s) or pairs of dataset and target"
