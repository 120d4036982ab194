"""Sweeps: a column per setting, a row per metric; convergence against nodes and against draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn_lab.bench import Block
from nicegnn_lab.figures.panels import caption_of
from nicegnn_lab.figures.sweeps import (
    CONVERGENCE_PANELS,
    SENSITIVITY_PANELS,
    convergence_figure,
    sensitivity_figure,
)
from tests.lab.figures.reading import names, titles
from tests.lab.tables.synthetic_rows import with_setting, write_study


def write(studies: Path, dataset: str, shift: float = 0.0) -> None:
    blocks = []
    for setting, levels in (("paper/beta", (0.0, 1.0)), ("nice/num_draws", (4.0, 16.0))):
        for level in levels:
            found = [
                Block(metric, 0.5 + shift, protocol) for metric, protocol, _ in SENSITIVITY_PANELS
            ]
            blocks += with_setting(setting, *found, level=level)
    write_study(studies, "sensitivity", blocks, dataset=dataset)


def test_lines_are_means_over_datasets_beside_thin_ones_of_each(tmp_path: Path) -> None:
    write(tmp_path, "benzene")
    write(tmp_path, "indole", 0.2)
    figure = sensitivity_figure(tmp_path)
    assert len(figure.axes) == 2 * len(SENSITIVITY_PANELS)
    assert len(titles(figure)) == 2
    assert names(figure) == ["as the paper writes it", "our defaults"]
    thin, other, thick = figure.axes[0].lines
    assert list(thick.get_xdata()) == [0.0, 1.0]
    assert list(thick.get_ydata()) == pytest.approx([0.6, 0.6])
    assert sorted([thin.get_ydata()[0], other.get_ydata()[0]]) == pytest.approx([0.5, 0.7])
    assert "benzene (gin), indole (gin), seeds: 1" in caption_of(figure)


def test_level_zero_has_a_place_on_the_axis(tmp_path: Path) -> None:
    write(tmp_path, "benzene")
    figure = sensitivity_figure(tmp_path)
    figure.canvas.draw()
    assert figure.axes[-2].get_xscale() == "symlog"  # beta, from 0
    assert figure.axes[-1].get_xscale() == "log"
    ticks = [tick.get_text() for tick in figure.axes[-2].get_xticklabels()]
    assert ticks == ["0", "1"]


def test_convergence_follows_nodes_at_most_draws_and_draws_at_most_nodes(tmp_path: Path) -> None:
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
    assert len(figure.axes) == len(CONVERGENCE_PANELS)
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
