"""EM against NC: configurations are those of Appendix G, numbers those of single graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.bench.task import MoleculeTask
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.scale import perturbation_distances
from nicegnn.studies import mechanisms
from nicegnn.studies.mechanisms import MechanismStudy, true_configurations
from tests.studies.small_runs import rows_of_run, run, small_job, use_world


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


def test_random_configurations_open_as_many_whole_bonds(tmp_path: Path) -> None:
    job = small_job(MechanismStudy(), tmp_path)
    assert isinstance(job.task, MoleculeTask)
    (part,) = true_configurations(job.task.part("test"), job.positions)
    gates = part.gates(4, seed=1)
    wanted = torch.zeros(part.home.numel()).index_add(
        0, part.bonds.batch, part.bonds.mean(part.edge_gate)
    )
    for gate in gates:
        opened = part.bonds.mean(gate)
        assert set(opened.tolist()) <= {0.0, 1.0}  # both directions or none
        number = torch.zeros(part.home.numel()).index_add(0, part.bonds.batch, opened)
        assert torch.equal(number, wanted)
    assert len({tuple(gate.tolist()) for gate in gates}) == 4
    again = part.gates(4, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(gates, again, strict=True))


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
    assert set(rows["setting"]) == {"clean", "em/gt", "nc/gt", "em/rand", "nc/rand"}
