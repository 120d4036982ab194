"""Sweeps: a column per setting, a row per metric."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.figures.panels import caption_of
from nicegnn_lab.figures.sweeps import SENSITIVITY_PANELS, sensitivity_figure
from tests.lab.figures.reading import names, titles
from tests.lab.tables.synthetic_rows import with_setting, write_study


def write(studies: Path, dataset: str, shift: float = 0.0) -> None:
    blocks = []
    for setting, levels in (("paper/beta", (0.0, 1.0)), ("propagated/num_draws", (4.0, 16.0))):
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
    assert names(figure) == ["as the paper writes it", "noise on propagated messages"]
    thin, other, thick = figure.axes[0].lines
    assert list(thick.get_xdata()) == [0.0, 1.0]
    assert list(thick.get_ydata()) == pytest.approx([0.6, 0.6])
    assert sorted([thin.get_ydata()[0], other.get_ydata()[0]]) == pytest.approx([0.5, 0.7])
    assert "benzene (gin), indole (gin), seeds: 1" in caption_of(figure)
