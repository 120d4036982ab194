"""Rows of the benchmark, of studies and of tuning: one schema, its files, and their means."""

from __future__ import annotations

import base64
import json
import logging
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import torch
from torch import Tensor

from nicegnn.errors import ConfigError, StoreError
from nicegnn.store import write_whole
from nicegnn_lab.bench.study import Cell, Name, name_of

WORDS = (
    *("study", "dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "note"),
)
_NUMBERS = {
    "stand_in": pa.bool_(),
    "level": pa.float64(),
    "seed": pa.int64(),
    "graph": pa.int32(),
    "value": pa.float32(),
}
#: Columns of every row. ``setting`` names what is varied, ``level`` is its number.
COLUMNS = (
    *("study", "dataset", "stand_in", "target", "explainer", "mechanism", "setting", "level"),
    *("seed", "graph", "protocol", "metric", "value", "note"),
)
SCHEMA = pa.schema(
    [(name, _NUMBERS.get(name, pa.dictionary(pa.int32(), pa.string()))) for name in COLUMNS]
)
#: Columns by which `summarise` groups rows.
GROUPS = (
    *("dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "level"),
)
WHOLE_CELL = -1  # in column ``graph``: the value is of the whole cell
ROWS_KIND, PACKED_KIND = "rows", "packed-rows"
PACKED = "packed.parquet"  # the name of every packed file
_ENDINGS = {"rows": "parquet", "failed": "json"}  # of files of cells; others hold tensors

#: Values to keep by column.
Where = Mapping[str, "str | float | bool | Collection[str | float | bool]"]

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

    @property
    def values(self) -> Tensor:
        """The values as a tensor on the CPU, double ``[n]``."""
        return torch.as_tensor(self.value, dtype=torch.double).detach().cpu().reshape(-1)


def mean_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields the mean of each metric over graphs with a value, nan if there are none.

    Blocks of different level, protocol, setting or note have their own means.
    """
    groups: dict[Block, list[Tensor]] = {}
    for block in blocks:
        groups.setdefault(replace(block, value=0.0, graph=None), []).append(block.values)
    for block, values in groups.items():
        yield replace(block, value=float(torch.cat(values).nanmean()))


@dataclass(frozen=True)
class Folder:
    """The files of a study: packed rows, and files of single cells beside them."""

    root: Path

    @property
    def packed(self) -> Path:
        """Rows of many cells."""
        return self.root / PACKED

    def file(self, kind: str, key: str) -> Path:
        """The ``rows``, ``scores`` or ``fits`` of a cell, or why it ``failed``."""
        return self.root / kind / f"{key}.{_ENDINGS.get(kind, 'safetensors')}"


@dataclass(frozen=True)
class FinishedCell:
    """A cell whose rows are stored.

    Its description holds ``cell``, ``key`` and ``num_rows``, and where known the ``identity``
    behind the key, and ``facts`` about fit and explanation.
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

    @property
    def name(self) -> Name:
        return name_of(self.description["cell"])


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
    options = {"compression": "zstd", "write_page_checksum": True}
    write_whole(path, lambda file: pa.parquet.write_table(table, file, **options))


def table_of(cell: Cell, blocks: list[Block]) -> pa.Table:
    """Returns blocks of one cell as a table of `COLUMNS`."""
    own: dict[str, Any] = {**cell.to_dict(), "graph": WHOLE_CELL, "level": cell.variant.level}
    parts: dict[str, list[Any]] = {name: [np.empty(0)] for name in COLUMNS}
    for block in blocks:
        values = block.values
        size = values.numel()
        if block.graph is not None and block.graph.numel() != size:
            raise ConfigError(
                f"`graph` of block {block.metric!r} must have one position per value (got "
                f"{block.graph.numel()} for {size})."
            )
        for name in COLUMNS:
            given = values if name == "value" else getattr(block, name, None)
            one = own[name] if given is None else np.asarray(given)
            parts[name].append(np.broadcast_to(one, size))

    def column(name: str, kind: Any) -> pa.Array:
        if pa.types.is_dictionary(kind):
            return pa.array([word for part in parts[name] for word in part.tolist()], kind)
        return pa.array(np.concatenate(parts[name]).astype(kind.to_pandas_dtype()), kind)

    kinds = zip(SCHEMA.names, SCHEMA.types, strict=True)
    return pa.table([column(name, kind) for name, kind in kinds], SCHEMA)  # nan stays nan


def finished_cells(folder: str | Path) -> dict[Name, FinishedCell]:
    """Returns the finished cells of a study, sorted by name.

    A cell that several runs computed with different settings has the rows of its newest file; the
    packed file counts as older than files of single cells.
    """
    place = Folder(Path(folder))
    single = []
    for path in sorted(place.file("rows", "").parent.glob("*.parquet")):
        try:
            cell = FinishedCell(path, describe(path, ROWS_KIND))
            single.append((int(cell.description.get("written_ns", 0)), cell.name, cell))
        except (StoreError, KeyError, TypeError) as error:
            log.warning("%s It is ignored.", error)
    finished = packed_cells(place.packed)
    finished |= {name: cell for _, name, cell in sorted(single, key=lambda item: item[0])}
    return {name: finished[name] for name in sorted(finished)}


def packed_cells(path: Path) -> dict[Name, FinishedCell]:
    """Returns the cells of a packed file by name, empty if there is no file."""
    if not path.is_file():
        return {}
    description = describe(path, PACKED_KIND)
    packed, begin = {}, 0
    try:
        for about in description["cells"]:
            cell = FinishedCell(path, {**about, "key": about["key"]}, begin)
            packed[cell.name] = cell
            begin += cell.num_rows
        if begin != description["num_rows"]:
            raise ValueError(f"{description['num_rows']} rows, {begin} in its description")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _damaged(path, error) from error
    return packed


def read_rows(folder: str | Path, where: Where | None = None) -> pd.DataFrame:
    """Returns the rows of all finished cells of a study; see `finished_cells`.

    A damaged packed file is an error. A damaged file of one cell is ignored with a warning, because
    the next run restores it.

    Args:
        folder: of the study, such as ``results/bench`` or ``results/studies/ablation``.
        where: values to keep by column, ``{"metric": ["f1"], "dataset": "benzene"}``.
    """
    wanted = {
        k: [v] if isinstance(v, str | float | int) else [*v] for k, v in (where or {}).items()
    }
    unknown = sorted(set(wanted) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    of_cells = {"study", "dataset", "stand_in", "target", "seed"} & set(wanted)
    cells = {
        name: cell
        for name, cell in finished_cells(folder).items()
        if all(cell.description["cell"][column] in wanted[column] for column in of_cells)
    }
    tables = [table for _, table in read_tables(cells, wanted)] or [SCHEMA.empty_table()]
    rows: pd.DataFrame = pa.concat_tables(tables).unify_dictionaries().to_pandas()
    categories = {}
    for name in WORDS:  # sorted categories, because pandas sorts groups by them
        words = rows[name].cat
        categories[name] = words.set_categories(sorted(words.categories[words.codes.unique()]))
    return rows.assign(**categories)


def read_tables(
    cells: Mapping[Name, FinishedCell], where: Mapping[str, list[Any]], *, is_strict: bool = False
) -> Iterator[tuple[Name, pa.Table]]:
    """Yields the rows of cells; a damaged file of one cell is an error if `is_strict`."""
    by_path: dict[Path, list[FinishedCell]] = {}
    for cell in cells.values():
        by_path.setdefault(cell.path, []).append(cell)
    tables: dict[Name, pa.Table] = {}
    for path, cells_of in by_path.items():
        try:
            tables |= _read(path, cells_of, where)
        except StoreError as error:
            if path.name == PACKED or is_strict:
                raise
            log.warning("%s It is ignored.", error)
    yield from ((name, tables[name]) for name in cells if name in tables)


def _read(
    path: Path, cells: list[FinishedCell], where: Mapping[str, list[Any]]
) -> dict[Name, pa.Table]:
    """Returns the rows of cells of one file; only their row groups are read."""
    tables = {cell.name: SCHEMA.empty_table() for cell in cells if cell.num_rows == 0}
    begin = 0
    try:
        with _opened(path) as file:
            if tuple(file.schema_arrow.names) != COLUMNS:
                raise ValueError(f"its columns are {file.schema_arrow.names}")
            for number in range(file.num_row_groups):
                end = begin + file.metadata.row_group(number).num_rows
                inside = [cell for cell in cells if begin <= cell.begin < end]
                if inside:
                    group = file.read_row_group(number).replace_schema_metadata(None)
                    stays = _holding(group, where)
                for cell in inside:
                    here = slice(cell.begin - begin, cell.begin - begin + cell.num_rows)
                    tables[cell.name] = group[here].filter(stays[here])
                begin = end
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from error
    return tables


def _holding(table: pa.Table, where: Mapping[str, list[Any]]) -> pa.Array:
    """Returns whether each row has one of the wanted values in every column."""
    stays = pa.array(np.ones(table.num_rows, dtype=bool))
    for name, values in where.items():
        wanted = pa.array(values, _NUMBERS.get(name, pa.string()))
        stays = pa.compute.and_(stays, pa.compute.is_in(table[name], value_set=wanted))
    return stays


def describe(path: Path, kind: str) -> dict[str, Any]:
    """Returns the metadata of a file of rows without reading the rows."""
    try:
        with _opened(path) as file:
            metadata = file.metadata.metadata
            about: dict[str, Any] = json.loads(metadata[b"nicegnn"])
            about["num_rows"] = file.metadata.num_rows
            if kind == PACKED_KIND:
                about["cells"] = json.loads(zlib.decompress(base64.b64decode(metadata[b"cells"])))
        if about["kind"] != kind:
            raise ValueError(f"its kind is not {kind}")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise _damaged(path, error) from error
    return about


def _opened(path: Path) -> Any:
    words = list(WORDS)
    return pa.parquet.ParquetFile(path, read_dictionary=words, page_checksum_verification=True)


def _damaged(path: Path, error: Exception) -> StoreError:
    """Returns the error about a damaged file, with what to do."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    advice = "Run the same command again to restore it."
    if path.name == PACKED:
        advice = "Restore it (git checkout restores a committed file), or delete it and run again."
    return StoreError(f"{path} is damaged ({reason}). {advice}")


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    r"""Returns one row for each combination of `GROUPS`, such as one metric of one explainer.

    .. math:: \bar v = \tfrac1S \sum_s \bar v_s, \quad \bar v_s = \tfrac1{|G_s|}
        \sum_{g \in G_s} v_{gs}, \qquad std = \sqrt{\tfrac1{S-1} \sum_s (\bar v_s - \bar v)^2}

    Symbols: :math:`v_{gs}` -> ``value`` of graph g with seed s; :math:`G_s` -> graphs with a value;
    :math:`S` -> number of seeds.

    Columns:
        mean, std: as above; std is nan for one seed.
        num_seeds, num_graphs: no graphs for values of a whole cell.
    """
    groups = rows.groupby(list(GROUPS), observed=True, sort=True, dropna=False)
    table = groups.size().index.to_frame(index=False)
    table = table.astype({name: "str" for name in GROUPS if name != "level"})
    number = groups.ngroup()  # the line of `table` that each row belongs to
    value = rows["value"].astype("float64")
    by_seed = value.groupby([number, rows["seed"]]).mean()  # nan is left out
    matrix = by_seed.unstack("seed")  # [groups, S]
    is_graph = rows["graph"] != WHOLE_CELL
    num_graphs = rows["graph"][is_graph].groupby(number[is_graph]).nunique()
    return table.assign(
        mean=matrix.mean(axis=1),
        std=matrix.std(axis=1),
        num_seeds=by_seed.groupby(level=0).size(),
        num_graphs=num_graphs.reindex(table.index, fill_value=0),
    )
