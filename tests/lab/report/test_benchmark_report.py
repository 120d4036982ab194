"""The page of real rows: it needs nothing from outside, and its tables and claims are the rows'."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from nicegnn.errors import ConfigError, StoreError
from nicegnn_lab.bench import Block
from nicegnn_lab.cli.main import app
from nicegnn_lab.figures.panels import panels, save, set_caption
from nicegnn_lab.paper.claims import Verdict
from nicegnn_lab.report import GalleryConfig, Report, ReportConfig, make_report
from nicegnn_lab.report.benchmark_report import (
    Picture,
    figure_title,
    headline,
    read_pictures,
    study_tables,
)
from nicegnn_lab.tables.registry import Artefact
from nicegnn_lab.tables.table import Table
from tests.lab.paper.hand_evidence import hand_evidence, hand_rows
from tests.lab.report.small_report import (
    DATASETS,
    EXPLAINERS,
    Reader,
    bench_rows,
    embedded,
    make_bench,
    make_page,
    mean_and_std,
)
from tests.lab.tables.synthetic_rows import write_study

PNG = bytes.fromhex("89504e470d0a1a0a")


@pytest.fixture(scope="module")
def page() -> Report:
    return make_page()


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return bench_rows()


def read_page(report: Report) -> Reader:
    reader = Reader()
    reader.feed(report.html)
    return reader


@pytest.fixture(scope="module")
def read(page: Report) -> Reader:
    return read_page(page)


def test_page_is_whole_and_asks_nothing_from_outside(page: Report, read: Reader) -> None:
    assert read.open == []
    assert len(read.ids) == len(set(read.ids))
    for address in read.addresses:
        assert address.startswith(("#", "data:")), address
        if address.startswith("#"):
            assert address[1:] in read.ids, address
    assert "@import" not in page.html
    assert not re.search(r"url\((?!['\"]?data:)", page.html)
    assert set(re.findall(r"https?://[^\"'\s<\\]+", page.html)) <= {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page.html
    assert page.html.startswith("<!doctype html>")


def test_every_number_of_a_quality_table_is_in_the_rows(
    page: Report, read: Reader, rows: pd.DataFrame
) -> None:
    sources, checked = embedded(page, "results")["sources"], 0
    for name, lines in read.tables.items():
        found = re.fullmatch(r"table-quality-(.+)-(paper|strict|em)-gin", name)
        if not found:
            continue
        metric = found[1].replace("-", "_")
        for cell in (cell for line in lines for cell in line if cell["source"]):
            source = sources[int(cell["source"])]
            some = rows
            for column in ("dataset", "target", "explainer", "mechanism"):
                some = some[some[column] == source[column]]
            some = some[(some["protocol"] == found[2]) & (some["metric"] == metric)]
            mean, std = mean_and_std(some)
            assert cell["text"].startswith(f"{100 * mean:.1f} ± {100 * std:.1f}")
            checked += 1
    assert checked > 90


def test_every_number_of_a_quality_table_has_a_source(read: Reader) -> None:
    tables = {name: t for name, t in read.tables.items() if name.startswith("table-quality")}
    assert len(tables) >= 11
    for lines in tables.values():
        head = [cell["text"] for cell in lines[0]]
        for line in lines[1:]:
            for heading, cell in zip(head, line, strict=True):
                is_number = bool(re.match(r"\d", cell["text"]))
                assert bool(cell["source"]) == (heading in DATASETS and is_number)


def test_first_screen_has_the_best_methods_with_their_means(
    read: Reader, rows: pd.DataFrame
) -> None:
    head, *lines = read.tables["headline"]
    assert [cell["text"] for cell in head][:3] == ["method", "by truth", "by fidelity"]
    shown = {line[0]["text"]: line for line in lines}
    assert {"nice", "nice-paper"} <= set(shown)
    ranks = [float(line[3]["text"]) for line in lines]
    assert ranks == sorted(ranks)
    some = rows[(rows["explainer"] == "saliency") & (rows["metric"] == "roc_auc")]
    some = some[some["protocol"] == "paper"]
    means = [mean_and_std(some[some["dataset"] == name])[0] for name in DATASETS]
    assert shown["saliency"][4]["text"] == f"{100 * sum(means) / 2:.1f}"


def test_headline_keeps_the_best_rivals_and_all_of_ours() -> None:
    rivals = ["saliency", "guided-backprop", "gnnexplainer", "pgexplainer", "refine", "subgraphx"]
    means = {name: {"benzene": 0.9 - 0.1 * place} for place, name in enumerate(rivals)}
    means |= {"nice": {"benzene": 0.05}, "nice-paper": {"benzene": 0.01}}
    metrics = [("f1", "paper"), ("recall", "paper"), ("roc_auc", "paper")]
    metrics += [("kept_area", "em"), ("kept_area", "nc")]
    found = [row for metric, protocol in metrics for row in hand_rows(means, metric, protocol)]
    table = headline(hand_evidence(found))
    assert [line[0] for line in table.rows] == [*rivals[:5], "nice", "nice-paper"]
    assert table.rows[0][1:5] == ["1.00", "1.00", "1.00", "90.0"]
    assert "Best of 8 methods on 1 dataset(s)" in table.title
    assert headline(hand_evidence(hand_rows(means))).rows == []  # nothing can be ranked


def test_claims_are_judged_by_rows_alone(page: Report) -> None:
    verdicts = {claim.name: finding.verdict for claim, finding in page.claims}
    for name in ("rank", "rank-ours", "margin", "precision", "nc-for-rivals", "random-row"):
        assert verdicts[name] is not Verdict.MISSING, name
    for name in ("boundary", "big"):
        assert verdicts[name] is not Verdict.MISSING, name
    assert verdicts["scale"] is Verdict.MISSING
    assert "nicegnn lab experiment scale" in page.html
    assert page.html.count('class="badge ') == len(page.claims)


def test_auc_of_attributions_is_what_the_rows_say_where_they_are_the_score(
    page: Report, rows: pd.DataFrame
) -> None:
    finding = next(finding for claim, finding in page.claims if claim.name == "big")
    assert finding.numbers is not None
    assert [row[0] for row in finding.numbers.rows] == list(DATASETS)
    for dataset, _, big, *_ in finding.numbers.rows:  # nice-paper ranks by BIG
        some = rows[(rows["dataset"] == dataset) & (rows["explainer"] == "nice-paper")]
        some = some[(some["protocol"] == "paper") & (some["metric"] == "roc_auc")]
        assert float(big) == pytest.approx(100 * mean_and_std(some)[0], abs=0.051)


def test_the_same_rows_give_the_same_page(page: Report) -> None:
    again = make_report(ReportConfig(make_bench(), gallery=GalleryConfig(molecules=4)))
    assert again.html == page.html


def test_page_needs_no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: Report) -> None:
    for name in ("NICEGNN_DATA", "NICEGNN_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    again = make_report(ReportConfig(make_bench(), gallery=GalleryConfig(molecules=4)))
    assert again.html == page.html
    assert again.problems == {}


def test_wrong_folders_and_targets_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn lab bench"):
        make_report(ReportConfig(tmp_path))
    with pytest.raises(ConfigError, match=r"`rows` must be a folder that exists \(got"):
        ReportConfig(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"\['gin'\] \(got 'gcn'\)"):
        make_report(ReportConfig(make_bench(), target="gcn"))


def scale_blocks() -> list[Block]:
    """Message scale in two layers, halved by EM and kept by NC."""
    return [
        Block(metric, value**layer, setting=setting, level=float(layer), graph=None)
        for setting, value in (("em", 0.5), ("nc", 1.0))
        for metric in ("scale", "ratio", "ratio_fixed")
        for layer in (1, 2)
    ]


def test_studies_are_judged_shown_and_linked(tmp_path: Path) -> None:
    studies = tmp_path / "studies"
    write_study(studies, "scale", scale_blocks())
    write_study(studies, "nobody-knows", scale_blocks())
    (studies / "sensitivity").mkdir()
    (studies / "sensitivity" / "packed.parquet").write_bytes(b"PAR1")
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "layer-scale.png").write_bytes(PNG)
    config = ReportConfig(
        make_bench(), studies=studies, figures=figures, gallery=GalleryConfig(molecules=0)
    )
    report = make_report(config)
    findings = {claim.name: finding for claim, finding in report.claims}
    assert findings["scale"].verdict is findings["depth"].verdict is Verdict.HOLDS
    assert findings["variation"].verdict is Verdict.MISSING
    assert set(report.problems) == {"sensitivity"}
    assert "sensitivity is left out" in report.html
    claim = report.html.partition('id="claim-scale"')[2].partition('id="claim-depth"')[0]
    read = read_page(report)
    (table,) = [name for name in read.tables if name.startswith("table-scale")]
    assert f'href="#{table}"' in claim
    assert 'href="#figure-layer-scale"' in claim
    assert "figure-layer-scale" in read.ids
    shown = {cell["text"] for cell in read.tables[table][1]}
    assert {"benzene", "gin", "0.50", "0.25", "1.00"} <= shown


def test_tables_that_share_a_file_have_anchors_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables = [Table(name, name, ["x"], [["1"]]) for name in ("a", "b", "a", "a")]
    made = Artefact("several", lambda sources: tables, ("scale",))
    monkeypatch.setattr("nicegnn_lab.report.benchmark_report.TABLES", {"several": made})
    config = ReportConfig(tmp_path, studies=tmp_path)
    found = study_tables(config, hand_evidence(studies={"scale": []}))
    assert [table.name for table in found["several"]] == ["a", "b", "a-1", "a-2"]
    assert study_tables(config, hand_evidence()) == {}  # there are no rows of the study


def test_pictures_are_the_smaller_files_of_each_name(tmp_path: Path) -> None:
    (tmp_path / "scale-gin.png").write_bytes(PNG + b"0" * 100)
    (tmp_path / "scale-gin.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("no picture")
    first, second = read_pictures(tmp_path)
    assert (first.name, second.name) == ("more-a", "scale-gin")
    assert second.uri.startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(first.uri.partition(",")[2]) == PNG
    assert first.caption == ""
    assert read_pictures(None) == []


def test_caption_comes_out_of_the_file(tmp_path: Path) -> None:
    figure, _ = panels(1)
    set_caption(figure, "What it shows.")
    save(figure, tmp_path, "scale")
    (picture,) = read_pictures(tmp_path)
    assert picture.caption == "What it shows."


def test_pictures_have_the_titles_of_their_figures() -> None:
    def title(name: str) -> str:
        return figure_title(Picture(name, "", ""))

    assert title("layer-scale") == "Message scale per layer, datasets by backbones"
    assert title("fidelity-em") == "Fidelity curves, best 10 to 90 percent: em"
    assert title("my_own-drawing") == "My own drawing"


def test_everything_that_is_told_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "a<b>.png").write_bytes(PNG)
    config = ReportConfig(make_bench(), figures=tmp_path, gallery=GalleryConfig(molecules=0))
    html = make_report(config).html
    assert 'alt="A&lt;b&gt;"' in html
    assert "a<b>" not in html


def test_page_stays_small(page: Report) -> None:
    assert page.num_bytes < 1e6
    assert len(embedded(page, "results")["sources"]) == len(DATASETS) * len(EXPLAINERS)


def test_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "deep" / "report.html"
    arguments: list[Any] = ["report", "--rows", make_bench(), "--out", out, "--molecules", "2"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [str(word) for word in arguments])
    assert done.exit_code == 0, done.output
    assert "Claims: holds" in done.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "No studies were given" in text
    write_study(tmp_path / "results" / "studies", "scale", scale_blocks())  # found unasked
    assert CliRunner().invoke(app, [str(word) for word in arguments]).exit_code == 0
    assert "No studies were given" not in out.read_text(encoding="utf-8")
    done = CliRunner().invoke(app, ["report", "--rows", str(tmp_path / "no")])
    assert isinstance(done.exception, ConfigError)
