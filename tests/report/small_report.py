"""A small benchmark with two datasets, one of them without SMILES, and evidence made by hand."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nicegnn.bench import COLUMNS, run_bench
from nicegnn.bench.study_rows import COLUMNS as EXPERIMENT_COLUMNS
from nicegnn.bench.targets import train_target
from nicegnn.datasets import MoleculeDataset, load_dataset
from nicegnn.report import Evidence, GalleryConfig, Report, ReportConfig, make_report
from nicegnn.report.evidence import BOUNDARY_COLUMNS, summary_of
from nicegnn.report.parts import Parts
from nicegnn.tables.methods import own_mechanism
from nicegnn.target.training import TrainConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from tests.bench.small_bench import NICE, World
from tests.datasets.small_files import write_csv, write_molecules

DATASETS = ("mutagenicity", "benzene")
EXPLAINERS = (
    *("nice", "nice-paper", "random", "ground-truth", "saliency"),
    *("gnnexplainer", "gnnexplainer+nc"),
)
SETTINGS: dict[str, dict[str, Any]] = {
    "nice": NICE,
    "nice-paper": NICE,
    "gnnexplainer": {"steps": 3},
}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="nicegnn-report-")


@cache
def make_world() -> World:
    """Writes the data of both datasets and trains their targets, once for all tests of a run."""
    root = Path(_folder().name)
    world = World(root / "data", root / "cache", root / "targets")
    write_molecules(world.data, 150)
    write_chains(world.data)
    for name in DATASETS:
        dataset = load(name)
        train_target(
            dataset, "gin", world.targets, TrainConfig(epochs=4, batch_size=32), progress=False
        )
    return world


def load(name: str) -> MoleculeDataset:
    """Reads a dataset of the small world."""
    root = Path(_folder().name)
    return load_dataset(name, root=root / "data", cache=root / "cache")


def write_chains(folder: Path, num: int = 120) -> None:
    """Writes chains, every second one with a nitroso group, in Mutagenicity's form.

    The digits of its number make each chain another one, for twins would share a part.
    """
    rows = []
    for number in range(num):
        atoms = ["S" if digit == "1" else "C" for digit in f"{number:07b}C"]
        size = len(atoms)
        bonds = [f"{k}-{k + 1}:1" for k in range(size - 1)]
        matches: list[Any] = []
        if number % 2:
            atoms += ["N", "O"]
            bonds += [f"{size - 1}-{size}:1", f"{size}-{size + 1}:2"]
            matches = [["nitroso", [size, size + 1]]]
        rows.append(
            {
                "tu_index": number,
                "label": number % 2,
                "kept": 1,
                "atoms": " ".join(atoms),
                "bonds": " ".join(bonds),
                "matches": json.dumps(matches),
            }
        )
    write_csv(folder / "mutagenicity.csv.gz", rows)


@cache
def make_bench() -> Path:
    """Runs the small benchmark, once for all tests of a run."""
    world = make_world()
    out = Path(_folder().name) / "bench"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        config = world.config(out, *EXPLAINERS, seeds=(0, 1), settings=SETTINGS)
        report = run_bench(type(config)(**{**vars(config), "datasets": DATASETS}))
    assert not report.failed
    return out


@cache
def make_page(molecules: int = 4) -> Report:
    """Returns the report of the small benchmark."""
    config = ReportConfig(make_bench(), gallery=GalleryConfig(molecules=molecules))
    return make_report(config, parts=Parts(load))


def embedded(report: Report, name: str) -> Any:
    """Returns plain values that a page holds for its scripts."""
    start = report.html.index(">", report.html.index(f'id="data-{name}"')) + 1
    return json.loads(report.html[start : report.html.index("</script>", start)])


def hand_rows(
    values: Mapping[str, Mapping[str, float]], metric: str = "roc_auc", protocol: str = "paper"
) -> list[dict[str, Any]]:
    """Rows of one graph and seed: the value of each method (``name`` or ``name+nc``) by dataset."""
    rows = []
    for label, row in values.items():
        explainer, _, mechanism = label.partition("+")
        for dataset, value in row.items():
            cell = (dataset, "gin", explainer, mechanism or own_mechanism(explainer), 0)
            rows.append(dict(zip(COLUMNS, (*cell, 0, protocol, metric, value), strict=True)))
    return rows


def hand_evidence(
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    experiments: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    boundaries: Sequence[Mapping[str, Any]] = (),
) -> Evidence:
    """Evidence from rows written by hand; what is left out of experiments' rows is filled in."""
    frame = pd.DataFrame(list(rows), columns=list(COLUMNS))
    blank = {"target": "gin", "level": float("nan"), "seed": 0}
    return Evidence(
        sources=(),
        rows=frame,
        summary=summary_of(frame),
        boundaries=pd.DataFrame(
            [{"target": "gin", "seed": 0, "num_graphs": 5} | dict(row) for row in boundaries],
            columns=list(BOUNDARY_COLUMNS),
        ),
        experiments={
            name: pd.DataFrame(
                [blank | {"experiment": name} | dict(row) for row in some],
                columns=list(EXPERIMENT_COLUMNS),
            )
            for name, some in (experiments or {}).items()
        },
    )
