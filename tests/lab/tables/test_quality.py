"""Tables of quality, of gaps and of confidence against numbers worked out by hand."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from nicegnn.errors import ConfigError, StoreError
from nicegnn_lab.metrics import MetricError
from nicegnn_lab.tables.quality import (
    all_quality_tables,
    confidence_table,
    gap_table,
    parts_by_confidence,
    quality_table,
)
from nicegnn_lab.tables.table import Table
from tests.lab.tables.synthetic_rows import bench_rows, joined

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
    table = quality_table(ROWS, "roc_auc")
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
    rows = bench_rows(values, metric="fid_minus", protocol="em", level=0.3)
    table = quality_table(rows, "fid_minus", "em")
    assert bold(table) == {("saliency", "benzene")}
    assert table.title.startswith("Fid- in percent (lower is better), removal em")


def test_chosen_explainers_come_in_the_order_given() -> None:
    names = ["nice", "pgexplainer+nc", "random", "pgexplainer"]
    table = quality_table(ROWS, "roc_auc", explainers=names)
    assert [row[0] for row in table.rows] == ["nice", "pgexplainer+nc", "pgexplainer", "random"]
    assert cells(table)["pgexplainer+nc"][1] == "100.0"  # the paper has no value of it


def test_the_paper_is_quoted_only_for_its_own_protocol_and_target() -> None:
    values = {("benzene", "nice+both", 0): [0.5]}
    for given in ({"protocol": "strict"}, {"target": "gcn"}):
        table = quality_table(bench_rows(values, **given), "roc_auc", **given)
        assert table.rows[0][2] == "50.0"
        assert "brackets; best" not in table.notes[0]


def test_stand_ins_are_marked_by_their_rows() -> None:
    values = {(name, "nice+both", 0): [0.5] for name in ("benzene", "indole")}
    table = quality_table(bench_rows(values, stand_ins=["indole"]), "roc_auc")
    assert table.columns[2:4] == ["benzene", "indole (stand-in)"]
    assert "stand-in for B-XAIC" in table.notes[-1]
    assert "stand-in" not in " ".join(quality_table(bench_rows(values), "roc_auc").notes)


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


def test_errors_name_what_there_is() -> None:
    with pytest.raises(StoreError, match="paper"):
        quality_table(ROWS, "roc_auc", protocol="strict")
    with pytest.raises(MetricError, match="roc_auc"):
        quality_table(ROWS, "beauty")
    with pytest.raises(ConfigError, match="pgexplainer"):
        quality_table(ROWS, "roc_auc", explainers=["nobody"])


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
    auc, f1_rows = (
        bench_rows(numbers, metric=metric, stand_ins=["benzene"])
        for numbers, metric in ((values, "roc_auc"), (f1, "f1"))
    )
    table = gap_table(joined(auc, f1_rows))
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


#: Six graphs; graph 6 was explained too, but its confidence is not known.
GRAPHS = [3, 1, 4, 0, 5, 9, 6]
VALUES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0]
SURE = {3: 0.5, 1: 0.6, 4: 0.9, 0: 0.8, 5: 1.0, 9: 0.95, 7: 0.1}  # 7 was not explained


def confidence(target: str = "gin", setting: str = "clean") -> pd.DataFrame:
    """Rows of study ``mechanisms``."""
    rows = bench_rows(
        {("benzene", "", 0): list(SURE.values())},
        metric="confidence",
        protocol="",
        target=target,
        graph=list(SURE),
    )
    return rows.assign(study="mechanisms", setting=setting)


EXPLAINED = joined(
    bench_rows({("benzene", "saliency+em", 0): VALUES}, graph=GRAPHS),
    bench_rows({("benzene", "saliency+em", 1): [v + 0.2 for v in VALUES]}, graph=GRAPHS),
    bench_rows({("benzene", "random+", 0): VALUES[::-1]}, graph=GRAPHS),
)


def test_thirds_by_hand() -> None:
    """In order of confidence: 3 1, 0 4, 9 5; seeds are averaged first."""
    parts = parts_by_confidence(EXPLAINED, confidence())
    mine = parts[parts["explainer"] == "saliency"].sort_values("part")
    assert mine["value"].tolist() == pytest.approx([0.25, 0.45, 0.65])
    assert mine["confidence"].tolist() == pytest.approx([0.55, 0.85, 0.975])
    assert mine["num_graphs"].tolist() == [2, 2, 2]


def test_table_shows_both_ends_and_the_change() -> None:
    table = confidence_table(EXPLAINED, confidence())
    assert [list(row) for row in table.rows] == [
        ["saliency", "25.0, 65.0", "+40.0"],
        ["random", "30.0, 25.0", "-5.0"],
    ]
    assert "benzene 55.0 and 97.5" in table.notes[0]


def test_other_targets_and_settings_tell_nothing() -> None:
    for wrong in (confidence(target="gcn"), confidence(setting="em/gt")):
        with pytest.raises(StoreError, match="nicegnn lab experiment mechanisms"):
            parts_by_confidence(EXPLAINED, wrong)
