"""What visitors may ask for: kind errors for what cannot be read or is too large."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from nicegnn.errors import NicegnnError
from nicegnn.page.desk import (
    Desk,
    Limits,
    PageError,
    Shelf,
    sent_records,
    typed_record,
)
from nicegnn.pretrained import NAMES
from nicegnn.pretrained.model_file import load_model, save_model
from nicegnn.screening.settings import ModelConfig

pytest.importorskip("rdkit", reason="needs RDKit")


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


@pytest.mark.parametrize(("text", "words"), [("", "got 0"), ("  \n ", "got 0"), ("C\nCC", "got 2")])
def test_typed_text_must_be_one_smiles(text: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        typed_record(text)


@pytest.mark.parametrize(
    ("smiles", "words"),
    [
        ("c1ccccc", "unclosed ring"),
        ("C" * 30, r"at most 20 atoms \(got 30\)"),
    ],
)
def test_molecule_must_be_readable_and_small(shelf: Shelf, smiles: str, words: str) -> None:
    with pytest.raises(NicegnnError, match=words):
        Desk(shelf, Limits(atoms=20)).case(smiles, "benzene")


@pytest.mark.parametrize(
    ("name", "content", "column", "words"),
    [
        ("a.csv", "", "", "a.csv is empty"),
        ("a.csv", "smiles\n", "", "at least one molecule"),
        ("a.csv", "name,mass\na,1\n", "", r"column of SMILES.*'name', 'mass'.*as the column of"),
        ("a.csv", "smiles,mass\nC,1\n", "weight", r"no column 'weight'; it has 'smiles', 'mass'"),
        ("a.pkl", "x", "", r"must end in .csv, .tsv, .smi, .*\(got 'a.pkl'\)"),
        ("a.csv.gz", "x", "", "must end in"),
        ("../../a.xlsx", "x", "", "a.xlsx cannot be read"),
    ],
)
def test_file_that_cannot_be_taken_is_told_kindly(
    name: str, content: str, column: str, words: str
) -> None:
    with pytest.raises(PageError, match=words) as caught:
        sent_records(name, content.encode(), column, Limits())
    assert caught.value.name == "bad_file"
    assert "/tmp" not in str(caught.value)  # a visitor knows the file by its name


def test_a_spreadsheet_that_is_larger_than_it_looks_is_refused() -> None:
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as packed:
        packed.writestr("xl/sharedStrings.xml", b"\0" * 30 * 2**20)
    with pytest.raises(PageError, match="larger than it looks") as caught:
        sent_records("a.xlsx", file.getvalue(), "", Limits())
    assert caught.value.name == "too_large"


def test_only_so_many_molecules_are_taken_with_names_and_own_columns() -> None:
    text = b"Name,smiles,dose\nmethane,C,1\nethane,CC,2\npropane,CCC,3\n"
    records = sent_records("a.csv", text, "", Limits(molecules=2))
    assert [record.id for record in records] == ["methane", "ethane", "propane"]
    assert [record.values["dose"] for record in records] == ["1", "2", "3"]
    assert [bool(record.problem) for record in records] == [False, False, True]
    assert "Only the first 2 molecules" in records[2].problem


def test_model_is_loaded_once_for_all_threads() -> None:
    shelf = Shelf()
    with ThreadPoolExecutor(4) as pool:
        found = {id(one) for one in pool.map(lambda _: shelf["benzene"], range(8))}
    assert len(found) == 1
    with pytest.raises(PageError, match="model"):
        shelf["nosuch"]


def test_model_of_the_command_line_comes_first() -> None:
    shelf = Shelf(ModelConfig(model="logp", explainer="occlusion"))
    assert shelf.first == "logp"
    assert {*shelf.cards} == {*NAMES}
    assert shelf["logp"].explainer.name == "occlusion"
    assert shelf.cards["logp"].task == "regression"


def test_model_of_a_file_stands_beside_one_of_the_same_name() -> None:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        shelf = Shelf(ModelConfig(model=str(path)))
    assert [*shelf.cards] == ["benzene.safetensors", *NAMES]
    assert shelf.first == "benzene.safetensors"
    assert shelf[shelf.first] is not shelf["benzene"]


def test_each_label_of_a_file_is_a_model(tmp_path: Path) -> None:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        stored = load_model(path)
    card = stored.card.with_(task="binary")
    labels = {name: card.with_(name=name) for name in ("none", "ring")}
    save_model(tmp_path / "two.safetensors", replace(stored, labels=labels))
    shelf = Shelf(ModelConfig(model=f"{tmp_path / 'two.safetensors'}:ring"))
    assert [*shelf.cards] == ["none", "ring", *NAMES]
    assert shelf.first == "ring"
    desk = Desk(shelf, Limits())
    none, ring = (desk.case("Cc1ccccc1", name).outputs[1] for name in ("none", "ring"))
    assert none < 0.5 < ring
