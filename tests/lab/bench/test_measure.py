"""What is computed from scores: impossible settings are errors, equal ones are equal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nicegnn.errors import NicegnnError
from nicegnn_lab.bench.measure import MetricConfig
from nicegnn_lab.bench.rows import Folder, read_rows
from nicegnn_lab.metrics.metric import METRICS, Measured, Metric
from tests.lab.bench.small_bench import run_bench, use_world
from tests.lab.own_names import names_restored


@pytest.mark.parametrize("settings", [{"removals": ("drop",)}, {"num_draws": 0}])
def test_impossible_metrics_are_errors(settings: dict[str, object]) -> None:
    with pytest.raises(NicegnnError):
        MetricConfig(**settings)  # type: ignore[arg-type]


def test_order_and_unused_settings_of_metrics_do_not_matter() -> None:
    one = MetricConfig(removals=("delete", "em"))
    other = MetricConfig(removals=("em", "delete"), num_draws=3)
    assert one.identity() == other.identity()  # draws are those of removal nc
    assert MetricConfig().identity() == {"num_draws": 4}  # as keys of stored cells have it
    assert MetricConfig(num_draws=3).identity() == {"num_draws": 3}


def test_own_metric_has_a_row_per_graph_and_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = use_world(monkeypatch)
    with names_restored():

        def true_share(measured: Measured) -> Tensor:
            assert torch.equal(measured.explained, measured.graphs.y)
            with torch.no_grad():
                logits = measured.model(
                    measured.graphs.x, measured.graphs.edge_index, measured.graphs.batch
                )
            torch.testing.assert_close(measured.prediction, logits.log_softmax(1))
            return measured.truth.num_true / measured.truth.num_edges  # [B]

        about = ("true-share", "True share", True, "Share of bonds that are true.")
        METRICS["true-share"] = Metric(*about, true_share)
        metrics = MetricConfig(removals=(), own=("true-share",))
        config = world.config(tmp_path, "random", metrics=metrics, max_graphs=5)
        assert run_bench(config).failed == ()
        rows = read_rows(tmp_path, {"metric": "true-share", "protocol": "paper"})
        graphs = [world.dataset().test[position] for position in rows["graph"]]
        shares = [float(graph.edge_truth.float().mean()) for graph in graphs]
        assert rows["value"].tolist() == pytest.approx(shares)
        assert len(read_rows(tmp_path, {"metric": "true-share"})) > len(rows) == 5
        # rows with and without it are different cells
        assert run_bench(replace(config, metrics=MetricConfig(removals=()))).num_measured == 1


@pytest.mark.parametrize(
    ("value", "told"),
    [(torch.zeros(3), r"got shape \[3\]"), (torch.full((5,), 7.0), "got 7"), (1.0, "shape")],
)
def test_own_metric_that_is_no_share_per_graph_fails_its_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Tensor, told: str
) -> None:
    world = use_world(monkeypatch)
    with names_restored():
        METRICS["odd"] = Metric("odd", "Odd", True, "Odd.", lambda measured: value)
        metrics = MetricConfig(removals=(), own=("odd",))
        report = run_bench(world.config(tmp_path, "random", metrics=metrics, max_graphs=5))
    (failed,) = report.failed
    record = json.loads(Folder(tmp_path).file("failed", failed.key).read_text())
    assert record["error"] == "MetricError"
    assert re.search(f"Metric 'odd' must return a share per graph.*{told}", record["message"])
