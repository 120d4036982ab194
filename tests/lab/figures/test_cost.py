"""Cost against quality: the fit is shared out over graphs."""

from __future__ import annotations

from math import nan

import pandas as pd
import pytest

from nicegnn_lab.figures.cost import cost_figure, cost_points
from tests.lab.figures.reading import names
from tests.lab.tables.synthetic_rows import bench_rows, joined


def cost_rows() -> pd.DataFrame:
    quality = bench_rows(
        {("benzene", "nice+exchange", 0): [0.9, 0.7], ("benzene", "saliency+em", 0): [0.5, 0.5]}
    )
    explain = {("benzene", "nice+exchange", 0): [0.2], ("benzene", "saliency+em", 0): [0.0]}
    fit = {("benzene", "nice+exchange", 0): [10.0], ("benzene", "saliency+em", 0): [nan]}
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
