"""What a fit with a fiftieth of the work costs: rows of three studies side by side.

    python experiments/quick_table.py results/study > results/study/quick.md

Default fits are those of `parts_study.py`, the four parts joined; short fits are those of
`removal_study.py` (bonds masked) and of `ensemble_study.py` (each network alone). In
`removal_study.py` the fit could leave noise out, in the others not. Default fits were judged on up
to 250 graphs, short ones on up to 100; where a dataset has fewer, the graphs are the same, and the
last row counts these targets alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from parts_study import FOUR
from parts_study import NAME as PARTS

from nicegnn.bench.study_rows import read_experiment

KEPT = ["kept_em", "kept_nc"]  # what all three have measured


def chosen(out: Path, study: str, setting: str) -> pd.DataFrame:
    """Returns the values of the settings that match, in percent, by target and dataset."""
    rows = read_experiment(out, study)
    rows = rows[rows.setting.astype(str).str.fullmatch(setting)]
    wide = rows.pivot_table(index=["target", "dataset"], columns="metric", values="value")
    found = 100 * wide.assign(kept=wide[KEPT].mean(axis=1))[["kept", "paper_auc"]]
    return found.assign(graphs=rows.groupby(["target", "dataset"])["level"].max())


def table(out: Path) -> str:
    """Returns the comparison as Markdown, mean over the datasets that both fits have."""
    default = chosen(out, PARTS, " \\+ ".join(FOUR))
    removal = chosen(out, "removal_study", "masked")
    short = pd.concat([removal, chosen(out, "ensemble_study", r"one network, seed \d+")])
    both = default.join(short.add_suffix("_quick"), how="inner")
    lines = [
        "# The default fit and a short one, on validation graphs, percent",
        "",
        "| target | datasets | kept, default | kept, quick | ROC-AUC, default | ROC-AUC, quick |",
        "| --- |" + " ---: |" * 5,
    ]
    parts = dict(list(both.groupby(level="target")))
    parts["the same graphs in both"] = both[both.graphs == both.graphs_quick]
    for target, part in parts.items():
        mean = part.mean()[["kept", "kept_quick", "paper_auc", "paper_auc_quick"]]
        cells = " | ".join(f"{value:.1f}" for value in mean)
        lines.append(f"| {target} | {len(part)} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if len(sys.argv) > 1 else "results/study")))
