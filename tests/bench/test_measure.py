"""What is computed from scores: impossible settings are errors, equal ones are equal."""

from __future__ import annotations

import pytest

from nicegnn.bench import MetricConfig
from nicegnn.errors import NicegnnError


@pytest.mark.parametrize(
    "settings",
    [
        {"protocols": ("lenient",)},
        {"removals": ("drop",)},
        {"ratios": (0.5, 0.1)},
        {"ratios": ()},
        {"ratios": (0.0, 0.5)},
        {"top": 0.0},
        {"num_draws": 0},
    ],
)
def test_impossible_metrics_are_errors(settings: dict[str, object]) -> None:
    with pytest.raises(NicegnnError):
        MetricConfig(**settings)  # type: ignore[arg-type]


def test_order_and_unused_settings_of_metrics_do_not_matter() -> None:
    one = MetricConfig(protocols=("strict", "paper"), removals=("delete", "em"))
    other = MetricConfig(protocols=("paper", "strict"), removals=("em", "delete"), num_draws=3)
    assert one.identity() == other.identity()  # draws are those of removal nc
    assert MetricConfig().identity() != MetricConfig(num_draws=3).identity()
