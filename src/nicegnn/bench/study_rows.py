"""Rows of experiments: tidy Parquet, written part by part, so that a stopped run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import pandas as pd

#: ``setting`` names what was varied, ``level`` is its number (nan where it is a word only).
COLUMNS = ("experiment", "dataset", "target", "setting", "level", "seed", "metric", "value")


def part_path(out: str | Path, experiment: str, key: str) -> Path:
    """Returns the file of one part of an experiment."""
    return Path(out) / experiment / f"{key}.parquet"


def has_part(out: str | Path, experiment: str, key: str) -> bool:
    """Whether a part is finished."""
    return part_path(out, experiment, key).is_file()


def write_part(
    out: str | Path, experiment: str, key: str, rows: Iterable[Mapping[str, Any]]
) -> Path:
    """Writes the rows of one part, whole or not at all; ``experiment`` is filled in."""
    pd = _pandas()
    path = part_path(out, experiment, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame([{"experiment": experiment, **row} for row in rows])
    missing = [name for name in COLUMNS if name not in frame]
    unknown = sorted(set(frame) - set(COLUMNS))
    if missing or unknown:
        raise StoreError(
            f"Rows of {experiment!r} must have the columns {COLUMNS} (missing {missing}, unknown "
            f"{unknown})."
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    _write(frame[list(COLUMNS)], temporary)
    os.replace(temporary, path)
    return path


def _write(frame: pd.DataFrame, path: Path) -> None:
    """Writes rows with a note of the code that computed them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    from nicegnn import __version__
    from nicegnn.bench.cell import code_hash

    table = pa.Table.from_pandas(frame, preserve_index=False)
    note = {"nicegnn": __version__, "torch": torch.__version__, "code": code_hash()}
    known = table.schema.metadata or {}
    table = table.replace_schema_metadata({**known, b"nicegnn": json.dumps(note).encode()})
    pq.write_table(table, path, compression="zstd")


def read_experiment(out: str | Path, experiment: str) -> pd.DataFrame:
    """Returns all finished rows of an experiment."""
    pd = _pandas()
    files = sorted((Path(out) / experiment).glob("*.parquet"))
    if not files:
        raise StoreError(
            f"There are no rows of {experiment!r} in {out}; compute them with `nicegnn experiment "
            f"{experiment} --out {out}`."
        )
    return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)


def _pandas() -> Any:
    try:
        import pandas
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "Rows of experiments need pandas and pyarrow; install them with "
            "`pip install nicegnn[bench]`."
        ) from error
    return pandas
