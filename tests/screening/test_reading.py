"""Molecules from files of every kind: the same records, with names and rows that stay."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nicegnn.errors import ConfigError
from nicegnn.screening.reading import Reader, TypedSmiles, is_file_name

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")

ROWS = [("a", "CCO"), ("b", "c1ccccc1"), ("c", "CC(=O)N")]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"mols{kind}"
    if kind.startswith(".csv"):
        text = "name,smiles\r\n" + "".join(f"{name},{smiles}\r\n" for name, smiles in ROWS)
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    elif kind == ".tsv":
        path.write_text("name\tsmiles\n" + "".join(f"{n}\t{s}\n" for n, s in ROWS))
    elif kind == ".xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in [("name", "smiles"), *ROWS]:
            book.active.append(row)
        book.save(path)
    elif kind in (".smi", ".txt"):
        path.write_text("".join(f"{smiles} {name}\n" for name, smiles in ROWS))
    elif kind == ".sdf":
        with Chem.SDWriter(str(path)) as writer:
            for name, smiles in ROWS:
                mol = Chem.MolFromSmiles(smiles)
                mol.SetProp("_Name", name)
                writer.write(mol)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        columns = {"name": [n for n, _ in ROWS], "smiles": [s for _, s in ROWS]}
        parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "kind", [".csv", ".csv.gz", ".tsv", ".smi", ".txt", ".sdf", ".xlsx", ".parquet"]
)
def test_every_kind_of_file_gives_the_same_records(tmp_path: Path, kind: str) -> None:
    reader = Reader(written(tmp_path, kind), id_column="name")
    records = list(reader)
    assert [(record.row, record.id) for record in records] == [(1, "a"), (2, "b"), (3, "c")]
    found = [Chem.CanonSmiles(record.smiles) for record in records]
    assert found == [Chem.CanonSmiles(smiles) for _, smiles in ROWS]
    assert reader.count() == 3
    assert [len(chunk) for chunk in reader.chunks(2)] == [2, 1]


def test_quotes_and_lines_in_cells_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mols.csv"
    path.write_text('id;Canonical_SMILES\n"x;1";CCO\n"line\nbreak";CC\n')
    assert [(r.id, r.smiles) for r in Reader(path)] == [("x;1", "CCO"), ("line\nbreak", "CC")]


@pytest.mark.parametrize(
    ("text", "words", "match"),
    [
        (None, {}, "does not exist"),
        ("smiles,b\nC,2\n", {"smiles_column": "x"}, "it has 'smiles', 'b'"),
        ("smiles,b\nC,2\n", {"id_column": "x"}, "no column 'x'"),
    ],
)
def test_unusable_file_says_what_is_there(
    tmp_path: Path, text: str | None, words: dict[str, str], match: str
) -> None:
    path = tmp_path / "mols.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        Reader(path, **words)


def test_words_are_files_or_smiles() -> None:
    assert is_file_name("some.CSV")
    assert is_file_name("x.sdf.gz")
    assert not is_file_name("CC(=O)O")
    assert not is_file_name("C" * 900)  # no file has so long a name
    assert not is_file_name("")
    assert [record.id for record in TypedSmiles(["CC", "CO"])] == ["1", "2"]
    with pytest.raises(ConfigError, match="must end in"):
        Reader("mols.docx")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_an_encoding_are_read_and_a_file_without_names_is_refused(
    tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / "mols.csv"
    path.write_text("smiles;grade\nc1ccccc1;löw\n", encoding=encoding)
    (record,) = Reader(path)
    assert (record.smiles, record.values) == ("c1ccccc1", {"grade": "löw"})
    path.write_text("1;CCO;löw\n", encoding=encoding)
    with pytest.raises(ConfigError, match=r"got '1', 'CCO', 'löw'.*--smiles-column; .*names of c"):
        Reader(path)


def test_own_columns_and_names_stay(tmp_path: Path) -> None:
    path = tmp_path / "mols.sdf"
    with Chem.SDWriter(str(path)) as writer:
        mol = Chem.MolFromSmiles("CCO")
        mol.SetProp("_Name", "ethanol")
        mol.SetProp("dose", "007")
        writer.write(mol)
    (record,) = Reader(path)
    assert (record.id, record.values) == ("ethanol", {"dose": "007"})
    path = tmp_path / "mols.csv"
    path.write_text("smiles,ID,a,b,b\nCCO,x,1,2,3\n")
    (record,) = Reader(path)
    assert (record.id, record.values) == ("x", {"a": "1"})  # which of two equal names is meant?


def test_a_mol_file_is_a_molecule_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ethanol.mol"
    path.write_text(Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")))
    (record,) = Reader(path)
    assert (record.id, record.smiles) == ("ethanol", "CCO")
