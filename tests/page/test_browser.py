"""The page as visitors use it, in a headless Chromium."""

from __future__ import annotations

import csv
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
pytest.importorskip("fastapi", reason="needs FastAPI (extra 'page')")
RING, NO_RING = "CC(=O)Nc1ccc(O)cc1", "CC(C)C1CCC(C)CC1O"
DESK, PHONE = (1440, 900), (390, 844)


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

    def open_page(smiles: str = "", size: tuple[int, int] = DESK, model: str = "") -> Any:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda asked: said.append(asked.url))
        page.goto(f"{address}/?smiles={smiles.replace('#', '%23')}&model={model}")
        page.wait_for_selector(".panel")
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.context.close()
    assert [text for text in said if not text.startswith((address, "data:", "blob:"))] == []


def type_smiles(page: Any, smiles: str, panel: int = 0) -> None:
    page.locator("[name=smiles]").nth(panel).fill(smiles)


def said(page: Any, panel: int = 0) -> str:
    """Waits for the answer of a panel and returns its prediction."""
    page.wait_for_selector(f".panel:nth-child({panel + 1})[aria-busy=false] .result:not([hidden])")
    return str(page.locator(".said").nth(panel).inner_text())


def bottom(page: Any, name: str) -> float:
    box = page.locator(name).first.bounding_box()
    return float(box["y"] + box["height"])


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_a_link_shows_the_picture_without_scrolling(visit: Any, size: tuple[int, int]) -> None:
    page = visit(RING, size)
    assert said(page).startswith("benzene ring")
    assert page.locator(".picture circle.hit").count() == 11
    assert bottom(page, ".picture") < size[1]
    assert bottom(page, ".verdict") < size[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    if size == DESK:  # the editor stands beside it
        page.wait_for_selector("#editor[data-ready=true] canvas")
        editor, picture = (page.locator(name).bounding_box() for name in ("#editor", ".picture"))
        assert editor["x"] + editor["width"] < picture["x"]


def test_what_is_drawn_is_explained(visit: Any) -> None:
    page = visit(NO_RING)
    assert said(page).startswith("no benzene ring")
    page.wait_for_selector("#editor[data-ready=true] canvas")
    tools, sheet = (page.locator("#editor canvas").nth(n).bounding_box() for n in (0, 1))
    page.mouse.click(tools["x"] + 0.72 * tools["width"], tools["y"] + 0.56 * tools["height"])
    page.mouse.click(sheet["x"] + sheet["width"] - 90, sheet["y"] + sheet["height"] - 90)
    page.wait_for_selector(".prediction >> text=/^benzene ring/")
    drawn = page.locator("[name=smiles]").input_value()
    assert "." in drawn  # a ring beside menthol
    assert page.evaluate("new URL(location).searchParams.get('smiles')") == drawn


def test_atoms_and_bonds_tell_their_numbers_to_pointer_and_keyboard(visit: Any) -> None:
    page = visit(RING)
    said(page)
    page.locator("[data-atom='4']").hover()
    assert page.locator(".numbers").inner_text().startswith("Atom C4: without it ")
    page.locator(".picture .hit").first.focus()
    first = page.locator(".numbers").inner_text()
    assert "number 1 of 11 bonds" in first
    page.keyboard.press("ArrowRight")
    assert page.locator(".numbers").inner_text() != first
    page.keyboard.press("End")
    assert page.locator(".numbers").inner_text().startswith("Atom ")
    page.keyboard.press("Enter")
    page.wait_for_selector(".changes .list button")
    assert page.evaluate("document.activeElement.closest('.changes') !== null")
    page.keyboard.press("Escape")
    assert not page.locator(".changes").is_visible()
    assert page.evaluate("document.activeElement.dataset.atom")  # back where it was


def test_keyboard_alone_reaches_all_and_answers_are_read_aloud(visit: Any) -> None:
    page = visit()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link past the editor
    names = []
    for _ in range(4):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate("document.activeElement.name || document.activeElement.innerText")
        )
    assert names == ["model", "Compare", "smiles", "paracetamol"]
    page.keyboard.press("Enter")
    assert said(page).startswith("benzene ring")
    heard = page.locator(".heard[role=status]").inner_text()
    assert heard.startswith("benzene ring")
    assert "rely on it" in heard


def test_a_changed_atom_opens_beside_the_molecule_and_says_what_differs(visit: Any) -> None:
    page = visit(RING)
    said(page)
    page.locator("[data-atom='5']").click(force=True)
    page.locator(".changes .list button", has_text="C5 → N").click()
    assert said(page, 1)
    page.wait_for_selector("#difference:not([hidden]) >> text=“benzene ring” falls from > 99 % to")
    assert page.locator(".panel").count() == 2
    again = visit_same(page)
    assert said(again, 1) == said(page, 1)


def visit_same(page: Any) -> Any:
    """Returns a new visitor's page at the same address."""
    other = page.context.new_page()
    other.goto(page.url)
    return other


def test_another_model_answers_anew_and_the_old_answer_goes(visit: Any) -> None:
    page = visit(RING)
    said(page)
    page.select_option("form.ask [name=model]", "logp")
    page.wait_for_selector(".question >> text=logP")
    assert "log units" in said(page)
    assert "model=logp" in page.url
    page.go_back()
    page.wait_for_selector(".question >> text=benzene")
    assert said(page).startswith("benzene ring")


def test_bad_molecules_are_told_and_the_next_one_works(visit: Any) -> None:
    page = visit(RING)
    for smiles, words in (("c1ccccc", "unclosed ring"), ("C" * 80, "at most 60 atoms")):
        type_smiles(page, smiles)
        page.wait_for_selector(f".panel .problem[role=alert] >> text={words}")
        assert not page.locator(".result").is_visible()
    type_smiles(page, NO_RING)
    assert said(page).startswith("no benzene ring")
    assert not page.locator(".panel .problem").is_visible()
    type_smiles(page, "N[Pt](N)(Cl)Cl")
    page.wait_for_selector(".advice .note >> text=The model may not fit this molecule")
    assert page.locator(".said .far").is_visible()


def test_downloads_and_the_link(visit: Any) -> None:
    page = visit(RING)
    said(page)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "smiles=CC" in copied
    head = b"smiles,prediction,model,"
    starts = {"SVG": b"<svg", "PNG": b"\x89PNG", "Bonds (CSV)": head + b"bond,", "SDF": b"\n"}
    for name, start in {**starts, "Atoms (CSV)": head + b"atom,"}.items():
        with page.expect_download() as waiting:
            role = "button" if "CSV" in name else "link"
            page.get_by_role(role, name=name, exact=True).click()
        assert Path(waiting.value.path()).read_bytes().startswith(start)


def test_file_becomes_a_table_with_own_columns(visit: Any, tmp_path: Path) -> None:
    page, path = visit(), tmp_path / "mols.csv"
    page.get_by_role("tab", name="A file").click()
    page.get_by_role("button", name="Explain all").click()
    page.wait_for_selector("#file-problem >> text=Choose a file")
    rows = [f"m{n},{'C' * (n + 1)}O,+{n}x" for n in range(30)]
    rows += ["ring,Cc1ccccc1,1", 'bad,"c1ccccc","a ""2"",\nor 3"']
    path.write_text("\n".join(["id,structures,dose", *rows]))
    page.set_input_files("#send input[type=file]", path)
    page.wait_for_selector("#file-problem >> text=must have a column of SMILES")
    page.fill("[name=column]", "structures")
    page.get_by_role("button", name="Explain all").click()
    page.wait_for_selector("#progress >> text=31 molecules explained, 1 without an answer")
    assert page.locator("#rows th").all_inner_texts()[-1] == "dose"
    assert "unclosed ring" in page.locator("#rows td.error").inner_text()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Table (CSV)").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["id"] for row in found] == [*(f"m{n}" for n in range(30)), "ring", "bad"]
    assert found[0]["dose"] == "'+0x"  # no formula for a spreadsheet
    assert found[-1]["dose"] == 'a "2",\nor 3'
    page.get_by_role("button", name="probability").click()
    page.locator("#rows img").first.click()
    assert "benzene ring" in said(page)


def test_structures_and_lists_are_read_and_a_change_of_mind_stops_them(
    visit: Any, tmp_path: Path
) -> None:
    from rdkit import Chem

    page, path = visit(), tmp_path / "mols.sdf"
    page.get_by_role("tab", name="A file").click()
    with Chem.SDWriter(str(path)) as writer:
        for smiles in (RING, NO_RING):
            mol = Chem.MolFromSmiles(smiles)
            mol.SetProp("_Name", f"of {mol.GetNumAtoms()} atoms")
            mol.SetProp("dose", "3 mg")
            writer.write(mol)
    page.set_input_files("#send input[type=file]", path)
    page.wait_for_selector("#progress >> text=2 molecules explained.")
    cells = page.locator("#rows tr:nth-child(1) td").all_inner_texts()
    assert (cells[1], cells[3], cells[-1]) == ("of 11 atoms", "benzene ring", "3 mg")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Structures (SDF)").click()
    assert Path(waiting.value.path()).read_text().count("$$$$") == 2
    page.fill("[name=list]", "\n".join(f"{'C' * n}O alcohol {n}" for n in range(1, 59)))
    page.get_by_role("button", name="Explain all").click()
    page.locator("#rows td >> text=alcohol 2").first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector("#progress >> text=Stopped.")
    assert page.locator("#rows tbody tr").count() < 58
    path = tmp_path / "mols.xlsx"
    path.write_text("x")
    page.fill("[name=list]", "")
    page.set_input_files("#send input[type=file]", path)
    page.wait_for_selector("#file-problem >> text=Save a spreadsheet as CSV")


def test_every_question_and_type_of_the_interface_is_described(visit: Any, address: str) -> None:
    page = visit()
    page.goto(f"{address}/docs")
    page.wait_for_selector("h3 >> text=Explained")
    paths = [text.removeprefix("GET /api/") for text in page.locator("h2").all_inner_texts()]
    assert {"models", "explain", "compare", "changes", "file/{name}"} <= {*paths}


def test_words_stand_out_from_what_is_behind_them(visit: Any) -> None:
    """A contrast of 4.5, as WCAG asks for."""
    page = visit(RING)
    said(page)
    found = page.evaluate("""() => {
        const numbers = text => text.match(/[\\d.]+/g).map(Number);
        const light = colour => {
            const parts = colour.map(c => c / 255);
            const [r, g, b] = parts.map(c => c <= 0.04 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const words = ["h1 span", ".hint", ".question", ".chip", ".legend", ".docs", "label"];
        return words.map(name => {
            const own = document.querySelector(name);
            let place = own;
            const solid = one => (numbers(getComputedStyle(one).backgroundColor)[3] ?? 1) === 1;
            while (place.parentElement && !solid(place)) place = place.parentElement;
            const colours = [getComputedStyle(own).color, getComputedStyle(place).backgroundColor];
            const lights = colours.map(c => light(numbers(c).slice(0, 3)));
            const [high, low] = lights.sort((a, b) => b - a);
            return [name, (high + 0.05) / (low + 0.05)];
        });
    }""")
    assert len(found) == 7
    assert [(name, contrast) for name, contrast in found if contrast < 4.5] == []
