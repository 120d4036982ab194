"""Means of rows over graphs and seeds, their spread and their interval, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from nicegnn_lab.bench import COLUMNS, summarise


def hand_rows() -> pd.DataFrame:
    """Two seeds on three graphs; graph 2 is undefined for seed 1."""
    values = {0: [0.0, 0.5, 1.0], 1: [0.5, 1.0, np.nan]}
    rows = [
        {"seed": seed, "graph": graph, "protocol": "paper", "metric": "f1", "value": value}
        for seed, list_ in values.items()
        for graph, value in enumerate(list_)
    ]
    rows += [
        {"seed": seed, "graph": -1, "metric": "fit_seconds", "value": 2.0 + 2 * seed}
        for seed in (0, 1)
    ]
    rows += [
        {"seed": 0, "graph": 0, "protocol": "em", "metric": "kept", "level": level, "value": level}
        for level in (0.2, 0.1)
    ]
    usual = {"dataset": "benzene", "target": "gin", "explainer": "a", "mechanism": "em"}
    usual |= {"study": "bench", "setting": "", "note": "", "protocol": ""}
    given = [{**usual, "level": np.nan, "stand_in": False, **row} for row in rows]
    return pd.DataFrame(given)[list(COLUMNS)]


def test_summary_by_hand() -> None:
    table = summarise(hand_rows(), num_resamples=2000)
    curve = table[table["metric"] == "kept"]
    assert curve["level"].tolist() == curve["mean"].tolist() == [0.1, 0.2]  # points stay apart
    table = table[table["metric"] != "kept"].set_index("metric")
    f1 = table.loc["f1"]
    assert f1["mean"] == pytest.approx((0.5 + 0.75) / 2)  # of the seeds' means over graphs
    assert f1["std"] == pytest.approx(0.25 / 2**0.5)
    assert (f1["num_seeds"], f1["num_graphs"], f1["num_nan"]) == (2, 3, 1)
    # graphs' means over seeds are 0.25, 0.75 and 1: resampled means lie between
    assert 0.25 <= f1["low"] < 2 / 3 < f1["high"] <= 1.0
    seconds = table.loc["fit_seconds"]
    assert seconds["mean"] == 3.0
    assert seconds["num_graphs"] == 0
    assert np.isnan(seconds["low"])
    assert summarise(hand_rows(), num_resamples=0)["low"].isna().all()


def test_summary_of_one_seed_has_no_spread_over_seeds() -> None:
    rows = hand_rows()
    table = summarise(rows[rows["seed"] == 0]).set_index("metric")
    assert np.isnan(table.loc["f1", "std"])
    assert table.loc["f1", "mean"] == 0.5
