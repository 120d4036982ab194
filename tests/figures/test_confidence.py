"""Confidence: every graph counts once, and targets tell how well they are calibrated."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from nicegnn.errors import StoreError
from nicegnn.figures.confidence import calibration_figure, confidence_figure
from tests.figures.reading import titles


def confidence_rows(settings: dict[str, list[float]], dataset: str = "benzene") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "target": "gin",
                "setting": setting,
                "graph": graph,
                "stand_in": False,
                "seed": seed,
                "metric": "confidence",
                "value": value + 0.1 * seed,
            }
            for setting, values in settings.items()
            for graph, value in enumerate(values)
            for seed in (0, 1)
        ]
    )


def test_confidence_counts_each_graph_once() -> None:
    rows = confidence_rows({"clean": [0.85, 0.8], "em/gt": [0.1, 0.2], "nc/gt": [0.7, nan]})
    figure = confidence_figure(rows)
    assert titles(figure) == ["benzene, n = 2"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["clean, mean 0.88", "EM, mean 0.20", "NC, mean 0.75"]
    with pytest.raises(StoreError, match="mechanisms"):
        confidence_figure(rows, target="gat")
    other = confidence_rows({"clean": [0.5]}, "my-own")  # EM and NC are missing
    assert len(titles(confidence_figure(pd.concat([rows, other])))) == 2


def test_calibration_has_a_panel_per_dataset_and_a_line_per_target() -> None:
    def manifest(dataset: str, target: str, ece: float) -> dict:
        test = {"ece": ece, "histogram": [0.25, 0.75], "edges": [0.5, 0.75, 1.0]}
        return {"dataset": dataset, "title": dataset.title(), "target": target, "test": test}

    found = [manifest("benzene", "gin", 0.0123), manifest("benzene", "gcn", 0.1)]
    figure = calibration_figure([*found, manifest("indole", "gin", 0.2)])
    assert titles(figure) == ["Benzene", "Indole"]
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["gin, ECE 0.012", "gcn, ECE 0.100"]
