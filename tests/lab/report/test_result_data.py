"""Means for the page are those of the rows, with ranks, values of the paper, and their sources."""

from __future__ import annotations

import pytest

from nicegnn_lab.bench.rows import Folder, finished_cells
from nicegnn_lab.paper.evidence import read_evidence
from nicegnn_lab.report.result_data import (
    Source,
    SourceFinder,
    about_metric,
    about_protocol,
    facts_of_run,
    find_sources,
    result_data,
)
from nicegnn_lab.tables.table import Table
from tests.lab.paper.hand_evidence import hand_evidence, hand_rows
from tests.lab.report.small_report import (
    DATASETS,
    EXPLAINERS,
    bench_rows,
    embedded,
    make_bench,
    make_page,
    mean_and_std,
)


def test_every_mean_is_that_of_the_rows() -> None:
    data, rows = embedded(make_page(), "results"), bench_rows()
    assert data["datasets"] == list(DATASETS)
    assert len(data["cells"]) > 100
    for source, protocol, metric, mean, std, seeds, graphs, undefined in data["cells"]:
        some = rows
        for name in ("dataset", "target", "explainer", "mechanism"):
            some = some[some[name] == data["sources"][source][name]]
        some = some[some["protocol"] == data["protocols"][protocol]]
        name, _, share = data["metrics"][metric]["name"].partition("@")
        some = some[some["metric"] == name]
        some = some[some["level"] == float(share)] if share else some
        expected = mean_and_std(some)
        assert mean == pytest.approx(expected[0], rel=1e-5)
        assert std == pytest.approx(expected[1], rel=1e-4, abs=1e-9)
        assert seeds == 2
        assert graphs == some.loc[some["graph"] >= 0, "graph"].nunique()
        assert undefined == some["value"].isna().sum()


def test_ranks_and_values_of_the_paper() -> None:
    means = {"nice": {"benzene": 0.9}, "saliency": {"benzene": 0.5}, "random": {"benzene": 1.0}}
    rows = [{**row, "stand_in": True} for row in hand_rows(means)] + hand_rows(
        {"nice": {"benzene": 0.3}}, "kept@0.1", "em"
    )
    sources = [
        Source("benzene", "gin", "nice", "both", (0,), ("k",), 1),
        Source("benzene", "gin", "saliency", "em", (0,), ("l",), 1),
    ]
    data = result_data(hand_evidence(rows), sources)
    names = [metric["name"] for metric in data["metrics"]]
    assert set(names) == {"roc_auc", "kept@0.1"}
    paper, auc = data["protocols"].index("paper"), names.index("roc_auc")
    assert data["ranks"][f"gin/{paper}/{auc}"] == {"nice": 1.0, "saliency": 2.0}  # random has none
    assert data["paper"]["roc_auc"]["nice"] == {"benzene": 86.62}
    em, kept = data["protocols"].index("em"), names.index("kept@0.1")
    assert [0, em, kept, 0.3, None, 1, 1, 0] in data["cells"]
    assert len(data["cells"]) == 3  # random has no source
    assert data["standIns"] == ["benzene"]


def test_metrics_and_protocols_say_what_they_are() -> None:
    assert about_metric("roc_auc")["percent"] is True
    assert about_metric("fit_seconds") == {
        "title": "Seconds of the fit",
        "better": -1,
        "percent": False,
    }
    assert about_metric("unheard-of")["title"] == "unheard-of"
    assert [about_protocol(name) for name in ("paper", "em", "")] == [
        "protocol paper",
        "removal em",
        "whole run",
    ]


def test_sources_are_cells_that_exist() -> None:
    page = make_page()
    sources = embedded(page, "results")["sources"]
    assert len(sources) == len(DATASETS) * len(EXPLAINERS)
    listed = page.html.partition('id="source-table"')[2]
    for source in sources:
        assert source["seeds"] == [0, 1]
        assert source["num_graphs"] > 0
        for key in source["keys"]:
            assert Folder(make_bench()).rows(key).is_file()
            assert key in listed


def test_facts_tell_what_was_run() -> None:
    evidence, cells = read_evidence(make_bench()), [*finished_cells(make_bench()).values()]
    facts = facts_of_run(evidence, cells)
    assert facts["datasets"] == "mutagenicity, benzene"
    assert facts["seeds"] == "0, 1"
    assert facts["finished cells"] == str(2 * len(DATASETS) * len(EXPLAINERS))
    assert facts["graphs"] == "all graphs of the test part, fitted on all training graphs"
    assert facts["data"].count(":") == len(DATASETS)
    assert "studies" not in facts  # nothing to tell
    assert len(find_sources(evidence, cells)) == len(DATASETS) * len(EXPLAINERS)


def source(dataset: str, explainer: str, mechanism: str) -> Source:
    return Source(dataset, "gin", explainer, mechanism, (0,), ("key",), 5)


def test_source_of_a_number_is_found_from_its_row_and_heading() -> None:
    sources = [
        source("benzene", "nice", "both"),
        source("benzene", "gnnexplainer", "em"),
        source("indole", "nice", "both"),
        source("benzene", "gnnexplainer", "nc"),
    ]
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
