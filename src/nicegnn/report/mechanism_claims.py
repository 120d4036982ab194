"""Claims about EM and NC with the same gates: message scale, representation, prediction."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import TYPE_CHECKING

from nicegnn.report.evidence import Evidence
from nicegnn.report.finding import Finding, Part
from nicegnn.tables.table import Table

if TYPE_CHECKING:
    import pandas as pd

PAPER_REDUCTION = {"D_repr": 70.9, "D_pred": 78.8}  # percent, as the paper's text sums up


def scale_drift(evidence: Evidence) -> Finding:
    """Whether EM shrinks the messages of every layer, and NC stays nearer to their clean scale."""
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
    return Finding(
        parts,
        _scope(len(rows), "scale_study"),
        table=Table(
            "claim-scale",
            "Message scale over clean scale, layer by layer",
            ["dataset, target", "EM", "NC"],
            rows,
        ),
    )


def depth_drift(evidence: Evidence) -> Finding:
    """Whether the last layer's messages have drifted further under EM than the first layer's."""
    parts = [
        Part(f"{name}: {em[0]:.2f} in the first layer, {em[-1]:.2f} in the last", em[-1] < em[0])
        for name, em, _ in _ratios(evidence)
        if len(em) > 1
    ]
    return Finding(parts, _scope(len(parts), "scale_study"))


def distances(evidence: Evidence) -> Finding:
    """Whether NC moves representation and prediction less than EM, by true and by random gates."""
    rows = _rows(evidence, "mechanism_comparison")
    parts, lines = [], []
    for metric, paper in PAPER_REDUCTION.items():
        for gates in ("gt", "rand"):
            pairs = {
                dataset: (_mean(some, f"em/{gates}", metric), _mean(some, f"nc/{gates}", metric))
                for dataset, some in _by_dataset(rows)
            }
            cuts = {d: 100 * (em - nc) / em for d, (em, nc) in pairs.items() if em > 0 and nc >= 0}
            if not cuts:
                continue
            fewer = sum(cut > 0 for cut in cuts.values())
            name = {"gt": "true", "rand": "random"}[gates]
            parts.append(
                Part(
                    f"{metric}, {name} gates: less under NC on {fewer} of {len(cuts)} datasets, "
                    f"mean reduction {fmean(cuts.values()):.0f}% (paper {paper}% on two)",
                    fewer == len(cuts),
                )
            )
            lines += [
                [metric, name, d, f"{pairs[d][0]:.3f}", f"{pairs[d][1]:.3f}", f"{cut:.0f}%"]
                for d, cut in cuts.items()
            ]
    return Finding(
        parts,
        _scope(len({line[2] for line in lines}), "mechanism_comparison"),
        table=Table(
            "claim-distances",
            "Distance from the clean computation",
            ["metric", "gates", "dataset", "EM", "NC", "reduction"],
            lines,
        ),
    )


def confidence(evidence: Evidence) -> Finding:
    """Whether the mean confidence under NC is nearer to the clean one than under EM."""
    parts, lines = [], []
    for dataset, some in _by_dataset(_rows(evidence, "mechanism_comparison")):
        clean, em, nc = (_mean(some, name, "confidence") for name in ("clean", "em/gt", "nc/gt"))
        if clean == clean and em == em and nc == nc:
            text = f"{dataset}: clean {clean:.2f}, EM {em:.2f}, NC {nc:.2f}"
            parts.append(Part(text, abs(nc - clean) < abs(em - clean)))
            lines.append([dataset, f"{clean:.3f}", f"{em:.3f}", f"{nc:.3f}"])
    return Finding(
        parts,
        _scope(len(parts), "mechanism_comparison"),
        table=Table(
            "claim-confidence",
            "Mean probability of the target class, true gates",
            ["dataset", "clean", "EM", "NC"],
            lines,
        ),
    )


def _ratios(evidence: Evidence) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yields each dataset and target with its mean ratio in each layer under EM and under NC."""
    rows = evidence.experiments.get("scale_study")
    if rows is None:
        return
    metrics = sorted(
        {str(name) for name in rows["metric"] if str(name).startswith("ratio@")},
        key=lambda name: int(name.partition("@")[2]),
    )
    for (dataset, target), some in rows.groupby(["dataset", "target"], sort=False):
        em = [_mean(some, "em", metric) for metric in metrics]
        nc = [_mean(some, "nc", metric) for metric in metrics]
        known = [(e, n) for e, n in zip(em, nc, strict=True) if e == e and n == n]
        if known:
            yield f"{dataset}, {target}", [e for e, _ in known], [n for _, n in known]


def _rows(evidence: Evidence, experiment: str) -> pd.DataFrame | None:
    rows = evidence.experiments.get(experiment)
    return None if rows is None else rows[rows["target"] == evidence.target]


def _by_dataset(rows: pd.DataFrame | None) -> Iterator[tuple[str, pd.DataFrame]]:
    if rows is not None:
        for dataset, some in rows.groupby("dataset", sort=False):
            yield str(dataset), some


def _mean(rows: pd.DataFrame, setting: str, metric: str) -> float:
    """Returns the mean over graphs and seeds, nan if there is none."""
    chosen = rows[(rows["setting"] == setting) & (rows["metric"] == metric)]
    return float(chosen["value"].mean())


def _scope(num: int, experiment: str) -> str:
    if num == 0:
        return f"There are no rows of the experiment {experiment}."
    return f"experiment {experiment}, {num} dataset(s) or pairs of dataset and target"
