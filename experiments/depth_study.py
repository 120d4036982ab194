"""Readout and depth: gates on targets that differ in nothing else.

    python experiments/depth_study.py benzene --out results/study      # resumable; a CPU will do
    python experiments/depth_study.py --table results/study > results/study/depth.md

GINs with sum and mean readout and one to five layers are trained alike and briefly, then the
paper's objective and our order under random budgets are fitted as in ``gate_study.py``. Rows say
what was restored, how well gate and attribution agree with the truth on validation graphs of label
1 that the target gets right, how sure the target is of them, and how right it is.
"""

from __future__ import annotations

from pathlib import Path

import command
import torch
from gate_study import OURS, PAPER, measure, told
from score_study import validation_graphs

from nicegnn import NICE, load_dataset
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.datasets import MoleculeDataset
from nicegnn.target.training import TrainConfig, predict, train_classifier
from nicegnn.target.zoo import GraphClassifier, make_model

NAME = "depth_study"
READOUTS = ("sum", "mean")
DEPTHS = (1, 2, 3, 5)
FITS = {"paper": PAPER, "order under budgets": OURS}
TRAINING = TrainConfig(batch_size=256, epochs=40, patience=10, stop_after=20)


def trained(
    dataset: MoleculeDataset, readout: str, depth: int, device: torch.device
) -> tuple[GraphClassifier, float]:
    """Returns a GIN of this readout and depth, and its accuracy on validation graphs."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = make_model(
            "gin", dataset.num_node_features, 2, num_layers=depth, readout=readout
        ).to(device)
    report = train_classifier(model, dataset.train, dataset.valid, TRAINING, progress=False)
    return model.eval(), report.valid_accuracy


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset; parts that are there are skipped."""
    del target  # trained here
    dataset = load_dataset(name)
    for readout in READOUTS:
        for depth in DEPTHS:
            key = f"{name}-{readout}-{depth}-{seed}"
            if has_part(out, NAME, key):
                continue
            model, accuracy = trained(dataset, readout, depth, device)
            batch = validation_graphs(dataset, model, num).to(device)
            sure = predict(model, batch.to_data_list())[:, 1].mean()
            rows = []
            for setting, config in FITS.items():
                nice = NICE(model, config)
                nice.fit(dataset.train, seed=seed, progress=False)
                found = measure(nice, batch, seed)
                found |= {"accuracy": accuracy, "confidence": float(sure)}
                rows += [
                    {
                        "dataset": name,
                        "target": f"gin-{readout}",
                        "setting": setting,
                        "level": float(depth),
                        "seed": seed,
                        "metric": metric,
                        "value": value,
                    }
                    for metric, value in found.items()
                ]
                numbers = {metric: round(value, 3) for metric, value in found.items()}
                print(name, readout, depth, setting, numbers, flush=True)
            write_part(out, NAME, key, rows)


def table(out: Path) -> str:
    """Returns the study as Markdown."""
    rows = read_experiment(out, NAME)
    wide = rows.pivot_table(
        index=["dataset", "target", "level", "setting"], columns="metric", values="value"
    )
    lines = ["# Readout and depth, on validation graphs", ""]
    lines += ["Cells: restored share, AUC of the gate, AUC of the attribution (percent), and how "]
    lines[-1] += "the fit judges the gates of class 1."
    lines += ["", "| dataset | readout | layers | accuracy | mean probability | "]
    lines[-1] += " | ".join(FITS) + " |"
    lines.append("| --- | --- |" + " ---: |" * 3 + " --- |" * len(FITS))
    for (dataset, target, level), part in wide.groupby(level=["dataset", "target", "level"]):
        part = part.droplevel(["dataset", "target", "level"])
        cells = [dataset, target.removeprefix("gin-"), f"{level:.0f}"]
        cells += [f"{100 * part[name].iloc[0]:.1f}" for name in ("accuracy", "confidence")]
        cells += [told(part.loc[fit]) for fit in FITS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=150)
