"""What is made of the rows of a run: tables, structures, a spreadsheet, a gallery, pictures."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nicegnn.errors import StoreError
from nicegnn.pretrained import Pretrained
from nicegnn.screening.outputs import sdf_of, stored_rows, write_outputs
from nicegnn.screening.reading import Reader
from nicegnn.screening.run import RunResult, run
from nicegnn.screening.settings import ModelConfig, OutputConfig, RunConfig
from nicegnn.screening.tables import read_table, write_table
from tests.screening.small_screen import write_csv

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")
SMILES = ["c1ccccc1CC(=O)N", "CCCCC", "C1CC(", "[Na+]", "OCC(N)C1CCCCC1"]
NAMES = ["</script><b>", "../up", "broken", "salt", "=HYPERLINK(1)"]

Finished = tuple[Path, RunResult]  # a folder, and what is told of its run


@pytest.fixture(scope="module")
def result(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("outputs")
    rows: list[list[object]] = [
        [name, smiles, f"-{n}", "+cmd"]
        for n, (name, smiles) in enumerate(zip(NAMES, SMILES, strict=True))
    ]
    header = ["id", "smiles", "Prediction", "note"]
    reader = Reader(write_csv(folder / "in.csv", header, rows))
    config = RunConfig(shard_size=2, model=ModelConfig(model=str(model_file)))
    return folder / "out", run(reader, config, folder / "out")


def written(result: Finished, subject: Pretrained, **settings: Any) -> Path:
    write_outputs(*result, subject.card, OutputConfig(**{"gallery": 0, **settings}))
    return result[0]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_tables_hold_the_rows_and_the_users_columns(
    result: Finished, subject: Pretrained, format: str
) -> None:
    out = written(result, subject, format=format, substructure=("amide", "ring=[R]"))
    if format == "csv":
        with (out / "molecules.csv").open(newline="", encoding="utf-8") as text:
            molecules: list[dict[str, Any]] = list(csv.DictReader(text))
        with (out / "bonds.csv").open(newline="", encoding="utf-8") as text:
            bonds: list[dict[str, Any]] = list(csv.DictReader(text))
    else:
        molecules, bonds = (
            [*read_table(out / f"{name}.parquet")] for name in ("molecules", "bonds")
        )
    assert [int(row["row"]) for row in molecules] == [1, 2, 4, 5]
    assert [int(row["has ring"]) for row in molecules] == [1, 0, 0, 1]
    assert [int(row["has amide"]) for row in molecules] == [1, 0, 0, 0]
    assert [row["own Prediction"] for row in molecules] == ["-0", "-1", "-3", "-4"]
    first = next(stored_rows(result[0]))
    scores = [float(row["score"]) for row in bonds if int(row["row"]) == 1]
    assert scores == pytest.approx(list(first["bond_score"]), rel=1e-5)
    if format == "csv":  # a spreadsheet would run these
        assert molecules[-1]["id"] == "'=HYPERLINK(1)"
        assert molecules[-1]["note"] == "'+cmd"
    else:
        assert molecules[-1]["id"] == "=HYPERLINK(1)"


def test_structures_have_lists_that_rdkit_reads(result: Finished, subject: Pretrained) -> None:
    out = written(result, subject, sdf=True)
    rows = list(stored_rows(result[0]))
    found = list(Chem.SDMolSupplier(str(out / "molecules.sdf")))
    assert [mol.GetProp("_Name") for mol in found] == [row["id"] for row in rows]
    assert found[1].GetProp("note") == "+cmd"
    assert found[1].GetProp("prediction") == rows[1]["prediction"]
    for mol, row in zip(found, rows, strict=True):
        for a, b, score in zip(row["atom_a"], row["atom_b"], row["bond_score"], strict=True):
            bond = mol.GetBondBetweenAtoms(int(a), int(b))
            assert bond.GetDoubleProp("score") == pytest.approx(float(score), abs=1e-5)
        own = [atom.GetDoubleProp("score") for atom in mol.GetAtoms()]
        assert own == pytest.approx(list(row["atom_score"]), abs=1e-5)


def test_words_cannot_end_an_entry(result: Finished) -> None:
    row = next(stored_rows(result[0]))
    odd = {"id": "$$$$", "note": "$$$$\nend", "> <a>": "> <b>", "status": float("nan")}
    supplier = Chem.SDMolSupplier()
    supplier.SetData(sdf_of(row | odd) * 2)
    assert [mol.GetProp("note") for mol in supplier] == [" $$$$ end"] * 2
    assert [mol.GetProp(") (a)") for mol in supplier] == ["> <b>"] * 2


def test_spreadsheet_has_pictures_own_columns_and_no_formulas(
    result: Finished, subject: Pretrained
) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    out = written(result, subject, xlsx=True, gallery=3)
    book = openpyxl.load_workbook(out / "molecules.xlsx")
    lines = list(book["molecules"].iter_rows(values_only=True))
    assert lines[0][:3] == ("picture", "row", "id")
    assert lines[0][-2:] == ("own Prediction", "note")
    assert [line[1] for line in lines[1:]] == [1, 2, 4, 5]
    assert lines[-1][2] == "'=HYPERLINK(1)"
    assert isinstance(lines[1][lines[0].index("probability")], float)
    assert {cell.data_type for row in book["molecules"].iter_rows() for cell in row} <= {
        "s",
        "n",
        "inlineStr",
    }
    assert [image.anchor._from.row for image in book["molecules"]._images] == [1, 2, 3]
    num_bonds = sum(len(row["bond_score"]) for row in stored_rows(result[0]))
    assert book["bonds"].max_row == 1 + num_bonds


def test_gallery_takes_the_first_molecules_and_names_cannot_break_it(
    result: Finished, subject: Pretrained
) -> None:
    out = written(result, subject, gallery=2, svg=True)
    text = (out / "gallery.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    data = json.loads(re.search(r"const MOLECULES = (\[.*\]);\n", text)[1])  # type: ignore[index]
    assert [item["id"] for item in data] == NAMES[:2]
    assert data[0]["own"] == ["own Prediction: -0", "note: +cmd"]
    assert "The first 2 molecules" in text
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']https?:", text)
    drawn = sorted(file.name for file in (out / "svg").iterdir())
    assert drawn == [
        "000001-__script__b_.svg",
        "000002-.._up.svg",
        "000004-salt.svg",
        "000005-_HYPERLINK_1_.svg",
    ]


def test_a_damaged_folder_is_named(result: Finished, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"got 0 shards of none.*nicegnn explain MOLECULES"):
        next(stored_rows(tmp_path))
    shutil.copytree(result[0], tmp_path / "out")
    (tmp_path / "out/run.json").write_text("[3]")
    with pytest.raises(StoreError, match=r"run\.json is damaged: it lacks molecules"):
        next(stored_rows(tmp_path / "out"))
    for number in (-1, 0, 5, 10**9):
        (tmp_path / "out/run.json").write_text(f'{{"molecules": "", "shards": {number}}}')
        with pytest.raises(StoreError, match=rf"got 3 shards of {number or 'none'}\)"):
            next(stored_rows(tmp_path / "out"))
    shutil.copy(result[0] / "run.json", tmp_path / "out/run.json")
    write_table(tmp_path / "out/shards/000000.parquet", [{"row": 1}], {"row": int})
    with pytest.raises(StoreError, match=r"000000\.parquet is damaged: it lacks id, smiles"):
        next(stored_rows(tmp_path / "out"))
    (tmp_path / "out/shards/000000.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"000000\.parquet is damaged"):
        next(stored_rows(tmp_path / "out"))
