"""The gallery and the table of substructures as people use them, in a headless Chromium."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nicegnn.explain.explanation import Unit
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.gallery import item_of, scale_of, write_gallery
from nicegnn.screening.tables import ROW

pytest.importorskip("rdkit", reason="needs RDKit")
NAMES = {"ethanol": "CCO", "acetamide": "CC(=O)N", "anisole": "COc1ccccc1", "methane": "C"}


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens a page; an error on it, or a request for another one, fails the test."""
    said: list[str] = []
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: said.append(asked.url))

    def go(path: Path) -> Any:
        page.goto(path.as_uri())
        return page

    yield go
    page.close()
    assert all(one.startswith("file:") for one in said), said


def gallery(path: Path, card: ModelCard, told: list[tuple[str, float, str]]) -> Path:
    """Writes a gallery of `NAMES`: prediction, probability and status of each."""
    unit: Unit = "value" if card.task == "regression" else "odds"
    page: list[dict[str, Any]] = []
    for row, ((name, smiles), own) in enumerate(zip(NAMES.items(), told, strict=True), start=1):
        bonds = [*parse_smiles(smiles).GetBonds()]
        cells: dict[str, Any] = dict.fromkeys(ROW, math.nan) | {"row": row, "id": name}
        cells |= {"smiles": smiles, "unit": unit, "applicability": "ok", "dose": "5 mg"}
        cells |= dict(zip(("prediction", "probability", "status"), own, strict=True))
        cells["atom_a"] = [bond.GetBeginAtomIdx() for bond in bonds]
        cells["atom_b"] = [bond.GetEndAtomIdx() for bond in bonds]
        scores = [1 / (1 + bond.GetIdx()) for bond in bonds]
        cells |= dict.fromkeys(("bond_score", "bond_loss", "bond_stderr"), scores)
        cells["bond_rank"] = [1 + bond.GetIdx() for bond in bonds]
        page.append(cells)
    scale, asked = scale_of(page), find_patterns(("long=COc",))
    items = [item_of(row, card, scale, asked) for row in page]
    write_gallery(path, items, card, scale, len(items), [*asked])
    return path


def shown(page: Any) -> list[str]:
    """Names on the cards, in their order."""
    texts = page.locator(".card > .q:nth-child(2)").all_inner_texts()
    return [text.partition(" (")[0] for text in texts]


def test_gallery_is_sorted_and_filtered(visit: Any, tmp_path: Path) -> None:
    card = ModelCard(name="m", question="Is it?", classes=("no", "yes"))
    told = [("yes", 0.9, "ok"), ("no", 0.6, "look twice"), ("yes", 0.7, "ok"), ("no", 0.8, "ok")]
    page = visit(gallery(tmp_path / "gallery.html", card, told))
    assert shown(page) == [*NAMES]
    page.select_option("#sort", "-probability")
    assert shown(page) == ["ethanol", "methane", "anisole", "acetamide"]
    page.select_option("#class", "yes")
    assert shown(page) == ["ethanol", "anisole"]
    page.select_option("#class", "")
    page.select_option("#status", "look twice")
    assert shown(page) == ["acetamide"]
    page.select_option("#status", "")
    page.select_option("#group", label="with long")  # asked for
    assert shown(page) == ["anisole"]
    assert page.locator(".badge").all_inner_texts() == ["long"]
    page.select_option("#group", label="with amide")  # known groups need not be asked for
    assert shown(page) == ["acetamide"]
    page.select_option("#group", label="without benzene ring")
    assert shown(page) == ["ethanol", "methane", "acetamide"]
    page.fill("#text", "eth")
    assert shown(page) == ["ethanol", "methane"]


def test_values_are_filtered_by_their_range(visit: Any, tmp_path: Path) -> None:
    card = ModelCard(name="m", question="How much?", task="regression", unit="kJ")
    told = [(value, math.nan, "ok") for value in ("-1.5", "0.2", "3", "12")]
    page = visit(gallery(tmp_path / "gallery.html", card, told))
    assert page.locator(".card b").first.inner_text() == "-1.5 kJ"
    page.select_option("#sort", "-value")
    assert shown(page) == ["methane", "anisole", "acetamide", "ethanol"]
    page.fill("#least", "-1.5")
    page.fill("#most", "3")
    assert shown(page) == ["anisole", "acetamide", "ethanol"]
    page.fill("#least", "0")
    assert shown(page) == ["anisole", "acetamide"]


@pytest.mark.parametrize("width", [400, 1200])
def test_no_text_leaves_its_card(visit: Any, tmp_path: Path, width: int) -> None:
    card = ModelCard(name="m", question="Is it?", classes=("no", "yes"))
    told = [("yes", 0.9, "do not use")] * len(NAMES)
    page = visit(gallery(tmp_path / "gallery.html", card, told))
    page.set_viewport_size({"width": width, "height": 900})
    wider = "[...document.querySelectorAll('.card')].filter(c => c.scrollWidth > c.clientWidth)"
    assert page.evaluate(f"{wider}.length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
