"""The trained targets beside the paper's."""

from itertools import product
from pathlib import Path

from nicegnn.errors import StoreError
from nicegnn_lab.bench.targets import MAIN_TARGET, TARGETS, load_target, target_path
from nicegnn_lab.datasets.registry import DATASETS
from nicegnn_lab.paper.numbers import PAPER_ACCURACY
from nicegnn_lab.tables.table import Table


def target_table(folder: str | Path) -> Table:
    """Returns accuracy and calibration of all targets, the paper's GIN beside ours."""
    lines = []
    for dataset, target in product(DATASETS, TARGETS):
        if not (path := target_path(folder, dataset, target)).is_file():
            continue
        manifest = load_target(path).manifest
        test, paper = manifest["test"], PAPER_ACCURACY.get(dataset)
        low, high = (100 * value for value in test["interval"])
        lines.append(
            [
                *(manifest["title"], manifest["target"]),
                f"{100 * test['accuracy']:.2f} ({low:.2f} to {high:.2f})",
                "" if paper is None or target != MAIN_TARGET else f"{paper:.2f}",
                str(manifest["sizes"]["test"]),
                f"{test['ece']:.3f}",
                f"{test['mean_confidence']:.3f}",
                f"{manifest['best_epoch']} of {manifest['epochs']}",
            ]
        )
    if not lines:
        raise StoreError(
            f"There are no trained targets in {folder}; `nicegnn lab train-targets` makes them."
        )
    columns = [
        *("dataset", "target", "test accuracy, % (95% interval)", "paper's GIN, %"),
        *("test graphs", "ECE", "mean confidence", "best epoch"),
    ]
    return Table("targets", "", columns, lines, num_left=len(columns))
