"""Each layout of small hand-made files gives the graphs and truths written down here."""

from pathlib import Path

import pytest
import torch

from nicegnn.datasets import ATOMS_BXAIC, ATOMS_MUTAGENICITY, load_dataset
from nicegnn.datasets.dataset import STAND_IN, MoleculeDataset
from tests.datasets.small_files import (
    BENZENE,
    published_benzene,
    published_bxaic,
    tidy_benzene,
    tidy_bxaic,
    tidy_mutagenicity,
    tu_folder,
    tu_zip,
)

needs_rdkit = pytest.mark.skipif(
    pytest.importorskip("importlib.util").find_spec("rdkit") is None, reason="needs RDKit"
)


def load(name: str, root: Path, **settings: object) -> MoleculeDataset:
    return load_dataset(name, root=root, cache=root / "cache", **settings)


def bonds_of(edges: list[int]) -> set[int]:
    assert {edge ^ 1 for edge in edges} == set(edges)  # both directions
    return {edge // 2 for edge in edges}


@pytest.mark.parametrize(
    "write", [tidy_benzene, pytest.param(published_benzene, marks=needs_rdkit)]
)
def test_benzene_by_hand(write, tmp_path):
    write(tmp_path)
    dataset = load("benzene", tmp_path)
    assert [data.smiles for data in dataset] == [smiles for smiles, _, _ in BENZENE]
    assert dataset.y.tolist() == [1, 0, 1, 0]
    toluene, cyclohexane, diphenylmethane, _ = dataset
    assert toluene.edge_attr.argmax(1).tolist() == [0, 0] + [3] * 12
    assert toluene.x.argmax(1).tolist() == [0] * 7
    assert [bonds_of(edges) for edges in toluene.edge_alternatives] == [{1, 2, 3, 4, 5, 6}]
    assert toluene.edge_truth.tolist() == [False] * 2 + [True] * 12
    assert toluene.node_truth.tolist() == [False] + [True] * 6
    assert not cyclohexane.edge_truth.any()
    assert cyclohexane.edge_alternatives == []
    sizes = [len(bonds_of(edges)) for edges in diphenylmethane.edge_alternatives]
    assert sizes == [6, 6, 12]  # either ring, or both
    assert int(diphenylmethane.edge_truth.sum()) == 24


@pytest.mark.parametrize("write", [tidy_mutagenicity, tu_folder, tu_zip])
def test_mutagenicity_by_hand(write, tmp_path):
    write(tmp_path)
    dataset = load("mutagenicity", tmp_path)
    assert dataset.rows.tolist() == [0, 1, 2]  # the last graph has class 0, yet a match
    assert dataset.report.left_out == {"class and match disagree (GraphXAI's filter)": 1}
    nitroso, methane, halide = dataset
    symbols = [ATOMS_MUTAGENICITY[column] for column in nitroso.x.argmax(1)]
    assert symbols == ["C", "N", "O"]  # the lone sodium is gone
    assert nitroso.edge_attr.argmax(1).tolist() == [0, 0, 1, 1]
    assert nitroso.edge_truth.all()  # each bond touches N or O
    assert nitroso.node_truth.tolist() == [False, True, True]
    assert methane.y.item() == 0
    assert not methane.edge_truth.any()
    assert [bonds_of(edges) for edges in halide.edge_alternatives] == [{2}]  # C-Cl alone
    assert halide.smiles == ""


@pytest.mark.parametrize("write", [tidy_bxaic, pytest.param(published_bxaic, marks=needs_rdkit)])
def test_bxaic_by_hand(write, tmp_path):
    write(tmp_path)
    indole, rings = load("indole", tmp_path), load("rings-max", tmp_path)
    assert indole.y.tolist() == [1, 0, 0]
    assert indole[0].edge_truth.all()
    assert len(indole[0].edge_alternatives) == 1
    assert not indole[1].edge_truth.any()
    assert "edge_annotation" not in indole[0]
    assert rings.y.tolist() == [0, 1, 0]
    assert not rings[0].edge_truth.any()  # label 0
    assert rings[0].edge_annotation.sum() == 12  # yet its largest ring is marked
    assert rings[1].edge_truth.all()
    assert int(load("rings-count", tmp_path)[0].edge_annotation.sum()) == 20
    boron = load("B", tmp_path)
    assert boron.y.tolist() == [0, 0, 1]
    atom = boron[2].node_truth.nonzero().item()
    assert ATOMS_BXAIC[boron[2].x[atom].argmax()] == "B"
    assert "edge_truth" not in boron[2]
    assert load("X", tmp_path).y.sum() == 0


def test_published_splits_of_bxaic_are_its_own(tmp_path):
    tidy_bxaic(tmp_path)
    for split in range(5):
        dataset = load("indole", tmp_path, split=str(split))
        assert dataset.part.tolist() == [(index + split) % 3 for index in range(3)]
    assert load("indole", tmp_path).origin.split == "0"


def test_stand_in_is_called_so_and_yields_to_the_real_files(tmp_path):
    tidy_bxaic(tmp_path)
    dataset = load("pains", tmp_path)
    assert dataset.is_stand_in
    assert STAND_IN in dataset.title
    assert STAND_IN in repr(dataset.test)
    assert "stand-in" in dataset.report.layout
    pytest.importorskip("rdkit")
    published_bxaic(tmp_path)
    assert not load("pains", tmp_path).is_stand_in
    assert load("pains", tmp_path).title == "pains"
    assert load("pains", tmp_path, layout="tidy").is_stand_in


@needs_rdkit
@pytest.mark.parametrize("order", ["reversed", "as written"])
def test_sdf_atoms_follow_the_smiles(order, tmp_path):
    from nicegnn.datasets import molecule_graph

    published_bxaic(tmp_path, order=order)
    for data in load("indole", tmp_path):
        expected = molecule_graph(data.smiles, atoms=ATOMS_BXAIC, unknown="last")
        assert torch.equal(data.x, expected.x)
        assert torch.equal(data.edge_index, expected.edge_index)
        assert torch.equal(data.edge_attr, expected.edge_attr)


@needs_rdkit
def test_alkane_set_keeps_two_negatives_for_each_positive(tmp_path):
    import numpy as np

    from tests.datasets.small_files import write_csv

    smiles = ["FCC(C)=O"] + ["C" * n for n in range(1, 9)]
    write_csv(tmp_path / "logic7" / "logic7_smiles.csv", [{"smiles": s} for s in smiles])
    np.savez(tmp_path / "logic7" / "y_true.npz", y=np.array([[1.0]] + [[0.0]] * 8))
    dataset = load("alkane-carbonyl", tmp_path)
    assert dataset.y.sort(descending=True).values.tolist() == [1, 0, 0]
    assert list(dataset.report.left_out.values()) == [6]
    everything = load("alkane-carbonyl", tmp_path, subset="all")
    assert len(everything) == 9
    assert everything.report.left_out == {}
