"""Tables of quality against numbers worked out by hand."""

from __future__ import annotations

from math import nan

import pytest

from nicegnn.errors import ConfigError, StoreError
from nicegnn.metrics import MetricError
from nicegnn.tables.methods import Method, methods_in, stand_ins
from nicegnn.tables.quality import all_quality_tables, criterion_table, gap_table, quality_table
from nicegnn.tables.table import Table
from tests.tables.synthetic_rows import bench_rows, joined

ROWS = bench_rows(
    {
        ("benzene", "pgexplainer+em", 0): [0.8, 0.6],  # 0.7
        ("benzene", "pgexplainer+em", 1): [0.9, nan],  # 0.9: mean 0.8, deviation sqrt(0.02)
        ("benzene", "nice+both", 0): [1.0, 0.8],  # 0.9, one seed
        ("benzene", "random+", 0): [1.0, 0.98],  # 0.99, not ranked
        ("benzene", "confexplainer-supervised+em", 0): [0.95, 0.95],  # not ranked
        ("benzene", "pgexplainer+nc", 0): [1.0, 1.0],  # not its own mechanism
        ("indole", "pgexplainer+em", 0): [0.6, 0.6],
        ("indole", "saliency+em", 0): [0.5, 0.5],
        ("indole", "integrated-gradients+em", 0): [nan, nan],
    }
)


PROTOCOLS = ("paper", "strict")


def cells(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


def bold(table: Table) -> set[tuple[str, str]]:
    return {(table.rows[r][0], table.columns[c]) for r, c in table.best}


def test_means_deviations_paper_values_ranks_and_bold() -> None:
    table = quality_table(ROWS, "roc_auc", marked=())
    assert table.columns == ["method", "group", "benzene", "indole", "rank (of 4)"]
    assert cells(table) == {
        "saliency": ["rival", "- (64.2)", "50.0 (66.3)", "2.00 (1)"],
        "integrated-gradients": ["rival", "-", "nan", "-"],
        "pgexplainer": ["rival", "80.0 ± 14.1 (76.4)", "60.0 (63.8)", "1.50 (2)"],
        "nice": ["ours", "90.0 (86.6)", "- (82.9)", "1.00 (1)"],
        "confexplainer-supervised": ["supervised", "95.0", "-", "-"],
        "random": ["reference", "99.0 (51.9)", "- (49.9)", "-"],
    }
    assert [row[0] for row in table.rows][-2:] == ["confexplainer-supervised", "random"]
    assert bold(table) == {("nice", "benzene"), ("pgexplainer", "indole")}
    assert "1 to 2 seed(s)" in table.notes[0]
    assert "benzene 2, indole 2" in table.notes[1]
    assert "pgexplainer on indole (1)" in table.notes[2]


def test_equal_bests_are_all_bold_and_share_their_rank() -> None:
    rows = bench_rows(
        {
            ("benzene", "saliency+em", 0): [0.5],
            ("benzene", "pgexplainer+em", 0): [0.75],
            ("benzene", "nice+both", 0): [0.75],
        }
    )
    table = quality_table(rows, "roc_auc")
    assert bold(table) == {("pgexplainer", "benzene"), ("nice", "benzene")}
    assert [row[-1] for row in table.rows] == ["3.00 (1)", "1.50 (1)", "1.50 (1)"]


def test_low_is_best_where_the_metric_says_so() -> None:
    values = {("benzene", "saliency+em", 0): [0.1], ("benzene", "nice+both", 0): [0.4]}
    rows = bench_rows(values, metric="fid_minus@0.3", protocol="em")
    table = quality_table(rows, "fid_minus@0.3", "em")
    assert bold(table) == {("saliency", "benzene")}
    assert table.title.startswith("Fid- at 30% of bonds in percent (lower is better), removal em")


def test_chosen_explainers_come_in_the_order_given() -> None:
    names = ["nice", "pgexplainer+nc", "random", "pgexplainer"]
    table = quality_table(ROWS, "roc_auc", explainers=names, marked=())
    assert [row[0] for row in table.rows] == ["nice", "pgexplainer+nc", "pgexplainer", "random"]
    assert cells(table)["pgexplainer+nc"][1] == "100.0"  # the paper has no value of it


def test_the_paper_is_quoted_only_for_its_own_protocol_and_target() -> None:
    values = {("benzene", "nice+both", 0): [0.5]}
    for given in ({"protocol": "strict"}, {"target": "gcn"}):
        table = quality_table(bench_rows(values, **given), "roc_auc", **given)
        assert table.rows[0][2] == "50.0"
        assert "brackets; best" not in table.notes[0]


def test_stand_ins_are_marked(monkeypatch, tmp_path) -> None:
    table = quality_table(ROWS, "roc_auc", marked=["indole"])
    assert "indole (stand-in)" in table.columns
    assert "stand-in for B-XAIC" in table.notes[-1]
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path))  # without files, what can be one is one
    assert stand_ins(["indole", "benzene", "my-own"]) == {"indole"}
    for name in ("data.csv", "explanations.sdf"):
        (tmp_path / name).touch()
    assert stand_ins(["indole"]) == set()


def test_all_tables_that_the_rows_hold() -> None:
    values = {("benzene", "nice+both", 0): [0.5]}
    rows = joined(
        *(bench_rows(values, metric=m, protocol=p) for m in ("f1", "roc_auc") for p in PROTOCOLS),
        *(bench_rows(values, metric="kept_area", protocol=p) for p in ("nc", "em")),
    )
    assert [t.name for t in all_quality_tables(rows)] == [
        "quality-f1-paper-gin",
        "quality-roc-auc-paper-gin",
        "quality-kept-area-em-gin",
        "quality-kept-area-nc-gin",
    ]
    assert len(all_quality_tables(rows, protocols=PROTOCOLS)) == 6
    assert all_quality_tables(rows, target="gat") == []


def test_gap_table_sets_large_gaps_in_bold_and_skips_what_the_paper_has_not() -> None:
    values = {
        ("benzene", "saliency+em", 0): [0.70],  # paper 64.17
        ("benzene", "saliency+em", 1): [0.72],
        ("benzene", "pgexplainer+em", 0): [0.80],  # paper 76.40
        ("benzene", "pgexplainer+nc", 0): [0.10],  # the paper has no such method
        ("benzene", "integrated-gradients+em", 0): [0.10],  # not in the paper
        ("benzene", "nice+both", 0): [0.99],  # not a rival
        ("my-own", "saliency+em", 0): [0.10],
    }
    f1 = {key: [0.50] for key in values}  # paper: saliency 47.29, pgexplainer 64.96
    table = gap_table(joined(bench_rows(values), bench_rows(f1, metric="f1")), marked=["benzene"])
    assert [list(row) for row in table.rows] == [
        [
            "saliency",
            "benzene (stand-in)",
            "71.0 ± 1.4",
            "64.2",
            "+6.8",
            "50.0 ± 0.0",
            "47.3",
            "+2.7",
        ],
        ["pgexplainer", "benzene (stand-in)", "80.0", "76.4", "+3.6", "50.0", "65.0", "-15.0"],
    ]
    assert table.columns[4] == "AUC, gap"
    assert table.best == {(0, 4), (1, 7)}


def test_criterion_is_the_rank_correlation_over_methods() -> None:
    methods = ("saliency+em", "pgexplainer+em", "pgexplainer+nc", "ground-truth+")
    auc = dict(zip(methods, (0.5, 0.6, 0.9, 1.0), strict=True))
    kept = {
        "em": dict(zip(methods, (0.1, 0.2, 0.3, 0.0), strict=True)),
        "nc": dict(zip(methods, (0.3, 0.2, 0.1, 0.0), strict=True)),
        "delete": dict(zip(methods, (0.2, 0.1, 0.3, 0.0), strict=True)),  # ranks 2 1 3: 1 - 6/12
    }
    rows = joined(
        bench_rows({("benzene", m, 0): [v] for m, v in auc.items()}),
        bench_rows({("indole", m, 0): [auc[m]] for m in methods[:2]}),
        *(
            bench_rows(
                {(d, m, 0): [v] for m, v in by.items() for d in ("benzene", "indole")},
                metric="kept_area",
                protocol=removal,
            )
            for removal, by in kept.items()
        ),
    )
    table = criterion_table(rows, marked=())
    assert cells(table) == {
        "benzene": ["+1.00", "-1.00", "+0.50", "3"],
        "indole": ["-", "-", "-", "2"],
    }


def test_methods_know_their_own_mechanism() -> None:
    assert Method("nice", "both").label == "nice"
    assert Method("nice", "em").label == "nice+em"
    assert Method("random", "").label == "random"
    assert Method("nice-paper", "nc").paper("roc_auc", "benzene") == 86.62
    assert Method("my-own", "em").group == "rival"
    variants = methods_in(ROWS, variants=True)
    assert [m.label for m in variants if m.explainer == "pgexplainer"] == [
        "pgexplainer",
        "pgexplainer+nc",
    ]


def test_errors_name_what_there_is() -> None:
    with pytest.raises(StoreError, match="paper"):
        quality_table(ROWS, "roc_auc", protocol="strict")
    with pytest.raises(MetricError, match="roc_auc"):
        quality_table(ROWS, "beauty")
    with pytest.raises(ConfigError, match="pgexplainer"):
        quality_table(ROWS, "roc_auc", explainers=["nobody"])


def test_tables_can_be_written(tmp_path) -> None:
    markdown, latex = quality_table(ROWS, "roc_auc", marked=()).save(tmp_path)
    assert "**90.0 (86.6)**" in markdown.read_text()
    assert r"\textbf{90.0 (86.6)}" in latex.read_text()
    latex.read_text().replace("±", "").encode("latin-1")  # nothing pdflatex cannot set
