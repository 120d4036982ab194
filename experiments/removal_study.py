"""How the masking view takes a bond away: by emptying its messages, or out of the graph.

    python experiments/removal_study.py benzene --target gcn --out results/study    # resumable
    python experiments/removal_study.py --table results/study > results/study/removal.md

Where a layer divides by degrees or weighs neighbours against each other, the two differ; in GIN
they are the same, so GIN targets have nothing to tell. Graphs are validation graphs of label 1 that
the target gets right. What the best bonds keep, and what is lost without them, under masking, noise
and deletion, needs no truth and chooses. Fits are short, so that a CPU can do them.
"""

from __future__ import annotations

from pathlib import Path

import command
import pandas as pd
import torch
from score_study import measure, prepared, tidy
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn import NICE, NICEConfig
from nicegnn.attribution.bond_by_bond import bond_wise_gradient, loss_without_each
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.boundary.fit import gate_logits
from nicegnn.explain.nice import combine, standardise
from nicegnn.graph.case import case_of
from nicegnn.intervention.query import Query

NAME = "removal_study"
JUDGES = ("em", "nc", "delete")
CONFIG = NICEConfig.quick()


def scores(nice: NICE, batch: Batch, seed: int) -> dict[str, Tensor]:
    """Returns the score with each way to take bonds away, and each way alone."""
    config = nice.config
    case = case_of(batch, undirected=config.undirected)
    query = Query(nice.target, case, nice.mechanism, chunk_edges=config.chunk_edges)
    others, masked = [], torch.empty(0)
    for view in nice.views:
        seen = query.under(view.mechanism)
        others.append(gate_logits(view.gates, seen, config))
        loss = bond_wise_gradient(seen, config.attribution, seed).score
        if seen.is_random:
            others.append(loss)
        else:
            masked = loss
    taken_out = loss_without_each(query, config.attribution.degradation)
    both = standardise(case, masked) + standardise(case, taken_out)
    return {
        "masked": combine(case, *others, masked),
        "taken out": combine(case, *others, taken_out),
        "masked and taken out, mean loss": combine(case, *others, masked + taken_out),
        "masked and taken out, mean of standardised": combine(case, *others, both),
        "masked and taken out, as two parts": combine(case, *others, masked, taken_out),
        "masked, alone": masked,
        "taken out, alone": taken_out,
    }


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset and target, unless they are there."""
    key = f"{name}-{target}-{seed}"
    if has_part(out, NAME, key):
        return
    dataset, model, batch, truth, chunk = prepared(name, target, num, device)
    nice = NICE(model, CONFIG.with_(chunk_edges=chunk))
    nice.fit(dataset.train, seed=seed, progress=False)
    rows = []
    with nice.target.frozen(), torch.no_grad():
        for setting, score in scores(nice, batch, seed).items():
            values = measure(nice, batch, truth, score, JUDGES)
            rows += tidy(name, target, setting, batch.num_graphs, seed, values)
    write_part(out, NAME, key, rows)
    print("done", key, nice.fit_report.status, f"{nice.fit_report.seconds:.0f} s", flush=True)


def side_by_side(rows: pd.DataFrame, title: str, what: str) -> str:
    """Returns settings as Markdown: what each keeps, and its agreement with the truth.

    Args:
        title: of the page.
        what: names the column of settings.
    """
    wide = rows.pivot_table(
        index=["target", "dataset", "setting"], columns="metric", values="value"
    )
    wide["kept"] = wide[[f"kept_{judge}" for judge in JUDGES]].mean(axis=1)
    wide["needed"] = wide[[f"needed_{judge}" for judge in JUDGES]].mean(axis=1)
    shown = {
        "kept": "kept, three judges",
        "needed": "needed, three judges",
        **{f"kept_{judge}": f"kept, {judge}" for judge in JUDGES},
        "paper_auc": "ROC-AUC",
        "paper_f1": "F1",
    }
    lines = [f"# {title}"]
    for target, part in wide.groupby(level="target"):
        number = part.groupby(level="dataset").ngroups
        mean = 100 * part.groupby(level="setting").mean()
        lowest = 100 * part.groupby(level="setting").paper_auc.min()
        lines += ["", f"## {target}, mean over {number} datasets", ""]
        lines.append(f"| {what} | " + " | ".join(shown.values()) + " | lowest ROC-AUC |")
        lines.append("|" + " --- |" + " ---: |" * (len(shown) + 1))
        for setting, one in mean.sort_values("kept", ascending=False).iterrows():
            cells = [f"{one[metric]:.1f}" for metric in shown] + [f"{lowest[setting]:.1f}"]
            lines.append(f"| {setting} | " + " | ".join(cells) + " |")
        for metric, name in (("kept", "kept, three judges"), ("paper_auc", "ROC-AUC")):
            grid = 100 * part.droplevel("target")[metric].unstack("dataset").loc[mean.index]
            lines += ["", f"{target}, {name}:", "", f"| {what} | " + " | ".join(grid) + " |"]
            lines.append("|" + " --- |" + " ---: |" * grid.shape[1])
            for setting, values in grid.iterrows():
                lines.append(f"| {setting} | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    return "\n".join(lines)


def table(out: Path) -> str:
    """Returns the study as Markdown."""
    title = "Bonds masked or taken out of the graph, on validation graphs, percent"
    return side_by_side(read_experiment(out, NAME), title, "bonds are")


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=100)
