"""Which score, and how to tell without truth: candidates side by side on validation graphs.

    python experiments/score_study.py benzene --out results/study          # one dataset, resumable
    python experiments/score_study.py --table results/study > results/study/scores.md

For each way to learn the order of bonds, and each way to attribute, the rows hold two numbers: how
well the score agrees with the truth (ROC-AUC, bonds, union of alternatives) and the probability
that its best bonds alone keep, which needs no truth. The second chooses, the first says whether it
chose well. Graphs are validation graphs of label 1 that the target gets right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import command
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn import NICE, NICEConfig, load_dataset
from nicegnn.attribution.bond_by_bond import bond_wise_gradient
from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.bench.selection import draw
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.bench.targets import load_target, target_path
from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.objective import corrupted_risk, find_boundary
from nicegnn.datasets import MoleculeDataset
from nicegnn.explain.nice import combine
from nicegnn.graph.case import case_of
from nicegnn.intervention.query import Query
from nicegnn.metrics import Truth, fidelity_curve, roc_auc, truth_metrics
from nicegnn.target.training import predict

NAME = "score_study"
NOISE = NICEConfig(mechanism="nc")
FITS = {  # how the order of bonds is learned
    "paper": NICEConfig.paper(),
    "log-prob": NOISE.with_(boundary__degradation="log-prob"),
    "margin": NOISE,
    "margin, short fit": NOISE.with_(
        boundary__steps=300, boundary__batch_size=64, boundary__fit_draws=4
    ),
    "margin, contrast": NOISE.with_(boundary__contrast=0.5),
    "margin, em": NICEConfig(mechanism="em"),
    "margin, one gate for all classes": NOISE.with_(boundary__class_gates=False),
}
PATHS = {  # how bonds are attributed along a joint path: context, degradation
    "from corruption, hinged log-probability": ("corrupted", "log-prob"),
    "from corruption, hinged margin": ("corrupted", "margin"),
    "from corruption, signed margin": ("corrupted", "signed-margin"),
    "among clean bonds, signed margin": ("clean", "signed-margin"),
}


def validation_graphs(dataset, model, num: int) -> Batch:
    """Returns graphs of label 1 that the target gets right."""
    valid = dataset.valid
    right = (valid.y == 1) & (predict(model, valid).argmax(1).cpu() == 1)
    positions = right.nonzero().view(-1)
    return valid.batch(positions[draw(positions.numel(), num, "study")])


def prepared(
    name: str, target: str, num: int, device: torch.device
) -> tuple[MoleculeDataset, nn.Module, Batch, Truth, int]:
    """Returns dataset, target, graphs to explain, their truth, and most edges in a call."""
    dataset = load_dataset(name)
    model = load_target(target_path("results/targets", name, target), device=device).model
    batch = validation_graphs(dataset, model, num).to(device)
    chunk = 1_500_000 if device.type == "cuda" else 400_000
    return dataset, model, batch, Truth.from_graphs(batch).to(device), chunk


def candidates(nice: NICE, batch: Batch, fit: str, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yields every score of one fitted explainer."""
    config = nice.config
    case = case_of(batch, undirected=config.undirected)
    query = Query(
        nice.target,
        case,
        nice.mechanism,
        chunk_edges=config.chunk_edges,
        degradation=config.boundary.degradation,
    )
    with torch.no_grad():
        order = gate_logits(nice.gates, query, config)
    yield f"{fit}: order", order
    reference = corrupted_risk(query, config.boundary, seed)
    boundary = find_boundary(query, order, config.boundary, seed, reference)
    for name, (context, degradation) in PATHS.items():
        settings = config.with_(
            attribution__path="joint",
            attribution__num_draws=64,
            attribution__context=context,
            attribution__degradation=degradation,
        ).attribution
        found = boundary_integrated_gradient(query, boundary.gate, settings, seed)
        yield f"{fit}: path {name}", found.score
    settings = config.with_(
        attribution__path="bond", attribution__degradation="signed-margin"
    ).attribution
    alone = bond_wise_gradient(query, settings, seed)
    yield f"{fit}: bond by bond", alone.score
    yield f"{fit}: order and bond by bond", combine(case, order, alone.score)


def measure(
    nice: NICE,
    batch: Batch,
    truth: Truth,
    score: Tensor,
    removals: tuple[str, ...] = ("em", "nc"),
) -> dict[str, float]:
    """Returns agreement with the truth, and what needs no truth."""
    bonds = case_of(batch, undirected=nice.config.undirected).bonds
    is_true = bonds.mean(truth.edge_truth.to(score)) > 0.5
    found = {
        "strict_auc": roc_auc(score, is_true, bonds.batch, batch.num_graphs).nanmean(),
        "paper_auc": truth_metrics(score, bonds, truth, protocol="paper")["roc_auc"].nanmean(),
        "paper_f1": truth_metrics(score, bonds, truth, protocol="paper")["f1"].nanmean(),
    }
    for removal in removals:
        curve = fidelity_curve(
            nice.target,
            batch,
            bonds,
            score,
            removal=removal,
            num_draws=8,
            explained=1,
            chunk_edges=nice.config.chunk_edges,
        )
        found[f"kept_{removal}"] = curve.prob_kept.nanmean()
        found[f"needed_{removal}"] = (1 - curve.prob_dropped).nanmean()
    return {key: float(value) for key, value in found.items()}


def tidy(
    name: str, target: str, setting: str, num: int, seed: int, found: dict[str, float]
) -> list[dict[str, str | float]]:
    """Returns rows of one score on one target; their level is the number of graphs."""
    about = {"dataset": name, "target": target, "setting": setting, "level": float(num)}
    return [{**about, "seed": seed, "metric": key, "value": found[key]} for key in found]


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset; parts that are there are skipped."""
    dataset, model, batch, truth, chunk = prepared(name, target, num, device)
    for fit, config in FITS.items():
        key = f"{name}-{target}-{seed}-{fit.replace(' ', '-').replace(',', '')}"
        if has_part(out, NAME, key):
            continue
        nice = NICE(model, config.with_(chunk_edges=chunk))
        nice.fit(dataset.train, seed=seed, progress=False)
        rows = []
        with nice.target.frozen():
            for setting, score in candidates(nice, batch, fit, seed):
                found = measure(nice, batch, truth, score)
                rows += tidy(name, target, setting, batch.num_graphs, seed, found)
        write_part(out, NAME, key, rows)
        print(name, target, fit, nice.fit_report.status, f"{nice.fit_report.seconds:.0f} s")


def table(out: Path) -> str:
    """Returns the study as Markdown: agreement of each score, and how well the criterion tells."""
    from scipy.stats import spearmanr

    rows = read_experiment(out, NAME)
    wide = rows.pivot_table(
        index=["dataset", "target", "setting"], columns="metric", values="value"
    )
    wide["criterion"] = (wide.kept_em + wide.kept_nc) / 2
    lines = ["# Scores side by side, on validation graphs", ""]
    for target, part in wide.groupby(level="target"):
        part = part.droplevel("target")
        datasets = sorted(set(part.index.get_level_values("dataset")))
        for metric, title in (
            ("strict_auc", "ROC-AUC, bonds, union of alternatives"),
            ("criterion", "probability that the best bonds keep (no truth)"),
        ):
            grid = 100 * part[metric].unstack("dataset")[datasets]
            grid = grid.assign(mean=grid.mean(axis=1)).sort_values("mean", ascending=False)
            lines += [f"## {target}: {title}", "", "| score | " + " | ".join(grid) + " |"]
            lines.append("|" + " --- |" + " ---: |" * grid.shape[1])
            for setting, values in grid.iterrows():
                lines.append(f"| {setting} | " + " | ".join(f"{v:.1f}" for v in values) + " |")
            lines.append("")
        lines += ["| dataset | rank correlation of criterion and AUC | AUC chosen | best AUC |"]
        lines.append("| --- | ---: | ---: | ---: |")
        for dataset in datasets:
            one = part.xs(dataset, level="dataset")
            rank = spearmanr(one.criterion, one.strict_auc).statistic
            chosen = 100 * one.strict_auc[one.criterion.idxmax()]
            best = 100 * one.strict_auc.max()
            lines.append(f"| {dataset} | {rank:.2f} | {chosen:.1f} | {best:.1f} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=250)
