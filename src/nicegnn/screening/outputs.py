"""What ``nicegnn explain`` makes of the rows of a run: tables, structures, a gallery, pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from nicegnn.molecule.smiles import require, require_rdkit
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.progress import progress_bar
from nicegnn.screening import tables
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.gallery import CARD, Scale, item_of, picture, scale_of, write_gallery
from nicegnn.screening.run import RunResult, stored_shards
from nicegnn.screening.settings import OutputConfig
from nicegnn.screening.tables import Row, atoms_in, bonds_in, molecule_in, safe_cell
from nicegnn.store import check_fields, whole_file, write_text, write_whole


def stored_rows(folder: Path) -> Iterator[Row]:
    """Yields the rows of a finished run that have scores."""
    for path in stored_shards(folder):
        there = dict.fromkeys(tables.column_names(path), "")
        check_fields(path, there, dict.fromkeys(tables.ROW, str))
        yield from (row for row in tables.read_table(path) if row["reason"] is None)


def write_outputs(
    out: Path, result: RunResult, card: ModelCard, config: OutputConfig, *, progress: bool = False
) -> None:
    """Writes tables and pictures beside the shards of a run."""
    patterns = find_patterns(config.substructure)
    schemas = tables.schemas_for(tables.column_names(stored_shards(out)[0]), patterns)
    molecules = (molecule_in(row, patterns) for row in stored_rows(out))
    tables.write_table(out / f"molecules.{config.format}", molecules, schemas["molecules"])
    for name, parts_in in (("bonds", bonds_in), ("atoms", atoms_in)):
        parts = (one for row in stored_rows(out) for one in parts_in(row))
        tables.write_table(out / f"{name}.{config.format}", parts, schemas[name])
    if config.sdf:
        with whole_file(out / "molecules.sdf") as part, part.open("w", encoding="utf-8") as file:
            file.writelines(sdf_of(row) for row in stored_rows(out))
    total = result.num_explained * result.num_outputs
    most = min(total, total if config.svg else config.gallery)
    scale, cards = scale_of(islice(stored_rows(out), most)), []
    if config.xlsx:
        _write_spreadsheet(out, config.gallery, scale, schemas, patterns)
    with progress_bar("Drawing", most, shown=progress and most > 0) as advance:
        for done, row in enumerate(islice(stored_rows(out), most), start=1):
            if done <= config.gallery:
                cards.append(item_of(row, card, scale, patterns))
            if config.svg:
                named = "" if str(row["id"]) == str(row["row"]) else str(row["id"])
                name = "".join(f"-{one}" for one in (named, row.get("endpoint")) if one)[:61]
                safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
                path = out / "svg" / f"{row['row']:06d}{safe}.svg"
                write_text(path, picture(row, scale).svg)
            advance(done, "molecules")
    if config.gallery:
        write_gallery(out / "gallery.html", cards, card, scale, total, [*patterns])


def sdf_of(row: Row) -> str:
    """Returns a row as an entry of an SDF file; RDKit reads numbers of atoms and bonds back."""
    chem, mol = require_rdkit(), tables.molecule_of(row)
    for key in mol.GetPropNames(includePrivate=True):
        mol.ClearProp(key)
    require_rdkit("rdkit.Chem.rdDepictor").Compute2DCoords(mol)
    told = [(mol.GetBondWithIdx(one["bond"]), one) for one in bonds_in(row)]
    told += [(mol.GetAtomWithIdx(one["atom"]), one) for one in atoms_in(row)]
    for name in ("score", "loss", "stderr"):
        for part, cells in told:
            if math.isfinite(cells[name]):
                part.SetDoubleProp(name, float(f"{cells[name]:.6g}"))
        chem.CreateAtomDoublePropertyList(mol, name, "n/a")
        chem.CreateBondDoublePropertyList(mol, name, "n/a")
    columns = ("smiles", "prediction", "probability", "verdict", "status", "similarity")
    for name in (*columns, "applicability", *tables.own_columns(row)):
        if row[name] not in (None, "") and row[name] == row[name]:
            mol.SetProp(_line(name).replace("<", "(").replace(">", ")"), _line(row[name]))
    mol.SetProp("_Name", _line(row["id"]))
    return str(chem.SDWriter.GetText(mol))


def _line(value: object) -> str:
    """Returns words on one line, which must not begin as the end of an entry does."""
    text = " ".join(str(value).split())
    return f" {text}" if text.startswith("$$$$") else text


def _write_spreadsheet(
    out: Path, most: int, scale: Scale, columns: Mapping[str, Any], patterns: Mapping[str, Any]
) -> None:
    """Writes molecules, the first of them with pictures, and their bonds."""
    excel, drawn = (require(f"openpyxl{part}", "spreadsheets") for part in ("", ".drawing.image"))
    book = excel.Workbook()
    molecules, bonds = book.worksheets[0], book.create_sheet("bonds")
    molecules.title = "molecules"
    molecules.append(["picture", *map(safe_cell, columns["molecules"])])
    bonds.append([*columns["bonds"]])
    molecules.freeze_panes = bonds.freeze_panes = "A2"
    for place, row in enumerate(stored_rows(out), start=2):
        cells = molecule_in(row, patterns)
        molecules.append([None, *(_sheet_cell(cells[name]) for name in columns["molecules"])])
        for cells in bonds_in(row):
            bonds.append([_sheet_cell(cells[name]) for name in columns["bonds"]])
        if place <= most + 1:
            image = drawn.Image(io.BytesIO(picture(row, scale, CARD, is_bare=True).png(1.5)))
            image.width, image.height = CARD
            molecules.add_image(image, f"A{place}")
            molecules.row_dimensions[place].height = 0.75 * CARD[1]  # in points
    for column in range(1, molecules.max_column + 1):
        molecules.column_dimensions[excel.utils.get_column_letter(column)].width = 18
    molecules.column_dimensions["A"].width = CARD[0] / 7  # in letters
    content = io.BytesIO()  # where a disk is full, openpyxl leaves a zip file open behind the error
    book.save(content)
    write_whole(out / "molecules.xlsx", lambda place: place.write_bytes(content.getvalue()))


def _sheet_cell(value: Any) -> Any:
    """Returns a value as a spreadsheet takes it: a number, nothing for nan, or no formula."""
    return value if isinstance(value, float) and math.isfinite(value) else safe_cell(value)
