"""The trained targets beside the paper's."""

from pathlib import Path
from typing import Any

from nicegnn.errors import StoreError
from nicegnn_lab.bench.targets import MAIN_TARGET, TARGETS, load_target, target_path
from nicegnn_lab.datasets.registry import DATASETS
from nicegnn_lab.paper.numbers import PAPER_ACCURACY
from nicegnn_lab.tables.table import Table


def read_manifests(folder: str | Path) -> list[dict[str, Any]]:
    """Returns the manifests of all trained targets in a folder, by dataset and target."""
    manifests = [
        load_target(path).manifest
        for dataset in DATASETS
        for target in TARGETS
        if (path := target_path(folder, dataset, target)).is_file()
    ]
    if not manifests:
        raise StoreError(
            f"There are no trained targets in {folder}; `nicegnn lab train-targets` makes them."
        )
    return manifests


def target_table(folder: str | Path) -> Table:
    """Returns accuracy and calibration of all targets, the paper's GIN beside ours."""
    lines = []
    for manifest in read_manifests(folder):
        test, dataset = manifest["test"], manifest["dataset"]
        paper = PAPER_ACCURACY.get(dataset) if manifest["target"] == MAIN_TARGET else None
        low, high = (100 * value for value in test["interval"])
        lines.append(
            [
                *(manifest["title"], manifest["target"]),
                f"{100 * test['accuracy']:.2f} ({low:.2f} to {high:.2f})",
                "" if paper is None else f"{paper:.2f}",
                str(manifest["sizes"]["test"]),
                f"{test['ece']:.3f}",
                f"{test['mean_confidence']:.3f}",
                f"{manifest['best_epoch']} of {manifest['epochs']}",
            ]
        )
    columns = [
        *("dataset", "target", "test accuracy, % (95% interval)", "paper's GIN, %"),
        *("test graphs", "ECE", "mean confidence", "best epoch"),
    ]
    return Table("targets", "", columns, lines, num_left=len(columns))
