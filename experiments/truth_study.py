"""Does a target miss a true bond more than another? What it loses when one is taken out.

    python experiments/truth_study.py benzene --target gin --out results/study    # resumable
    python experiments/truth_study.py --table results/study > results/study/truth.md

Bonds of validation graphs of label 1 that the target gets right are taken out of the graph one by
one. Where a true bond is missed no more than another, the target does not decide by the truth, and
an explainer that tells what it decides by will miss it. Nothing is chosen here.

Connected molecules have as many rings as bonds that are more than atoms less one, so rings can be
counted without being seen. For every target the rows also say how well that number follows its
log-odds, and how often the number alone would give the label of Rings-Count.
"""

from __future__ import annotations

from pathlib import Path

import command
import torch
from score_study import prepared, tidy
from torch import Tensor

from nicegnn import NICE
from nicegnn.attribution.bond_by_bond import loss_without_each
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.graph.case import case_of
from nicegnn.intervention.query import Query
from nicegnn.metrics import roc_auc
from nicegnn.metrics.ranking import graph_sum
from nicegnn.target.training import predict

NAME = "truth_study"
MANY_RINGS = 4  # the label of Rings-Count says that there are more


def mean_over(value: Tensor, chosen: Tensor, batch: Tensor, num_graphs: int) -> float:
    """Returns the mean of chosen bonds of each graph, and of these the mean."""
    total = graph_sum(torch.where(chosen, value, 0.0), batch, num_graphs)
    number = graph_sum(chosen.to(value), batch, num_graphs)
    return float((total / number)[number > 0].mean())


def counted(dataset, model) -> dict[str, float]:
    """Returns what the number of rings, by bonds and atoms alone, says of label and log-odds."""
    from scipy.stats import spearmanr

    valid = dataset.valid
    batch = valid.batch(torch.arange(len(valid)))
    atoms = torch.bincount(batch.batch, minlength=len(valid))
    edges = torch.bincount(batch.batch[batch.edge_index[0]], minlength=len(valid))
    rings = edges // 2 - atoms + 1
    probability = predict(model, valid).softmax(1).cpu()
    odds = torch.logit(probability[:, 1].double(), eps=1e-12)
    return {
        "label_by_count": float(((rings > MANY_RINGS) == (valid.y == 1)).double().mean()),
        "odds_by_count": float(spearmanr(rings.numpy(), odds.numpy()).statistic),
    }


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset and target, unless they are there."""
    key = f"{name}-{target}-{seed}"
    if has_part(out, NAME, key):
        return
    dataset, model, batch, truth, chunk = prepared(name, target, num, device)
    nice = NICE(model)
    case = case_of(batch, undirected=nice.config.undirected)
    bonds = case.bonds
    is_true = bonds.mean(truth.edge_truth.to(batch.x)) > 0.5
    with nice.target.frozen():
        query = Query(nice.target, case, nice.mechanism, chunk_edges=chunk)
        lost = loss_without_each(query, "signed-margin")
    found = {
        "lost_true": mean_over(lost, is_true, bonds.batch, batch.num_graphs),
        "lost_other": mean_over(lost, ~is_true, bonds.batch, batch.num_graphs),
        "auc": float(roc_auc(lost, is_true, bonds.batch, batch.num_graphs).nanmean()),
        **counted(dataset, model),
    }
    write_part(out, NAME, key, tidy(name, target, "one bond out", batch.num_graphs, seed, found))
    print("done", key, flush=True)


def table(out: Path) -> str:
    """Returns the study as Markdown."""
    rows = read_experiment(out, NAME)
    wide = rows.pivot_table(index=["dataset", "target"], columns="metric", values="value")
    columns = (
        "dataset",
        "target",
        "lost without a true bond, log-odds",
        "without another",
        "ratio, other to true",
        "AUC of the loss, %",
        "rank correlation of log-odds and number of rings",
        "label of Rings-Count by number, % right",
    )
    lines = [
        "# What targets lose without a true bond, and without another, on validation graphs",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + " --- |" * 2 + " ---: |" * 6,
    ]
    for (dataset, target), one in wide.iterrows():
        right = f"{100 * one.label_by_count:.1f}" if dataset == "rings-count" else "-"
        lines.append(
            f"| {dataset} | {target} | {one.lost_true:.2f} | {one.lost_other:.2f} | "
            f"{one.lost_other / one.lost_true:.2f} | {100 * one.auc:.1f} | "
            f"{one.odds_by_count:.2f} | {right} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=100)
