"""``nicegnn pack``: packs every family of rows, says how large each file is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    results: Annotated[
        Path, typer.Argument(help="Folder of all results; every family of rows in it is packed.")
    ] = Path("results"),
    rows: Annotated[
        Path | None, typer.Option(help="Folder of one family, such as results/bench, alone.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --rows: the file; else packed.parquet in the folder.")
    ] = None,
) -> None:
    """Put the rows of all finished cells into one small file per family, which all tables read."""
    from nicegnn.bench.packing import pack, pack_all
    from nicegnn.bench.rows import packed_cells
    from nicegnn.errors import NicegnnError

    try:
        files = pack_all(results) if rows is None else [pack(rows, out)]
        for file in files:
            cells = packed_cells(file)
            num_rows = sum(cell.num_rows for cell in cells.values())
            size = file.stat().st_size / 1e3
            typer.echo(f"{len(cells)} cells, {num_rows} rows, {size:.0f} kB: {file}")
    except NicegnnError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from error
