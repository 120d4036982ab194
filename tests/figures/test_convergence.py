"""Convergence: a row of panels per base, against nodes and against draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.bench import Block
from nicegnn.figures.convergence import PANELS, convergence_figure
from nicegnn.figures.drawing import caption_of
from tests.figures.reading import names
from tests.tables.synthetic_rows import with_setting, write_study


def test_lines_follow_nodes_at_most_draws_and_draws_at_most_nodes(tmp_path: Path) -> None:
    blocks = []
    for draws in (4, 64):
        for nodes in (2.0, 16.0):
            found = [
                Block("gap", 1 / nodes),
                Block("spearman", nodes / 100 + draws / 1000),
                Block("roc_auc", 0.9, "paper"),
            ]
            blocks += with_setting(f"paper/riemann/fresh/{draws}", *found, level=nodes)
    blocks += with_setting("paper/reference", Block("spearman", 0.99), level=64.0)
    write_study(tmp_path, "convergence", blocks)
    figure = convergence_figure(tmp_path)
    assert len(figure.axes) == len(PANELS)
    gap, by_nodes, _, by_draws = figure.axes
    assert list(gap.lines[0].get_ydata()) == pytest.approx([0.5, 1 / 16])
    assert gap.get_yscale() == "log"
    assert list(by_nodes.lines[0].get_xdata()) == [2, 16]
    assert list(by_nodes.lines[0].get_ydata()) == pytest.approx([0.084, 0.224])  # 64 draws
    assert list(by_nodes.lines[1].get_ydata()) == pytest.approx([0.99, 0.99])  # the references
    assert list(by_draws.lines[0].get_xdata()) == [4, 64]
    assert list(by_draws.lines[0].get_ydata()) == pytest.approx([0.164, 0.224])  # 16 nodes
    assert by_draws.get_xlabel() == "draws (16 nodes)"
    assert names(figure) == ["riemann, fresh noise", "two references"]
    assert "seeds: 1" in caption_of(figure)
