"""Figures of the scale study, from parts written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn_lab.bench.rows import Block
from nicegnn_lab.figures.panels import caption_of, save_figure
from nicegnn_lab.figures.scale_figures import layer_scale_figure, motivation_figure
from nicegnn_lab.studies.mechanisms import States
from tests.lab.tables.synthetic_rows import write_study

SCALE = {"clean": (1.0, 4.0), "em": (0.5, 1.0), "nc": (1.0, 8.0)}


def write(studies: Path, dataset: str, target: str, num: int = 6, stand_in: bool = False) -> None:
    """Writes the rows of one cell of study ``scale``, graphs of rising size."""
    graph = torch.arange(num)
    blocks = []
    for setting, by_layer in SCALE.items():
        for layer, value in enumerate(by_layer, start=1):
            about = {"graph": graph, "setting": setting, "level": float(layer)}
            blocks.append(Block("scale", value * (1 + 0.1 * graph), **about))
            if setting != "clean":
                ratio = torch.full((num,), value / SCALE["clean"][layer - 1])
                blocks.append(Block("ratio_fixed", ratio, **about))
                blocks.append(Block("ratio", 10 * ratio, **about))
    write_study(studies, "scale", blocks, dataset=dataset, target=target, stand_in=stand_in)


def make_states(dataset: str, target: str, num: int = 6) -> States:
    """Random norms and embeddings, the same for all datasets and targets."""
    generator = torch.Generator().manual_seed(0)
    return States(
        norm={name: torch.rand(2, 40, generator=generator) * v[1] for name, v in SCALE.items()},
        embedding={name: torch.randn(num, 4, generator=generator) for name in SCALE},
        positions=torch.arange(num),
    )


def test_lines_are_means_over_graphs(tmp_path: Path) -> None:
    write(tmp_path, "benzene", "gin")
    figure = layer_scale_figure(tmp_path)
    lines = {tuple(line.get_ydata()) for line in figure.axes[0].lines}
    assert len(lines) == 3
    mean = 1.25  # of 1, 1.1, ..., 1.5
    clean = next(line for line in figure.axes[0].lines if line.get_marker() == "D")
    assert list(clean.get_ydata()) == pytest.approx([mean, 4 * mean])
    assert "n = 6" in figure.axes[0].get_title()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["clean", "EM", "NC"]
    for is_clean, factor in ((True, 1), (False, 10)):  # inputs of layers held clean, or not
        (axes,) = layer_scale_figure(tmp_path, is_clean=is_clean).axes
        em = next(line for line in axes.lines if line.get_marker() == "o")
        assert list(em.get_ydata()) == pytest.approx([factor * 0.5 * mean, factor * mean])


def test_motivation_has_five_panels_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nicegnn_lab.figures.scale_figures.read_states",
        lambda _, dataset, target, is_clean: make_states(dataset, target),
    )
    for dataset in ("benzene", "indole"):
        for target in ("gin", "gcn"):
            write(tmp_path, dataset, target)
    figure = motivation_figure(tmp_path)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title[:3] for title in titles] == ["(a)", "(b)", "(c)", "(d)", "(e)"]
    summary = figure.axes[-1]
    drawn = {line.get_label(): list(line.get_ydata()) for line in summary.lines}
    assert drawn["EM, gin"] == [0.25, 0.25]
    assert drawn["NC, gcn"] == [2.0, 2.0]
    points = figure.axes[0].lines
    assert [len(line.get_xdata()) for line in points] == [6, 6, 6]
    assert "6 to 6 per dataset" in caption_of(figure)
    save_figure(figure, tmp_path / "motivation.png")
