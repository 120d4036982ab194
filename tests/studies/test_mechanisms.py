"""EM against NC: configurations are those of Appendix G, numbers those of single graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.bench.study_rows import read_experiment, write_part
from nicegnn.errors import StoreError
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.scale import perturbation_distances
from nicegnn.studies import mechanisms as experiment
from tests.studies.small_runs import quick, small_subject, use_world

EXPERIMENT = experiment.EXPERIMENT


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def edges_of(gate: torch.Tensor) -> list[int]:
    return gate.nonzero().view(-1).tolist()


@pytest.mark.parametrize("edges_at_once", [10**9, 60])
def test_each_alternative_is_a_configuration(monkeypatch, edges_at_once: int) -> None:
    monkeypatch.setattr(experiment, "_EDGES_AT_ONCE", edges_at_once)
    subject = small_subject(max_graphs=None)
    test = subject.dataset.test
    found = []
    for part in experiment.true_configurations(subject, subject.positions):
        edges = torch.bincount(part.batch.batch[part.batch.edge_index[0]]).tolist()
        found += list(
            zip(part.home.tolist(), map(edges_of, part.edge_gate.split(edges)), strict=True)
        )
    expected = [
        (number, sorted(alternative))
        for number, position in enumerate(subject.positions.tolist())
        for alternative in test[position].edge_alternatives
    ]
    assert found == expected
    assert len(expected) > subject.positions.numel()  # some graphs have several


def test_random_configurations_open_as_many_whole_bonds() -> None:
    subject = small_subject()
    (part,) = experiment.true_configurations(subject, subject.positions)
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
    experiment.compute(**quick(tmp_path, max_graphs=8, num_draws=2, num_random=2))
    rows = read_experiment(tmp_path, EXPERIMENT)
    subject = small_subject(8)
    chosen = rows[rows["setting"] == "em/gt"].set_index(["metric", "level"])["value"]
    clean = rows[rows["setting"] == "clean"].set_index("level")["value"]
    seen = 0
    for position in subject.positions.tolist():
        graph = subject.dataset.test[position]
        with torch.no_grad():
            logits = subject.model(
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
            values.append(perturbation_distances(subject.model, graph, gate, ElementMask()))
        for metric, name in (
            ("D_repr", "representation"),
            ("D_pred", "prediction"),
            ("confidence", "confidence"),
        ):
            mean = sum(float(getattr(value, name)) for value in values) / len(values)
            assert chosen[metric, position] == pytest.approx(mean, rel=1e-3, abs=1e-5)
    assert seen == len(clean) > 0


def test_finished_parts_are_not_computed_again(tmp_path: Path, monkeypatch) -> None:
    settings = quick(tmp_path, num_draws=2, num_random=1)
    experiment.compute(**settings)
    before = read_experiment(tmp_path, EXPERIMENT)

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(experiment, "compare", never)
    experiment.compute(**settings)
    assert before.equals(read_experiment(tmp_path, EXPERIMENT))
    with pytest.raises(AssertionError, match="again"):
        experiment.compute(**settings | {"num_draws": 3})


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    for draws in (1, 2):
        experiment.compute(**quick(tmp_path, num_draws=draws, num_random=1))
    with pytest.raises(StoreError, match="more than one run"):
        experiment.table(tmp_path)


def test_table_has_reduction_in_percent_and_the_papers_numbers(tmp_path: Path) -> None:
    values = {
        "em/gt": (2.0, 4.0),
        "nc/gt": (1.0, 2.0),
        "em/rand": (1.0, 1.0),
        "nc/rand": (2.0, 2.0),
    }
    rows = [
        {
            "dataset": "benzene",
            "target": "gin",
            "setting": setting,
            "level": float(graph),
            "seed": 0,
            "metric": metric,
            "value": value,
        }
        for setting, pair in values.items()
        for graph, value in enumerate(pair)
        for metric in ("D_repr", "D_pred")
    ]
    write_part(tmp_path, EXPERIMENT, "hand", rows)
    em, nc, improvement = experiment.table(tmp_path).rows
    assert em[:4] == ["benzene", "EM", "3.00 ± 1.41", "1.00 ± 0.00"]
    assert nc[2:4] == ["1.50 ± 0.71", "2.00 ± 0.00"]
    assert improvement[2:6] == ["50.0%", "-100.0%"] * 2
    assert em[6:] == ["0.03 ± 0.07", "0.11 ± 0.09", "0.77 ± 0.26", "0.38 ± 0.18"]
    assert improvement[6:] == ["0.0%", "45.5%", "3.9%", "-13.2%"]  # as printed in Appendix G


def test_no_reduction_is_stated_where_masking_moves_nothing() -> None:
    assert experiment._improvement([1e-9, 2.0], [1.0, 1.0]) == ["-", "50.0%"]
