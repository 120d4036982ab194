"""Seconds to fit and to explain, for every explainer, side by side in one run on one machine.

    python benchmarks/explainer_speed.py --out results/speed/cpu.json
    python benchmarks/explainer_speed.py --table results/speed > results/speed/README.md

Fitting is timed over a few steps and scaled to the method's own number of steps, which is said in
the table; explaining is timed over a batch, after a first call that is not counted. Ratios are to
the default NICE of the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import torch

from nicegnn import get_explainer, load_dataset
from nicegnn.bench.targets import load_target, target_path
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.store import write_json
from nicegnn.target.training import predict
from nicegnn.target.zoo import device_of

SLOW_ON_CPU = {"d4explainer": {"fit": 1, "graphs": 4}}  # a step takes tens of seconds there


def settle(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def measure(name: str, model, train, batch, steps: int, device: torch.device) -> dict[str, float]:
    """Returns seconds of fitting (all steps) and of explaining one graph."""
    entry = EXPLAINERS[name]
    is_nice = not entry.module
    key = "boundary__steps" if is_nice else "steps"
    plain = get_explainer(name, model)
    full = plain.config.boundary.steps if is_nice else getattr(plain.config, "steps", 0)
    found = {"fit": 0.0, "steps": full if entry.learns else 0}
    settings = {"chunk_edges": 2_000_000} if device.type == "cuda" else {}
    explainer = get_explainer(name, model, **settings)
    if entry.learns:
        times = []
        get_explainer(name, model, **{key: 1}, **settings).fit(train, progress=False)  # warm up
        for number in (1, 1 + steps):  # the difference is the steps, without the preparation
            explainer = get_explainer(name, model, **{key: number}, **settings)
            start = settle(device)
            explainer.fit(train, progress=False)
            times.append(settle(device) - start)
        found["fit"] = times[0] + (times[1] - times[0]) / steps * (full - 1)
    explainer.explain(batch)
    start = settle(device)
    explainer.explain(batch, seed=1)
    found["explain"] = (settle(device) - start) / batch.num_graphs
    return found


def table(folder: Path) -> str:
    """Returns all measurements of a folder as Markdown."""
    runs = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    lines = ["# Speed of all explainers", ""]
    for run in runs:
        own = run["explainers"]["nice"]["explain"]
        lines += [
            f"## {run['machine']}",
            "",
            f"{run['dataset']}, target {run['target']}; {run['graphs']} graphs explained in one "
            f"batch, fitted on {run['train']} graphs; torch {run['torch']}. Time of fitting is "
            "measured over a few steps and scaled to the default number of steps.",
            "",
            "| explainer | fit, s | steps | explain, ms per graph | times NICE |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
        for name, row in run["explainers"].items():
            fit = f"{row['fit']:.1f} | {row['steps']}" if row["steps"] else "- | -"
            lines.append(
                f"| {name} | {fit} | {1e3 * row['explain']:.2f} | {row['explain'] / own:.3f} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="benzene")
    parser.add_argument("--target", default="gin")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device")
    parser.add_argument("--machine", default="")
    parser.add_argument("--only", nargs="*", default=list(EXPLAINERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    device = device_of(options.device)
    dataset = load_dataset(options.dataset)
    path = target_path("results/targets", options.dataset, options.target)
    model = load_target(path, device=device).model
    positive = (predict(model, dataset.test).argmax(1).cpu() == 1).nonzero().view(-1)
    train = dataset.train[list(range(options.train))]
    cores = f"{torch.get_num_threads()} thread(s)"
    default = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    result = {
        "machine": options.machine or f"{device.type}: {default}, {cores}",
        "dataset": dataset.title,
        "target": options.target,
        "graphs": options.graphs,
        "train": options.train,
        "torch": torch.__version__,
        "explainers": {},
    }
    for name in options.only:
        limits = SLOW_ON_CPU.get(name, {}) if device.type == "cpu" else {}
        graphs = limits.get("graphs", options.graphs)
        batch = dataset.test.batch(positive[:graphs]).to(device)
        steps = limits.get("fit", options.steps)
        result["explainers"][name] = measure(name, model, train, batch, steps, device)
        print(name, result["explainers"][name], flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(options.out, result)


if __name__ == "__main__":
    main()
