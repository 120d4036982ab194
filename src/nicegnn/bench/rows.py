"""Rows of the benchmark and of every study: their files, and which of them count."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.bench.cell import Cell, Name, content_hash, name_of
from nicegnn.bench.row_tables import COLUMNS as COLUMNS  # where readers of rows look for them
from nicegnn.bench.row_tables import (
    PACKED_KIND,
    ROWS_KIND,
    WHOLE_CELL,
    Where,
    arrow,
    damaged,
    describe,
    empty_table,
    filtered,
    listed,
    opened,
    read_table,
    with_sorted_words,
)
from nicegnn.bench.row_tables import WORDS as WORDS
from nicegnn.errors import ConfigError, StoreError
from nicegnn.store import write_json, write_whole

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_DESCRIBED = {"cell", "key", "num_rows"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Block:
    """Rows that share all but graph, level and value.

    Attributes:
        metric: a plain name.
        value: one number, or one per row, ``[n]``; nan where undefined.
        protocol: name of a protocol, of a removal for fidelity, or empty.
        graph: position of the graph or node of each row in its part, ``[n]``; none for numbers
            about the whole cell.
        note: words where a number cannot say it.
        setting, explainer, mechanism: none for the cell's own.
        level: one number, or one per row, ``[n]``; none for the cell's own.
    """

    metric: str
    value: float | Tensor
    protocol: str = ""
    graph: Tensor | None = None
    note: str = ""
    setting: str | None = None
    level: float | Tensor | None = None
    explainer: str | None = None
    mechanism: str | None = None

    @property
    def values(self) -> Tensor:
        """The values as a tensor on the CPU, double ``[n]``."""
        return torch.as_tensor(self.value, dtype=torch.double).detach().cpu().reshape(-1)

    @property
    def size(self) -> int:
        return int(self.values.numel())


def mean_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    r"""Yields one block about the whole cell for each metric, in the order they first came.

    .. math:: \bar v = \tfrac1{|G|} \sum_{g \in G} v_g

    Symbols: :math:`G` -> graphs with a value; nan if there is none. Blocks that differ in more
    than graph and value, such as in their level, stay apart.
    """
    found: dict[Block, list[Tensor]] = {}
    for block in blocks:
        if isinstance(block.level, Tensor):
            raise ConfigError(f"Means of {block.metric!r} need one level per block (got several).")
        found.setdefault(replace(block, value=0.0, graph=None), []).append(block.values)
    for block, values in found.items():
        yield replace(block, value=float(torch.cat(values).nanmean()))


@dataclass(frozen=True)
class Folder:
    """The files of one family of rows: packed rows, and beside them all that is under way."""

    root: Path

    @property
    def packed(self) -> Path:
        """Rows of many cells in one small file."""
        return self.root / "packed.parquet"

    def rows(self, key: str) -> Path:
        """Rows of one cell."""
        return self.root / "rows" / f"{key}.parquet"

    def states(self, name: str) -> Path:
        """Tensors that a cell keeps beside its rows."""
        return self.root / "states" / f"{name}.safetensors"

    @property
    def packed_states(self) -> Path:
        """Tensors of many cells in one file."""
        return self.root / "states.safetensors"

    def scores(self, key: str) -> Path:
        """Raw scores."""
        return self.root / "scores" / f"{key}.safetensors"

    def fit(self, key: str) -> Path:
        """A finished fit."""
        return self.root / "fits" / f"{key}.safetensors"

    def checkpoint(self, key: str) -> Path:
        """A fit that is not finished."""
        return self.root / "fits" / f"{key}.part"

    def failed(self, key: str) -> Path:
        """Why a cell failed."""
        return self.root / "failed" / f"{key}.json"

    def record_failure(self, cell: Cell, error: BaseException) -> None:
        """Writes why a cell failed."""
        content = {
            "cell": cell.to_dict(),
            "error": type(error).__name__,
            "message": str(error),
            "traceback": "".join(traceback.format_exception(error)),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "identity": dict(cell.identity),
        }
        path = self.failed(cell.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)

    def record_run(self, cells: Iterable[Cell]) -> None:
        """Writes which cells were asked for and when, so that readers know which rows are meant."""
        asked = [{"cell": cell.to_dict(), "key": cell.key} for cell in cells]
        path = self.root / "runs" / f"{content_hash(asked)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"asked_ns": time.time_ns(), "cells": asked})

    def asked(self) -> tuple[dict[Name, str], set[str]]:
        """Returns the key that was asked for last of each cell, and all keys that ever were."""
        runs = []
        for path in sorted((self.root / "runs").glob("*.json")):
            try:
                run = json.loads(path.read_text(encoding="utf-8"))
                cells = [(name_of(cell["cell"]), str(cell["key"])) for cell in run["cells"]]
                runs.append((int(run["asked_ns"]), path.name, cells))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is damaged (%s) and is left out.", path, error)
        newest: dict[Name, str] = {}
        for _, _, cells in sorted(runs, reverse=True):
            for name, key in cells:
                newest.setdefault(name, key)
        return newest, {key for _, _, cells in runs for _, key in cells}


@dataclass(frozen=True)
class FinishedCell:
    """A cell whose rows are stored.

    Attributes:
        path: file that holds its rows.
        description: its ``cell``, ``key`` and ``num_rows``, and where known the ``identity`` behind
            the key, ``facts`` about fit and explanation, and the ``code`` that made its scores.
        begin: its first row in the file.
    """

    path: Path
    description: Mapping[str, Any]
    begin: int = 0

    @property
    def key(self) -> str:
        return str(self.description["key"])

    @property
    def num_rows(self) -> int:
        return int(self.description["num_rows"])


def write_rows(path: Path, cell: Cell, blocks: Iterable[Block], **about: Any) -> None:
    """Writes the rows of one cell, whole or not at all.

    Args:
        about: further plain values for its description, see `FinishedCell`.
    """
    table = table_of(cell, list(blocks))
    description = {
        "kind": ROWS_KIND,
        "cell": cell.to_dict(),
        "key": cell.key,
        "num_rows": table.num_rows,
        "identity": dict(cell.identity),
        "written_ns": time.time_ns(),
        **about,
    }
    table = table.replace_schema_metadata({"nicegnn": json.dumps(description)})
    parquet = import_module("pyarrow.parquet")
    write_whole(
        path,
        lambda file: parquet.write_table(table, file, compression="zstd", write_page_checksum=True),
    )


def table_of(cell: Cell, blocks: list[Block]) -> pa.Table:
    """Returns blocks of one cell as a table of `COLUMNS`."""
    pa = arrow()
    sizes = torch.tensor([block.size for block in blocks], dtype=torch.long)
    num = int(sizes.sum())

    def words(name: str) -> Any:
        given = [getattr(block, name, None) for block in blocks]
        own = getattr(cell, name, "")
        chosen = [own if word is None else word for word in given]
        known = sorted(set(chosen))
        place = {word: code for code, word in enumerate(known)}
        code = torch.tensor([place[word] for word in chosen], dtype=torch.long)
        return pa.DictionaryArray.from_arrays(
            pa.array(code.repeat_interleave(sizes).int().numpy()), pa.array(known, pa.string())
        )

    def numbers(values: Iterable[Tensor], kind: torch.dtype) -> Any:
        parts = [value.expand(int(size)) for value, size in zip(values, sizes, strict=True)]
        joined = torch.cat(parts) if parts else torch.empty(0)
        return pa.array(joined.to(kind).numpy())  # nan stays nan

    columns: dict[str, Any] = {name: words(name) for name in WORDS}
    columns["stand_in"] = pa.array([cell.stand_in] * num, pa.bool_())
    columns["seed"] = pa.array([cell.seed] * num, pa.int64())
    columns["value"] = numbers((block.values for block in blocks), torch.float32)
    columns["level"] = numbers((_level(block, cell) for block in blocks), torch.double)
    columns["graph"] = numbers((_graph(block) for block in blocks), torch.int32)
    return pa.table({name: columns[name] for name in COLUMNS})


def _level(block: Block, cell: Cell) -> Tensor:
    level = cell.level if block.level is None else block.level
    return torch.as_tensor(level, dtype=torch.double).detach().cpu().reshape(-1)


def _graph(block: Block) -> Tensor:
    if block.graph is None:
        return torch.tensor([WHOLE_CELL])
    if block.graph.numel() != block.size:
        raise ConfigError(
            f"`graph` of block {block.metric!r} must have one position per value (got "
            f"{block.graph.numel()} for {block.size})."
        )
    return block.graph.detach().cpu().reshape(-1)


def finished_cells(folder: str | Path) -> dict[Name, FinishedCell]:
    """Returns where the rows of each finished cell are, in the order of the cells' names.

    A cell's own file comes before the packed one. Where a cell was run with several settings, those
    of the run that was asked for last count, and only they: a cell that is not finished under them
    is missing rather than mixed in from an older run. Files that no run asked for, such as copied
    ones, count where no run asked for their cell, the newest first.
    """
    place = Folder(Path(folder))
    asked, known = place.asked()
    found: dict[Name, FinishedCell] = {}
    others: list[tuple[int, FinishedCell]] = []
    for path in sorted((place.root / "rows").glob("*.parquet")):
        if path.stem in known and path.stem not in asked.values():
            continue
        try:
            cell = FinishedCell(path, describe(path, ROWS_KIND))
            name = name_of(cell.description["cell"])
            if asked.get(name) == cell.key:
                found[name] = cell
            elif name not in asked:
                others.append((int(cell.description.get("written_ns", 0)), cell))
        except (StoreError, KeyError, TypeError) as error:
            log.warning("%s It is left out; run the same command again to restore it.", error)
    for _, cell in sorted(others, key=lambda item: item[0], reverse=True):
        found.setdefault(name_of(cell.description["cell"]), cell)
    for name, cell in packed_cells(place.packed).items():
        if asked.get(name) in (None, cell.key):
            found.setdefault(name, cell)
    return {name: found[name] for name in sorted(found)}


def packed_cells(path: Path) -> dict[Name, FinishedCell]:
    """Returns the cells of a packed file by name, none if there is no file.

    Raises:
        StoreError: The file is damaged.
    """
    if not path.is_file():
        return {}
    description = describe(path, PACKED_KIND)
    found, begin = {}, 0
    try:
        for cell in description["cells"]:
            if not cell.keys() >= _DESCRIBED:
                raise KeyError(*sorted(_DESCRIBED - cell.keys()))
            found[name_of(cell["cell"])] = FinishedCell(path, cell, begin)
            begin += int(cell["num_rows"])
        if begin != description["num_rows"]:
            raise ValueError(f"{description['num_rows']} rows for {begin} described")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(path, error) from error
    return found


def read_rows(folder: str | Path, where: Where | None = None) -> pd.DataFrame:
    """Returns the rows of all finished cells of a family, each cell once; see `finished_cells`.

    Args:
        folder: of the family, such as ``results/bench`` or ``results/studies/ablation``.
        where: values to keep by column, ``{"metric": ["f1"], "dataset": "benzene"}``.

    Raises:
        StoreError: The packed file is damaged. A cell's own file that is damaged is left out with a
            warning, for the next run restores it.
    """
    pa = arrow()
    where = where or {}
    unknown = sorted(set(where) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    cells = {n: c for n, c in finished_cells(folder).items() if _may_hold(c.description, where)}
    packed = [cell for cell in cells.values() if cell.path == Folder(Path(folder)).packed]
    tables = read_packed(packed, where)
    for name, cell in cells.items():
        if name not in tables:
            try:
                tables[name] = filtered(read_table(cell.path, ROWS_KIND), where)
            except StoreError as error:
                log.warning("%s It is left out; run the same command again to restore it.", error)
    plain = [tables[name] for name in cells if name in tables] or [empty_table()]
    rows: pd.DataFrame = with_sorted_words(pa.concat_tables(plain)).to_pandas()
    return rows


def read_packed(
    cells: Collection[FinishedCell], where: Where | None = None
) -> dict[Name, pa.Table]:
    """Returns the rows of cells of one packed file; only the parts that hold them are read."""
    found: dict[Name, pa.Table] = {}
    if not cells:
        return found
    wanted = sorted(cells, key=lambda cell: cell.begin)
    path, begin = wanted[0].path, 0
    try:
        with opened(path) as file:
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                inside = [cell for cell in wanted if begin <= cell.begin < end]
                if inside:
                    group = file.read_row_group(number).replace_schema_metadata(None)
                    for cell in inside:
                        own = group.slice(cell.begin - begin, cell.num_rows)
                        found[name_of(cell.description["cell"])] = filtered(own, where or {})
                begin = end
    except (arrow().ArrowException, OSError, ValueError) as error:
        raise damaged(path, error) from error
    return found


def _may_hold(description: Mapping[str, Any], where: Where) -> bool:
    """Returns whether a cell can hold rows with these values, by what all its rows share."""
    return all(
        description["cell"][name] in listed(where[name])
        for name in ("study", "dataset", "stand_in", "target", "seed")
        if name in where
    )
