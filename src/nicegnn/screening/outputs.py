"""What ``nicegnn explain`` makes of the rows of a run: tables, a gallery, a picture each.

Tables are ``molecules``, ``bonds`` and ``atoms`` as CSV or Parquet; ``molecules.sdf`` has numbers
of atoms and bonds, ``molecules.xlsx`` pictures. All pictures have one scale, all have own columns.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import require_rdkit
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import (
    ROW,
    atoms_in,
    bonds_in,
    molecule_of,
    own_columns,
    schemas_for,
    tables_of,
)
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.gallery import CARD, Scale, picture, write_gallery
from nicegnn.screening.run import RunResult, stored_shards
from nicegnn.screening.settings import OutputConfig
from nicegnn.screening.shards import (
    column_names,
    read_table,
    rows_of,
    safe_cell,
    table_writer,
)
from nicegnn.store import check_fields, whole_file, write_text, write_whole


def stored_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a finished run that have scores."""
    for path in stored_shards(folder):
        check_fields(path, dict.fromkeys(column_names(path), ""), dict.fromkeys(ROW, str))
        for table in read_table(path, size=256):
            yield from (row for row in rows_of(table) if row["reason"] is None)


def write_outputs(
    result: RunResult, card: ModelCard, config: OutputConfig, *, progress: bool = False
) -> dict[str, str]:
    """Writes tables and pictures beside the shards of a run; returns what is where."""
    out = Path(result.folder)
    write_tables(out, config)
    if config.sdf:
        with whole_file(out / "molecules.sdf") as part, part.open("w", encoding="utf-8") as file:
            file.writelines(sdf_of(row) for row in stored_rows(out))
    if config.xlsx:
        write_spreadsheet(out, config.gallery)
    _draw(out, result.num_molecules * result.num_outputs, card, config, progress)
    names = [f"{name}.{config.format}" for name in ("molecules", "bonds", "atoms")]
    names += ["rejects.csv", "settings.toml", "gallery.html", "svg", "shards"]
    files = {Path(name).stem: str(out / name) for name in names if (out / name).exists()}
    made = {"structures": "molecules.sdf", "spreadsheet": "molecules.xlsx"}
    return files | {what: str(out / name) for what, name in made.items() if (out / name).exists()}


def write_tables(out: Path, config: OutputConfig) -> None:
    """Writes molecules, bonds and atoms, with one shard in memory at a time."""
    patterns, paths = find_patterns(config.substructures), stored_shards(out)
    schemas = schemas_for(patterns, column_names(paths[0]))
    with ExitStack() as stack:
        write = {
            name: stack.enter_context(table_writer(out / f"{name}.{config.format}", schemas[name]))
            for name in ("molecules", "bonds", "atoms")
        }
        for path in paths:
            for part in read_table(path, size=256):
                tables = tables_of(rows_of(part), patterns)
                for name, add in write.items():
                    add(tables[name])


def sdf_of(row: Mapping[str, Any]) -> str:
    """Returns a row as an entry of an SDF file, with numbers of atoms and bonds.

    These are property lists, such as a field ``atom.dprop.score``, which RDKit reads back:
    ``mol.GetAtomWithIdx(0).GetDoubleProp("score")``.
    """
    chem, mol = require_rdkit(), molecule_of(row)
    for key in mol.GetPropNames(includePrivate=True):
        mol.ClearProp(key)
    require_rdkit("rdkit.Chem.rdDepictor").Compute2DCoords(mol)
    told = [(mol.GetBondWithIdx(int(one["bond"])), one) for one in bonds_in(row, mol)]
    told += [(mol.GetAtomWithIdx(one["atom"]), one) for one in atoms_in(row, mol)]
    for name in ("score", "loss", "stderr"):
        for part, cells in told:
            if math.isfinite(cells[name]):
                part.SetDoubleProp(name, float(f"{cells[name]:.6g}"))
        chem.CreateAtomDoublePropertyList(mol, name, "n/a")
        chem.CreateBondDoublePropertyList(mol, name, "n/a")
    columns = ("smiles", "prediction", "probability", "verdict", "status", "similarity")
    for name in (*columns, "applicability", *own_columns(row)):
        if row[name] not in (None, "") and row[name] == row[name]:
            mol.SetProp(_line(name).replace("<", "(").replace(">", ")"), _line(row[name]))
    mol.SetProp("_Name", _line(row["id"]))
    return str(chem.SDWriter.GetText(mol))


def _line(value: object) -> str:
    """Returns words on one line, which must not begin as the end of an entry does."""
    text = " ".join(str(value).split())
    return f" {text}" if text.startswith("$$$$") else text


def write_spreadsheet(out: Path, most: int) -> None:
    """Writes ``molecules.xlsx``: molecules, the first of them with pictures, and their bonds."""
    try:
        from openpyxl import Workbook
        from openpyxl.drawing.image import Image
        from openpyxl.utils import get_column_letter
    except ImportError as error:
        raise StoreError(
            "openpyxl is needed to write a spreadsheet. Install it with `pip install "
            "'nicegnn[spreadsheets]'`."
        ) from error
    book, scale = Workbook(), Scale.of(islice(stored_rows(out), most))
    sheets = {name: book.create_sheet(name) for name in ("molecules", "bonds")}
    book.remove(book.worksheets[0])  # every new book has one
    for row in stored_rows(out):
        tables = tables_of([row])
        for name, sheet in sheets.items():
            table = tables[name]
            first = ["picture"] if name == "molecules" else []
            if sheet.freeze_panes is None:
                sheet.append([*first, *map(safe_cell, table)])
                sheet.freeze_panes = "A2"
            for cells in zip(*table.values(), strict=True):
                sheet.append([*(None for _ in first), *map(_sheet_cell, cells)])
        place = sheets["molecules"].max_row
        if place <= most + 1:
            drawn = picture(row, scale, CARD, is_bare=True).png(1.5)
            image = Image(io.BytesIO(drawn))
            image.width, image.height = CARD
            sheets["molecules"].add_image(image, f"A{place}")
            sheets["molecules"].row_dimensions[place].height = 0.75 * CARD[1]  # in points
    for column in range(1, sheets["molecules"].max_column + 1):
        sheets["molecules"].column_dimensions[get_column_letter(column)].width = 18
    sheets["molecules"].column_dimensions["A"].width = CARD[0] / 7  # in letters
    content = io.BytesIO()  # where a disk is full, openpyxl leaves a zip file open behind the error
    book.save(content)
    write_whole(out / "molecules.xlsx", lambda place: place.write_bytes(content.getvalue()))


def _sheet_cell(value: Any) -> Any:
    """Returns a value as a spreadsheet takes it: a number, nothing for nan, or no formula."""
    return value if isinstance(value, float) and math.isfinite(value) else safe_cell(value)


def _draw(out: Path, total: int, card: ModelCard, config: OutputConfig, progress: bool) -> None:
    """Draws the gallery, and a file per molecule if asked for."""
    patterns, most = find_patterns(config.substructures), total if config.svg else config.gallery
    scale = Scale.of(islice(stored_rows(out), most))
    with progress_bar("Drawing", min(total, most), shown=progress and most > 0) as advance:

        def drawn() -> Iterator[dict[str, Any]]:
            for row in islice(stored_rows(out), most):
                if config.svg:
                    path = out / "svg" / f"{row['row']:06d}{_safe(row)}.svg"
                    write_text(path, picture(row, scale).svg)
                advance(row["row"], "molecules")
                yield row

        rows = drawn()
        if config.gallery:
            shown = islice(rows, config.gallery)
            write_gallery(out / "gallery.html", shown, card, scale, total, patterns)
        for _ in rows:
            pass


def _safe(row: dict[str, Any]) -> str:
    """Returns the id of a molecule as part of a file name; nothing where it is the row."""
    name = "" if str(row["id"]) == str(row["row"]) else str(row["id"])
    name = "-".join(filter(None, (name, row.get("endpoint"))))
    if not name:
        return ""
    return "-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]
