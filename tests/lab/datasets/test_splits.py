"""Splits: sizes, seeds, no molecule in two parts; equal graphs have equal hashes, others not."""

import random

import pytest
import torch

from nicegnn.molecule.smiles import Bond
from nicegnn.molecule.splits import TEST
from nicegnn_lab.datasets.dataset import load_dataset
from nicegnn_lab.datasets.molecule_tensors import TensorBuilder
from nicegnn_lab.datasets.readers import Record
from nicegnn_lab.datasets.rules import MoleculeTruth
from nicegnn_lab.datasets.splits import graph_hashes, published_split, twin_groups
from tests.lab.datasets.small_files import tidy_benzene


def test_parted_duplicates_of_a_published_split_go_to_train():
    part = torch.tensor([0, 2, 1, 2, 2], dtype=torch.int8)
    fixed, num_moved = published_split(part, ["a", "a", "b", "c", "c"])
    assert fixed.tolist() == [0, 0, 1, 2, 2]
    assert num_moved == 1
    assert part[1] == TEST  # the published tensor is untouched


def test_copies_of_a_molecule_never_meet_in_two_parts(tmp_path):
    tidy_benzene(tmp_path, copies=10)
    dataset = load_dataset("benzene", root=tmp_path, cache=tmp_path / "c")
    parts = {smiles: set() for smiles in dataset.smiles}
    for smiles, part in zip(dataset.smiles, dataset.part.tolist(), strict=True):
        parts[smiles].add(part)
    assert all(len(found) == 1 for found in parts.values())
    assert "36 twins" in dataset.report


def tensors_of(*graphs: tuple[list[str], list[Bond]]) -> dict[str, torch.Tensor]:
    builder = TensorBuilder(("C", "N", "O"))
    for row, (atoms, bonds) in enumerate(graphs):
        builder.add(Record(row, "", atoms, bonds, {"t": MoleculeTruth(0)}))
    return builder.finish()


def ring(size: int, kind: int = 1) -> list[Bond]:
    return [(i, (i + 1) % size, kind) for i in range(size)]


def shuffled(atoms: list[str], bonds: list[Bond], seed: int) -> tuple[list[str], list[Bond]]:
    rng = random.Random(seed)
    place = rng.sample(range(len(atoms)), len(atoms))
    moved = [""] * len(atoms)
    for old, new in enumerate(place):
        moved[new] = atoms[old]
    turned = [(place[u], place[v], t) if rng.random() < 0.5 else (place[v], place[u], t)
              for u, v, t in bonds]  # fmt: skip
    rng.shuffle(turned)
    return moved, turned


def test_order_of_atoms_and_bonds_does_not_matter():
    graph = (["C"] * 5 + ["N", "O"], [*ring(5), (4, 5, 1), (5, 6, 2)])
    groups = twin_groups(tensors_of(graph, *(shuffled(*graph, seed) for seed in range(10))))
    assert groups.tolist() == [0] * 11


@pytest.mark.parametrize(
    "other",
    [
        (["C", "C", "O"], [(0, 1, 1), (1, 2, 2)]),  # another bond type
        (["C", "C", "N"], [(0, 1, 1), (1, 2, 1)]),  # another element
        (["C", "O", "C"], [(0, 1, 1), (1, 2, 1)]),  # another place
        (["C", "C", "O"], [(0, 1, 1)]),  # a bond less
        (["C", "C", "O", "C"], [(0, 1, 1), (1, 2, 1)]),  # an atom more
    ],
)
def test_different_graphs_differ(other):
    hashes = graph_hashes(tensors_of((["C", "C", "O"], [(0, 1, 1), (1, 2, 1)]), other))
    assert hashes[0] != hashes[1]


def test_a_graph_has_the_same_hash_in_any_company():
    graph = (["C", "O"], [(0, 1, 2)])
    alone = graph_hashes(tensors_of(graph))[0]
    assert graph_hashes(tensors_of((["N"], []), graph, (["C"] * 6, ring(6))))[1] == alone


def test_graphs_that_message_passing_cannot_tell_apart_are_twins():
    two_triangles = [*ring(3), *[(u + 3, v + 3, t) for u, v, t in ring(3)]]
    groups = twin_groups(tensors_of((["C"] * 6, ring(6)), (["C"] * 6, two_triangles)))
    assert groups.tolist() == [0, 0]
