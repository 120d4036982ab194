"""The trained targets as a table beside the paper's, and a check that they reproduce."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nicegnn.bench.targets import PAPER_ACCURACY, TARGETS, load_target, target_path
from nicegnn.errors import StoreError


def read_manifests(folder: str | Path) -> list[dict[str, Any]]:
    """Returns the manifests of all trained targets in a folder, by dataset and target."""
    found = [
        load_target(path).manifest
        for dataset in PAPER_ACCURACY
        for target in TARGETS
        if (path := target_path(folder, dataset, target)).is_file()
    ]
    if not found:
        raise StoreError(f"There are no trained targets in {folder}; `nicegnn train` makes them.")
    return found


def target_table(folder: str | Path) -> str:
    """Returns a Markdown table of accuracy and calibration, the paper's GIN beside ours."""
    lines = [
        "| dataset | target | test accuracy, % (95% interval) | paper's GIN, % | test graphs | ECE "
        "| mean confidence | best epoch |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for manifest in read_manifests(folder):
        test, paper = manifest["test"], manifest["paper_accuracy"]
        low, high = (100 * value for value in test["interval"])
        lines.append(
            f"| {manifest['title']} | {manifest['target']} | {100 * test['accuracy']:.2f} "
            f"({low:.2f} to {high:.2f}) | {'' if paper is None else f'{paper:.2f}'} | "
            f"{manifest['sizes']['test']} | {test['ece']:.3f} | {test['mean_confidence']:.3f} | "
            f"{manifest['best_epoch']} of {manifest['epochs']} |"
        )
    return "\n".join(lines) + "\n"


def check_targets(folder: str | Path) -> Iterator[str]:
    """Repeats the test accuracy of every stored target and yields a line about each.

    Raises:
        StoreError: If data or accuracy are not those of the manifest.
    """
    from nicegnn.datasets import load_dataset
    from nicegnn.target.training import accuracy_of

    for manifest in read_manifests(folder):
        dataset = load_dataset(manifest["dataset"])
        if dataset.report.files != manifest["data"]:
            raise StoreError(
                f"{manifest['dataset']} is not the data that the targets were trained on: other "
                "checksums."
            )
        path = target_path(folder, manifest["dataset"], manifest["target"])
        again, stated = accuracy_of(load_target(path).model, dataset.test), manifest["test"]
        if abs(again - stated["accuracy"]) > 1 / len(dataset.test) + 1e-9:
            raise StoreError(
                f"{path} reaches {again:.4f} on the test part, its manifest says "
                f"{stated['accuracy']:.4f}."
            )
        yield f"{manifest['title']}, {manifest['target']}: {again:.4f} as stated"
