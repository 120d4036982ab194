"""Rows of the benchmark and of studies: their files, how they are written and read."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import ConfigError, StoreError
from nicegnn.store import write_json, write_whole
from nicegnn_lab.bench.row_tables import COLUMNS as COLUMNS  # imported from here elsewhere
from nicegnn_lab.bench.row_tables import (
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
from nicegnn_lab.bench.row_tables import WORDS as WORDS
from nicegnn_lab.bench.study import Cell, Name, content_hash, name_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PACKED = "packed.parquet"  # the name of every packed file
_DESCRIBED = {"cell", "key", "num_rows"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Block:
    """Rows that differ in graph, level and value alone; a field of none has the cell's value."""

    metric: str  # a plain name
    value: float | Tensor  # one number, or one per row, [n]; nan where undefined
    protocol: str = ""  # name of a protocol, of a removal for fidelity, or empty
    graph: Tensor | None = None  # positions in their part, [n]; none: the whole cell
    note: str = ""  # text, such as a status or an error
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
    r"""Yields the mean over graphs of each metric, in the order of the first blocks.

    .. math:: \bar v = \tfrac1{|G|} \sum_{g \in G} v_g

    Symbols: :math:`G` -> graphs with a value; nan if there is none. Blocks of different level,
    protocol, setting, note, explainer or mechanism have their own means.
    """
    found: dict[Block, list[Tensor]] = {}
    for block in blocks:
        if isinstance(block.level, Tensor):
            raise ConfigError(f"`level` of {block.metric!r} must be one number (got a tensor).")
        found.setdefault(replace(block, value=0.0, graph=None), []).append(block.values)
    for block, values in found.items():
        yield replace(block, value=float(torch.cat(values).nanmean()))


@dataclass(frozen=True)
class Folder:
    """The files of a study: packed rows, and files of single cells beside them."""

    root: Path

    @property
    def packed(self) -> Path:
        """Rows of many cells."""
        return self.root / PACKED

    def rows(self, key: str) -> Path:
        """Rows of one cell."""
        return self.root / "rows" / f"{key}.parquet"

    def states(self, name: str) -> Path:
        """Tensors of one cell, such as embeddings."""
        return self.root / "states" / f"{name}.safetensors"

    @property
    def packed_states(self) -> Path:
        """Tensors of many cells."""
        return self.root / "states.safetensors"

    def scores(self, key: str) -> Path:
        """Raw scores."""
        return self.root / "scores" / f"{key}.safetensors"

    def fit(self, key: str) -> Path:
        """A finished fit; the checkpoint of an unfinished one ends in ``.part``."""
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
        """Writes the keys of the cells of a run and its time; see `finished_cells`."""
        asked = [{"cell": cell.to_dict(), "key": cell.key} for cell in cells]
        path = self.root / "runs" / f"{content_hash(asked)}.json"
        write_json(path, {"asked_ns": time.time_ns(), "cells": asked})

    def asked(self) -> tuple[dict[Name, str], set[str]]:
        """Returns the key of each cell in its latest run, and the keys of all runs."""
        runs = []
        for path in sorted((self.root / "runs").glob("*.json")):
            try:
                run = json.loads(path.read_text(encoding="utf-8"))
                cells = [(name_of(cell["cell"]), str(cell["key"])) for cell in run["cells"]]
                runs.append((int(run["asked_ns"]), path.name, cells))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("%s is damaged (%s); it is ignored.", path, error)
        newest: dict[Name, str] = {}
        for _, _, cells in sorted(runs, reverse=True):
            for name, key in cells:
                newest.setdefault(name, key)
        return newest, {key for _, _, cells in runs for _, key in cells}


@dataclass(frozen=True)
class FinishedCell:
    """A cell whose rows are stored.

    Its description holds ``cell``, ``key`` and ``num_rows``, and where known the ``identity``
    behind the key, ``facts`` about fit and explanation, and the hash of the ``code``.
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
    """Writes the rows and the description of one cell (see `FinishedCell`)."""
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
    write_whole(path, lambda file: write(table, file, compression="zstd", write_page_checksum=True))


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
    """Returns the finished cells of a study, sorted by name.

    A cell that several runs computed with different settings has the rows of the latest run; if
    that run did not finish it, it is missing. A cell that no run names, such as a copied one, has
    the rows of its newest file. Files of single cells come before the packed file.
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
            log.warning("%s It is ignored; run the same command again to restore it.", error)
    for _, cell in sorted(others, key=lambda item: item[0], reverse=True):
        found.setdefault(name_of(cell.description["cell"]), cell)
    for name, cell in packed_cells(place.packed).items():
        if asked.get(name) in (None, cell.key):
            found.setdefault(name, cell)
    return {name: found[name] for name in sorted(found)}


def packed_cells(path: Path) -> dict[Name, FinishedCell]:
    """Returns the cells of a packed file by name, empty if there is no file."""
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
            raise ValueError(f"{description['num_rows']} rows, {begin} in its description")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(path, error) from error
    return found


def read_rows(folder: str | Path, where: Where | None = None) -> pd.DataFrame:
    """Returns the rows of all finished cells of a study; see `finished_cells`.

    A damaged packed file is an error. A damaged file of one cell is ignored with a warning, because
    the next run restores it.

    Args:
        folder: of the study, such as ``results/bench`` or ``results/studies/ablation``.
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
    """Yields the rows of cells; a damaged file of one cell is an error if `is_strict`."""
    packed = _read_packed([cell for cell in cells.values() if cell.path.name == PACKED], where)
    for name, cell in cells.items():
        try:
            table = packed[name] if name in packed else filtered(read_table(cell.path), where)
        except StoreError as error:
            if is_strict:
                advice = "Run the same command again to restore it, then pack."
                raise StoreError(f"{error} {advice}") from error
            log.warning("%s It is ignored; run the same command again to restore it.", error)
            continue
        yield name, table


def _read_packed(cells: Sequence[FinishedCell], where: Where) -> dict[Name, pa.Table]:
    """Returns the rows of cells of one packed file; only their row groups are read."""
    found: dict[Name, pa.Table] = {}
    if not cells:
        return found
    path, begin = cells[0].path, 0
    try:
        with opened(path) as file:
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                inside = [cell for cell in cells if begin <= cell.begin < end]
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
    """Returns whether a cell can hold rows with these values."""
    return all(
        description["cell"][name] in listed(where[name])
        for name in ("study", "dataset", "stand_in", "target", "seed")
        if name in where
    )
