"""Sources: cells behind the numbers of a page, found by row and heading."""

from __future__ import annotations

from nicegnn.bench.rows import Folder, finished_cells
from nicegnn.paper.evidence import read_evidence
from nicegnn.report.sources import Source, SourceFinder, facts_of_run, find_sources
from nicegnn.tables.table import Table
from tests.report.small_report import DATASETS, EXPLAINERS, embedded, make_bench, make_page


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
