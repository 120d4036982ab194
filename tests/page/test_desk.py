"""The desk: equal questions are answered once, limits hold, a bad molecule harms no other."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from nicegnn.page import desk as module
from nicegnn.page.changes import changed_molecules
from nicegnn.page.desk import Desk, Limits, PageError, Shelf
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import ModelConfig

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")


@pytest.fixture
def desk() -> Desk:
    return Desk(Shelf(ModelConfig(model="benzene")), Limits(seconds=30, atoms=30))


def records(*smiles: str) -> list[Record]:
    return [Record(n, f"m{n}", one, {"own": str(n)}) for n, one in enumerate(smiles, start=1)]


def test_equal_questions_are_answered_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.case("CCO") is desk.case("CCO")
    assert desk.case("CCO") is not desk.case("CCO", "logp")
    monkeypatch.setattr(module, "REMEMBERED", 1)
    first = desk.case("CCC")
    desk.case("CCN")
    assert desk.case("CCC") is not first  # only the latest are kept


def test_a_file_gives_the_answers_of_single_questions(desk: Desk) -> None:
    smiles = ["Cc1ccccc1", "C1CC(", "C" * 40, "CCO"]
    found = list(desk.table(records(*smiles), ""))
    lines = [one.line() for one in found]
    assert [line.answer is not None for line in lines] == [True, False, False, True]
    assert lines[1].values == {"own": "2"}
    assert "at most 30 atoms" in lines[2].error
    assert found[0].outputs == pytest.approx(desk.case("Cc1ccccc1").outputs, abs=1e-5)


def test_a_file_ends_when_its_time_is_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 99.0])  # start, first part, second part
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "_TOGETHER", 1)
    first, second = desk.table(records("CCO", "CCN"), "")
    assert first.line().error == ""
    assert "The time of 30 s was over" in second.line().error


def test_an_answer_that_takes_too_long_has_a_name(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = Desk(desk.shelf, Limits(seconds=1))
    monkeypatch.setattr(module, "explain_rows", lambda *_: time.sleep(2))
    with pytest.raises(PageError) as caught:
        hasty.case("CCO")
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
