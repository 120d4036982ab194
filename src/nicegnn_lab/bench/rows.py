"""Rows of the benchmark, of studies and of tuning: one schema, its files, packing, and means."""

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
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

_WORD = pa.dictionary(pa.int32(), pa.string())
#: Columns of every row. ``setting`` names what is varied, ``level`` is its number.
SCHEMA = pa.schema(
    {
        **dict.fromkeys(("study", "dataset"), _WORD),
        "stand_in": pa.bool_(),
        **dict.fromkeys(("target", "explainer", "mechanism", "setting"), _WORD),
        "level": pa.float64(),
        "seed": pa.int64(),
        "graph": pa.int32(),
        **dict.fromkeys(("protocol", "metric"), _WORD),
        "value": pa.float32(),
        "note": _WORD,
    }
)
COLUMNS = tuple(SCHEMA.names)
WORDS = tuple(column.name for column in SCHEMA if column.type == _WORD)
#: Columns by which `summarise` groups rows.
GROUPS = (
    *("dataset", "target", "explainer", "mechanism", "setting"),
    *("protocol", "metric", "level"),
)
WHOLE_CELL = -1  # in column ``graph``: the value is of the whole cell
#: Explainers by the name of the packed file that holds their rows; all others are in ``fitted``.
FAMILIES = {
    "packed": ("",),  # rows without an explainer
    "nice": ("nice", "nice-student"),
    "paper": (
        *("nice-paper", "nice-paper-converged", "nice-paper-tuned"),
        *("nice-propagated", "nice-propagated-converged"),
    ),
    "references": (
        *("random", "ground-truth", "saliency", "integrated-gradients"),
        *("guided-backprop", "occlusion"),
    ),
}

_PAGE_ROWS = 2**20  # files are a third smaller than with usual pages
_PACKED_OPTIONS = {
    "compression": "zstd",
    "compression_level": 17,  # files are a sixth smaller than at 15; higher levels gain little
    "use_dictionary": [name for name in COLUMNS if name not in ("graph", "value")],
    "data_page_size": 16 * _PAGE_ROWS,
    "max_rows_per_page": _PAGE_ROWS,
    "write_page_checksum": True,
}


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

    def row_files(self) -> list[Path]:
        """Returns all files of rows, packed ones first, then those of cells from old to new."""
        cells = self.file("rows", "").parent.glob("*.parquet")
        by_age = sorted(cells, key=lambda file: (file.stat().st_mtime_ns, file.name))
        return [*sorted(self.root.glob("*.parquet")), *by_age]

    def file(self, kind: str, key: str) -> Path:
        """The ``rows`` of a cell, or why it ``failed``."""
        return self.root / kind / f"{key}.{'parquet' if kind == 'rows' else 'json'}"


@dataclass(frozen=True)
class FinishedCell:
    """A cell whose rows are stored.

    Its description holds ``cell``, ``key`` and ``num_rows``, and where known the ``identity``
    behind the key, and ``facts`` about fit and explanation.
    """

    path: Path  # file that holds its rows
    name: Name
    key: str
    begin: int  # its first row in the file
    num_rows: int
    description: Mapping[str, Any]


def write_rows(path: Path, cell: Cell, blocks: Iterable[Block], **about: Any) -> None:
    """Writes the rows and the description of one cell (see `FinishedCell`)."""
    table = table_of(cell, blocks)
    description = {"cell": cell.to_dict(), "key": cell.key, "num_rows": table.num_rows}
    description |= {"identity": dict(cell.identity), **about}
    table = table.replace_schema_metadata({"nicegnn": json.dumps(description)})
    options = {"compression": "zstd", "write_page_checksum": True}
    write_whole(path, lambda file: pa.parquet.write_table(table, file, **options))


def table_of(cell: Cell, blocks: Iterable[Block]) -> pa.Table:
    """Returns blocks of one cell as a table of `COLUMNS`."""
    own: dict[str, Any] = {"graph": WHOLE_CELL, **cell.to_dict()}
    own["level"] = np.nan if own["level"] is None else own["level"]
    parts = [SCHEMA.empty_table().to_pandas()]
    for block in blocks:
        values = block.values.numpy()
        if block.graph is not None and block.graph.numel() != values.size:
            raise ConfigError(
                f"`graph` of block {block.metric!r} must have one position per value (got "
                f"{block.graph.numel()} for {values.size})."
            )
        given = {name: one for name, one in vars(block).items() if one is not None}
        row = own | given | {"value": values}
        plain = {k: np.asarray(v) if isinstance(v, Tensor) else v for k, v in row.items()}
        parts.append(pd.DataFrame(plain, index=range(values.size), columns=[*COLUMNS]))
    rows = {name: np.concatenate([part[name].to_numpy() for part in parts]) for name in COLUMNS}
    columns = [  # nan stays nan
        pa.array(rows[c.name].tolist() if c.type == _WORD else rows[c.name], c.type) for c in SCHEMA
    ]
    return pa.table(columns, SCHEMA)


def finished_cells(folder: str | Path) -> dict[Name, FinishedCell]:
    """Returns the finished cells of a study, sorted by name.

    A cell that several runs computed with different settings has the rows of its newest file; a
    packed file counts as older than files of single cells.
    """
    files = Folder(Path(folder)).row_files()
    finished = {cell.name: cell for path in files for cell in cells_in(path)}
    return {name: finished[name] for name in sorted(finished)}


def cells_in(path: Path) -> list[FinishedCell]:
    """Returns the cells of a file without reading their rows."""
    cells, begin = [], 0
    try:
        with _opened(path) as file:
            num_rows, metadata = file.metadata.num_rows, file.metadata.metadata
        described = [json.loads(metadata[b"nicegnn"])]
        if b"cells" in metadata:
            described = json.loads(zlib.decompress(base64.b64decode(metadata[b"cells"])))
        for about in described:
            known = about["key"], begin, int(about["num_rows"]), about
            cells.append(FinishedCell(path, name_of(about["cell"]), *known))
            begin += cells[-1].num_rows
        if begin != num_rows:
            raise ValueError(f"{num_rows} rows, {begin} in its description")
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise _damaged(path, error) from error
    return cells


def read_rows(folder: str | Path, where: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Returns the rows of all finished cells of a study, such as ``results/bench``.

    `where` names values to keep by column, ``{"metric": ["f1"], "dataset": "benzene"}``.
    """
    wanted = {
        k: [v] if isinstance(v, str | float | int) else [*v] for k, v in (where or {}).items()
    }
    unknown = sorted(set(wanted) - set(COLUMNS))
    if unknown:
        raise ConfigError(f"`where` must name columns of {COLUMNS} (got {unknown}).")
    of_cells = {"study", "dataset", "stand_in", "target", "seed"} & set(wanted)
    cells = [
        cell
        for cell in finished_cells(folder).values()
        if all(cell.description["cell"][column] in wanted[column] for column in of_cells)
    ]
    tables = [SCHEMA.empty_table(), *read_cells(cells, wanted)]
    rows: pd.DataFrame = pa.concat_tables(tables).unify_dictionaries().to_pandas()
    categories = {}
    for name in WORDS:  # sorted categories, because pandas sorts groups by them
        words = rows[name].cat
        categories[name] = words.set_categories(sorted(words.categories[words.codes.unique()]))
    return rows.assign(**categories)


def read_cells(
    cells: Sequence[FinishedCell], where: Mapping[str, list[Any]] | None = None
) -> list[pa.Table]:
    """Returns the rows of each cell; only row groups that hold them are read."""
    tables: dict[Name, pa.Table] = {}
    in_files = sorted(cells, key=lambda cell: (cell.path, cell.begin))
    for path, group in groupby(in_files, lambda cell: cell.path):
        own = list(group)
        try:
            with _opened(path) as file:
                found = _of_file(file, own, where or {})
                tables |= zip((cell.name for cell in own), found, strict=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(path, error) from error
    return [tables[cell.name] for cell in cells]


def _of_file(
    file: Any, cells: Iterable[FinishedCell], where: Mapping[str, list[Any]]
) -> Iterator[pa.Table]:
    if tuple(file.schema_arrow.names) != COLUMNS:
        raise ValueError(f"its columns are {file.schema_arrow.names}")
    groups = range(file.num_row_groups)
    bounds = np.cumsum([0, *(file.metadata.row_group(n).num_rows for n in groups)])
    ends = bounds[1:]
    for number, inside in groupby(cells, lambda cell: int(ends.searchsorted(cell.begin, "right"))):
        is_there = number in groups  # else its cells have no rows
        group = file.read_row_group(number) if is_there else SCHEMA.empty_table()
        group = group.replace_schema_metadata(None)
        stays = _holding(group, where)
        for cell in inside:
            begin = cell.begin - bounds[number]
            here = slice(begin, begin + cell.num_rows)
            yield group[here].filter(stays[here])


def _holding(table: pa.Table, where: Mapping[str, list[Any]]) -> pa.Array:
    stays = pa.array(np.ones(table.num_rows, dtype=bool))
    for name, values in where.items():
        kind = SCHEMA.field(name).type
        wanted = pa.array(values, pa.string() if kind == _WORD else kind)
        stays = pa.compute.and_(stays, pa.compute.is_in(table[name], value_set=wanted))
    return stays


def _opened(path: Path) -> Any:
    words = list(WORDS)
    return pa.parquet.ParquetFile(path, read_dictionary=words, page_checksum_verification=True)


def _damaged(path: Path, error: Exception) -> StoreError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    advice = "Delete it and run the same command again."
    if path.parent.name != "rows":
        advice = "Restore it (git checkout restores a committed file), or delete it and run again."
    return StoreError(f"{path} is damaged ({reason}). {advice}")


def pack(folder: str | Path) -> list[Path]:
    """Writes the rows of all finished cells of a study into one packed file of each of `FAMILIES`.

    Cells that are packed already are packed again with the others; equal rows give equal files.
    """
    root, found = Path(folder), list(finished_cells(folder).values())
    family_of = {
        explainer: name for name, explainers in FAMILIES.items() for explainer in explainers
    }
    packed: dict[Path, list[tuple[Mapping[str, Any], pa.Table]]] = {}
    for cell, table in zip(found, read_cells(found), strict=True):
        name = family_of.get(cell.description["cell"]["explainer"], "fitted")
        packed.setdefault(root / f"{name}.parquet", []).append((cell.description, table))
    for path, cells in packed.items():
        _write_packed(path, cells)
    for path in set(root.glob("*.parquet")) - set(packed):  # its rows are in other files now
        path.unlink()
    return sorted(packed)


def _write_packed(path: Path, cells: Sequence[tuple[Mapping[str, Any], pa.Table]]) -> None:
    text = json.dumps([about for about, _ in cells], sort_keys=True, separators=(",", ":"))
    squeezed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    described = {"nicegnn": json.dumps({"kind": "packed-rows"}), "cells": squeezed}

    def subject(cell: tuple[Mapping[str, Any], pa.Table]) -> tuple[str, str]:
        return cell[0]["cell"]["dataset"], cell[0]["cell"]["target"]

    def write(file: Path) -> None:
        with pa.parquet.ParquetWriter(file, SCHEMA, **_PACKED_OPTIONS) as writer:
            for _, alike in groupby(cells, subject):  # most readers want one dataset and target
                group = pa.concat_tables([table for _, table in alike])
                group = group.unify_dictionaries().combine_chunks()
                writer.write_table(group, row_group_size=max(group.num_rows, 1))
            writer.add_key_value_metadata(described)  # a schema's would be written twice

    write_whole(path, write)


def pack_all(results: str | Path = "results") -> list[Path]:
    """Packs the rows of every study below a folder and returns the files."""
    files = Path(results).glob("**/*.parquet")
    folders = {path.parent.parent if path.parent.name == "rows" else path.parent for path in files}
    if not folders:
        raise StoreError(
            f"There are no rows in {results} to pack; name another folder, or compute them with "
            "`nicegnn lab bench` or `nicegnn lab experiment`."
        )
    return [file for folder in sorted(folders) for file in pack(folder)]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    r"""Returns one row for each combination of `GROUPS`, such as one metric of one explainer.

    .. math:: \bar v = \tfrac1S \sum_s \bar v_s, \quad \bar v_s = \tfrac1{|G_s|}
        \sum_{g \in G_s} v_{gs}, \qquad std = \sqrt{\tfrac1{S-1} \sum_s (\bar v_s - \bar v)^2}

    Symbols: :math:`v_{gs}` -> ``value`` of graph g with seed s; :math:`G_s` -> graphs with a value;
    :math:`S` -> number of seeds.

    The std of one seed is nan; ``num_graphs`` is 0 for values of a whole cell.
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
