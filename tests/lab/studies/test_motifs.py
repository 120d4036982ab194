"""The study of planted motifs: all rows are there, who cannot says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from nicegnn.errors import ConfigError, GraphError
from nicegnn.explain.opinions.occlusion import Occlusion
from nicegnn.explain.opinions.saliency import Saliency
from nicegnn_lab.bench import RunReport, run_study
from nicegnn_lab.bench.motif_tasks import MotifConfig, Shapes, TwoMotifs
from nicegnn_lab.bench.study import Study
from nicegnn_lab.rivals import find_entry
from nicegnn_lab.studies.motifs import (
    METHODS,
    NODES_PER_STEP,
    MotifStudy,
    few_nodes,
)
from tests.lab.studies.small_runs import rows_of_run

SMALL = MotifConfig(num_graphs=120, graph_epochs=8, base_nodes=40, num_motifs=12, node_epochs=60)
QUICK = ("random", "ground-truth", "saliency")


def small_run(study: Study, out: Path, **changes: Any) -> RunReport:
    given: dict[str, Any] = {"device": "cpu", "targets_folder": out / "targets"} | changes
    return run_study(study, out=out, **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small run of all tasks and targets."""
    out = tmp_path_factory.mktemp("motifs")
    assert not small_run(MotifStudy(SMALL, QUICK), out).failed
    return out


def values_of(rows: pd.DataFrame) -> Any:
    return rows.set_index(["dataset", "target", "explainer", "metric", "protocol"])["value"]


def test_truth_is_perfect_and_every_number_is_there(finished: Path) -> None:
    rows = rows_of_run(finished, "motifs")
    values = values_of(rows)
    for about in (("ba-2motifs", "gin"), ("ba-2motifs", "gcn"), ("ba-shapes", "gcn")):
        assert 0 <= values[*about, "", "accuracy", ""] <= 1
        assert values[*about, "ground-truth", "roc_auc", ""] == 1
        assert values[*about, "ground-truth", "recall_at_k", ""] == 1
        for name in QUICK:
            assert values[*about, name, "num_explained", ""] >= 3
            assert values[*about, name, "explain_seconds", ""] > 0
            assert 0 <= values[*about, name, "roc_auc", ""] <= 1
            for removal in ("em", "nc"):
                is_there = (*about, name, "kept_area", removal) in values.index
                assert is_there == (about[0] == "ba-2motifs")
    wanted = rows[rows["setting"] == "target"].set_index(["dataset", "target"])["level"]
    assert wanted["ba-2motifs", "gin"] == 0.95
    assert wanted["ba-shapes", "gcn"] == 0.9


def test_a_repeat_trains_and_explains_nothing(finished: Path, monkeypatch) -> None:
    for kind in (TwoMotifs, Shapes):
        monkeypatch.setattr(kind, "train", lambda *_: pytest.fail("trained again"))
    report = small_run(MotifStudy(SMALL, QUICK), finished)
    assert report.outcomes == ()
    assert len(report.finished) == 3 * (1 + len(QUICK))


def test_who_cannot_says_why_and_who_breaks_stops_no_other(tmp_path: Path, monkeypatch) -> None:
    study = MotifStudy(SMALL, ("occlusion", "saliency", "random"))
    given: dict[str, Any] = {"datasets": ["ba-2motifs"], "targets": ["gin"]}

    def raises(error: Exception) -> Any:
        def explain(*_: Any) -> torch.Tensor:
            raise error

        return explain

    monkeypatch.setattr(Occlusion, "_edge_score", raises(GraphError("takes at most 3 nodes")))
    with monkeypatch.context() as patch:
        patch.setattr(Saliency, "_edge_score", raises(RuntimeError("not enough memory")))
        (failed,) = small_run(study, tmp_path, **given).failed
    assert failed.explainer == "saliency"
    rows = rows_of_run(tmp_path, "motifs")
    assert set(rows["explainer"]) == {"", "occlusion", "random"}
    (reason,) = rows.loc[rows["metric"] == "cannot", "note"]
    assert "at most 3 nodes" in reason  # what the explainer itself says
    assert not small_run(study, tmp_path, **given).failed  # what broke is tried again
    assert "saliency" in set(rows_of_run(tmp_path, "motifs")["explainer"])


def test_fits_take_few_nodes_at_a_time() -> None:
    for name in METHODS:
        entry, _ = find_entry(name)
        settings = few_nodes(entry.name)
        assert bool(settings) == entry.learns, name
        assert all(value <= NODES_PER_STEP for value in settings.values())
    study = MotifStudy(SMALL, ("nice-paper",))
    for task, size in ((TwoMotifs(0, SMALL), None), (Shapes(0, SMALL), NODES_PER_STEP)):
        _, nice = study.variants(task, "gcn")
        assert nice.settings.get("boundary__batch_size") == size


def test_the_default_needs_no_fit_and_a_learner_fits_on_both_tasks(tmp_path: Path) -> None:
    study = MotifStudy(SMALL, ("nice", "pgexplainer+nc"))
    report = small_run(study, tmp_path, targets=["gcn"], fit_graphs=12, max_graphs=2)
    assert not report.failed
    rows = rows_of_run(tmp_path, "motifs")
    values = values_of(rows)
    for task in ("ba-2motifs", "ba-shapes"):
        assert (task, "gcn", "nice", "fit_seconds", "") not in values.index
        assert values[task, "gcn", "pgexplainer", "fit_seconds", ""] > 0
        for name in ("nice", "pgexplainer"):
            assert 0 <= values[task, "gcn", name, "roc_auc", ""] <= 1
    assert set(rows.loc[rows["explainer"] == "pgexplainer", "mechanism"]) == {"nc"}


def test_unknown_names_are_told_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ba-2motifs"):
        small_run(MotifStudy(SMALL, QUICK), tmp_path, datasets=["benzene"])
    with pytest.raises(ConfigError, match="gcn"):
        small_run(MotifStudy(SMALL, QUICK), tmp_path, targets=["gat"])
    with pytest.raises(ConfigError, match="pgexplainer"):
        MotifStudy(SMALL, ("no-such",))
