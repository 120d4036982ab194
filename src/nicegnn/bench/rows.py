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
from nicegnn.bench.study import Cell, Name, content_hash, name_of
from nicegnn.errors import ConfigError, StoreError
from nicegnn.store import write_json, write_whole

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PACKED = "packed.parquet"  # the name of every packed file
_DESCRIBED = {"cell", "key", "num_rows"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Block:
    """Rows that share all but graph, level and value; what is none is the cell's own."""

    metric: str  # a plain name
    value: float | Tensor  # one number, or one per row, [n]; nan where undefined
    protocol: str = ""  # name of a protocol, of a removal for fidelity, or empty
    graph: Tensor | None = None  # positions in their part, [n]; none: about the whole cell
    note: str = ""  # words where a number cannot say it
    setting: str | None = None
    level: float | Tensor | None = None  # one number, or one per row, [n]
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
        return self.root / PACKED

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
        """A finished fit; beside it, one that is not finished ends in ``.part``."""
        return self.root / "fits" / f"{key}.safetensors"

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
        write_json(self.failed(cell.key), content)

    def record_run(self, cells: Iterable[Cell]) -> None:
        """Writes which cells were asked for and when, so that readers know which rows are meant."""
        asked = [{"cell": cell.to_dict(), "key": cell.key} for cell in cells]
        path = self.root / "runs" / f"{content_hash(asked)}.json"
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

    Its description holds ``cell``, ``key`` and ``num_rows``, and where known the ``identity``
    behind the key, ``facts`` about fit and explanation, and the ``code`` that made its scores.
    """

    path: Path  # file that holds its rows
    description: Mapping[str, Any]
    begin: int = 0  # its first row in the file

    @property
    def key(self) -> str:
        return str(self.description["key"])

    @property
    def num_rows(self) -> int:
        return int(self.description["num_rows"])


def write_rows(path: Path, cell: Cell, blocks: Iterable[Block], **about: Any) -> None:
    """Writes the rows of one cell, with more about it in plain values (see `FinishedCell`)."""
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
    write = import_module("pyarrow.parquet").write_table
    options = {"compression": "zstd", "write_page_checksum": True}
    write_whole(path, lambda file: write(table, file, **options))


def table_of(cell: Cell, blocks: list[Block]) -> pa.Table:
    """Returns blocks of one cell as a table of `COLUMNS`."""
    pa = arrow()
    sizes = torch.tensor([block.size for block in blocks], dtype=torch.long)
    num, own = int(sizes.sum()), cell.to_dict()

    def words(name: str) -> Any:
        given = [getattr(block, name, None) for block in blocks]
        chosen = [own.get(name, "") if word is None else word for word in given]
        known = sorted(set(chosen))
        code = torch.tensor([known.index(word) for word in chosen], dtype=torch.long)
        return pa.DictionaryArray.from_arrays(
            pa.array(code.repeat_interleave(sizes).int().numpy()), pa.array(known, pa.string())
        )

    def numbers(values: Iterable[float | Tensor], kind: torch.dtype) -> Any:
        flat = [torch.as_tensor(value, dtype=kind).detach().cpu().reshape(-1) for value in values]
        parts = [value.expand(int(size)) for value, size in zip(flat, sizes, strict=True)]
        return pa.array((torch.cat(parts) if parts else torch.empty(0, dtype=kind)).numpy())

    def level(block: Block) -> float | Tensor:
        return cell.variant.level if block.level is None else block.level

    columns: dict[str, Any] = {name: words(name) for name in WORDS}
    columns["stand_in"] = pa.array([cell.stand_in] * num, pa.bool_())
    columns["seed"] = pa.array([cell.seed] * num, pa.int64())
    columns["value"] = numbers((block.values for block in blocks), torch.float32)
    columns["level"] = numbers((level(block) for block in blocks), torch.double)
    columns["graph"] = numbers((_graph(block) for block in blocks), torch.int32)
    return pa.table({name: columns[name] for name in COLUMNS})


def _graph(block: Block) -> int | Tensor:
    if block.graph is None:
        return WHOLE_CELL
    if block.graph.numel() != block.size:
        raise ConfigError(
            f"`graph` of block {block.metric!r} must have one position per value (got "
            f"{block.graph.numel()} for {block.size})."
        )
    return block.graph


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
    """Returns the cells of a packed file by name, none if there is no file."""
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

    A damaged packed file is an error. A cell's own file that is damaged is left out with a warning,
    for the next run restores it.

    Args:
        folder: of the family, such as ``results/bench`` or ``results/studies/ablation``.
        where: values to keep by column, ``{"metric": ["f1"], "dataset": "benzene"}``.
    """
    pa = arrow()
    where = where or {}
    unknown = sorted(set(where) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    cells = {n: c for n, c in finished_cells(folder).items() if _may_hold(c.description, where)}
    tables = [table for _, table in read_tables(cells, where)] or [empty_table()]
    return with_sorted_words(pa.concat_tables(tables).unify_dictionaries().to_pandas())


def read_tables(
    cells: Mapping[Name, FinishedCell], where: Where, *, is_strict: bool = False
) -> Iterator[tuple[Name, pa.Table]]:
    """Yields the rows of cells in their order.

    A cell's own file that is damaged is left out with a warning, or is an error if `is_strict`.
    """
    packed = _read_packed([cell for cell in cells.values() if cell.path.name == PACKED], where)
    for name, cell in cells.items():
        try:
            is_packed = name in packed
            yield (
                name,
                packed[name] if is_packed else filtered(read_table(cell.path), where),
            )
        except StoreError as error:
            if is_strict:
                raise StoreError(
                    f"{error} Run the same command again to restore it, then pack."
                ) from error
            log.warning("%s It is left out; run the same command again to restore it.", error)


def _read_packed(cells: Collection[FinishedCell], where: Where) -> dict[Name, pa.Table]:
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
                        found[name_of(cell.description["cell"])] = filtered(own, where)
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
