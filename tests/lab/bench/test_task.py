"""Tasks: which molecules are explained and fitted on, the same for every explainer."""

from __future__ import annotations

import pytest
import torch

from nicegnn_lab.bench.task import MoleculeTask, data_key, make_task
from nicegnn_lab.datasets.dataset import MoleculeDataset
from tests.lab.bench.small_bench import World, use_world


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> MoleculeTask:
    use_world(monkeypatch)
    found = make_task("benzene")
    assert isinstance(found, MoleculeTask)
    return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def test_graphs_are_those_of_label_one_with_a_truth_and_subsets_are_fixed(
    task: MoleculeTask, world: World
) -> None:
    model, test = task.model("gin", world.targets), task.part("test")
    positions = task.explained(model, "test")
    for position, graph in enumerate(test):
        wanted = int(graph.y) == 1 and bool(graph.edge_truth.any())
        assert wanted == (position in positions.tolist())
    some = task.explained(model, "test", 4)
    assert some.numel() == 4
    assert torch.equal(some, some.sort().values)
    assert set(some.tolist()) < set(positions.tolist())
    assert torch.equal(some, task.explained(model, "test", 4))


def test_the_key_of_the_data_tells_molecules_and_their_parts_apart(task: MoleculeTask) -> None:
    dataset = task.dataset
    tensors, _, rows = dataset.flat()

    def key(rows: torch.Tensor, part: torch.Tensor) -> str:
        return data_key(MoleculeDataset(tensors, rows, part, dataset.facts, dataset.files, ""))

    plain = key(rows, dataset.part)
    assert plain == data_key(dataset) == task.identity["data"]
    other = torch.tensor([0, 2, 1])[dataset.part.long()]  # two parts change places
    other = other.to(dataset.part.dtype)
    assert not torch.equal(other, dataset.part)
    assert key(rows, other) != plain
    assert key(rows.flip(0), dataset.part) != plain


def test_fits_read_the_training_part_or_a_fixed_share_of_it(task: MoleculeTask) -> None:
    some = task.training(7).smiles
    assert len(some) == 7
    assert some == task.training(7).smiles
    assert set(some) < set(task.part("train").smiles)
    assert task.training().smiles == task.training(10**6).smiles == task.dataset.train.smiles
