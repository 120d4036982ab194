"""The registry of metrics: names, directions, helpful errors."""

from __future__ import annotations

import pytest

from nicegnn.errors import MetricError
from nicegnn_lab.metrics.agreement import TRUTH_METRICS
from nicegnn_lab.metrics.metric import METRICS, get_metric


def test_every_metric_is_found_by_its_own_name() -> None:
    assert all(get_metric(name).name == name for name in METRICS)
    assert set(TRUTH_METRICS) <= set(METRICS)


@pytest.mark.parametrize(
    ("name", "higher_is_better"),
    [("roc_auc", True), ("kept", True), ("fid_plus", True), ("fid_minus", False)],
)
def test_direction_is_on_the_metric(name: str, higher_is_better: bool) -> None:
    assert get_metric(name).higher_is_better is higher_is_better


def test_an_unknown_name_gets_the_known_ones() -> None:
    with pytest.raises(MetricError, match=r"roc_auc.*got 'auc'"):
        get_metric("auc")
