"""Rivals with one thing changed, bonds taken out, noise as a judge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.graph.case import make_case
from nicegnn.target.training import predict
from nicegnn_lab.bench.task import MoleculeTask
from nicegnn_lab.studies.bond_scores import explained_batch
from nicegnn_lab.studies.rivals import (
    ALIKE,
    RivalStudy,
    TruthStudy,
    counted_rings,
    kept_under,
    rival_changes,
)
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    path = tmp_path / "explainers.toml"
    path.write_text("[pgexplainer]\nsteps = 3\n[benzene.saliency]\nabsolute = false\n")
    return path


def test_changes_start_from_what_was_tuned_for_the_dataset() -> None:
    tuned = {"refine": {"steps": 7}, "saliency": {"absolute": False}}
    found = {name: settings for name, _, settings in rival_changes(tuned)}
    assert found["saliency, as benchmarked"] == {"absolute": False}
    assert found["refine, 20 steps of fine-tuning"] == {"steps": 7, "fine_tune_steps": 20}
    assert len(found) == len(list(rival_changes(tuned)))  # each once


def test_rows_of_rivals_and_of_masks_that_treat_all_alike(tmp_path: Path, tuned: Path) -> None:
    names = (
        "saliency, as benchmarked",
        "saliency of the probability",
        "pgexplainer, as benchmarked",
    )
    run(RivalStudy(tuned, names), tmp_path)
    rows = rows_of_run(tmp_path, "rivals")
    value = rows.set_index(["setting", "metric", "protocol"])["value"]
    for name in names:
        assert 0 <= value[name, "roc_auc", "paper"] <= 1
        assert 0 <= value[name, "kept", "em"] <= 1
    has_mask = set(rows.loc[rows["metric"] == "own_mask", "setting"])
    assert has_mask == {"pgexplainer, as benchmarked"}
    alike = [value[f"all messages times {factor:g}", "probability", ""] for factor in ALIKE]
    job = small_job(RivalStudy(tuned), tmp_path)
    assert isinstance(job.task, MoleculeTask)
    whole = predict(job.model, job.task.part("valid").index_select(job.positions))[:, 1].mean()
    assert alike[-1] == pytest.approx(float(whole), rel=1e-4)  # nothing is masked
    assert alike[0] != pytest.approx(alike[-1], rel=1e-2)


def test_a_mask_of_zeros_leaves_nodes_alone(tmp_path: Path, tuned: Path) -> None:
    job = small_job(RivalStudy(tuned), tmp_path)
    batch = explained_batch(job)
    none = kept_under(job.model, batch, torch.zeros(batch.num_edges))
    alone = batch.clone()
    with torch.no_grad():
        logits = job.model(alone.x, alone.edge_index[:, :0], alone.batch)
    assert torch.allclose(none, logits.softmax(1)[:, 1], atol=1e-5)


def test_lost_without_a_true_bond_is_a_mean_over_graphs(tmp_path: Path) -> None:
    study = TruthStudy()
    job = small_job(study, tmp_path, max_graphs=2)
    found = {block.metric: block.value for block in study.measure(job)}
    means: dict[bool, list[float]] = {True: [], False: []}
    batch = explained_batch(job)
    for graph in batch.to_data_list():
        lost: dict[bool, list[float]] = {True: [], False: []}
        clean = _odds(job.model, graph.x, graph.edge_index)
        bonds = make_case(type(batch).from_data_list([graph])).bonds
        for bond in range(bonds.batch.numel()):
            is_gone = bonds.edge_bond == bond
            less = _odds(job.model, graph.x, graph.edge_index[:, ~is_gone])
            lost[bool(graph.edge_truth[is_gone].any())].append(clean - less)
        for kind in (True, False):
            means[kind].append(sum(lost[kind]) / len(lost[kind]))
    assert found["lost_true"] == pytest.approx(sum(means[True]) / 2, rel=1e-3)
    assert found["lost_other"] == pytest.approx(sum(means[False]) / 2, rel=1e-3)


def _odds(model: torch.nn.Module, x: torch.Tensor, edge_index: torch.Tensor) -> float:
    with torch.no_grad():
        logits = model(x, edge_index, torch.zeros(len(x), dtype=torch.long))[0]
    return float(logits[1] - logits[0])


def test_rings_are_counted_by_bonds_and_atoms(tmp_path: Path) -> None:
    job = small_job(TruthStudy(), tmp_path)
    assert isinstance(job.task, MoleculeTask)
    graphs = job.task.part("valid")
    found = {block.metric: block.value for block in counted_rings(job.model, graphs)}
    right = 0
    for graph in graphs:
        rings = graph.num_edges // 2 - graph.num_nodes + 1
        right += (rings > 4) == bool(graph.y)
    assert found["label_by_count"] == pytest.approx(right / len(graphs))
    assert -1 <= found["odds_by_count"] <= 1
