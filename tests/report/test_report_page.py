"""The page of real rows: it needs nothing from outside, and every number in it is in the rows."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from nicegnn.bench import read_rows
from nicegnn.bench.scores import KIND
from nicegnn.bench.study_rows import write_part
from nicegnn.cli.main import app
from nicegnn.datasets import MissingDataError, MoleculeDataset
from nicegnn.errors import ConfigError, StoreError
from nicegnn.report import GalleryConfig, Report, ReportConfig, Verdict, make_report
from nicegnn.report import tables as report_tables
from nicegnn.report.figures import read_pictures, title_of
from nicegnn.report.html import data_html, table_html
from nicegnn.report.parts import Parts
from nicegnn.report.tables import SourceFinder
from nicegnn.store import load_tensors
from nicegnn.tables.table import Table
from tests.report.small_report import (
    DATASETS,
    EXPLAINERS,
    embedded,
    load,
    make_bench,
    make_page,
    make_world,
)

PNG = bytes.fromhex("89504e470d0a1a0a")


@pytest.fixture(scope="module")
def page() -> Report:
    return make_page()


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rows = read_rows(make_bench())
    return rows.astype({name: str for name in rows if rows[name].dtype == "category"})


class Reader(HTMLParser):
    """Checks that tags are closed; keeps addresses, ids, and the cells of tables."""

    void = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tables: dict[str, list[list[dict[str, str]]]] = {}
        self._figure = ""
        self._row: list[dict[str, str]] | None = None
        self._cell: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        names = ("src", "href", "action", "srcset", "poster", "data")
        self.addresses += [given[name] for name in names if name in given]
        self.ids += [given["id"]] if "id" in given else []
        if tag not in self.void:
            self.open.append(tag)
        if tag == "figure":
            self._figure = given.get("id", "")
        if tag == "tr":
            self._row = []
        if tag in ("td", "th"):
            self._cell = {"source": given.get("data-source", ""), "text": ""}

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell["text"] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th") and self._row is not None and self._cell is not None:
            self._row.append(self._cell)
            self._cell = None
        if tag == "tr" and self._row is not None:
            self.tables.setdefault(self._figure, []).append(self._row)
            self._row = None
        if tag == "figure":
            self._figure = ""


@pytest.fixture(scope="module")
def read(page: Report) -> Reader:
    reader = Reader()
    reader.feed(page.html)
    return reader


def test_page_is_whole_and_asks_nothing_from_outside(page: Report, read: Reader) -> None:
    assert read.open == []
    assert len(read.ids) == len(set(read.ids))
    for address in read.addresses:
        assert address.startswith(("#", "data:")), address
        if address.startswith("#"):
            assert address[1:] in read.ids
    assert "@import" not in page.html
    assert not re.search(r"url\((?!['\"]?data:)", page.html)
    assert set(re.findall(r"https?://[^\"'\s<]+", page.html)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page.html


def mean_and_std(rows: pd.DataFrame) -> tuple[float, float]:
    by_seed = rows.astype({"value": "float64"}).groupby("seed")["value"].mean()
    return float(by_seed.mean()), float(by_seed.std())


def of_source(rows: pd.DataFrame, source: dict[str, Any]) -> pd.DataFrame:
    names = ("dataset", "target", "explainer", "mechanism")
    for name in names:
        rows = rows[rows[name] == source[name]]
    return rows


def test_every_mean_is_that_of_the_rows(page: Report, rows: pd.DataFrame) -> None:
    data = embedded(page, "results")
    assert data["datasets"] == list(DATASETS)
    assert len(data["cells"]) > 100
    for source, protocol, metric, mean, std, seeds, graphs, undefined in data["cells"]:
        some = of_source(rows, data["sources"][source])
        some = some[some["protocol"] == data["protocols"][protocol]]
        some = some[some["metric"] == data["metrics"][metric]["name"]]
        expected = mean_and_std(some)
        assert mean == pytest.approx(expected[0], rel=1e-5)
        assert std == pytest.approx(expected[1], rel=1e-4, abs=1e-9)
        assert seeds == 2
        assert graphs == some.loc[some["graph"] >= 0, "graph"].nunique()
        assert undefined == some["value"].isna().sum()


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
            some = of_source(rows, sources[int(cell["source"])])
            some = some[(some["protocol"] == found[2]) & (some["metric"] == metric)]
            mean, std = mean_and_std(some)
            assert cell["text"].startswith(f"{100 * mean:.1f} ± {100 * std:.1f}")
            checked += 1
    assert checked > 90


def test_all_numbers_of_quality_tables_name_their_source(read: Reader) -> None:
    tables = {name: t for name, t in read.tables.items() if name.startswith("table-quality")}
    assert len(tables) >= 11
    for lines in tables.values():
        head = [cell["text"] for cell in lines[0]]
        for line in lines[1:]:
            for heading, cell in zip(head, line, strict=True):
                is_number = bool(re.match(r"\d", cell["text"]))
                assert bool(cell["source"]) == (heading in DATASETS and is_number)


def test_sources_are_files_that_exist(page: Report) -> None:
    sources = embedded(page, "results")["sources"]
    assert len(sources) == len(DATASETS) * len(EXPLAINERS)
    for source in sources:
        assert source["seeds"] == [0, 1]
        for key in source["rows"]:
            assert (make_bench() / "rows" / f"{key}.parquet").is_file()
            assert key in page.html.partition('id="source-table"')[2]
        for key in source["scores"]:
            assert (make_bench() / "scores" / f"{key}.safetensors").is_file()


def test_gallery_shows_the_stored_scores(page: Report, rows: pd.DataFrame) -> None:
    assert embedded(page, "gallery") == list(DATASETS)
    for name in DATASETS:
        gallery, part = embedded(page, f"gallery-{name}"), load(name).test
        assert 0 < len(gallery["molecules"]) <= 4
        methods = gallery["methods"]
        assert {m["method"] for m in methods} == set(EXPLAINERS) - {"ground-truth"}
        assert {"nice", "nice: gate ρ*", "nice: attribution"} <= {m["name"] for m in methods}
        for place, method in enumerate(methods):
            path = make_bench() / "scores" / f"{method['file']}.safetensors"
            tensors, described = load_tensors(path, KIND)
            assert described["identity"]["dataset"] == name
            assert described["identity"]["seed"] == gallery["seed"] == 0
            key = {"gate ρ*": "bond_gate", "attribution": "bond_big"}.get(
                method["name"].partition(": ")[2], "bond_score"
            )
            for molecule in gallery["molecules"]:
                number = tensors["positions"].tolist().index(molecule["n"])
                first, last = tensors["bond_ptr"][number : number + 2].tolist()
                np.testing.assert_allclose(
                    molecule["scores"][place], tensors[key][first:last].numpy(), rtol=6e-4
                )
                check_molecule(molecule, part)
                check_values(molecule, method, place, gallery, rows)


def check_molecule(molecule: dict[str, Any], part: MoleculeDataset) -> None:
    data = part[molecule["n"]]
    bonds = torch.tensor(molecule["bonds"]).view(-1, 3)
    assert torch.equal(bonds[:, :2].sort(1).values, data.edge_index.t()[::2].sort(1).values)
    assert molecule["true"] == data.edge_truth[::2].nonzero().view(-1).tolist()
    assert molecule["smiles"] == data.smiles
    assert molecule["chem"] == int(bool(data.smiles))
    assert len(molecule["xy"]) == 2 * data.num_nodes
    assert molecule["y"] == int(data.y) == 1


def check_values(
    molecule: dict[str, Any],
    method: dict[str, Any],
    place: int,
    gallery: dict[str, Any],
    rows: pd.DataFrame,
) -> None:
    if not method["score"]:
        assert molecule["values"][place] is None
        return
    some = rows[(rows["dataset"] == gallery["title"]) & (rows["graph"] == molecule["n"])]
    explainer, _, mechanism = method["method"].partition("+")
    some = some[(some["explainer"] == explainer) & (some["seed"] == 0)]
    own = {"nice": "both", "nice-paper": "nc", "random": ""}.get(explainer, "em")
    some = some[some["mechanism"] == (mechanism or own)]
    number = 0
    for protocol in gallery["protocols"]:
        for metric in gallery["metrics"]:
            one = some[(some["protocol"] == protocol) & (some["metric"] == metric)]["value"]
            shown = molecule["values"][place][number]
            if len(one) == 0 or one.isna().all():
                assert shown is None
            else:
                assert shown == pytest.approx(float(one.iloc[0]), rel=1e-3)
            number += 1


def test_molecules_are_drawn_at_random_but_always_the_same(page: Report) -> None:
    config = ReportConfig(make_bench(), gallery=GalleryConfig(molecules=4))
    again = make_report(config, parts=Parts(load))
    assert again.html == page.html
    other = ReportConfig(make_bench(), gallery=GalleryConfig(molecules=4, draw=1))
    numbers = [
        [m["n"] for m in embedded(report, "gallery-benzene")["molecules"]]
        for report in (page, make_report(other, tables=[], parts=Parts(load)))
    ]
    assert numbers[0] != numbers[1]
    assert numbers[0] == sorted(numbers[0])


def test_page_stays_small_with_many_datasets_and_methods(page: Report) -> None:
    gallery = embedded(page, "gallery-benzene")
    molecule = max(gallery["molecules"], key=lambda m: len(m["bonds"]))
    bonds = len(molecule["bonds"]) / 3
    score_size = max(len(json.dumps(s)) / bonds for s in molecule["scores"])
    plain = len(json.dumps({k: v for k, v in molecule.items() if k != "scores"})) / bonds
    largest = 60 * (plain + 20 * score_size)  # 60 bonds, 20 methods
    assert 8 * GalleryConfig().molecules * largest < 12e6
    assert page.num_bytes < 1e6


def test_claims_are_judged_on_real_rows(page: Report) -> None:
    verdicts = {claim.name: finding.verdict for claim, finding in page.claims}
    for name in ("rank", "rank-as-written", "margin", "precision", "nc-for-rivals", "boundary"):
        assert verdicts[name] is not Verdict.MISSING, name
    for name in ("big", "big-ours", "random-row"):
        assert verdicts[name] is not Verdict.MISSING, name
    assert verdicts["scale"] is Verdict.MISSING
    assert "nicegnn experiment scale_study" in page.html
    assert unescape(page.html).count('class="badge"') == len(page.claims)


def test_auc_of_attributions_is_what_the_rows_say_where_they_are_the_score(
    page: Report, rows: pd.DataFrame
) -> None:
    finding = next(finding for claim, finding in page.claims if claim.name == "big")
    assert finding.table is not None
    for dataset, _, _, big, *_ in finding.table.rows:  # nice-paper ranks by BIG
        some = rows[(rows["dataset"] == dataset) & (rows["explainer"] == "nice-paper")]
        some = some[(some["protocol"] == "paper") & (some["metric"] == "roc_auc")]
        assert float(big) == pytest.approx(100 * mean_and_std(some)[0], abs=0.051)


def test_page_is_made_without_the_data_and_says_what_is_missing() -> None:
    def refuse(name: str) -> MoleculeDataset:
        raise MissingDataError(f"{name} is not here")

    report = make_report(ReportConfig(make_bench()), tables=[], parts=Parts(refuse))
    assert set(report.problems) == set(DATASETS)
    assert "benzene is not here" in embedded(report, "gallery-benzene")["problem"]
    verdicts = {claim.name: finding.verdict for claim, finding in report.claims}
    assert verdicts["rank"] is not Verdict.MISSING
    assert verdicts["big"] is Verdict.MISSING


def test_other_data_are_not_drawn() -> None:
    other = load("benzene").train  # other graphs under the same name

    report = make_report(ReportConfig(make_bench()), tables=[], parts=Parts(lambda _: other))
    assert "not those that were explained" in report.problems["benzene"]


def test_folder_without_rows_and_wrong_names_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn bench"):
        make_report(ReportConfig(tmp_path))
    with pytest.raises(ConfigError, match="must be a folder"):
        ReportConfig(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"\['gin'\] \(got 'gcn'\)"):
        make_report(ReportConfig(make_bench(), target="gcn"), parts=Parts(load))
    with pytest.raises(ConfigError, match="at least 0"):
        GalleryConfig(molecules=-1)
    report = make_report(
        ReportConfig(make_bench(), gallery=GalleryConfig(seed=7)), tables=[], parts=Parts(load)
    )
    assert "seed 7" in report.problems["benzene"]


def test_plain_tables_stand_in_for_missing_ones(
    monkeypatch: pytest.MonkeyPatch, rows: pd.DataFrame
) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(report_tables, "import_module", refuse)
    config = ReportConfig(make_bench(), gallery=GalleryConfig(molecules=0))
    report = make_report(config, parts=Parts(load))
    assert 'id="table-summary-f1-paper"' in report.html
    some = rows[(rows["explainer"] == "saliency") & (rows["dataset"] == "benzene")]
    some = some[(some["metric"] == "f1") & (some["protocol"] == "paper")]
    reader = Reader()
    reader.feed(report.html)
    line = next(x for x in reader.tables["table-summary-f1-paper"] if x[0]["text"] == "saliency")
    mean, std = mean_and_std(some)
    assert line[2]["text"] == f"{100 * mean:.1f} ± {100 * std:.1f}"


def test_tables_and_figures_of_the_caller_are_shown(tmp_path: Path) -> None:
    (tmp_path / "layer_scale-gin.png").write_bytes(PNG + b"0" * 100)
    (tmp_path / "layer_scale-gin.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a<b>.png").write_bytes(PNG)
    (tmp_path / "notes.txt").write_text("no picture")
    pictures = read_pictures(tmp_path)
    assert [picture.name for picture in pictures] == ["layer_scale-gin", "more-a<b>"]
    assert pictures[0].uri.startswith("data:image/svg+xml;base64,")  # the smaller file
    table = Table("mine", "My <table>", ["name", "value"], [["a", "1.5 ± 0.1"], ["b", "-"]])
    config = ReportConfig(make_bench(), figures=tmp_path, gallery=GalleryConfig(molecules=0))
    report = make_report(config, tables=[table], parts=Parts(load))
    assert "My &lt;table&gt;" in report.html
    assert 'alt="More, a&lt;b&gt;"' in report.html
    assert "quality-f1" not in report.html
    reader = Reader()
    reader.feed(report.html)
    assert sum(address.startswith("data:image/") for address in reader.addresses) == 2


def scale_rows(dataset: str) -> list[dict[str, Any]]:
    """Message scale of two graphs in two layers, halved by EM and kept by NC."""
    ratio = {"em": 0.5, "nc": 1.0}
    return [
        {
            "dataset": dataset,
            "target": "gin",
            "setting": setting,
            "level": float(graph),
            "seed": 0,
            "metric": f"{metric}@{layer}",
            "value": value**layer,
        }
        for setting, value in ratio.items()
        for metric in ("scale", "ratio")
        for layer in (1, 2)
        for graph in (0, 1)
    ]


def test_experiments_are_read_judged_and_linked(tmp_path: Path) -> None:
    pytest.importorskip("nicegnn.studies.scale")
    write_part(tmp_path, "scale_study", "benzene-gin", scale_rows("benzene"))
    write_part(tmp_path, "nobody-knows", "part", scale_rows("benzene"))
    for key in ("one", "two"):  # two runs of the same thing
        write_part(tmp_path, "ablation", key, scale_rows("benzene"))
    (tmp_path / "sensitivity").mkdir()
    (tmp_path / "sensitivity" / "broken.parquet").write_bytes(b"PAR1")
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "layer_scale.png").write_bytes(PNG)
    config = ReportConfig(
        make_bench(), experiments=tmp_path, figures=figures, gallery=GalleryConfig(molecules=0)
    )
    report = make_report(config, tables=[], parts=Parts(load))
    findings = {claim.name: finding for claim, finding in report.claims}
    assert findings["scale"].verdict is findings["depth"].verdict is Verdict.HOLDS
    assert findings["variation"].verdict is Verdict.MISSING
    assert set(report.problems) == {"ablation", "sensitivity"}
    assert "more than one run" in report.problems["ablation"]
    assert "sensitivity is left out" in report.html
    claim = report.html.partition('id="claim-scale"')[2].partition('id="claim-depth"')[0]
    assert 'href="#table-scale_study"' in claim
    assert 'href="#figure-layer_scale"' in claim
    reader = Reader()
    reader.feed(report.html)
    assert {"table-scale_study", "figure-layer_scale"} <= set(reader.ids)
    shown = {cell["text"] for cell in reader.tables["table-scale_study"][1]}
    assert {"benzene", "gin", "0.50", "0.25", "1.00"} <= shown
    assert "benzene-gin.parquet" in report.html


def test_source_of_a_number_is_found_from_its_row_and_heading() -> None:
    names = [("benzene", "nice"), ("benzene", "gnnexplainer"), ("indole", "nice")]
    names += [("benzene", "gnnexplainer+nc")]
    sources = [{"dataset": d, "target": "gin", "method": m} for d, m in names]
    find = SourceFinder(sources, "gin")
    columns = ["method", "benzene", "indole (stand-in)", "rank"]
    by_dataset = Table("a", "a", columns, [["nice", "1.0", "2.0", "3.0"]])
    assert [find(by_dataset, 0, c) for c in (1, 2, 3)] == [0, 2, None]
    columns = ["explainer", "dataset", "NC", "EM", "graphs"]
    by_mechanism = Table("b", "b", columns, [["gnnexplainer", "benzene", "1.0", "2.0", "5"]])
    assert [find(by_mechanism, 0, c) for c in (0, 2, 3)] == [None, 3, 1]
    compared = Table("c", "c", ["method", "dataset", "nice"], [["gnnexplainer", "benzene", "1.0"]])
    assert find(compared, 0, 2) == 0
    assert find(Table("d", "d", ["x", "y"], [["z", "1.0"]]), 0, 1) is None


def test_file_names_become_captions() -> None:
    assert title_of("fidelity_curve-em-benzene") == "Fidelity curve, em, benzene"
    assert read_pictures(None) == []


def test_data_cannot_end_their_element() -> None:
    text = data_html("x", {"smiles": "</script><script>alert(1)</script>"})
    assert text.count("</script>") == 1
    with pytest.raises(ValueError, match="JSON"):
        data_html("x", float("nan"))


def test_headings_of_numbers_and_of_words_stand_apart() -> None:
    rows = [["nice", "90.1 ± 0.2 (86.6)", "16 passes", "8147fe56"], ["b", "-", "1 pass", "5e77"]]
    text = table_html(Table("t", "t", ["name", "AUC", "cost", "key"], rows))
    assert text.count('<th scope="col" class="text">') == 3
    assert '<th scope="col">AUC</th>' in text


def test_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in make_world().environment.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "deep" / "report.html"
    arguments = ["report", "--rows", str(make_bench()), "--out", str(out), "--molecules", "2"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "Claims: holds" in done.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "No experiments were given" in text
    (tmp_path / "results" / "experiments").mkdir(parents=True)  # found without being asked for
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert "No experiments were given" not in out.read_text(encoding="utf-8")
    done = CliRunner().invoke(app, ["report", "--rows", str(tmp_path / "no")])
    assert done.exit_code == 1
    assert "must be a folder" in done.output
