"""Figures of quality and confidence show the numbers of the rows, with few and with many."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.errors import StoreError
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.figures.panels import caption_of
from nicegnn_lab.figures.quality import confidence_figure, fidelity_figure
from tests.lab.figures.reading import titles
from tests.lab.tables.synthetic_rows import bench_rows, joined, write_study


def curves(values: dict[float, dict], **about: object) -> pd.DataFrame:
    parts = [
        bench_rows(v, metric="kept", level=q, protocol="em", **about) for q, v in values.items()
    ]
    return joined(*parts)


def test_curve_is_mean_and_deviation_over_seeds() -> None:
    rows = curves(
        {
            0.1: {("benzene", "nice+exchange", 0): [0, 1], ("benzene", "nice+exchange", 1): [1, 1]},
            0.5: {
                ("benzene", "nice+exchange", 0): [1, 1],
                ("benzene", "nice+exchange", 1): [nan, 1],
            },
        }
    )
    figure = fidelity_figure(rows, "em")
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == [10, 50]
    assert list(line.get_ydata()) == [75, 100]
    (band,) = figure.axes[0].collections
    at_first = [y for x, y in band.get_paths()[0].vertices if x == 10]
    assert max(at_first) == pytest.approx(75 + 100 * 0.125**0.5)  # seeds have 0.5 and 1
    assert titles(figure) == ["benzene, n = 2"]
    assert figure.axes[0].get_ylabel() == "Prediction kept, % ↑"
    assert "up to 2 seed(s)" in caption_of(figure)


def write_confidence(
    studies: Path, settings: dict[str, list[float]], dataset: str = "benzene"
) -> None:
    """Writes the confidence of graphs, with two seeds that differ by 0.1."""
    for seed in (0, 1):
        blocks = [
            Block(
                "confidence",
                torch.tensor(values) + 0.1 * seed,
                graph=torch.arange(len(values)),
                setting=setting,
            )
            for setting, values in settings.items()
        ]
        write_study(studies, "mechanisms", blocks, dataset=dataset, seed=seed)


def test_confidence_counts_each_graph_once(tmp_path: Path) -> None:
    clean, em, nc = [0.85, 0.8], [0.1, 0.2], [0.7, nan]
    write_confidence(tmp_path, {"clean": clean, "em-clean/gt": em, "nc-clean/gt": nc})
    figure = confidence_figure(tmp_path)
    assert titles(figure) == ["benzene, n = 2"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["clean, mean 0.88", "EM, mean 0.20", "NC, mean 0.75"]
    with pytest.raises(StoreError, match="mechanisms"):
        confidence_figure(tmp_path, target="gat")
    with pytest.raises(StoreError, match="mechanisms"):
        confidence_figure(tmp_path, is_clean=False)
    write_confidence(tmp_path, {"clean": [0.5]}, "my-own")  # EM and NC are missing
    assert len(titles(confidence_figure(tmp_path))) == 2
