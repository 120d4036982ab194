"""The page as visitors use it, in a headless Chromium."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rdkit", reason="needs RDKit")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="needs Gradio")
ENDS = ("C", "N", "F", "Cl", "C#N", "C=O", "C1CC1", "c1ccccc1", "c1ccncc1")
RING, NO_RING = "CC(=O)Nc1ccc(O)cc1", "CC(C)C1CCC(C)CC1O"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Starts `nicegnn serve` as a user does; returns where it is."""
    command = [sys.executable, "-m", "nicegnn.cli.main", "serve", "--model", "benzene"]
    with subprocess.Popen(
        [*command, "--atoms", "60"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
            assert found
            yield found[0]
        finally:
            server.terminate()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """Opens the page for a new visitor; an error or a request to elsewhere fails the test."""
    opened, said = [], []

    def open_page() -> Any:
        page = browser.new_context(viewport={"width": 1000, "height": 900}).new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda one: said.append(one.text) if one.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda asked: said.append(asked.url))
        page.goto(address)
        page.wait_for_selector("#smiles textarea")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.context.close()
    assert [text for text in said if not text.startswith((address, "data:", "blob:"))] == []


def ask(page: Any, smiles: str) -> None:
    page.fill("#smiles textarea", smiles)
    page.click("#explain")


def prediction(page: Any, smiles: str) -> str:
    """Waits for the answer about a molecule and returns its prediction."""
    page.wait_for_function(
        "smiles => document.querySelector('#prediction .n-who')?.textContent.endsWith(smiles)",
        arg=smiles,
    )
    return page.locator("#prediction .n-said").inner_text()


def downloaded(page: Any, link: str) -> str:
    with page.expect_download() as waiting:
        page.get_by_role("link", name=link).last.click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def test_molecule_is_explained_and_the_slider_changes_the_effect(visit: Any) -> None:
    page = visit()
    page.get_by_text("paracetamol").click()
    assert prediction(page, RING) == "benzene ring (100%)"
    assert page.locator("#picture svg path").count() > 11
    assert page.locator("#others figure").count() == 3
    page.fill("#share input[type=number]", "0")
    page.wait_for_selector("#effect >> text=best 0 of 11 bonds: 0%")
    page.fill("#share input[type=number]", "100")
    page.wait_for_selector("#effect >> text=best 11 of 11 bonds: 100%")
    page.get_by_label("integrated-gradients").check()
    page.wait_for_selector("#others figure[data-method='integrated-gradients'] svg")
    assert downloaded(page, "picture (SVG)").startswith("<svg")
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "bonds (CSV)"))))
    assert sorted(int(row["rank"]) for row in rows) == list(range(1, 12))


def test_bad_molecules_are_told_and_the_next_one_works(visit: Any) -> None:
    page = visit()
    for smiles, words in (
        ("c1ccccc", "unclosed ring"),
        ("C" * 80, "at most 60 atoms"),
        ("", "Type a"),
    ):
        ask(page, smiles)
        page.wait_for_selector(f"#problem [role=alert] >> text={words}")
        assert not page.locator("#picture").is_visible()
    ask(page, NO_RING)
    assert prediction(page, NO_RING).startswith("no benzene ring")
    assert page.locator("#problem [role=alert]").count() == 0


def test_file_becomes_a_table_whose_rows_show_pictures(visit: Any, tmp_path: Path) -> None:
    smiles = [head * n + end for n in range(1, 12) for head in ("C", "OC") for end in ENDS]
    rows = [f"m{n},{one}" for n, one in enumerate(smiles)]
    page, path = visit(), tmp_path / "mols.csv"
    page.get_by_role("tab", name="A file of molecules").click()
    page.click("#explain-all")
    page.wait_for_selector("#told >> text=Choose a file first")
    path.write_text("\n".join(["id,structures", *rows, "bad,c1ccccc", f"large,{'C' * 80}"]))
    page.set_input_files("#file input[type=file]", path)
    page.wait_for_selector("#file >> text=mols")
    page.click("#explain-all")
    page.wait_for_selector("#told >> text=must have a column of SMILES")
    assert "(got 'id', 'structures')" in page.locator("#told").inner_text()
    page.fill("#column textarea", "structures")
    page.click("#explain-all")
    page.wait_for_selector("#told >> text=198 molecules explained, 2 rejected.")
    page.locator("#told summary").click()
    assert "unclosed ring" in page.locator("#told table").inner_text()
    page.locator("#molecules").get_by_role("gridcell", name="m1", exact=True).click()
    assert "benzene ring" in prediction(page, smiles[1])
    found = list(csv.DictReader(io.StringIO(downloaded(page, "molecules (CSV)"))))
    assert [row["smiles"] for row in found] == smiles


def test_two_visitors_at_once_see_their_own_molecules(visit: Any) -> None:
    one, two = visit(), visit()
    ask(one, RING)
    ask(two, NO_RING)
    assert prediction(one, RING) == "benzene ring (100%)"
    assert prediction(two, NO_RING).startswith("no benzene ring")
    for page in (one, two):
        page.fill("#share input[type=number]", "50")
        page.wait_for_selector("#effect >> text=best 6 of 11 bonds")
    assert "“benzene ring”" in one.locator("#effect").inner_text()
    assert "“no benzene ring”" in two.locator("#effect").inner_text()


def test_words_stand_out_from_what_is_behind_them(visit: Any) -> None:
    """A contrast of 4.5, as WCAG asks for."""
    found = visit().evaluate("""() => {
        const numbers = text => text.match(/[\\d.]+/g).map(Number);
        const light = colour => {
            const parts = colour.map(c => c / 255);
            const [r, g, b] = parts.map(c => c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const words = ["#title p", ".n-about", "#explain", "#smiles [data-testid=block-info]"];
        return words.map(name => {
            const own = document.querySelector(name), style = getComputedStyle(own);
            let place = own;
            const solid = one => (numbers(getComputedStyle(one).backgroundColor)[3] ?? 1) === 1;
            while (place.parentElement && !solid(place)) place = place.parentElement;
            const behind = numbers(getComputedStyle(place).backgroundColor);
            const share = Number(style.opacity);
            const colour = numbers(style.color).map((c, k) => share * c + (1 - share) * behind[k]);
            const [high, low] = [light(colour), light(behind)].sort((a, b) => b - a);
            return [name, (high + 0.05) / (low + 0.05)];
        });
    }""")
    assert len(found) == 4
    assert [(name, contrast) for name, contrast in found if contrast < 4.5] == []
