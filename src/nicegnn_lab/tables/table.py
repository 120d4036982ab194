"""Tables: rows read for them, numbers as the text of a cell, written as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nicegnn.errors import StoreError
from nicegnn.store import write_text
from nicegnn_lab.bench.rows import WORDS, read_rows, summarise
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.datasets.dataset import STAND_IN
from nicegnn_lab.paper.methods import Method, datasets_in

MISSING = "-"


@dataclass(frozen=True)
class Table:
    """Rows of text with a title and notes."""

    name: str  # file name without ending; tables of one name share a file
    title: str  # one line; empty for a table that a page has introduced
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()  # cells in bold, as (row, column)
    notes: Sequence[str] = ()  # what a reader must know, a sentence or two each
    num_left: int = 1  # columns of words, aligned to the left; the others are numbers

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {number} of table {self.name!r} must have {len(self.columns)} cells "
                    f"(got {len(row)})."
                )

    def to_markdown(self) -> str:
        """Returns the table as Markdown, with its title and notes."""
        lines = [f"**{self.title}**", ""] if self.title else []
        lines.append("| " + " | ".join(self.columns) + " |")
        num_right = len(self.columns) - self.num_left
        lines.append("|" + " --- |" * self.num_left + " ---: |" * num_right)
        for r, row in enumerate(self.rows):
            cells = [f"**{cell}**" if (r, c) in self.best else cell for c, cell in enumerate(row)]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"


def save_tables(tables: Iterable[Table], folder: str | Path) -> list[Path]:
    """Writes ``name.md`` for each name and returns the files; tables of one name share a file."""
    texts: dict[str, list[str]] = {}
    for table in tables:
        texts.setdefault(table.name, []).append(table.to_markdown())
    paths = [Path(folder) / f"{name}.md" for name in texts]
    for path, parts in zip(paths, texts.values(), strict=True):
        write_text(path, "\n".join(parts))
    return paths


def targets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the targets that rows hold, in the order of `TARGETS`."""
    names = {str(name) for name in rows["target"].unique()}
    return [name for name in TARGETS if name in names] + sorted(names - set(TARGETS))


def read_study(studies: str | Path, name: str) -> pd.DataFrame:
    """Returns the rows of a study, datasets in the paper's order and its GIN first."""
    rows = read_rows(Path(studies) / name)
    if rows.empty:
        raise StoreError(
            f"There are no rows of {name!r} in {studies}; compute them with `nicegnn lab "
            f"experiment {name} --out {studies}`."
        )
    place = {name: turn for turn, name in enumerate((*datasets_in(rows), *TARGETS))}
    # by its digits a float32 is the double it was made from, and halves are rounded as before
    value = rows["value"].astype("str").astype("float64")
    plain = rows.astype(dict.fromkeys(WORDS, "str")).assign(value=value)
    return plain.sort_values(
        ["dataset", "target"], key=lambda names: names.map(place), kind="stable", ignore_index=True
    )


def rows_of(rows: pd.DataFrame, metric: str, protocol: str, target: str) -> pd.DataFrame:
    """Returns the rows of one metric, or says which there are; a removal is fidelity's protocol."""
    chosen = rows[(rows["metric"] == metric) & (rows["target"] == target)]
    chosen = chosen[chosen["protocol"] == protocol]
    if chosen.empty:
        names = {name: sorted(map(str, rows[name].unique())) for name in ("protocol", "target")}
        raise StoreError(
            f"The rows hold no {metric!r} of protocol {protocol!r} and target {target!r}; they "
            f"have protocols {names['protocol']} and targets {names['target']}."
        )
    return chosen


def cells_of(chosen: pd.DataFrame) -> dict[tuple[Method, str], Any]:
    """Returns the line of `summarise` by method and dataset, of rows of one metric and protocol."""
    lines = summarise(chosen).itertuples(index=False)
    return {(Method(line.explainer, line.mechanism), line.dataset): line for line in lines}


def values_of(rows: pd.DataFrame, metric: str, protocol: str = "") -> pd.Series[float]:

    return rows.loc[(rows["metric"] == metric) & (rows["protocol"] == protocol), "value"]


def by_subject(rows: pd.DataFrame, metric: str, protocol: str = "") -> pd.Series[float]:
    """Returns the mean over seeds and graphs of one metric for each dataset and target."""
    subject = [rows["dataset"], rows["target"]]
    return values_of(rows, metric, protocol).groupby(subject).mean()


def number(value: float, digits: int = 2) -> str:
    """Returns a number with so many digits, ``-`` for nan."""
    return MISSING if math.isnan(value) else f"{value:.{digits}f}"


def mean_and_std(values: pd.Series[float], digits: int = 2) -> str:
    """Returns ``mean ± std`` of numbers, the mean alone of a single one, ``-`` of none."""
    measured = values.dropna()
    mean = number(float(measured.mean()), digits)
    return mean if len(measured) < 2 else f"{mean} ± {number(float(measured.std()), digits)}"


def dataset_titles(rows: pd.DataFrame) -> tuple[dict[str, str], list[str]]:
    """Returns the datasets of rows in order with their headings, and a note on stand-ins."""
    marked = set(rows.loc[rows["stand_in"], "dataset"])
    titles = {name: f"{name} (stand-in)" if name in marked else name for name in datasets_in(rows)}
    note = (
        f"Datasets called stand-in are a {STAND_IN}: other molecules under the same rules, so the "
        "paper's values are no exact counterpart."
    )
    return titles, [note] if marked else []
