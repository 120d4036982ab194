"""Figures of studies, from parts written by hand: means over graphs, and over datasets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.cli.main import app
from nicegnn_lab.figures.studies import SENSITIVITY_PANELS, layer_scale_figures, sensitivity_figure
from tests.lab.tables.synthetic_rows import with_setting, write_study

SCALE = {"clean": (1.0, 4.0), "em": (0.5, 1.0), "nc": (1.0, 8.0)}


def test_lines_of_layers_are_means_over_graphs(tmp_path: Path) -> None:
    graph, blocks = torch.arange(6), []
    for setting, by_layer in SCALE.items():
        for layer, value in enumerate(by_layer, start=1):
            about = {"graph": graph, "setting": setting, "level": float(layer)}
            blocks.append(Block("scale", value * (1 + 0.1 * graph), **about))
            if setting != "clean":
                ratio = torch.full((6,), value / SCALE["clean"][layer - 1])
                blocks.append(Block("ratio_fixed", ratio, **about))
                blocks.append(Block("ratio", 10 * ratio, **about))
    write_study(tmp_path, "scale", blocks)
    figures = layer_scale_figures(tmp_path)
    figure = figures["layer-scale"]
    lines = {tuple(line.get_ydata()) for line in figure.axes[0].lines}
    assert len(lines) == 3
    mean = 1.25  # of 1, 1.1, ..., 1.5
    clean = next(line for line in figure.axes[0].lines if line.get_marker() == "D")
    assert list(clean.get_ydata()) == pytest.approx([mean, 4 * mean])
    assert "n = 6" in figure.axes[0].get_title()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["clean", "EM", "NC"]
    for name, factor in (("layer-scale", 1), ("layer-scale-propagated", 10)):
        (axes,) = figures[name].axes
        em = next(line for line in axes.lines if line.get_marker() == "o")
        assert list(em.get_ydata()) == pytest.approx([factor * 0.5 * mean, factor * mean])


def write_sweeps(studies: Path, dataset: str, shift: float = 0.0) -> None:
    blocks = []
    for setting, levels in (("paper/beta", (0.0, 1.0)), ("propagated/num_draws", (4.0, 16.0))):
        for level in levels:
            found = [
                Block(metric, 0.5 + shift, protocol) for metric, protocol, _ in SENSITIVITY_PANELS
            ]
            blocks += with_setting(setting, *found, level=level)
    write_study(studies, "sensitivity", blocks, dataset=dataset)


def test_lines_are_means_over_datasets_beside_thin_ones_of_each(tmp_path: Path) -> None:
    write_sweeps(tmp_path, "benzene")
    write_sweeps(tmp_path, "indole", 0.2)
    figure = sensitivity_figure(tmp_path)
    assert len(figure.axes) == 2 * len(SENSITIVITY_PANELS)
    assert len([axes for axes in figure.axes if axes.get_title()]) == 2
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["as the paper writes it", "noise on propagated messages"]
    thin, other, thick = figure.axes[0].lines
    assert list(thick.get_xdata()) == [0.0, 1.0]
    assert list(thick.get_ydata()) == pytest.approx([0.6, 0.6])
    assert sorted([thin.get_ydata()[0], other.get_ydata()[0]]) == pytest.approx([0.5, 0.7])
    assert "benzene (gin), indole (gin), seeds: 1" in figure.get_label()


def test_the_command_writes_a_file_with_its_caption(tmp_path: Path) -> None:
    write_sweeps(tmp_path, "benzene")
    words = ["figure", "sensitivity", "--studies", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    with Image.open(tmp_path / "out" / "sensitivity.png") as picture:
        assert "benzene (gin), seeds: 1" in picture.info["Description"]
