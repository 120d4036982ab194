"""Which mechanism for which part of the score: noise, masking, or both, on validation graphs.

    python experiments/parts_study.py benzene --target gin --out results/study    # resumable
    python experiments/parts_study.py --table results/study > results/study/parts.md

A score joins parts: an order of bonds learned under a mechanism, and the loss when one bond alone
is damaged by a mechanism. Rows hold, for every set of parts, agreement with the truth (ROC-AUC) and
the probability that the best bonds alone keep, under masking and under noise, which needs no truth
and is what chooses. Graphs are validation graphs of label 1 that the target gets right.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import command
import torch
from score_study import measure, prepared, tidy
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn import NICE, NICEConfig
from nicegnn.attribution.bond_by_bond import bond_wise_gradient
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.boundary.fit import gate_logits
from nicegnn.explain.nice import combine
from nicegnn.graph.case import case_of
from nicegnn.intervention.intervene import Site
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query

NAME = "parts_study"
ORDERS = ("nc", "em", "both")
FOUR = ("order nc", "bond nc", "order em", "bond em")  # the default


class NoiseAndMask:
    """Noise in two draws of four (an antithetic pair), masking in the other two."""

    is_random = True

    def __init__(self) -> None:
        self.noise = NoiseCorruption(antithetic=True)
        self.mask = ElementMask()

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        noised = self.noise(message, gate, site)
        masked = self.mask(message, gate, site)
        return torch.where((site.draw % 4 < 2).unsqueeze(1), noised, masked)


MECHANISMS = {
    "nc": lambda: NoiseCorruption(antithetic=True),
    "em": ElementMask,
    "both": NoiseAndMask,
}


def parts(dataset, model, batch: Batch, seed: int, chunk: int) -> tuple[NICE, dict[str, Tensor]]:
    """Returns an explainer and every part of a score."""
    config = NICEConfig(chunk_edges=chunk, fallback=False)
    found = {}
    for name in ORDERS:
        nice = NICE(model, config, mechanism=MECHANISMS[name]())
        nice.fit(dataset.train, seed=seed, progress=False)
        with nice.target.frozen(), torch.no_grad():
            query = Query(
                nice.target,
                case_of(batch, undirected=config.undirected),
                nice.mechanism,
                chunk_edges=chunk,
                degradation=config.boundary.degradation,
            )
            found[f"order {name}"] = gate_logits(nice.gates, query, config)
            if name != "both":
                alone = bond_wise_gradient(query, config.attribution, seed)
                found[f"bond {name}"] = alone.score
        print(name, nice.fit_report.status, f"{nice.fit_report.seconds:.0f} s", flush=True)
    return nice, found


def joined(found: dict[str, Tensor], case) -> dict[str, Tensor]:
    """Returns a score for every set of parts; the order under both comes without the others."""
    scores = {}
    for size in range(1, len(found)):
        for names in combinations(found, size):
            if "order both" in names and sum("order" in name for name in names) > 1:
                continue
            scores[" + ".join(names)] = combine(case, *(found[name] for name in names))
    return scores


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset and target, unless they are there."""
    key = f"{name}-{target}-{seed}"
    if has_part(out, NAME, key):
        return
    dataset, model, batch, truth, chunk = prepared(name, target, num, device)
    nice, found = parts(dataset, model, batch, seed, chunk)
    rows = []
    with nice.target.frozen():
        for setting, score in joined(
            found, case_of(batch, undirected=nice.config.undirected)
        ).items():
            values = measure(nice, batch, truth, score)
            rows += tidy(name, target, setting, batch.num_graphs, seed, values)
    write_part(out, NAME, key, rows)
    print("done", key)


def table(out: Path) -> str:
    """Returns the study as Markdown: what each set of parts keeps, and its agreement with truth."""
    rows = read_experiment(out, NAME)
    wide = rows.pivot_table(
        index=["dataset", "target", "setting"], columns="metric", values="value"
    )
    wide["criterion"] = (wide.kept_em + wide.kept_nc) / 2
    wide["needed"] = (wide.needed_em + wide.needed_nc) / 2
    lines = ["# Parts of the score, by noise and by masking, on validation graphs"]
    for target, part in wide.groupby(level="target"):
        part = part.droplevel("target")
        chosen = part.criterion.unstack("dataset").mean(axis=1).sort_values(ascending=False).index
        for metric, title in (
            ("criterion", "probability that the best bonds keep, percent (no truth)"),
            ("paper_auc", "ROC-AUC, protocol paper, percent"),
        ):
            grid = 100 * part[metric].unstack("dataset").loc[chosen]
            grid = grid.assign(mean=grid.mean(axis=1))
            lines += ["", f"## {target}: {title}", "", "| score | " + " | ".join(grid) + " |"]
            lines.append("|" + " --- |" + " ---: |" * grid.shape[1])
            for setting, values in grid.iterrows():
                lines.append(f"| {setting} | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    lines += ["", "## All targets together", ""]
    lines.append("| score | kept (no truth) | needed (no truth) | ROC-AUC | F1 | lowest ROC-AUC |")
    lines.append("|" + " --- |" + " ---: |" * 5)
    whole = wide.groupby(level="setting").agg(
        kept=("criterion", "mean"),
        needed=("needed", "mean"),
        auc=("paper_auc", "mean"),
        f1=("paper_f1", "mean"),
        lowest=("paper_auc", "min"),
    )
    for setting, one in (100 * whole).sort_values("kept", ascending=False).iterrows():
        lines.append(f"| {setting} | " + " | ".join(f"{value:.1f}" for value in one) + " |")
    both = whole.kept + whole.needed
    told = {"kept": whole.kept, "needed": whole.needed, "both together": both}
    lines += ["", f"Means over {wide.groupby(level=['target', 'dataset']).ngroups} targets. Kept: "]
    lines[-1] += "what the best bonds keep of the probability; needed: what is lost without them. "
    lines[-1] += "Rank correlation of these means with the mean ROC-AUC over the scores: "
    lines[-1] += ", ".join(
        f"{name} {value.corr(whole.auc, method='spearman'):+.2f}" for name, value in told.items()
    )
    lines[-1] += "."
    lines += ["", "## How well the criterion tells", ""]
    lines.append(
        "| target | dataset | rank correlation with AUC | AUC chosen | AUC, all four | best |"
    )
    lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
    for (target, dataset), one in wide.groupby(level=["target", "dataset"]):
        one = one.droplevel(["dataset", "target"])
        auc = 100 * one.paper_auc
        rank = one.criterion.corr(auc, method="spearman")
        values = (auc[one.criterion.idxmax()], auc[" + ".join(FOUR)], auc.max())
        cells = [target, dataset, f"{rank:+.2f}", *(f"{value:.1f}" for value in values)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=250)
