"""When and why gates saturate or invert: the paper's boundary under one change at a time.

    python experiments/gate_study.py benzene indole --out results/study     # resumable
    python experiments/gate_study.py --table results/study > results/study/gates.md

The paper's objective is fitted as published and with one thing changed: the confidence of the
target (its logits scaled), the start of the gates, the penalty, the loss of one draw,
normalisation, classes that share a gate, the layers that the gate reads. Beside them stands our
order under random budgets with the same changes of the target. Targets of other readout and depth
are chosen by ``--target``. Each row says what was restored, how the fit judges itself, and how well
gate and attribution agree with the truth on validation graphs of label 1 that the target gets
right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import command
import pandas as pd
import torch
from score_study import validation_graphs
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn import NICE, NICEConfig, load_dataset
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.bench.targets import load_target, target_path
from nicegnn.boundary.fit_report import FIT_ADVICE
from nicegnn.metrics import Truth, roc_auc

NAME = "gate_study"
STATUSES = tuple(FIT_ADVICE)
SMALL = {  # the same short fit for all, so that only the change counts
    "boundary__steps": 300,
    "boundary__batch_size": 128,
    "boundary__fit_draws": 8,
    "boundary__num_draws": 8,
    "attribution__num_draws": 16,
}
PAPER = NICEConfig.paper().with_(**SMALL)
OURS = NICEConfig(mechanism="nc").with_(**SMALL)


class Scaled(nn.Module):
    """A model whose logits are multiplied: the same decisions with more or less confidence."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.factor * self.model(x, edge_index, batch)


def variants() -> Iterator[tuple[str, float, NICEConfig]]:
    """Yields what is changed: name, factor of the logits, settings."""
    yield "paper", 1.0, PAPER
    for factor in (0.1, 0.3, 3.0, 10.0):
        yield f"paper, logits x {factor:g}", factor, PAPER
    for start in (0.05, 0.95):
        yield f"paper, start {start:g}", 1.0, PAPER.with_(boundary__start=start)
    for penalty in (0.01, 0.1, 0.3, 3.0):
        yield f"paper, penalty {penalty:g}", 1.0, PAPER.with_(boundary__penalty=penalty)
    yield "paper, no spread", 1.0, PAPER.with_(boundary__beta=0.0)
    yield "paper, loss of log-odds", 1.0, PAPER.with_(boundary__degradation="margin")
    yield "paper, relative risk", 1.0, PAPER.with_(boundary__normalise_risk=True)
    yield "paper, a gate per class", 1.0, PAPER.with_(boundary__class_gates=True)
    yield "paper, class 1 alone", 1.0, PAPER.with_(boundary__classes=(1,))
    yield "paper, all layers", 1.0, PAPER.with_(boundary__layers="all")
    for factor in (1.0, 0.1, 10.0):
        name = "order under budgets" + (f", logits x {factor:g}" if factor != 1.0 else "")
        yield name, factor, OURS


def measure(nice: NICE, batch: Batch, seed: int) -> dict[str, float]:
    """Returns what became of the gates, and agreement with the truth."""
    found = nice.explain(batch, target=1, seed=seed)
    truth = Truth.from_graphs(batch).to(batch.edge_index.device)
    is_true = found.bonds.mean(truth.edge_truth.to(found.bond_score)) > 0.5

    def agreement(score: Tensor) -> float:
        value = roc_auc(score, is_true, found.bonds.batch, batch.num_graphs).nanmean()
        return float(value)

    assert nice.fit_report is not None  # it was fitted
    judged = nice.fit_report.classes.get(1)
    status = "insensitive" if judged is None else judged.status
    return {
        "restored": float(found.restored.mean()),
        "risk": float(found.risk_boundary.mean()),
        "gate_auc": agreement(found.bond_gate),
        "big_auc": agreement(found.bond_big),
        "status": float(STATUSES.index(status)),
    }


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset; parts that are there are skipped."""
    dataset = load_dataset(name)
    model = load_target(target_path("results/targets", name, target), device=device).model
    batch = validation_graphs(dataset, model, num).to(device)
    chunk = 1_500_000 if device.type == "cuda" else 400_000
    for setting, factor, config in variants():
        key = f"{name}-{target}-{seed}-{setting.replace(' ', '-').replace(',', '')}"
        if has_part(out, NAME, key):
            continue
        nice = NICE(Scaled(model, factor), config.with_(chunk_edges=chunk))
        nice.fit(dataset.train, seed=seed, progress=False)
        about = {"dataset": name, "target": target, "setting": setting, "seed": seed}
        rows = [
            about | {"level": float(batch.num_graphs), "metric": metric, "value": value}
            for metric, value in measure(nice, batch, seed).items()
        ]
        write_part(out, NAME, key, rows)
        numbers = {row["metric"]: round(float(row["value"]), 3) for row in rows}
        print(name, target, setting, numbers, flush=True)


def told(one: pd.Series) -> str:
    """Returns the cell of a table: what was restored, both AUCs, and how the fit judges itself."""
    aucs = f"{100 * one.gate_auc:.0f} / {100 * one.big_auc:.0f}"
    return f"{one.restored:.2f} / {aucs}, {STATUSES[int(one.status)]}"


def table(out: Path) -> str:
    """Returns the study as Markdown, a table per target: datasets side by side."""
    rows = read_experiment(out, NAME)
    lines = ["# What becomes of gates, on validation graphs", ""]
    order = [setting for setting, _, _ in variants()]
    for target, part in rows.groupby("target"):
        datasets = sorted(part["dataset"].unique())
        wide = part.pivot_table(index=["setting", "dataset"], columns="metric", values="value")
        lines += [f"## {target}", "", "Cells: restored share, AUC of the gate, AUC of the "]
        lines[-1] += "attribution (percent), and how the fit judges the gates of class 1."
        lines += ["", "| boundary | " + " | ".join(datasets) + " |"]
        lines.append("|" + " --- |" * (1 + len(datasets)))
        for setting in (name for name in order if name in set(part["setting"])):
            cells = []
            for dataset in datasets:
                if (setting, dataset) not in wide.index:
                    cells.append("-")
                    continue
                cells.append(told(wide.loc[setting, dataset]))
            lines.append(f"| {setting} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=150)
