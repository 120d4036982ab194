"""The command line that studies share: datasets to compute, or a table of what is there."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from nicegnn.target.zoo import device_of

Study = Callable[[str, str, Path, int, int, torch.device], None]


def main(title: str, study: Study, table: Callable[[Path], str], *, num_graphs: int) -> None:
    """Runs a study on the datasets of the command line, or prints its table.

    Args:
        title: of the study.
        study: called with dataset, target, folder, number of graphs, seed and device.
        table: Markdown of the rows in a folder.
        num_graphs: graphs of a dataset, by default.
    """
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("datasets", nargs="*")
    parser.add_argument("--target", default="gin")
    parser.add_argument("--out", type=Path, default=Path("results/study"))
    parser.add_argument("--graphs", type=int, default=num_graphs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    for name in options.datasets:
        device = device_of(options.device)
        study(name, options.target, options.out, options.graphs, options.seed, device)
