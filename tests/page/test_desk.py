"""The desk: limits hold with kind errors, equal questions are answered once, models by name."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from nicegnn.errors import NicegnnError
from nicegnn.page import desk as module
from nicegnn.page.changes import changed_molecules
from nicegnn.page.desk import Desk, Limits, PageError, Shelf, sent_records
from nicegnn.pretrained import NAMES, load
from nicegnn.pretrained.model_file import save_model
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import ModelConfig

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")


@pytest.fixture
def desk() -> Desk:
    return Desk(Shelf(ModelConfig(model="benzene")), Limits(seconds=30, atoms=30))


@pytest.fixture
def benzene() -> Iterator[Path]:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        yield path


def records(*smiles: str) -> list[Record]:
    return [Record(n, f"m{n}", one, {"own": str(n)}) for n, one in enumerate(smiles, start=1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" \n ", "got 0"),
        ("C\nCC", "got 2"),
        ("c1ccccc", "unclosed ring"),
        ("C" * 40, r"at most 30 atoms \(got 40\)"),
    ],
)
def test_a_molecule_must_be_one_readable_and_small(desk: Desk, text: str, words: str) -> None:
    with pytest.raises(NicegnnError, match=words):
        desk.case(text)


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
    found = sent_records("a.csv", text, "", Limits(molecules=2))
    assert [record.id for record in found] == ["methane", "ethane", "propane"]
    assert [record.values["dose"] for record in found] == ["1", "2", "3"]
    assert [bool(record.problem) for record in found] == [False, False, True]
    assert "Only the first 2 molecules" in found[2].problem


def test_models_are_loaded_once_and_that_of_the_command_line_comes_first(benzene: Path) -> None:
    shelf = Shelf(ModelConfig(model="logp", explainer="occlusion"))
    with ThreadPoolExecutor(4) as pool:
        assert len({id(one) for one in pool.map(lambda _: shelf["benzene"], range(8))}) == 1
    with pytest.raises(PageError, match="model"):
        shelf["nosuch"]
    assert shelf.first == "logp"
    assert {*shelf.cards} == {*NAMES}
    assert shelf["logp"].explainer.name == "occlusion"
    shelf = Shelf(ModelConfig(model=str(benzene)))  # a file of the same name
    assert [*shelf.cards] == ["benzene.safetensors", *NAMES]
    assert shelf.first == "benzene.safetensors"
    assert shelf[shelf.first] is not shelf["benzene"]


def test_each_label_of_a_file_is_a_model(tmp_path: Path) -> None:
    stored = load("benzene")
    card = stored.card.with_(task="binary")
    labels = {name: card.with_(name=name) for name in ("none", "ring")}
    parts = stored.model, stored.card, stored.background, stored.domain
    save_model(tmp_path / "two.safetensors", *parts, labels)
    shelf = Shelf(ModelConfig(model=f"{tmp_path / 'two.safetensors'}:ring"))
    assert [*shelf.cards] == ["none", "ring", *NAMES]
    assert shelf.first == "ring"
    desk = Desk(shelf, Limits())
    none, ring = (desk.case("Cc1ccccc1", name).outputs[1] for name in ("none", "ring"))
    assert none < 0.5 < ring


def test_equal_questions_are_answered_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.case("CCO") is desk.case("CCO")
    assert desk.case("CCO") is not desk.case("CCO", "logp")
    monkeypatch.setattr(module, "REMEMBERED", 1)
    first = desk.case("CCC")
    desk.case("CCN")
    assert desk.case("CCC") is not first  # only the latest are kept


def test_a_file_gives_the_answers_of_single_questions(desk: Desk) -> None:
    found = list(desk.table(records("Cc1ccccc1", "C1CC(", "C" * 40, "CCO"), ""))
    lines = [one.line() for one in found]
    assert [line.answer is not None for line in lines] == [True, False, False, True]
    assert lines[1].values == {"own": "2"}
    assert "at most 30 atoms" in lines[2].error
    assert found[0].outputs == pytest.approx(desk.case("Cc1ccccc1").outputs, abs=1e-5)


def test_a_file_and_an_answer_end_when_their_time_is_over(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        clock = iter([0.0, 1.0, 99.0])  # start, first part, second part
        patch.setattr(module.time, "monotonic", lambda: next(clock))
        patch.setattr(module, "_TOGETHER", 1)
        first, second = (one.line() for one in desk.table(records("CCO", "CCN"), ""))
    assert first.error == ""
    assert "The time of 30 s was over" in second.error
    monkeypatch.setattr(module, "explain_rows", lambda *_: time.sleep(2))
    with pytest.raises(PageError) as caught:
        Desk(desk.shelf, Limits(seconds=1)).case("CCO")
    assert caught.value.name == "too_slow"


def test_a_doubtful_model_says_so_beside_every_answer(desk: Desk) -> None:
    case = desk.case("Cc1ccccc1")
    assert case.explained().notes == []
    doubtful = replace(case, card=case.card.with_(doubt="It is no better than a constant."))
    assert doubtful.explained().notes == ["About the model: It is no better than a constant."]


def test_changed_molecules_differ_in_one_atom_and_are_valid() -> None:
    mol = Chem.MolFromSmiles("CC(=O)Nc1ccc(O)cc1")
    for atom in range(mol.GetNumAtoms()):
        found = changed_molecules(mol, atom)
        assert len({smiles for _, smiles in found}) == len(found)
        for what, smiles in found:
            changed = Chem.MolFromSmiles(smiles)
            assert changed is not None, what
            assert abs(changed.GetNumAtoms() - mol.GetNumAtoms()) <= 1
            assert Chem.CanonSmiles(smiles) != Chem.MolToSmiles(mol)
