"""Tables of the studies behind our defaults against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.studies.gates import FITS
from nicegnn_lab.studies.scores import FOUR, JOINS
from nicegnn_lab.tables.score_studies import (
    depth_table,
    ensembles_tables,
    gates_tables,
    joins_tables,
    parts_tables,
    quick_table,
    removal_tables,
    rivals_tables,
    scores_tables,
    truth_table,
)
from tests.lab.tables.synthetic_rows import with_setting, write_study


def fate(restored: float, gate: float, big: float, status: str) -> list[Block]:
    return [
        Block("restored", restored),
        Block("gate_roc_auc", gate, "strict"),
        Block("big_roc_auc", big, "strict"),
        Block("fit_status", 1.0, note=status),
        Block("num_graphs", 7.0),
    ]


def judged(auc: float, *kept: float) -> list[Block]:
    """Returns what a candidate has; it keeps as much as it needs."""
    blocks = [Block("roc_auc", auc, "paper"), Block("roc_auc", auc, "strict")]
    blocks.append(Block("f1", auc / 2, "paper"))
    for judge, value in zip(("em", "nc", "delete"), kept, strict=False):
        blocks += [Block("kept", value, judge), Block("needed", value, judge)]
    return blocks


def test_gates_are_in_the_order_of_changes(tmp_path: Path) -> None:
    for name, blocks in (
        ("order under budgets", fate(0.77, 0.93, 0.98, "ok")),
        ("paper", fate(0.65, 0.89, 0.77, "ok")),
        ("paper, start 0.05", fate(0.1, 0.11, 0.22, "inverted")),
    ):
        write_study(tmp_path, "gates", blocks, variant=Variant(name))
    write_study(tmp_path, "gates", fate(1, 1, 1, "ok"), dataset="indole", variant=Variant("paper"))
    (table,) = gates_tables(tmp_path)
    assert [list(row) for row in table.rows] == [
        ["paper", "0.65 / 89 / 77, ok", "1.00 / 100 / 100, ok"],
        ["paper, start 0.05", "0.10 / 11 / 22, inverted", "-"],
        ["order under budgets", "0.77 / 93 / 98, ok", "-"],
    ]


def test_depth_has_a_line_per_target(tmp_path: Path) -> None:
    known = list(FITS)[1:]  # nobody ran the first one
    for readout, depth in (("sum", 2), ("mean", 1)):
        blocks = []
        for fit in known:
            about = [Block("accuracy", 0.9), Block("confidence", 0.8 + depth / 100)]
            both = [*fate(depth / 10, 0.5, 0.5, "ok"), *about]
            blocks += with_setting(f"{readout}, {fit}", *both, level=float(depth))
        write_study(tmp_path, "depth", blocks, variant=Variant(readout, level=depth))
    table = depth_table(tmp_path)
    assert table.columns[5:] == known
    assert [list(row[:6]) for row in table.rows] == [
        ["benzene", "mean", "1", "90.0", "81.0", "0.10 / 50 / 50, ok"],
        ["benzene", "sum", "2", "90.0", "82.0", "0.20 / 50 / 50, ok"],
    ]


def test_criterion_chooses_a_score_and_truth_says_how_well(tmp_path: Path) -> None:
    blocks = [
        *with_setting("a: order", *judged(0.9, 0.5, 0.7)),  # criterion 0.6
        *with_setting("a: bond by bond", *judged(0.8, 0.8, 0.6)),  # criterion 0.7
        *with_setting("a: path", *judged(0.7, 0.1, 0.1)),
    ]
    write_study(tmp_path, "scores", blocks, variant=Variant("a"))
    auc, kept, told = scores_tables(tmp_path)
    assert [row[0] for row in auc.rows] == ["a: order", "a: bond by bond", "a: path"]
    assert list(kept.rows[0]) == ["a: bond by bond", "70.0", "70.0"]
    assert list(told.rows[0]) == ["benzene", "0.50", "80.0", "90.0"]


def test_joins_are_compared_with_the_default_target_by_target(tmp_path: Path) -> None:
    def rows(setting: str, auc: float, *kept: float) -> list[Block]:
        blocks = [Block("roc_auc", auc, "paper"), Block("f1", auc, "paper")]
        for removal, value in zip(("em", "nc", "delete"), kept, strict=True):
            blocks += [Block("kept", value, removal), Block("needed", 0.5, removal)]
        return with_setting(setting, *blocks)

    default, other = (" + ".join(names) for names in JOINS[:2])
    gin = [*rows(default, 0.9, 0.4, 0.6, 0.4), *rows(other, 0.8, 0.5, 0.6, 0.5)]
    gcn = [*rows(default, 0.7, 0.3, 0.3, 0.6), *rows(other, 0.8, 0.3, 0.3, 0.3)]
    for target, blocks in (("gin", gin), ("gcn", gcn)):
        write_study(tmp_path, "joins", blocks, target=target)
    (table,) = joins_tables(tmp_path)
    found = {row[0]: list(row[1:]) for row in table.rows}
    # kept: on GIN deletion is masking and counts once, 50 and 55; on GCN 40 and 30
    assert found[default] == ["45.0", "50.0", "95.0", "0.0", "0.0", "80.0", "70.0"]
    assert found[other] == ["42.5", "50.0", "92.5", "-2.5", "7.5", "80.0", "80.0"]
    assert [row[0] for row in table.rows] == [default, other]
    assert "2 targets" in table.notes[0]


def test_parts_are_ranked_by_what_they_keep_over_all_targets(tmp_path: Path) -> None:
    four = " + ".join(FOUR)
    for target, gain in (("gin", 0.0), ("gcn", 0.1)):
        blocks = [
            *with_setting(four, *judged(0.9 - gain, 0.6, 0.6 + gain)),
            *with_setting("order nc", *judged(0.5, 0.2, 0.4)),
        ]
        write_study(tmp_path, "parts", blocks, target=target)
    *grids, whole, told = parts_tables(tmp_path)
    assert [table.title.rpartition("target ")[2].partition(":")[0] for table in grids] == [
        *("gcn", "gcn", "gin", "gin")
    ]
    assert [list(row) for row in whole.rows] == [
        [four, "62.5", "62.5", "85.0", "42.5", "80.0"],
        ["order nc", "30.0", "30.0", "50.0", "25.0", "50.0"],
    ]
    assert "Means over 2 targets" in whole.notes[0]
    assert "kept +1.00, needed +1.00" in whole.notes[0]
    assert [list(row) for row in told.rows] == [
        ["gcn", "benzene", "+1.00", "80.0", "80.0", "80.0"],
        ["gin", "benzene", "+1.00", "90.0", "90.0", "90.0"],
    ]


def test_removal_and_ensembles_are_means_over_three_judges(tmp_path: Path) -> None:
    for dataset, auc in (("benzene", 0.8), ("indole", 0.6)):
        blocks = [
            *with_setting("masked", *judged(auc, 0.3, 0.6, 0.9)),
            *with_setting("taken out", *judged(1.0, 0.9, 0.9, 0.9)),
        ]
        write_study(tmp_path, "removal", blocks, dataset=dataset, target="gcn")
    mean, kept, by_dataset = removal_tables(tmp_path)
    assert [list(row) for row in mean.rows] == [
        ["taken out", "90.0", "90.0", "90.0", "90.0", "90.0", "100.0", "50.0", "100.0"],
        ["masked", "60.0", "60.0", "30.0", "60.0", "90.0", "70.0", "35.0", "60.0"],
    ]
    assert list(kept.rows[0]) == ["masked", "60.0", "60.0"]
    assert list(by_dataset.rows[0]) == ["masked", "80.0", "60.0"]
    blocks = [
        block
        for seed, auc in enumerate((0.7, 0.9))  # a network alone is their mean
        for block in with_setting(f"one network, seed {seed}", *judged(auc, 0.5, 0.5, 0.5))
    ]
    write_study(tmp_path, "ensembles", blocks)
    mean, *_ = ensembles_tables(tmp_path)
    assert [list(row[:7]) for row in mean.rows] == [
        ["one network", "50.0", "50.0", "50.0", "50.0", "50.0", "80.0"]
    ]


def test_quick_compares_fits_on_datasets_that_both_have(tmp_path: Path) -> None:
    four = " + ".join(FOUR)
    for dataset, graphs in (("benzene", 250.0), ("mutagenicity", 58.0), ("indole", 250.0)):
        blocks = with_setting(four, *judged(0.9, 0.5, 0.7))
        write_study(
            tmp_path, "parts", [*blocks, Block("num_graphs", graphs)], dataset=dataset, target="gcn"
        )
    for dataset, graphs in (("benzene", 100.0), ("mutagenicity", 58.0)):
        blocks = with_setting("masked", *judged(0.8 if graphs == 100 else 0.6, 0.4, 0.4, 1.0))
        write_study(
            tmp_path,
            "removal",
            [*blocks, Block("num_graphs", graphs)],
            dataset=dataset,
            target="gcn",
        )
    blocks = with_setting("one network, seed 0", *judged(0.8, 0.5, 0.5, 0.5))
    write_study(tmp_path, "ensembles", [*blocks, Block("num_graphs", 100.0)])
    assert [list(row) for row in quick_table(tmp_path).rows] == [
        ["gcn", "2", "60.0", "40.0", "90.0", "70.0"],
        ["the same graphs in both", "1", "60.0", "40.0", "90.0", "60.0"],
    ]


def test_rivals_and_masks_that_treat_all_alike(tmp_path: Path) -> None:
    rows = {
        "saliency, as benchmarked": judged(0.8, 0.4, 0.5),
        "pgexplainer, as benchmarked": [*judged(0.9, 0.6, 0.8), Block("own_mask", 0.05)],
        "all messages times 0.25": [Block("probability", 0.02)],
        "all messages times 0": [Block("probability", 0.01)],
    }
    for name, blocks in rows.items():
        write_study(tmp_path, "rivals", blocks, variant=Variant(name))
    changed, alike = rivals_tables(tmp_path)
    assert [list(row) for row in changed.rows] == [
        ["pgexplainer, as benchmarked", "90.0", "70.0", "5.0"],
        ["saliency, as benchmarked", "80.0", "45.0", ""],
    ]
    assert [list(row) for row in alike.rows] == [
        ["all messages times 0", "1.0"],
        ["all messages times 0.25", "2.0"],
    ]


def test_truth_has_the_ratio_and_the_label_of_rings_count_alone(tmp_path: Path) -> None:
    blocks = [
        *(Block("lost_true", 4.0), Block("lost_other", 1.0), Block("roc_auc", 0.9, "strict")),
        *(Block("label_by_count", 0.999), Block("odds_by_count", 0.5)),
    ]
    for dataset in ("rings-count", "benzene"):
        write_study(tmp_path, "truth", blocks, dataset=dataset)
    assert [list(row) for row in truth_table(tmp_path).rows] == [
        ["benzene", "gin", "4.00", "1.00", "0.25", "90.0", "0.50", "-"],
        ["rings-count", "gin", "4.00", "1.00", "0.25", "90.0", "0.50", "99.9"],
    ]
