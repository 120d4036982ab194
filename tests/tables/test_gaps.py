"""Gaps to the paper and the criterion without truth, against numbers worked out by hand."""

from __future__ import annotations

from nicegnn.tables.gaps import criterion_table, gap_table
from tests.tables.synthetic_rows import bench_rows, joined


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
    table = criterion_table(rows)
    assert [list(row) for row in table.rows] == [
        ["benzene", "+1.00", "-1.00", "+0.50", "3"],
        ["indole", "-", "-", "-", "2"],
    ]
