"""Rows of a benchmark or of a study, written by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path

import pandas as pd

from nicegnn_lab.bench.rows import COLUMNS, WORDS, Block, Folder, write_rows
from nicegnn_lab.bench.study import Cell, Variant

Values = Mapping[tuple[str, str, int], Sequence[float]]


def bench_rows(
    values: Values,
    *,
    metric: str = "roc_auc",
    protocol: str = "paper",
    target: str = "gin",
    graph: Sequence[int] | None = None,
    level: float = nan,
    stand_ins: Collection[str] = (),
) -> pd.DataFrame:
    """Rows of one metric from values per graph by (dataset, ``explainer+mechanism``, seed)."""
    found = []
    for (dataset, method, seed), numbers in values.items():
        explainer, _, mechanism = method.partition("+")
        places = list(range(len(numbers))) if graph is None else list(graph)
        for place, value in zip(places, numbers, strict=True):
            name = ("bench", dataset, dataset in stand_ins, target, explainer, mechanism, "", level)
            found.append((*name, seed, place, protocol, metric, value, ""))
    rows = pd.DataFrame(found, columns=list(COLUMNS))
    return rows.astype(dict.fromkeys(WORDS, "category") | {"value": "float32", "stand_in": "bool"})


def joined(*parts: pd.DataFrame) -> pd.DataFrame:
    """Puts rows together as `read_rows` does: words stay categories."""
    rows = pd.concat([part.astype(dict.fromkeys(WORDS, "str")) for part in parts])
    return rows.astype(dict.fromkeys(WORDS, "category")).reset_index(drop=True)


def write_study(
    studies: Path,
    study: str,
    blocks: Iterable[Block],
    *,
    dataset: str = "benzene",
    target: str = "gin",
    seed: int = 0,
    stand_in: bool = False,
    variant: Variant | None = None,
) -> None:
    """Writes the rows of one cell of a study into the folder of all studies."""
    variant = variant or Variant()
    about = [study, dataset, target, seed, variant.setting, variant.explainer, variant.mechanism]
    level = None if variant.level != variant.level else variant.level
    identity = {"study": study, "scores": {}, "by hand": about, "level": level}
    cell = Cell(study, dataset, stand_in, target, variant, seed, identity)
    write_rows(Folder(studies / study).file("rows", cell.key), cell, list(blocks))


def with_setting(setting: str, *blocks: Block, level: float | None = None) -> list[Block]:
    """Returns blocks of one setting and level."""
    return [replace(block, setting=setting, level=level) for block in blocks]
