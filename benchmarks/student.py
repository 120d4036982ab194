"""Student, teacher and occlusion in one run: milliseconds per graph, quality, error bars.

    python benchmarks/student.py --dataset benzene --target gin --out student.json

Quality is that of graphs of label 1 with a truth. How well the student predicts its teacher, and
what its error bars cover, is measured on graphs of all labels that it was not taught on.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timing import cost, machine
from torch_geometric.data import Batch

from nicegnn import NICE
from nicegnn.explain.by_student import uncertain_graphs
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.opinions.occlusion import Occlusion
from nicegnn.store import write_json
from nicegnn.student.teaching import TeachConfig
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import MoleculeTask, list_molecule_tasks, make_task
from nicegnn_lab.metrics import Truth, spearman, truth_metrics
from nicegnn_lab.metrics.fidelity import fidelity_curve

_BATCH = {"cpu": 256, "cuda": 4096}  # graphs in a timed call of the student
_SLOW = 256  # graphs in a timed call of the others


def measure(
    task: MoleculeTask, target: str, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Teaches on training graphs, and measures on graphs of label 1 with a truth."""
    device = device_of(options.device)
    model = task.model(target, folder, device)
    nice = NICE(model, background=task.background(model))
    lessons = TeachConfig(max_graphs=options.max_graphs)
    report = nice.teach(task.dataset.train, config=lessons, progress=False)
    part = task.part("valid")
    positions = task.explained(model, "valid", options.graphs)
    batch = part.batch(positions).to(device)
    found = {
        "teacher": nice.explain(batch, target=batch.y),
        "student": nice.explain(batch, target=batch.y, student=True),
        "auto": nice.explain(batch, target=batch.y, student="auto"),
        "occlusion": Occlusion(model).explain(batch, target=batch.y),
    }
    truth = Truth.from_dataset(part, positions).to(device)
    every = max(1, len(part) // options.graphs)
    mixed = part.batch(torch.arange(0, len(part), every)[: options.graphs]).to(device)
    return {
        "dataset": task.name,
        "target": target,
        "device": machine(device),
        "teaching": report.to_dict(),
        "agreement": agreement(nice, mixed),
        "quality": {name: quality(nice, batch, one, truth) for name, one in found.items()},
        "ms_per_graph": times(nice, task, options.repeats),
    }


def agreement(nice: NICE, batch: Batch) -> dict[str, float]:
    """Returns how well the student predicts its teacher, and what its error bars cover."""
    teacher, student = nice.explain(batch), nice.explain(batch, student=True)
    value, wanted, error = student.bond_loss, teacher.bond_loss, student.bond_stderr
    own = teacher.bond_reached & error.isfinite()
    miss = (value - wanted).abs()[own]
    ranks = spearman(value[own], wanted[own], teacher.bonds.batch[own], int(batch.num_graphs))
    return {
        "rank_correlation": float(ranks.nanmean()),
        "coverage": float((miss <= error[own]).double().mean()),
        "coverage_twice": float((miss <= 2 * error[own]).double().mean()),
        "sent": uncertain_graphs(student).numel() / int(batch.num_graphs),
    }


def quality(nice: NICE, batch: Batch, found: Explanation, truth: Truth) -> dict[str, float]:
    """Returns the mean AUC, and the probability that the best bonds keep under deletion."""
    auc = truth_metrics(found.ranking, found.bonds, truth, protocol="paper")["roc_auc"]
    curve = fidelity_curve(
        nice.target,
        batch,
        found.bonds,
        found.ranking,
        removal="delete",
        ratios=(0.2, 0.4, 0.6),
        explained=found.target,
    )
    return {"auc": float(auc.nanmean()), "kept": float(curve.prob_kept.nanmean())}


def times(nice: NICE, task: MoleculeTask, repeats: int) -> dict[str, float]:
    """Returns milliseconds per graph of each, all graphs of a call in one batch of tensors."""
    device, graphs, found = nice.target.device, task.dataset.train, {}
    for name, explain, size in (
        ("student", partial(nice.explain, student=True), _BATCH[device.type]),
        ("teacher", nice.explain, _SLOW),
        ("occlusion", Occlusion(nice.target.model).explain, _SLOW),
    ):
        batch = graphs.batch(torch.arange(size) % len(graphs)).to(device)
        found[name] = 1000 * cost(partial(explain, batch), device, repeats).seconds / size
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", nargs="+", help="benzene, ...; by default all with a truth")
    parser.add_argument("--target", nargs="+", help="gin, ...; by default all")
    parser.add_argument("--targets-folder", type=Path, default=Path("results/targets"))
    parser.add_argument("--graphs", type=int, default=400, help="most graphs that are judged")
    parser.add_argument("--max-graphs", type=int, default=8192, help="most graphs to teach on")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls of each")
    parser.add_argument("--out", type=Path, help="JSON file of all results")
    options = parser.parse_args()
    results = []
    for name in options.dataset or list_molecule_tasks():
        task: Any = make_task(name)
        for target in options.target or TARGETS:
            found = measure(task, target, options.targets_folder, options)
            results.append(found)
            parts = (found["quality"], found["agreement"], found["ms_per_graph"])
            print(f"{name}, {target}: {parts}", flush=True)
            if options.out:
                write_json(options.out, results)


if __name__ == "__main__":
    main()
