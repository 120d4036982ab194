"""The page as a person uses it, in a headless Chromium: sorting, choosing, pointing, narrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nicegnn_lab.report import Report
from tests.lab.report.small_report import DATASETS, embedded, make_page


@pytest.fixture(scope="module")
def report() -> Report:
    return make_page()


@pytest.fixture(scope="module")
def address(report: Report, tmp_path_factory: pytest.TempPathFactory) -> str:
    return report.save(tmp_path_factory.mktemp("page") / "report.html").as_uri()


@pytest.fixture(scope="module")
def window(browser: Any) -> tuple[Any, list[str]]:
    """A window, and what was said on its console or asked from a network."""
    said: list[str] = []
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    opened.set_default_timeout(20_000)
    opened.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda asked: said.append(asked.url))
    return opened, said


@pytest.fixture
def page(window: tuple[Any, list[str]], address: str) -> Iterator[Any]:
    """The page, opened anew; an error, a warning or a request fails the test."""
    opened, said = window
    opened.set_viewport_size({"width": 1200, "height": 900})
    opened.goto("about:blank")
    opened.goto(address)
    opened.wait_for_selector("#gallery[data-ready]", state="attached")
    yield opened
    outside = [text for text in said if text.partition("#")[0] not in (address, "about:blank")]
    said.clear()
    assert [text for text in outside if not text.startswith("data:")] == []


def column(page: Any, table: str, number: int) -> list[str]:
    """The texts of one column as they stand now."""
    return [
        text.strip()
        for text in page.locator(f"{table} tbody tr > :nth-child({number})").all_text_contents()
    ]


def click_heading(page: Any, table: str, number: int) -> None:
    page.locator(f"{table} thead th:nth-child({number}) button").click()


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true; })")


def first_number(text: str) -> float:
    return float(text.split()[0])


def test_sorting_reads_numbers_as_people_do(page: Any) -> None:
    keys = {
        "94.9 ± 0.2 (86.6)": 94.9,
        "-1.5": -1.5,
        "−0.25 to 0.3": -0.25,
        "+3.1": 3.1,
        "1e-05": 1e-05,
        "12,345": 12345,
        "61.3%": 61.3,
        "-": None,
        "–": None,
        "- (45.3)": None,
        "nan": None,
        "": None,
        "PGExplainer": "pgexplainer",
        "8147fe56a44d": "8147fe56a44d",
    }
    found = page.evaluate("texts => texts.map(report.sortKey)", list(keys))
    assert dict(zip(keys, found, strict=True)) == keys


def test_missing_values_come_last_in_both_directions(page: Any) -> None:
    page.evaluate("""() => {
        const box = document.createElement("div");
        box.innerHTML = `<table id="mine"><thead><tr><th>name</th><th>value</th></tr></thead><tbody>
            <tr><td>a</td><td>9.5 ± 0.1</td></tr><tr><td>b</td><td>-</td></tr>
            <tr><td>c</td><td>10.2 ± 3 (1.0)</td></tr><tr><td>d</td><td>- (99.0)</td></tr>
            <tr><td>e</td><td>-2.0</td></tr></tbody></table>`;
        document.body.append(box);
        report.makeSortable(document.getElementById("mine"));
    }""")
    click_heading(page, "#mine", 2)
    assert column(page, "#mine", 1) == ["c", "a", "e", "b", "d"]
    click_heading(page, "#mine", 2)
    assert column(page, "#mine", 1) == ["e", "a", "c", "b", "d"]
    head = page.locator("#mine th:nth-child(2)")
    assert head.get_attribute("aria-sort") == "ascending"
    click_heading(page, "#mine", 1)
    assert column(page, "#mine", 1) == ["a", "b", "c", "d", "e"]
    assert head.get_attribute("aria-sort") is None


@pytest.mark.parametrize("table", ["#result-table", "#table-quality-f1-paper-gin table"])
def test_click_on_a_heading_sorts(page: Any, table: str) -> None:
    unfold(page)
    names = column(page, table, 1)
    click_heading(page, table, 3)
    values = [first_number(text) for text in column(page, table, 3)]
    assert values == sorted(values, reverse=True)
    assert sorted(column(page, table, 1)) == sorted(names)
    click_heading(page, table, 3)
    values = [first_number(text) for text in column(page, table, 3)]
    assert values == sorted(values)
    click_heading(page, table, 1)
    assert column(page, table, 1) == sorted(names)


def test_headings_can_be_used_with_the_keyboard(page: Any) -> None:
    button = page.locator("#result-table thead th:nth-child(3) button")
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("#result-table th:nth-child(3)").get_attribute("aria-sort") == "descending"


def test_results_change_with_metric_and_protocol(page: Any, report: Report) -> None:
    before = column(page, "#result-table", 4)
    page.select_option("#result-metric", "f1")
    after = column(page, "#result-table", 4)
    assert before != after
    data = embedded(report, "results")
    place = next(k for k, m in enumerate(data["metrics"]) if m["name"] == "f1")
    source = next(
        k
        for k, s in enumerate(data["sources"])
        if (s["dataset"], s["method"]) == ("benzene", "saliency")
    )
    paper = data["protocols"].index("paper")
    cell = next(c for c in data["cells"] if c[:3] == [source, paper, place])
    line = column(page, "#result-table", 1).index("saliency")
    assert after[line].startswith(f"{100 * cell[3]:.1f} ± {100 * cell[4]:.1f} (47.3)")
    page.select_option("#result-protocol", label="protocol strict")
    assert "protocol strict" in page.locator("#result-note").text_content()
    page.select_option("#result-metric", "kept@0.3")
    assert "removal em" in page.locator("#result-note").text_content()
    assert "gnnexplainer+nc" in column(page, "#result-table", 1)
    page.uncheck("#result-variants")
    assert "gnnexplainer+nc" not in column(page, "#result-table", 1)


def test_claim_leads_to_its_numbers(page: Any) -> None:
    page.locator("#claim-precision summary").first.click()
    page.locator("#claim-precision a[data-metric]").click()
    assert page.locator("#result-metric").input_value() == "precision"
    assert page.url.endswith("#results")


@pytest.mark.parametrize("table", ["#result-table", "#table-quality-f1-paper-gin table"])
def test_number_tells_its_sources_on_pointing_and_by_keyboard(
    page: Any, report: Report, table: str
) -> None:
    unfold(page)
    sources = embedded(report, "results")["sources"]
    trace = page.locator("#trace")
    assert trace.is_hidden()
    box = page.locator(f"{table} td[data-source]").nth(2)
    box.hover()
    source = sources[int(box.get_attribute("data-source"))]
    text = trace.text_content()
    for word in (source["dataset"], source["explainer"], *source["keys"]):
        assert word in text
    assert "2 seed(s)" in text
    page.mouse.move(0, 0)
    assert trace.is_hidden()
    page.locator(f"{table} td[data-source]").first.focus()
    first = trace.text_content()
    page.keyboard.press("ArrowDown")
    assert trace.is_visible()
    assert trace.text_content() != first
    page.keyboard.press("Escape")
    assert trace.is_hidden()


def panels(page: Any) -> list[str]:
    figures = page.locator(".molecule").first.locator("figure[data-method]")
    shown = [figures.nth(k) for k in range(figures.count())]
    return [figure.get_attribute("data-method") for figure in shown if figure.is_visible()]


def test_methods_can_be_switched_off_and_on(page: Any) -> None:
    names = panels(page)
    assert names[0] == "truth"
    assert {"nice", "random", "saliency", "gnnexplainer+nc"} <= set(names)
    box = page.locator("#gallery-choices input[type=checkbox][value='random']")
    box.uncheck()
    assert panels(page) == [name for name in names if name != "random"]
    page.locator("#gallery-pager .next").click()
    assert "random" not in panels(page)  # also on the next page
    page.select_option("#gallery-dataset", DATASETS[1])
    assert "random" not in panels(page)  # and in another dataset
    page.locator("#gallery-choices fieldset button", has_text="none").click()
    assert panels(page) == ["truth"]
    page.locator("#gallery-choices fieldset button", has_text="all").click()
    assert panels(page) == names


def test_datasets_can_be_switched(page: Any, report: Report) -> None:
    for name in (DATASETS[1], DATASETS[0]):
        page.select_option("#gallery-dataset", name)
        gallery = embedded(report, f"gallery-{name}")
        molecule = gallery["molecules"][0]
        first = page.locator(".molecule").first
        assert first.locator("h3").text_content() == f"Molecule {molecule['n']}"
        truth = first.locator("figure").first
        assert truth.locator(".hit").count() == len(molecule["bonds"])
        assert truth.locator(".band").count() == len(molecule["bonds"])
        assert truth.locator("path.line").count() >= len(molecule["bonds"])
        assert name in page.locator("#gallery-note").text_content()


def test_pointing_at_a_bond_shows_the_score_of_every_method(page: Any, report: Report) -> None:
    page.select_option("#gallery-dataset", "benzene")
    gallery = embedded(report, "gallery-benzene")
    molecule, bond = gallery["molecules"][0], 2
    first = page.locator(".molecule").first
    figure = first.locator("figure[data-method='nice']")
    figure.scroll_into_view_if_needed()
    box = figure.locator(f".hit[data-bond='{bond}']").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for place, method in enumerate(gallery["methods"]):
        shown = first.locator(f"figure[data-method='{method['name']}'] output").text_content()
        name, _, value = shown.partition(": ")
        assert float(value) == molecule["scores"][place][bond]
        assert name == molecule["bonds"][bond]
        title = first.locator(
            f"figure[data-method='{method['name']}'] .hit[data-bond='{bond}'] title"
        ).text_content()
        assert "score" in title
        assert title.endswith(", true") == (bond in molecule["true"])
    truth = first.locator("figure[data-method='truth'] output").text_content()
    assert truth.endswith(": true" if bond in molecule["true"] else ": not true")


def test_arrow_keys_step_through_the_bonds(page: Any) -> None:
    first = page.locator(".molecule").first
    first.focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        seen.append(first.locator("figure[data-method='truth'] output").text_content())
    assert seen[0] != seen[1]
    assert seen[0] == seen[2]


def test_molecule_is_found_by_its_number(page: Any, report: Report) -> None:
    numbers = [m["n"] for m in embedded(report, f"gallery-{DATASETS[0]}")["molecules"]]
    page.fill("#gallery-number", str(numbers[-1]))
    page.keyboard.press("Enter")
    assert page.locator(".molecule h3").first.text_content() == f"Molecule {numbers[-1]}"
    page.fill("#gallery-number", "987654")
    page.keyboard.press("Enter")
    assert "Molecule 987654 is not among" in page.locator("#gallery-note").text_content()


def test_colours_follow_score_or_rank(page: Any) -> None:
    levels = page.evaluate(
        "[report.colours.levels([4, -2, 0, null], 'score'),"
        " report.colours.levels([-9, 3, 3, 7, null], 'rank'),"
        " report.colours.levels([0, 0], 'score')]"
    )
    assert levels == [[1, -0.5, 0, None], [0, 0.25, 0.25, 1, None], [0, 0]]
    bands = page.locator(".molecule").first.locator("figure[data-method='nice'] .band")
    by_rank = bands.evaluate_all("found => found.map(band => band.style.stroke)")
    page.select_option("#gallery-mode", "score")
    by_score = bands.evaluate_all("found => found.map(band => band.style.stroke)")
    assert by_rank != by_score


def test_best_bond_has_the_full_colour_and_true_bonds_an_outline(page: Any, report: Report) -> None:
    page.select_option("#gallery-dataset", "benzene")
    gallery = embedded(report, "gallery-benzene")
    molecule = gallery["molecules"][0]
    place = next(k for k, m in enumerate(gallery["methods"]) if m["name"] == "nice")
    scores = molecule["scores"][place]
    best = max(range(len(scores)), key=lambda bond: scores[bond])
    figure = page.locator(".molecule").first.locator("figure[data-method='nice']")
    colours = figure.locator(f".band.bond-{best}").evaluate_all(
        "found => found.map(band => band.style.stroke)"
    )
    assert colours[-1] == "rgb(213, 94, 0)"  # on top of its outline, if it is true
    outlined = figure.locator(".band").evaluate_all(
        "found => found.filter(band => band.style.stroke === 'rgb(0, 158, 115)').length"
    )
    assert outlined == len(molecule["true"])


def test_link_to_a_folded_table_unfolds_it(page: Any) -> None:
    table = page.locator("#table-ranks-gin")
    assert table.get_attribute("open") is None
    page.locator("a[href='#table-ranks-gin']").click()
    page.wait_for_selector("#table-ranks-gin[open]")
    assert table.locator("table").is_visible()


def test_page_is_short_until_it_is_unfolded(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height < 12_000
    assert page.locator("#claims .badge").first.bounding_box()["y"] < 900
    assert page.locator("#headline").bounding_box()["y"] < 900
    assert not page.locator("#source-table").is_visible()
    unfold(page)
    assert page.evaluate("document.documentElement.scrollHeight") > height
    assert page.locator("#source-table").is_visible()


@pytest.mark.parametrize("width", [420, 768])
def test_narrow_window_scrolls_no_further_than_its_width(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    unfold(page)
    for name in DATASETS:
        page.select_option("#gallery-dataset", name)
        size = page.evaluate(
            "[document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]"
        )
        assert size[0] <= size[2]
        assert size[1] <= size[2]
    outside = page.evaluate("""() => [...document.querySelectorAll("body *")]
        .filter((found) => !found.closest(".scroll, .skip, svg"))
        .filter((found) => found.getBoundingClientRect().right > innerWidth + 1)
        .map((found) => found.outerHTML.slice(0, 80))""")
    assert outside == []


def test_text_is_dark_on_white(page: Any) -> None:
    def contrast(first: list[float], second: list[float]) -> float:
        def light(colour: list[float]) -> float:
            parts = [c / 255 for c in colour]
            parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        high, low = sorted((light(first), light(second)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    colours = page.evaluate("""() => {
        const plain = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
        const seen = {};
        for (const found of document.querySelectorAll("p, li, td, th, a, figcaption, h2, .badge")) {
            const style = getComputedStyle(found);
            const own = style.backgroundColor !== "rgba(0, 0, 0, 0)";
            const pair = [plain(style.color), own ? plain(style.backgroundColor) : [255, 255, 255]];
            seen[JSON.stringify(pair)] = pair;
        }
        return Object.values(seen);
    }""")
    assert len(colours) > 3
    for text, behind in colours:
        assert contrast(text, behind) >= 4.5


def test_page_opens_without_scripts(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(address)
    assert opened.locator("#table-quality-f1-paper-gin table tbody tr").count() > 3
    assert opened.locator(".claims > li").count() > 15
    context.close()


def test_screenshot_is_not_blank(page: Any, tmp_path: Path) -> None:
    page.locator("#gallery").scroll_into_view_if_needed()
    picture = page.screenshot(path=tmp_path / "page.png")
    assert len(picture) > 20_000
