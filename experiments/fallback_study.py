"""On which targets noise cannot judge: what rankings by noise and by masking keep, without truth.

    python experiments/fallback_study.py benzene --target gcn         # resumable
    python experiments/fallback_study.py --table results/study > results/study/fallback.md

It is the comparison that `NICE.fit` makes before it learns, on training graphs; no fit is needed.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import command
import torch

from nicegnn import NICEConfig, load_dataset
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.bench.targets import load_target, target_path
from nicegnn.explain.noise_check import compare_mechanisms, noise_fails
from nicegnn.target.frozen_model import Target

NAME = "fallback_study"


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes the rows of one dataset and target on `num` training graphs, unless they exist."""
    key = f"{name}-{target}-{seed}"
    if has_part(out, NAME, key):
        return
    model = load_target(target_path("results/targets", name, target), device=device).model
    asked = Target(model)
    with asked.frozen():
        found = compare_mechanisms(asked, load_dataset(name).train[:num], NICEConfig(), seed)
    rows = [
        {
            "dataset": name,
            "target": target,
            "setting": f"class {label}",
            "level": float(one.num_graphs),
            "seed": seed,
            "metric": metric,
            "value": float(value),
        }
        for label, one in found.items()
        for metric, value in (asdict(one) | {"masks": noise_fails(found)}).items()
    ]
    write_part(out, NAME, key, rows)
    print(name, target, found, flush=True)


def table(out: Path) -> str:
    """Returns the study as Markdown: a line per dataset and class, targets side by side."""
    rows = read_experiment(out, NAME)
    keys = ["dataset", "setting", "target"]
    wide = rows.pivot_table(index=keys, columns="metric", values="value")
    targets = sorted(set(rows["target"]), key=("gin", "gin-mean", "gcn", "gat").index)
    lines = [
        "# Noise and masking as judges, on training graphs",
        "",
        "Cells: fall of the log-odds when noise replaces every message; gain of masking over noise",
        "in the probability kept by the best bonds, in points, with its standard error. Bold: NICE",
        "masks, for noise speaks for a class that masking judges clearly better, and no class",
        "loses by it.",
        "",
    ]
    lines += [
        "| dataset | class | " + " | ".join(targets) + " |",
        "|" + " --- |" * (2 + len(targets)),
    ]
    for dataset, setting in rows[keys[:2]].drop_duplicates().itertuples(index=False):
        cells = []
        for target in targets:
            if (dataset, setting, target) not in wide.index:
                cells.append("-")
                continue
            one = wide.loc[(dataset, setting, target)]
            cell = f"{one.fall:.1f}; {100 * (one.em - one.nc):+.1f} ± {100 * one.error:.1f}"
            cells.append(f"**{cell}**" if one.masks else cell)
        label = setting.removeprefix("class ")
        lines.append(f"| {dataset} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=2000)
