"""The desk: limits hold with kind errors, equal questions are answered once, models by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest

from nicegnn.errors import NicegnnError
from nicegnn.page import desk as module
from nicegnn.page.changes import changed_molecules
from nicegnn.page.desk import Desk, PageError, Shelf
from nicegnn.pretrained import NAMES, load
from nicegnn.pretrained.model_file import save_model
from nicegnn.screening.settings import ModelConfig

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")


@pytest.fixture
def desk() -> Desk:
    return Desk(Shelf(ModelConfig(model="benzene")), 30)


@pytest.fixture
def benzene() -> Iterator[Path]:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        yield path


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
    desk = Desk(shelf)
    none, ring = (desk.case("Cc1ccccc1", name).outputs[1] for name in ("none", "ring"))
    assert none < 0.5 < ring


def test_equal_questions_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    desk = Desk(Shelf(ModelConfig(model="benzene")))
    first = desk.case("CCO")
    assert desk.case("CCO") is first
    assert desk.case("CCO", "logp") is not first
    desk.case("CCN")
    assert desk.case("CCO") is not first  # only the latest are kept


def test_at_most_so_many_explain_at_the_same_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, busy, most = module.explain_rows, [0], [0]

    def watched(*words: Any) -> Any:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        time.sleep(0.01)
        rows = work(*words)
        busy[0] -= 1
        return rows

    monkeypatch.setattr(module, "explain_rows", watched)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(desk.case, ["C" * n for n in range(1, 17)]))
    assert [case.row["smiles"] for case in found] == ["C" * n for n in range(1, 17)]
    assert most[0] == module.AT_ONCE


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
