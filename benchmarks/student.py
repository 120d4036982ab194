"""Student, teacher and occlusion in one run: milliseconds per graph, quality, error bars.

Quality is that of graphs of label 1 with a truth. How well the student predicts its teacher, and
what its error bars cover, is measured on graphs of all labels, which need no truth.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timing import cost, machine
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn import NICE, NICEConfig
from nicegnn.explain.by_student import make_lesson, uncertain_graphs
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.opinions.occlusion import Occlusion
from nicegnn.store import write_json
from nicegnn.student.calibration import Answers, class_means, rank_correlation, top_overlap
from nicegnn.student.teaching import TeachConfig
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import MoleculeTask, list_molecule_tasks, make_task
from nicegnn_lab.datasets import MoleculeDataset
from nicegnn_lab.metrics import Truth, truth_metrics
from nicegnn_lab.metrics.fidelity import fidelity_curve

_BATCH = {"cpu": 256, "cuda": 4096}  # graphs in a timed call of the student
_SLOW = 256  # graphs in a timed call of the others


def measure(
    task: MoleculeTask, target: str, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Fits and teaches on training graphs, and measures on graphs of label 1 with a truth."""
    device = device_of(options.device)
    model = task.model(target, folder, device)
    config = NICEConfig.quick() if options.quick else NICEConfig()
    nice = NICE(model, config).fit(task.dataset.train, progress=False)
    lessons = TeachConfig(max_graphs=options.max_graphs)
    report = nice.teach(task.dataset.train, config=lessons, progress=False)
    part = task.part(options.part)
    positions = task.explained(model, options.part, options.graphs)
    batch = part.batch(positions).to(device)
    explained = {"graphs": batch, "target": batch.y}
    student = nice.explain(**explained, student=True)
    found = {
        "teacher": nice.explain(**explained, trust=False),
        "student": student,
        "auto": nice.explain(**explained, trust=False, student="auto"),
        "occlusion": Occlusion(model).explain(**explained),
    }
    truth = Truth.from_dataset(part, positions)
    fit_seconds = 0.0 if nice.fit_report is None else nice.fit_report.seconds
    return {
        "dataset": task.name,
        "target": target,
        "device": machine(device),
        "fit_seconds": fit_seconds,
        "teaching": report.to_dict(),
        "fit": "quick" if options.quick else "default",
        "agreement": _agreement(nice, some_graphs(part, options.graphs).to(device)),
        "quality": {name: _quality(nice, batch, one, truth) for name, one in found.items()},
        "ms_per_graph": _times(nice, task, options),
    }


def some_graphs(part: MoleculeDataset, most: int) -> Batch:
    """Returns graphs of a part, of all labels and evenly spread, as one batch."""
    step = max(1, len(part) // most)
    return part.batch(torch.arange(0, len(part), step)[:most])


def _agreement(nice: NICE, batch: Batch) -> dict[str, Any]:
    """Returns how well the student predicts its teacher, and what its error bars cover.

    Each graph is explained for the class that the model predicts. `coverage_of_graphs` are the
    tenth, the half and the nine tenths of the graphs' own shares: bars hold on average over graphs,
    and not in each.
    """
    teacher = nice.explain(batch, trust=False)
    student = nice.explain(batch, student=True)
    lesson = make_lesson(nice._query(batch, teacher.target), teacher.bond_score, True)
    own = lesson.reached & student.bond_stderr.isfinite()
    answers = Answers(
        value=student.bond_big[own],
        error=student.bond_stderr[own],
        wanted=lesson.wanted[own],
        graph=lesson.view.graph[own],
        label=lesson.view.label,
    )
    error, ranks = (answers.value - answers.wanted).abs(), rank_correlation(answers)
    within = (error <= answers.error).double()
    count = torch.bincount(answers.graph, minlength=answers.num_graphs).double()
    share = torch.zeros_like(count).index_add(0, answers.graph, within) / count  # nan without bonds
    shares = share[count > 0].quantile(share.new_tensor([0.1, 0.5, 0.9]))
    return {
        "graphs": batch.num_graphs,
        "bonds": int(own.sum()),
        "rank_correlation": float(ranks.nanmean()),
        "rank_correlation_by_class": {
            label - 1: mean for label, mean in class_means(ranks, answers.label).items()
        },
        "overlap": float(top_overlap(answers).nanmean()),
        "coverage": float(within.mean()),
        "coverage_twice": float((error <= 2 * answers.error).double().mean()),
        "coverage_of_graphs": shares.tolist(),
        "coverage_by_class": {
            int(label) - 1: [
                float((error <= bars * answers.error)[mine].double().mean()) for bars in (1, 2)
            ]
            for label in torch.unique(answers.label).tolist()
            if (mine := answers.label[answers.graph] == label).any()
        },
        "sent": uncertain_graphs(student).numel() / batch.num_graphs,
    }


def _quality(nice: NICE, batch: Batch, found: Explanation, truth: Truth) -> dict[str, float]:
    """Returns the mean AUC, and the probability that the best bonds keep under deletion."""
    score, bonds = found.bond_score.cpu(), _on_cpu(found)
    auc = truth_metrics(score, bonds, truth, protocol="paper")["roc_auc"]
    curve = fidelity_curve(
        nice.target,
        batch,
        found.bonds,
        found.bond_score,
        removal="delete",
        ratios=(0.2, 0.4, 0.6),
        explained=found.target,
    )
    return {"auc": float(auc.nanmean()), "kept": float(curve.prob_kept.nanmean())}


def _on_cpu(found: Explanation) -> Any:
    bonds = found.bonds
    parts: list[Tensor] = [bonds.index, bonds.edge_bond, bonds.batch, bonds.count]
    return type(bonds)(*(part.cpu() for part in parts))


def _times(nice: NICE, task: MoleculeTask, options: argparse.Namespace) -> dict[str, float]:
    """Returns milliseconds per graph of each, all graphs of a call in one batch of tensors."""
    device = nice.target.device
    graphs = task.dataset.train
    calls = {
        "student": (partial(nice.explain, student=True), _BATCH[device.type]),
        "teacher": (partial(nice.explain, trust=False), _SLOW),
        "occlusion": (Occlusion(nice.target.model).explain, _SLOW),
    }
    found = {}
    for name, (explain, size) in calls.items():
        batch = graphs.batch(torch.arange(size) % len(graphs)).to(device)
        seconds = cost(partial(explain, batch), device, options.repeats).seconds
        found[name] = 1000 * seconds / size
    return found


def row(found: dict[str, Any]) -> str:
    """Returns a result as a row of a Markdown table."""
    quality, times, agreement = found["quality"], found["ms_per_graph"], found["agreement"]
    numbers = [f"{100 * one['auc']:.1f} / {100 * one['kept']:.1f}" for one in quality.values()]
    numbers += [f"{agreement[key]:.3f}" for key in ("rank_correlation", "overlap")]
    numbers += [f"{agreement['coverage']:.2f}, {agreement['coverage_twice']:.2f}"]
    numbers += [f"{100 * agreement['sent']:.0f} %", f"{found['teaching']['num_graphs']:,}"]
    numbers += [f"{found['teaching']['seconds']:.0f}"]
    numbers += [f"{times[name]:.3f}" for name in ("student", "teacher", "occlusion")]
    return f"| {found['dataset']}, {found['target']} | " + " | ".join(numbers) + " |"


COLUMNS = (
    *("graphs, model", "teacher AUC / kept", "student", "auto", "occlusion", "rank correlation"),
    *("overlap", "covered by 1, 2 bars", "sent", "taught on", "s"),
    *("student, ms", "teacher, ms", "occlusion, ms"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    options = _parser().parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.getLogger("nicegnn").setLevel(logging.ERROR)
    results = []
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    for name in options.dataset or list_molecule_tasks():
        task: Any = make_task(name)
        for target in options.target or TARGETS:
            results.append(measure(task, target, options.targets_folder, options))
            print(row(results[-1]), flush=True)
            if options.out:
                write_json(options.out, _rounded(results))


def _rounded(value: Any) -> Any:
    """Returns plain values with four digits after the point."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", nargs="+", help="benzene, ...; by default all with a truth")
    parser.add_argument("--target", nargs="+", help="gin, ...; by default all")
    parser.add_argument("--targets-folder", type=Path, default=Path("results/targets"))
    parser.add_argument("--part", default="valid", choices=["valid", "test"])
    parser.add_argument("--graphs", type=int, default=400, help="most graphs that are judged")
    parser.add_argument("--max-graphs", type=int, default=8192, help="most graphs to teach on")
    parser.add_argument("--quick", action="store_true", help="a quick fit of the teacher")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--threads", type=int, help="by default as many as torch takes")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls of each")
    parser.add_argument("--out", type=Path, help="JSON file of all results")
    return parser


if __name__ == "__main__":
    main()
