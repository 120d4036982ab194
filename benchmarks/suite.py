"""Times NICE against occlusion, other explainers, a literal loop of the paper, and PyG.

    python benchmarks/suite.py --dataset benzene --graphs 64 --threads 1
    python benchmarks/suite.py                                # generated molecules
    python benchmarks/suite.py --only all                     # every explainer of the library
    python benchmarks/suite.py --table results/speed          # stored runs as Markdown

All in one run on one machine, so that ratios can be compared between machines. `README.md` beside
this file says how to read the result.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from contenders import EVERYTHING, NAMES, Effort, add_ratios, measure, record
from material import Material, generated, stored
from timing import machine

from nicegnn.store import write_json
from nicegnn.target.zoo import device_of

EPOCHS = 60  # of a target for generated molecules


def run(effort: Effort, material: Material, names: Sequence[str], path: Path | None) -> Any:
    """Measures everything, prints each row as it comes and keeps the file up to date."""
    result: dict[str, Any] = {
        "machine": machine(material.device),
        "torch": torch.__version__,
        "dataset": material.title,
        "target": material.target,
        "graphs": len(material.test),
        "train": len(material.train),
        "background": record(material, effort),
        "explainers": {},
    }
    print(f"background: {result['background']}", flush=True)
    for name in names:
        found = result["explainers"][name] = measure(name, material, effort)
        add_ratios(result["explainers"])
        print(f"{name}: { {key: value for key, value in found.items() if key != 'ratio'} }")
        if path is not None:
            write_json(path, result)
    return result


def all_runs(folder: Path) -> str:
    """Returns every run of a folder as Markdown; files of other measurements are passed over."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return "\n\n".join(markdown(run) for run in found if "explainers" in run)


def markdown(run: Mapping[str, Any]) -> str:
    """Returns the times of one run, each with its ratio to occlusion."""
    header = ("explainer", "fit, s", "batch, ms per graph", "x occlusion", "one graph, ms")
    table = [(*header, "x occlusion", "peak, MiB"), ("---", *["---:"] * 6)]
    for name, row in run["explainers"].items():
        ratio = row.get("ratio", {}).get("occlusion", {})
        cells = [row["fit"] if row["steps"] else None, 1e3 * row["explain"], ratio.get("explain")]
        cells += [1e3 * row["one"], ratio.get("one"), row["memory"] / 2**20]
        table.append((name, *("-" if cell is None else _number(cell) for cell in cells)))
    known = run.get("background")
    text = (
        f"{run['machine']}; {run['dataset']}, target {run['target']}; {run['graphs']} graphs in "
        f"one batch, fitted on {run['train']} graphs; torch {run['torch']}."
    )
    if known:
        text += f" A background of {known['graphs']} graphs takes {_number(known['seconds'])} s."
    return f"{text}\n\n{_lines(table)}"


def _lines(table: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def _number(value: float) -> str:
    """Three digits that count, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    options = _parser().parse_args(arguments)
    if options.table:
        print(all_runs(options.table))
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    logging.getLogger("nicegnn").setLevel(logging.ERROR)  # fits of a few steps are no good fits
    device = device_of(options.device)
    if options.dataset:
        material = stored(options.dataset, "gin", options.train, options.graphs, str(device))
    else:
        material = generated(options.train, options.graphs, device, epochs=EPOCHS)
    names = EVERYTHING if options.only == ["all"] else options.only
    path = options.out / f"suite-{device.type}.json" if options.out else None
    print("\n" + markdown(run(Effort(options.repeats), material, names, path)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--threads", type=int, help="by default as many as torch takes")
    parser.add_argument("--dataset", help="benzene, ...; by default generated molecules")
    parser.add_argument("--graphs", type=int, default=64, help="graphs explained in one batch")
    parser.add_argument("--train", type=int, default=2000, help="graphs that fits read")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls, the median counts")
    parser.add_argument(
        "--only", nargs="+", default=list(NAMES), choices=[*EVERYTHING, "all"], metavar="NAME"
    )
    parser.add_argument("--out", type=Path, help="folder for suite-DEVICE.json")
    parser.add_argument("--table", type=Path, help="print the runs of a folder and stop")
    return parser


if __name__ == "__main__":
    main()
