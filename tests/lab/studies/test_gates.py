"""Gates under one change at a time: changes reach the fit, and rows say what the gates are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.boundary.fit_report import FIT_ADVICE
from nicegnn.target.training import TrainConfig
from nicegnn_lab.bench.task import make_task
from nicegnn_lab.studies.bond_scores import ChangedAnswers, explained_batch
from nicegnn_lab.studies.gates import FITS, DepthStudy, GateStudy, changes
from tests.lab.studies.small_runs import NICE as QUICK
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_change_is_a_variant_of_its_own() -> None:
    found = list(GateStudy().variants(make_task("benzene"), "gin"))
    assert [variant.setting for variant in found] == list(changes())
    keys = {(v.explainer, str(v.settings), str(v.extra)) for v in found}
    assert len(keys) == len(found) == 37
    scaled = {v.setting: v.extra["logits"] for v in found if v.extra}
    assert scaled == {
        **{
            f"{reading}, logits x {factor:g}": factor
            for reading in ("paper", "propagated")
            for factor in (0.1, 0.3, 3.0, 10.0)
        },
        **{f"order under budgets, logits x {factor:g}": factor for factor in (0.1, 10.0)},
    }


def test_scaled_logits_change_confidence_and_no_decision(tmp_path: Path) -> None:
    job = small_job(GateStudy(only=("paper",)), tmp_path)
    batch = explained_batch(job)
    with torch.no_grad():
        plain = job.model(batch.x, batch.edge_index, batch.batch)
        model = ChangedAnswers(job.model, lambda logits: 3.0 * logits)
        scaled = model(batch.x, batch.edge_index, batch.batch)
    assert torch.equal(scaled, 3.0 * plain)
    assert bool((scaled.argmax(1) == 1).all())  # explained graphs have label 1 and are right


def test_rows_tell_what_became_of_the_gates(tmp_path: Path) -> None:
    names = ("paper", "paper, logits x 10", "order under budgets")
    run(GateStudy(QUICK, names), tmp_path)
    rows = rows_of_run(tmp_path, "gates")
    assert set(rows["setting"]) == set(names)
    value = rows.set_index(["setting", "metric"])["value"]
    for name in names:
        assert 0 <= value[name, "restored"] <= 1
        assert 0 <= value[name, "gate_roc_auc"] <= 1
        assert 0 <= value[name, "big_roc_auc"] <= 1
        assert value[name, "num_graphs"] == 5
    statuses = set(rows.loc[rows["metric"] == "fit_status", "note"])
    assert statuses <= set(FIT_ADVICE)
    assert value["paper", "risk"] != value["paper, logits x 10", "risk"]


def test_targets_of_a_depth_are_trained_here(tmp_path: Path) -> None:
    training = TrainConfig(batch_size=32, epochs=3)
    study = DepthStudy(depths=(1, 2), training=training, settings=QUICK)
    run(study, tmp_path, max_graphs=3)
    rows = rows_of_run(tmp_path, "depth")
    assert set(rows["setting"]) == {
        f"{readout}, {fit}" for readout in ("sum", "mean") for fit in FITS
    }
    assert set(rows["level"]) == {1.0, 2.0}
    accuracy = rows[rows["metric"] == "accuracy"].set_index(["setting", "level"])["value"]
    for readout in ("sum", "mean"):  # all fits explain the same target
        paper, *others = (accuracy[f"{readout}, {fit}"] for fit in FITS)
        assert all(paper.equals(other) for other in others)
    sure = rows.loc[rows["metric"] == "confidence", "value"]
    assert bool((sure > 0.5).all())  # of graphs that the target gets right
    models = [
        study.new_target(small_job(study, tmp_path), readout, depth)
        for readout, depth in (("sum", 1), ("sum", 3), ("sum", 3))
    ]
    assert [len(model.convs) for model in models] == [1, 3, 3]
    first, second = (model.state_dict() for model in models[1:])
    assert all(torch.equal(first[name], second[name]) for name in first)
