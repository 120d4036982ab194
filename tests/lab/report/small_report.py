"""A small benchmark with two datasets, one of them without SMILES, and the page of its rows."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nicegnn.target.training import TrainConfig
from nicegnn_lab.bench import MetricConfig, read_rows, run_bench
from nicegnn_lab.bench.targets import train_target
from nicegnn_lab.datasets import MoleculeDataset, load_dataset
from nicegnn_lab.report import GalleryConfig, Report, ReportConfig, make_report
from tests.lab.bench.small_bench import NICE, World
from tests.lab.datasets.small_files import write_csv, write_molecules

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


METRICS = MetricConfig(removals=("em", "nc"), ratios=(0.3, 0.6), num_draws=2)


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
        settings = {"settings": SETTINGS, "metrics": METRICS}
        config = world.config(out, *EXPLAINERS, seeds=(0, 1), **settings)
        report = run_bench(replace(config, datasets=DATASETS))
    assert not report.failed
    return out


def bench_rows() -> pd.DataFrame:
    """All rows of the small benchmark, words as plain text."""
    rows = read_rows(make_bench())
    return rows.astype({name: str for name in rows if rows[name].dtype == "category"})


@cache
def make_page(molecules: int = 4) -> Report:
    """Returns the report of the small benchmark."""
    config = ReportConfig(make_bench(), gallery=GalleryConfig(molecules=molecules))
    return make_report(config)


def embedded(report: Report, name: str) -> Any:
    """Returns plain values that a page holds for its scripts."""
    start = report.html.index(">", report.html.index(f'id="data-{name}"')) + 1
    return json.loads(report.html[start : report.html.index("</script>", start)])


def mean_and_std(rows: pd.DataFrame) -> tuple[float, float]:
    """Mean and deviation over seeds of the mean over graphs."""
    by_seed = rows.astype({"value": "float64"}).groupby("seed")["value"].mean()
    return float(by_seed.mean()), float(by_seed.std())


class Reader(HTMLParser):
    """Checks that tags are closed; keeps addresses, ids, and the cells of tables."""

    void = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tables: dict[str, list[list[dict[str, str]]]] = {}
        self._table = ""
        self._row: list[dict[str, str]] | None = None
        self._cell: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        names = ("src", "href", "action", "srcset", "poster", "data")
        self.addresses += [given[name] for name in names if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.void:
            self.open.append(tag)
        if given.get("id", "").startswith(("table-", "headline", "source-table")):
            self._table = given["id"]
        if tag == "tr":
            self._row = []
        if tag in ("td", "th"):
            self._cell = {"source": given.get("data-source", ""), "text": ""}

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell["text"] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th") and self._row is not None and self._cell is not None:
            self._row.append(self._cell)
            self._cell = None
        if tag == "tr" and self._row is not None:
            self.tables.setdefault(self._table, []).append(self._row)
            self._row = None
        if tag == "table":
            self._table = ""
