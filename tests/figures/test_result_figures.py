"""Figures of results show the numbers of the rows, with few and with many of them."""

from __future__ import annotations

import itertools
import json
import sys
from math import nan
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from nicegnn.errors import StoreError
from nicegnn.figures.confidence import confidence_figure
from nicegnn.figures.cost import cost_figure, cost_points, read_speed
from nicegnn.figures.fidelity import all_fidelity_figures, curve_points, fidelity_figure
from nicegnn.figures.mechanisms import mechanisms_figure
from nicegnn.figures.style import caption_of, method_style, save
from nicegnn.paper.numbers import PAPER_DATASETS
from nicegnn.rivals.registry import EXPLAINERS
from nicegnn.tables.methods import Method
from tests.tables.synthetic_rows import bench_rows, joined


def curves(values: dict[float, dict]) -> pd.DataFrame:
    parts = [bench_rows(v, metric=f"kept@{q:g}", protocol="em") for q, v in values.items()]
    return joined(*parts)


def titles(figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def names(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_curve_is_mean_and_deviation_over_seeds() -> None:
    rows = curves(
        {
            0.1: {("benzene", "nice+both", 0): [0, 1], ("benzene", "nice+both", 1): [1, 1]},
            0.5: {("benzene", "nice+both", 0): [1, 1], ("benzene", "nice+both", 1): [nan, 1]},
        }
    )
    points = curve_points(rows, "em").sort_values("ratio")
    assert points["ratio"].tolist() == [0.1, 0.5]
    assert points["mean"].tolist() == [0.75, 1.0]
    assert points["std"].tolist() == pytest.approx([0.125**0.5, 0.0])  # 0.5 and 1
    figure = fidelity_figure(rows, "em")
    (line,) = figure.axes[0].lines
    assert list(line.get_xdata()) == [10, 50]
    assert list(line.get_ydata()) == [75, 100]
    assert titles(figure) == ["benzene, n = 2"]
    assert figure.axes[0].get_ylabel() == "Prediction kept, % ↑"
    assert "up to 2 seed(s)" in caption_of(figure)


def test_many_datasets_and_methods_fit_and_one_of_each_too(tmp_path) -> None:
    methods = [f"{name}+{(entry.mechanisms or ('',))[0]}" for name, entry in EXPLAINERS.items()]
    numbers = itertools.count()
    values = {
        (dataset, method, 0): [0.01 * (next(numbers) % 100)]
        for dataset in (*PAPER_DATASETS, "my-own")
        for method in methods
        if (dataset, method) != ("pains", "nice+both")  # a cell that is missing
    }
    rows = curves({0.1: values, 0.9: values})
    figure = fidelity_figure(rows, "em", marked=["pains"])
    assert len(titles(figure)) == 9
    assert "pains (stand-in), n = 1" in titles(figure)
    assert len(names(figure)) == len(methods)
    paths = save(figure, tmp_path, "many")
    assert [path.name for path in paths] == ["many.png", "many.pdf", "many.txt"]
    assert all(path.stat().st_size > 100 for path in paths)
    renderer = figure.canvas.get_renderer()
    box = figure.legends[0].get_window_extent(renderer)
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    single = curves({0.1: {("my-own", "saliency+em", 0): [0.5]}})
    assert names(fidelity_figure(single, "em")) == ["saliency"]


def test_a_figure_per_removal() -> None:
    rows = curves({0.1: {("benzene", "nice+both", 0): [1.0]}})
    assert list(all_fidelity_figures(rows)) == ["em"]
    with pytest.raises(StoreError, match="nc"):
        fidelity_figure(rows, "nc")


def test_styles_tell_methods_apart() -> None:
    styles = [
        method_style(Method(name, mechanism))
        for name, entry in EXPLAINERS.items()
        for mechanism in entry.mechanisms or ("",)
    ]
    seen = {(s["color"], s["marker"], s["markerfacecolor"], s["linestyle"]) for s in styles}
    assert len(seen) == len(styles)


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


def test_mechanisms_joins_em_and_nc() -> None:
    eight = [0.1 * k for k in range(1, 9)]
    rows = bench_rows(
        {
            ("benzene", "pgexplainer+em", 0): [v / 2 for v in eight],
            ("benzene", "pgexplainer+nc", 0): eight,
            ("benzene", "gnnexplainer+em", 0): eight,
            ("benzene", "gnnexplainer+nc", 0): eight,
            ("indole", "pgexplainer+em", 0): [0.5],
        }
    )
    figure = mechanisms_figure(rows)
    assert titles(figure) == ["benzene, n = 8"]
    assert names(figure) == ["EM", "NC"]
    joins = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    ends = {tuple(line.get_ydata()): list(line.get_xdata()) for line in joins}
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    y = labels.index("pgexplainer")
    assert ends[y, y] == pytest.approx([22.5, 45.0])
    assert {line.get_linestyle() for line in joins} == {"-", ":"}  # different, and equal
    with pytest.raises(StoreError, match="EM and NC"):
        mechanisms_figure(bench_rows({("benzene", "nice+both", 0): [1.0]}))


def confidence_rows(settings: dict[str, list[float]], dataset: str = "benzene") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "target": "gin",
                "setting": setting,
                "level": float(graph),
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
    with pytest.raises(StoreError, match="mechanism_comparison"):
        confidence_figure(rows, target="gat")
    other = confidence_rows({"clean": [0.5]}, "my-own")  # EM and NC are missing
    assert len(titles(confidence_figure(pd.concat([rows, other])))) == 2
