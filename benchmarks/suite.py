"""Times NICE against a literal loop of the paper, PyG, Captum, occlusion and the machine's floor.

    python benchmarks/suite.py --quick                        # generated molecules, a few minutes
    python benchmarks/suite.py --dataset benzene --device cuda
    python benchmarks/suite.py --only all --no-growth         # every explainer of the library
    python benchmarks/suite.py --table results/speed          # stored runs as Markdown

All in one run on one machine, so that ratios can be compared between machines. `README.md` beside
this file says how to read the result.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from contenders import EVERYTHING, NAMES, Effort, add_ratios, measure
from floor import floors, layers_of, measure_peaks
from growth import Sweep, growth
from material import Material, generated, stored
from tables import all_runs, markdown
from timing import machine

from nicegnn.store import write_json
from nicegnn.target.zoo import device_of


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    graphs: int  # explained in one batch
    train: int  # graphs that fits read
    epochs: int  # of the generated target
    effort: Effort
    sweep: Sweep
    grown: tuple[str, ...]  # contenders whose growth is measured


FULL = Plan(
    *(200, 2000, 60),
    effort=Effort(repeats=5, fit_steps=10, looped_graphs=8),
    sweep=Sweep(),
    grown=("nice", "nice-paper", "occlusion"),
)
QUICK = Plan(
    *(32, 256, 40),
    effort=Effort(repeats=5, fit_steps=4, looped_graphs=3),
    sweep=Sweep(
        graphs=(4, 8, 16, 32),
        bonds=(32, 64, 128, 256, 512),
        draws=(4, 8, 16, 32),
        layers=(2, 3, 4, 6),
        width=(16, 32, 64, 128),
        num_graphs=8,
    ),
    grown=("nice", "occlusion"),
)


def run(plan: Plan, material: Material, names: Sequence[str], path: Path | None) -> dict[str, Any]:
    """Measures everything, prints each row as it comes and keeps the file up to date."""
    device = material.device
    peaks = measure_peaks(layers_of(material.model), device)
    result: dict[str, Any] = {
        "machine": machine(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dataset": material.title,
        "target": material.target,
        "graphs": len(material.test),
        "train": len(material.train),
        "explainers": {},
        "floor": floors(material, peaks, material.test),
        "growth": {},
    }

    def keep(name: str, found: Any) -> None:
        print(f"{name}: {found}", flush=True)
        if path is not None:
            write_json(path, result)

    for name in names:
        found = result["explainers"][name] = measure(name, material, plan.effort)
        add_ratios(result["explainers"])
        keep(name, {key: value for key, value in found.items() if key != "ratio"})
    for name in plan.grown:
        found = result["growth"][name] = growth(name, material, plan.sweep, plan.effort.repeats)
        slopes = {axis: round(one["slope"], 2) for axis, one in found.items()}
        keep(f"growth of {name}", slopes)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    options = _parser().parse_args(arguments)
    if options.table:
        print(all_runs(options.table))
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.getLogger("nicegnn").setLevel(logging.ERROR)  # fits of one step are no good fits
    plan, device = QUICK if options.quick else FULL, device_of(options.device)
    num_graphs, num_train = options.graphs or plan.graphs, options.train or plan.train
    if options.dataset:
        material = stored(options.dataset, "gin", num_train, num_graphs, str(device))
    else:
        material = generated(num_train, num_graphs, device, epochs=plan.epochs)
    names = EVERYTHING if options.only == ["all"] else options.only
    if options.no_growth:
        plan = Plan(plan.graphs, plan.train, plan.epochs, plan.effort, plan.sweep, ())
    path = options.out / f"suite-{device.type}.json" if options.out else None
    print("\n" + markdown(run(plan, material, names, path)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few graphs, repeats and values")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--threads", type=int, help="by default as many as torch takes")
    parser.add_argument("--dataset", help="benzene, ...; by default generated molecules")
    parser.add_argument("--graphs", type=int, help="graphs explained in one batch")
    parser.add_argument("--train", type=int, help="graphs that fits read")
    parser.add_argument(
        "--only", nargs="+", default=list(NAMES), choices=[*EVERYTHING, "all"], metavar="NAME"
    )
    parser.add_argument("--no-growth", action="store_true", help="leave growth out")
    parser.add_argument("--out", type=Path, help="folder for suite-DEVICE.json")
    parser.add_argument("--table", type=Path, help="print the runs of a folder and stop")
    return parser


if __name__ == "__main__":
    main()
