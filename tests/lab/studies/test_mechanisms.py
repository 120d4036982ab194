"""EM, NC and exchange: configurations of Appendix G, message scale as theory and model have it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.intervention.mechanisms import ElementMask
from nicegnn_lab.bench.task import MoleculeTask
from nicegnn_lab.metrics.scale import perturbation_distances
from nicegnn_lab.studies import mechanisms
from nicegnn_lab.studies.mechanisms import (
    DAMAGES,
    MechanismStudy,
    ScaleStudy,
    true_configurations,
)
from tests.lab.studies.small_runs import make_world, rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def edges_of(gate: torch.Tensor) -> list[int]:
    return gate.nonzero().view(-1).tolist()


@pytest.mark.parametrize("edges_at_once", [10**9, 60])
def test_each_alternative_is_a_configuration(
    monkeypatch, tmp_path: Path, edges_at_once: int
) -> None:
    monkeypatch.setattr(mechanisms, "_EDGES_AT_ONCE", edges_at_once)
    job = small_job(MechanismStudy(), tmp_path, max_graphs=None)
    assert isinstance(job.task, MoleculeTask)
    test = job.task.part("test")
    found = []
    for part in true_configurations(test, job.positions):
        edges = torch.bincount(part.batch.batch[part.batch.edge_index[0]]).tolist()
        found += list(
            zip(part.home.tolist(), map(edges_of, part.edge_gate.split(edges)), strict=True)
        )
    expected = [
        (number, sorted(alternative))
        for number, position in enumerate(job.positions.tolist())
        for alternative in test[position].edge_alternatives
    ]
    assert found == expected
    assert len(expected) > job.positions.numel()  # some graphs have several


def test_rows_are_those_of_single_graphs(tmp_path: Path) -> None:
    """EM needs no draws: its numbers are found graph by graph, alternative by alternative."""
    study = MechanismStudy(num_draws=2, num_random=2)
    run(study, tmp_path, max_graphs=8)
    rows = rows_of_run(tmp_path, "mechanisms")
    job = small_job(study, tmp_path, max_graphs=8)
    assert isinstance(job.task, MoleculeTask)
    chosen = rows[rows["setting"] == "em/gt"].set_index(["metric", "graph"])["value"]
    clean = rows[rows["setting"] == "clean"].set_index("graph")["value"]
    seen = 0
    for position in job.positions.tolist():
        graph = job.task.part("test")[position]
        with torch.no_grad():
            logits = job.model(
                graph.x, graph.edge_index, torch.zeros(len(graph.x), dtype=torch.long)
            )
        if int(logits.argmax()) != 1:
            assert position not in clean.index
            continue
        seen += 1
        assert clean[position] == pytest.approx(float(logits.softmax(1)[0, 1]), abs=1e-5)
        values = []
        for alternative in graph.edge_alternatives:
            gate = torch.zeros(graph.num_edges)
            gate[list(alternative)] = 1.0
            values.append(perturbation_distances(job.model, graph, gate, ElementMask()))
        for metric, name in (
            ("D_repr", "representation"),
            ("D_pred", "prediction"),
            ("confidence", "confidence"),
        ):
            mean = sum(float(getattr(value, name)) for value in values) / len(values)
            assert chosen[metric, position] == pytest.approx(mean, rel=1e-3, abs=1e-5)
    assert seen == len(clean) > 0
    damages = [f"{name}{added}" for name in DAMAGES for added in ("", "-clean")]
    ways = {f"{way}/{gates}" for way in damages for gates in ("gt", "rand")}
    assert set(rows["setting"]) == {"clean", *ways}
    assert len(rows[rows["setting"] == "clean"]) == seen


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        use_world(patch)
        run(ScaleStudy(num_draws=2), folder, max_graphs=12)
    return folder


def scales_of(out: Path, metric: str) -> pd.DataFrame:
    rows = rows_of_run(out, "scale")
    rows = rows[rows["metric"] == metric]
    return rows.pivot(index="graph", columns=["setting", "level"], values="value")


def test_rows_agree_with_the_theorem(out: Path) -> None:
    scales = scales_of(out, "scale").astype("float64")
    positions = torch.tensor(scales.index.to_numpy())
    batch = make_world().dataset().test.batch(positions)
    home = batch.batch[batch.edge_index[0]]
    # one-hot atoms: every message of layer 1 has norm 1, so EM keeps the share of true edges
    number, truth = torch.bincount(home), batch.edge_truth.double()
    share = torch.zeros(len(positions)).double().index_add(0, home, truth) / number
    for setting, expected in (("clean", torch.ones_like(share)), ("em", share)):
        found = torch.tensor(scales[setting, 1].to_numpy())
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    ratios = scales_of(out, "ratio")
    assert (ratios >= 0).all(axis=None)
    for name in ("nc", "exchange"):  # noise, and another bond's one-hot atom, have norm 1 too
        assert ratios[name, 1].to_numpy() == pytest.approx(1.0, abs=1e-5)
    fixed = scales_of(out, "ratio_fixed")["em"]
    assert (fixed <= 1 + 1e-6).all(axis=None)  # Theorem 1
