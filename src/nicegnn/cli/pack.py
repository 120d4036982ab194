"""``nicegnn pack``: parses, packs the rows of a benchmark, says how large they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    rows: Annotated[Path, typer.Option(help="Folder of a benchmark, see `nicegnn bench`.")] = Path(
        "results/bench"
    ),
    out: Annotated[
        Path | None, typer.Option(help="The file to write; else packed.parquet in the folder.")
    ] = None,
) -> None:
    """Put the rows of all finished cells into one small file; tables and the report read it."""
    from nicegnn.bench.packing import pack, read_packed
    from nicegnn.errors import NicegnnError

    try:
        file = pack(rows, out)
        cells = read_packed(file)
    except NicegnnError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
    num_rows = sum(cell.table.num_rows for cell in cells.values())
    size = file.stat().st_size / 1e6
    typer.echo(f"{len(cells)} cells, {num_rows} rows, {size:.1f} MB: {file}")
