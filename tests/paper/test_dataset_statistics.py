"""The table of our figures beside the paper's."""

from nicegnn.datasets import dataset_statistics
from nicegnn.paper.dataset_statistics import papers_reading, statistics_markdown
from nicegnn.paper.numbers import PAPER_STATISTICS
from tests.datasets.small_files import load, tidy_benzene, tidy_bxaic, tidy_mutagenicity


def test_shares_are_read_as_the_paper_does(tmp_path):
    tidy_benzene(tmp_path)
    tidy_bxaic(tmp_path)
    benzene, rings = (dataset_statistics(load(name, tmp_path)) for name in ("benzene", "rings-max"))
    assert papers_reading(benzene) == benzene.first
    assert papers_reading(rings) == rings.annotation


def test_table_has_every_dataset_and_says_stand_in(tmp_path):
    tidy_benzene(tmp_path)
    tidy_mutagenicity(tmp_path)
    tidy_bxaic(tmp_path)
    names = ("mutagenicity", "benzene", "indole", "X")
    text = statistics_markdown([load(name, tmp_path) for name in names])
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert [row.split("|")[1].strip() for row in rows[2:]] == [
        "mutagenicity",
        "benzene",
        "indole (stand-in for B-XAIC)",
    ]
    assert f"{PAPER_STATISTICS['benzene'].true_edges}" in rows[3]
    assert "left out: 1" in text
