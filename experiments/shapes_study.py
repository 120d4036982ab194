"""How far targets of one recipe differ: BA-Shapes, trained from starts a millionth apart.

    python experiments/shapes_study.py ba-shapes --out results/study --device cpu     # resumable
    python experiments/shapes_study.py --table results/study > results/study/shapes.md

All targets learn the same graph with the same split and nearly the same first weights. Each row is
the agreement of one method that needs no training with the planted houses: the slope, the logit
that is lost with a bond, and the log-odds that are lost when its messages are masked or when it is
taken out of the graph.
"""

from __future__ import annotations

from pathlib import Path

import command
import torch
from torch import Tensor, nn

from nicegnn import NICEConfig
from nicegnn.attribution.bond_by_bond import bond_wise_gradient, loss_without_each
from nicegnn.bench.motif_tasks import TASKS, MotifConfig
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import combine
from nicegnn.intervention.query import Query
from nicegnn.rivals.base import Baseline, BaselineConfig
from nicegnn.rivals.registry import get_explainer
from nicegnn.seeding import mix
from nicegnn.studies.motifs import agreement

NAME = "shapes_study"
TARGETS = 5
APART = 1e-6
RIVALS = ("saliency", "integrated-gradients", "occlusion")
ATTRIBUTION = NICEConfig().with_(attribution__take_out=False).attribution


class Masked(Baseline):
    """The log-odds that are lost when the messages of a bond are masked."""

    name = "log-odds, masked"
    config_type = BaselineConfig
    mechanisms = ("em",)

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return bond_wise_gradient(query, ATTRIBUTION, seed).score[query.case.bonds.edge_bond]


class TakenOut(Masked):
    """The log-odds that are lost when a bond is taken out of the graph."""

    name = "log-odds, taken out"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        del seed  # nothing is random
        loss = loss_without_each(query, ATTRIBUTION.degradation)
        return loss[query.case.bonds.edge_bond]


class Both(Masked):
    """Both losses as two parts of one score, as NICE joins them."""

    name = "log-odds, both"

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        masked = bond_wise_gradient(query, ATTRIBUTION, seed).score
        taken_out = loss_without_each(query, ATTRIBUTION.degradation)
        return combine(query.case, masked, taken_out)[query.case.bonds.edge_bond]


def methods(model: nn.Module) -> list[Explainer]:
    """Returns the methods that are compared."""
    rivals = [get_explainer(name, model) for name in RIVALS]
    return [*rivals, Masked(model), TakenOut(model), Both(model)]


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes the rows of all targets; those that are there are skipped."""
    del target  # trained here
    task = TASKS[name](seed, MotifConfig())
    for number in range(TARGETS):
        key = f"{name}-{seed}-{number}"
        if has_part(out, NAME, key):
            continue
        model = task.new_target("gcn").to(device)
        generator = torch.Generator().manual_seed(mix(seed, number))
        with torch.no_grad():
            for weight in model.parameters():
                noise = torch.randn(weight.shape, generator=generator).to(weight)
                weight += (APART if number else 0.0) * noise
        task.train(model)
        model.eval()
        chosen = task.explained(model, num)
        found = {"accuracy": task.accuracy(model)}
        for method in methods(model):
            parts = task.explain(method, chosen)
            aucs = [agreement(part, truth, seed)["roc_auc"] for part, truth in parts]
            found[method.name] = float(torch.cat(aucs).nanmean())
        rows = [
            {
                "dataset": name,
                "target": "gcn",
                "setting": setting,
                "level": float(number),
                "seed": seed,
                "metric": "accuracy" if setting == "accuracy" else "roc_auc",
                "value": value,
            }
            for setting, value in found.items()
        ]
        write_part(out, NAME, key, rows)
        print(name, number, {setting: round(value, 3) for setting, value in found.items()})


def table(out: Path) -> str:
    """Returns the study as Markdown, a column per target."""
    rows = read_experiment(out, NAME)
    wide = 100 * rows.pivot_table(
        index="setting", columns=["seed", "level"], values="value", sort=False
    )
    names = [f"target {level:.0f}" for _, level in wide.columns]
    lines = ["# Targets of one recipe on BA-Shapes, percent", ""]
    lines += ["AUC of each method and test accuracy; the targets differ by a millionth in their "]
    lines[-1] += "first weights."
    lines += ["", "| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for setting, values in wide.iterrows():
        lines.append(f"| {setting} | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=100)
