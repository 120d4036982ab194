"""Nasty files of molecules: each is explained, or rejected with a reason, or one line names it."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from nicegnn.cli.main import main

pytest.importorskip("rdkit", reason="needs RDKit")
GOOD = "id,smiles\na,CCO\nb,Cc1ccccc1\n"
MOL = """ethanol
  made

  3  2  0  0  0  0  0  0  0  0999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.5000    0.0000    0.0000 C   0  0
    2.2500    1.2990    0.0000 O   0  0
  1  2  1  0
  2  3  1  0
M  END
"""


def parquet_of(smiles: list[object]) -> bytes:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(arrow.table({"smiles": smiles, "n": range(len(smiles))}), file)
    return file.getvalue()


def sheet_of(rows: list[list[object]]) -> bytes:
    book, file = pytest.importorskip("openpyxl").Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(file)
    return file.getvalue()


def flipped(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 255]) * 200 + whole[place + 200 :]


DEEP = f"id,smiles\na,{'C(' * 400}C{')' * 400}\n"

#: Name, content, exit code, explained, and words of the output.
FILES: list[tuple[str, bytes | str, int, int, str]] = [
    ("good.csv", GOOD, 0, 2, "2 of 2"),
    ("bom.csv", b"\xef\xbb\xbf" + GOOD.encode(), 0, 2, "2 of 2"),
    ("utf16.csv", GOOD.encode("utf-16"), 0, 2, "2 of 2"),
    ("semicolon.csv", GOOD.replace(",", ";"), 0, 2, "2 of 2"),
    ("tabs.csv", GOOD.replace(",", "\t"), 0, 2, "2 of 2"),
    ("returns.csv", GOOD.replace("\n", "\r\n"), 0, 2, "2 of 2"),
    ("headerless.csv", "CCO,a\nCc1ccccc1,b\n", 1, 0, "write names of columns"),
    ("blank_lines.csv", GOOD.replace("\nb", "\n\n,\nb"), 0, 2, "2 of 2"),
    ("short_line.csv", GOOD + "c\n", 3, 2, "cell of column 'smiles' is empty"),
    ("long_line.csv", GOOD + "c,CC,1,2,3\n", 0, 3, "3 of 3"),
    ("latin.csv", "id,smiles\nü,CCO\n".encode("latin-1"), 0, 1, "1 of 1"),
    ("upper.CSV", GOOD, 0, 2, "2 of 2"),
    ("packed.csv.gz", gzip.compress(GOOD.encode()), 0, 2, "2 of 2"),
    ("entry.mol", MOL, 0, 1, "1 of 1"),
    ("entry.sdf", MOL + "$$$$\n", 0, 1, "1 of 1"),
    ("cut.sdf", MOL[:150], 3, 0, "RDKit cannot read"),
    ("three.sdf", f"{MOL}$$$$\n{MOL.replace(' O ', ' Q ', 1)}$$$$\n{MOL}$$$$\n", 0, 3, "of 3"),
    ("list.smi", "CCO ethanol\n# a remark\n\nC methane\n", 0, 2, "2 of 2"),
    ("list.txt", "smiles name\nCCO ethanol\n", 0, 1, "1 of 1"),
    ("inchi.csv", 'InChI\n"InChI=1S/CH4/h1H4"\nInChI=1S/x\n', 3, 1, "cannot read the InChI"),
    ("salts.csv", "smiles\n[Na+].[Cl-]\nCC(=O)[O-].[Na+]\n", 0, 2, "2 of 2"),
    ("metals.csv", "smiles\nN[Pt](N)(Cl)Cl\n[Fe]\n", 0, 2, "2 of 2"),
    ("wildcards.csv", "smiles\n*CC*\n[*:1]C\n", 0, 2, "2 of 2"),
    ("isotopes.csv", "smiles\n[2H]C([2H])[2H]\n[13CH4]\n", 0, 2, "2 of 2"),
    ("reactions.csv", "smiles\nCCO>>CC=O\nCC\n", 3, 1, "RDKit can read"),
    ("dative.csv", "smiles\nN->[Fe]\nCC\n", 0, 2, "2 of 2"),
    ("html.csv", "id,smiles\n<script>alert(1)</script>,CCO\n", 0, 1, "1 of 1"),
    ("formulas.csv", "id,smiles\n=cmd|' /C calc'!A0,CCO\n", 0, 1, "1 of 1"),
    ("folders.csv", "id,smiles\n../../etc/passwd,CCO\n", 0, 1, "1 of 1"),
    ("twice.csv", "id,smiles\na,CC\na,CC\n", 0, 2, "2 of 2"),
    ("nulls.csv", "id,smiles\na,C\0C\n", 1, 0, "bytes that are zero"),
    ("quotes.csv", 'id,smiles\n"a,CCO\nb,CC\n', 1, 0, "does a quote stand there"),
    ("large.csv", f"smiles\n{'C' * 1200}\nCC\n", 3, 1, "at most 1,000 atoms"),
    ("long.csv", f"smiles\n{'C' * 200_000}\nCC\n", 3, 1, "at most 20,000 letters"),
    ("deep.csv", DEEP, 0, 1, "1 of 1"),
    ("columns.csv", "row,smiles,Prediction\n7,CC,x\n", 0, 1, "1 of 1"),
    ("empty.csv", "", 1, 0, "is empty"),
    ("header.csv", "id,smiles\n", 1, 0, "There are no molecules"),
    ("no_smiles.csv", "id,mass\na,1\n", 1, 0, "column of SMILES"),
    ("two_columns.csv", "smiles,smiles\nCC,CC\n", 1, 0, "one column 'smiles'"),
    ("no.csv.gz", b"no gzip", 1, 0, "cannot be read"),
    ("cut.csv.gz", gzip.compress(GOOD.encode() * 500)[:60], 1, 0, "cannot be read"),
    ("no.parquet", b"PAR1", 1, 0, "no.parquet cannot be read"),
    ("no.xlsx", b"PK", 1, 0, "no.xlsx cannot be read"),
    ("word.docx", b"PK", 1, 0, "must end in"),
    ("no.sdf", b"\xff\xfe\x00\x01" * 50, 1, 0, "no.sdf is empty"),
    ("no.mol", "no structure\n", 3, 0, "RDKit cannot read this entry"),
    ("empty.sdf", "", 1, 0, "is empty"),
    ("empty.smi", "\n\n# nothing\n", 1, 0, "is empty"),
    ("empty.csv.gz", gzip.compress(b""), 1, 0, "is empty"),
    ("crc.csv.gz", gzip.compress(GOOD.encode())[:-8] + b"\0" * 8, 1, 0, "cannot be read"),
    ("page.parquet", flipped(parquet_of(["CCO"] * 900), 600), 1, 0, "page.parquet cannot be read"),
    ("cut.parquet", parquet_of(["CCO"])[:-30], 1, 0, "cut.parquet cannot be read"),
    ("numbers.parquet", parquet_of([1.5, 2.5]), 3, 0, "RDKit can read"),
    ("good.parquet", parquet_of(["CCO", None]), 3, 1, "cell of column 'smiles' is empty"),
    ("good.xlsx", sheet_of([["smiles", "=1+1"], ["CCO", 3.5], [None, None]]), 0, 1, "1 of 1"),
    ("cut.xlsx", sheet_of([["smiles"], ["CCO"]])[:-40], 1, 0, "cut.xlsx cannot be read"),
    ("utf16be.csv", b"\xfe\xff" + GOOD.encode("utf-16-be"), 0, 2, "2 of 2"),
    ("utf16.smi", "CCO ethanol\n".encode("utf-16"), 0, 1, "1 of 1"),
    ("one_row.csv", "c1ccccc1\n", 1, 0, "write names of columns"),
    ("no_end.csv", GOOD.rstrip(), 0, 2, "2 of 2"),
    ("old_mac.csv", GOOD.replace("\n", "\r"), 0, 2, "2 of 2"),
    ("radicals.csv", "smiles\n[CH3]\n[O-][N+](=O)[O-]\n[Fe+3]\n", 0, 3, "3 of 3"),
    ("queries.csv", "smiles\n[#6]~[#7]\nc1ccccc1-c\n[C;R]\n", 3, 1, "RDKit can read"),
    ("aromatic.csv", "smiles\nc1ccnc1\nCC\n", 3, 1, "RDKit can read"),
    ("polymer.csv", "smiles\n*CC*\nCC |Sg:n:0,1:n:ht|\n", 3, 1, "ASCII signs without spaces"),
    ("huge_id.csv", f"id,smiles\n{'x' * 100_000},CCO\n", 0, 1, "1 of 1"),
    ("control.csv", "id,smiles\n\x1b[31mred\x07,CCO\n", 0, 1, "1 of 1"),
]


@pytest.mark.parametrize("case", FILES, ids=[case[0] for case in FILES])
def test_every_file_is_explained_rejected_or_named(
    case: tuple[str, bytes | str, int, int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, content, code, num_explained, words = case
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = tmp_path / "out"
    given = ["explain", str(path), "--model", "mutagenicity", "--out", str(out), "--sdf", "-q"]
    monkeypatch.setattr(sys, "argv", ["nicegnn", *given])
    with pytest.raises(SystemExit) as stop:
        main()
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    rejects = (out / "rejects.csv").read_text() if (out / "rejects.csv").is_file() else ""
    assert words in shown.out + shown.err + rejects
    assert stop.value.code in ((1, 2) if code == 1 else (code,)), shown.err
    assert "\0" not in shown.err
    if num_explained:
        lines = (out / "molecules.csv").read_text().count("\n")
        assert lines >= 1 + num_explained
        assert (out / "molecules.sdf").read_text().count("$$$$") == num_explained
        assert "<script>alert" not in (out / "gallery.html").read_text()
    if code == 1:
        assert len(shown.err.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) in ([name], sorted([name, "out"]))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda whole: b"", "is damaged"),
        (lambda whole: whole[: len(whole) // 2], "is damaged"),
        (lambda whole: flipped(whole, len(whole) // 2), "its checksum is wrong"),
        (lambda whole: b"\x80\x04\x95" + whole[3:], "is damaged"),
        (lambda whole: b"<html></html>", "is damaged"),
    ],
)
def test_a_damaged_model_is_one_line_that_names_it(
    spoil: Callable[[bytes], bytes],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = files("nicegnn.pretrained").joinpath("models", "benzene.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(spoil(whole))
    words = ["explain", "CCO", "--model", str(tmp_path / "m.safetensors")]
    monkeypatch.setattr(sys, "argv", ["nicegnn", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert f"{tmp_path}/m.safetensors is damaged" in line
    assert told in line


def test_a_formula_is_text_in_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spreadsheets run cells that begin with = + - or @, so ours do not begin so."""
    rows = '"=HYPERLINK(""http://x"",""y"")",CCO,@a\n+1-1,C1CC(,-2\n'
    (tmp_path / "in.csv").write_text(f"id,smiles,=own\n{rows}")
    out = tmp_path / "out"
    monkeypatch.setattr(
        sys, "argv", ["nicegnn", "explain", f"{tmp_path}/in.csv", "--out", f"{out}"]
    )
    with pytest.raises(SystemExit):
        main()
    for path in out.glob("*.csv"):
        for line in csv.reader(path.read_text().splitlines()):
            for cell in line:
                assert cell[:1] not in ("=", "+", "@"), (path.name, cell)
                assert not cell.startswith("-") or float(cell) < 0
