"""Cost against quality: the fit is shared out, times of one machine replace those of rows."""

from __future__ import annotations

import json
from math import nan
from pathlib import Path

import pandas as pd
import pytest

from nicegnn.errors import StoreError
from nicegnn_lab.figures.cost import cost_figure, cost_points, read_speed
from nicegnn_lab.figures.panels import caption_of
from tests.lab.figures.reading import names
from tests.lab.tables.synthetic_rows import bench_rows, joined


def cost_rows() -> pd.DataFrame:
    quality = bench_rows(
        {("benzene", "nice+both", 0): [0.9, 0.7], ("benzene", "saliency+em", 0): [0.5, 0.5]}
    )
    explain = {("benzene", "nice+both", 0): [0.2], ("benzene", "saliency+em", 0): [0.0]}
    fit = {("benzene", "nice+both", 0): [10.0], ("benzene", "saliency+em", 0): [nan]}
    return joined(
        quality,
        bench_rows(explain, metric="explain_seconds_per_graph", protocol="", graph=[-1]),
        bench_rows(fit, metric="fit_seconds", protocol="", graph=[-1]),
    )


def test_cost_shares_the_fit_out_over_graphs() -> None:
    points = cost_points(cost_rows()).set_index("explainer")
    assert points.loc["nice", "value"] == pytest.approx(0.8)
    assert points.loc["nice", "with_fit"] == pytest.approx(0.2 + 10 / 2)
    figure = cost_figure(cost_rows())
    assert figure.axes[0].get_xscale() == "log"
    assert names(figure) == ["saliency", "nice"]
    figure.canvas.draw()  # a time of 0 does not break a log axis


def test_cost_takes_the_times_of_one_machine(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    times = {"nice": {"explain": 0.5, "fit": 4.0, "steps": 500}}
    file.write_text(json.dumps({"machine": "abacus", "dataset": "indole", "explainers": times}))
    speed = read_speed(file)
    points = cost_points(cost_rows(), speed=speed).set_index("explainer")
    assert list(points.index) == ["nice"]  # nobody measured the other
    assert points.loc["nice", "explain"] == 0.5
    assert points.loc["nice", "with_fit"] == pytest.approx(0.5 + 4.0 / 2)
    assert "abacus" in caption_of(cost_figure(cost_rows(), speed=speed))
    file.write_text("{}")
    with pytest.raises(StoreError, match="Cannot read times"):
        read_speed(file)
