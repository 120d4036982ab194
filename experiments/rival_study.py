"""Why rivals differ from the paper's rows: each as benchmarked, and with one thing changed.

    python experiments/rival_study.py benzene mutagenicity --out results/study   # resumable
    python experiments/rival_study.py --table results/study > results/study/rivals.md

Changes are those that released code, default settings or common traps would have made. The last
rows say what the target answers when all messages are masked alike: where that leaves nothing of
the class, objectives in the probability have no slope to follow. Validation graphs of label 1 that
the target gets right; ROC-AUC by protocol ``paper``, the probability that the best bonds keep, and
the one that a learned mask itself keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
import torch
from score_study import validation_graphs
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn import get_explainer, load_dataset
from nicegnn.bench.settings import read_settings, settings_for
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.bench.targets import load_target, target_path
from nicegnn.config import NICEConfig
from nicegnn.graph.case import case_of
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.metrics import Truth, fidelity_curve, truth_metrics
from nicegnn.target.frozen_model import Target

NAME = "rival_study"
TUNED = "configs/explainers.toml"
PLAIN_GNNEXPLAINER = {"learning_rate": 0.01, "steps": 100, "size": 0.005, "entropy": 1.0}
PYG_PGEXPLAINER = {
    "learning_rate": 0.003,
    "size": 0.05,
    "entropy": 1.0,
    "last_temperature": 2.0,
    "layers": "last",
}

ALL_PAIRS = {"pairs": "auto", "learning_rate": 0.001, "size": 0.0005}  # the best of these trials


class Probability(nn.Module):
    """A model that answers with probabilities: slopes are of them, not of logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.model(x, edge_index, batch).softmax(1)


def variants(tuned: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any], bool]]:
    """Yields what is run: title, explainer, settings, and whether of the probability."""
    for name in ("saliency", "guided-backprop", "gnnexplainer", "pgexplainer", "confexplainer"):
        yield f"{name}, as benchmarked", name, tuned.get(name, {}), False
    yield "saliency of the probability", "saliency", {"absolute": True}, True
    yield "saliency with its sign", "saliency", {"absolute": False}, False
    yield "gnnexplainer, PyG's settings", "gnnexplainer", PLAIN_GNNEXPLAINER, False
    yield "pgexplainer, PyG's settings", "pgexplainer", PYG_PGEXPLAINER, False
    yield (
        "pgexplainer, PyG's settings, 30 steps",
        "pgexplainer",
        PYG_PGEXPLAINER | {"steps": 30},
        False,
    )
    yield "confexplainer, released weights", "confexplainer", {"size": 3e-4}, False
    proxy = tuned.get("proxyexplainer", {})
    yield "proxyexplainer, as benchmarked", "proxyexplainer", proxy, False
    yield "proxyexplainer, all pairs", "proxyexplainer", proxy | ALL_PAIRS, False
    yield "proxyexplainer, released noise", "proxyexplainer", proxy | {"noise_scale": 0.01}, False
    for steps in (0, 20):
        yield (
            f"refine, {steps} steps of fine-tuning",
            "refine",
            tuned.get("refine", {}) | {"fine_tune_steps": steps},
            False,
        )


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset; parts that are there are skipped."""
    dataset = load_dataset(name)
    model = load_target(target_path("results/targets", name, target), device=device).model
    batch = validation_graphs(dataset, model, num).to(device)
    truth = Truth.from_graphs(batch).to(device)
    tuned = settings_for(read_settings(TUNED), name, target)
    for title, explainer, settings, of_probability in variants(tuned):
        key = f"{name}-{target}-{seed}-{title.replace(' ', '-').replace(',', '')}"
        if has_part(out, NAME, key):
            continue
        rival = get_explainer(
            explainer, Probability(model) if of_probability else model, **settings
        )
        if rival.learns:
            rival.fit(dataset.train, seed=seed, progress=False)
        found = rival.explain(batch, target=1, seed=seed)
        numbers = {
            "auc": truth_metrics(found.bond_score, found.bonds, truth, protocol="paper")["roc_auc"]
        }
        for removal in ("em", "nc"):
            numbers[f"kept_{removal}"] = fidelity_curve(
                Target(model), batch, found.bonds, found.bond_score, removal=removal, explained=1
            ).prob_kept
        if rival.learns:  # scores are the logits of masks
            mask = found.bond_score.sigmoid()[found.bonds.edge_bond]
            numbers["own_mask"] = _kept(model, batch, mask)
        _write(out, key, name, target, title, seed, numbers)
        print(
            name, title, {k: round(float(v.nanmean()), 3) for k, v in numbers.items()}, flush=True
        )
    for level in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0):
        key = f"{name}-{target}-{seed}-alike-{level:g}"
        if not has_part(out, NAME, key):
            mask = torch.full((batch.num_edges,), level, device=device)
            title = f"all messages times {level:g}"
            kept = _kept(model, batch, mask)
            _write(out, key, name, target, title, seed, {"probability": kept})


@torch.no_grad()
def _kept(model: nn.Module, batch: Batch, mask: Tensor) -> Tensor:
    """Returns the probability of class 1 when messages are multiplied by a mask, ``[B]``."""
    query = Query(
        Target(model),
        case_of(batch, undirected=NICEConfig().undirected),
        ElementMask(),
        explained=1,
    )
    with query.target.frozen():
        return query.answers(mask.unsqueeze(0), 0)[0, :, 1].exp()


def _write(
    out: Path, key: str, name: str, target: str, title: str, seed: int, numbers: dict[str, Tensor]
) -> None:
    rows = [
        {
            "dataset": name,
            "target": target,
            "setting": title,
            "level": float(value.numel()),
            "seed": seed,
            "metric": metric,
            "value": float(value.nanmean()),
        }
        for metric, value in numbers.items()
    ]
    write_part(out, NAME, key, rows)


def table(out: Path) -> str:
    """Returns the study as Markdown."""
    rows = read_experiment(out, NAME)
    lines = ["# Rivals as benchmarked, and with one thing changed", ""]
    for dataset, part in rows.groupby("dataset"):
        wide = part.pivot_table(index="setting", columns="metric", values="value", sort=False)
        kept = 50 * (wide.kept_em + wide.kept_nc)
        lines += [
            f"## {dataset}",
            "",
            "| setting | AUC | best bonds keep | its mask keeps |",
            "| --- | ---: | ---: | ---: |",
        ]
        for setting in sorted(wide.auc.dropna().index):
            own = wide.own_mask[setting]
            lines.append(
                f"| {setting} | {100 * wide.auc[setting]:.1f} | {kept[setting]:.1f} | "
                f"{'' if own != own else f'{100 * own:.1f}'} |"
            )
        lines += ["", "| messages | probability of the class |", "| --- | ---: |"]
        alike = wide.probability.dropna()
        for setting in sorted(alike.index, key=lambda text: float(text.split()[-1])):
            lines.append(f"| {setting} | {100 * alike[setting]:.1f} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=200)
