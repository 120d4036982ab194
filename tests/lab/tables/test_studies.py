"""Tables of the paper's own studies against numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Variant
from nicegnn_lab.tables.studies import (
    ablation_table,
    mechanisms_table,
    reduction,
    scale_table,
)
from tests.lab.tables.synthetic_rows import write_study

TWO = torch.tensor([3, 7])  # positions of graphs


def test_mechanisms_have_reduction_in_percent_and_the_papers_numbers(tmp_path: Path) -> None:
    values = {"em/gt": (2.0, 4.0), "nc/gt": (1.0, 2.0), "em/rand": (1, 1), "nc/rand": (2, 2)}
    blocks = [
        Block(metric, torch.tensor(pair), graph=TWO, setting=setting)
        for setting, pair in values.items()
        for metric in ("D_repr", "D_pred")
    ]
    write_study(tmp_path, "mechanisms", blocks, stand_in=True)
    em, nc, improvement = mechanisms_table(tmp_path)[0].rows
    assert em[:5] == ["benzene (stand-in)", "propagated", "EM", "3.00 ± 1.41", "1.00 ± 0.00"]
    assert nc[3:5] == ["1.50 ± 0.71", "2.00 ± 0.00"]
    assert improvement[3:7] == ["50.0%", "-100.0%"] * 2
    assert em[7:] == ["0.03 ± 0.07", "0.11 ± 0.09", "0.77 ± 0.26", "0.38 ± 0.18"]
    assert improvement[7:] == ["0.0%", "45.5%", "3.9%", "-13.2%"]  # as printed in Appendix G
    assert reduction([1e-9, 2.0], [1.0, 1.0]) == ["-", "50.0%"]  # masking moves nothing
    clean = [
        Block("D_repr", torch.tensor((0.5, 0.5)), graph=TWO, setting=f"{name}-clean/gt")
        for name in ("em", "nc")
    ]
    about = {"stand_in": True, "variant": Variant("clean messages")}
    write_study(tmp_path, "mechanisms", clean, **about)
    rows = mechanisms_table(tmp_path)[0].rows
    assert [row[1] for row in rows] == ["clean"] * 3 + ["propagated"] * 3
    assert rows[0][3:5] == ["0.50 ± 0.00", "-"]


def test_scale_is_by_layer_and_off_is_a_logarithm(tmp_path: Path) -> None:
    ratios = {("em", 1): (0.2, 0.4), ("em", 2): (0.1, 10.0), ("nc", 1): (1, 1), ("nc", 2): (1, 1)}
    blocks = [
        Block(metric, torch.tensor(pair), graph=TWO, setting=setting, level=float(layer))
        for (setting, layer), pair in ratios.items()
        for metric in ("ratio", "ratio_fixed")
    ]
    write_study(tmp_path, "scale", blocks)
    table = scale_table(tmp_path)[0]
    assert table.columns == [
        *("dataset", "target", "messages", "graphs"),
        *("EM 1", "EM 2", "NC 1", "NC 2", "EM off", "NC off"),
    ]
    row, _ = table.rows
    assert [row[2] for row in table.rows] == ["clean", "propagated"]
    assert row == ["benzene", "gin", "clean", "2", "0.30", "5.05", "1.00", "1.00", "1.00", "0.00"]


def test_ablation_has_spread_over_seeds_statuses_and_the_papers_numbers(tmp_path: Path) -> None:
    for seed, status in enumerate(("ok", "inverted", "ok")):
        blocks = [Block("restored", 0.2 + 0.1 * seed), Block("fit_status", 1.0, note=status)]
        blocks += [Block("roc_auc", 0.5, "paper"), Block("roc_auc", 0.25, "strict")]
        write_study(tmp_path, "ablation", blocks, seed=seed, variant=Variant("paper"))
    table = ablation_table(tmp_path)[0]
    (line,) = table.rows
    cells = dict(zip(table.columns, line, strict=True))
    assert cells["Rest."] == "0.30 ± 0.10"
    assert (cells["AUC"], cells["AUC, strict"]) == ("0.500 ± 0.000", "0.250 ± 0.000")
    assert cells["fit"] == "2 ok, 1 inverted"
    assert cells["Mean"] == "-"
    assert cells["paper Rest."] == "0.27 ± 0.11"
    assert cells["paper AUC"] == "0.87 ± 0.00"
