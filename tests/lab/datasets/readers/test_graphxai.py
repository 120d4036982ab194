"""GraphXAI's sets: graphs and truths by hand, and nothing in a pickled file ever runs."""

import os

import numpy as np
import pytest
from nicegnn_lab.datasets.readers.graphxai import read_plain_array

from nicegnn_lab.datasets.data_files import DamagedFileError
from tests.lab.datasets.small_files import (
    BENZENE,
    bonds_of,
    load,
    published_benzene,
    tidy_benzene,
    write_csv,
)

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")


@pytest.mark.parametrize("write", [tidy_benzene, published_benzene])
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


def test_alkane_set_keeps_two_negatives_for_each_positive(tmp_path):
    smiles = ["FCC(C)=O"] + ["C" * n for n in range(1, 9)]
    write_csv(tmp_path / "logic7" / "logic7_smiles.csv", [{"smiles": s} for s in smiles])
    np.savez(tmp_path / "logic7" / "y_true.npz", y=np.array([[1.0]] + [[0.0]] * 8))
    dataset = load("alkane-carbonyl", tmp_path)
    assert dataset.y.sort(descending=True).values.tolist() == [1, 0, 0]
    assert list(dataset.report.left_out.values()) == [6]


def test_published_molecules_that_rdkit_rejects_are_reported(tmp_path):
    folder = published_benzene(tmp_path)
    path = folder / "benzene_smiles.csv"
    path.write_text(path.read_text().replace("C1CCCCC1", "C1CC(").replace("CCO", ""))
    dataset = load("benzene", tmp_path)
    assert dataset.rows.tolist() == [0, 2]
    assert [item.row for item in dataset.report.rejected] == [1, 3]
    assert "C1CC(" in dataset.report.rejected[0].reason
    assert "at least one atom" in dataset.report.rejected[1].reason


def test_labels_against_the_rule_are_kept_and_noted(tmp_path):
    folder = published_benzene(tmp_path)
    np.savez(folder / "y_true.npz", y=np.array([[0.0], [1.0], [1.0], [0.0]]))
    dataset = load("benzene", tmp_path)
    assert dataset.y.tolist() == [0, 1, 1, 0]
    assert not dataset[0].edge_truth.any()
    notes = " ".join(dataset.report.notes)
    assert "row 0: published label 0, but the rule 'benzene' gives 1" in notes
    assert "1 positives have no true bond" in notes


def test_labels_of_another_length_are_damage(tmp_path):
    folder = published_benzene(tmp_path)
    np.savez(folder / "y_true.npz", y=np.array([[0.0], [1.0], [1.0]]))
    with pytest.raises(DamagedFileError, match=r"must hold 4 labels.*got 3"):
        load("benzene", tmp_path)


class Attack:
    """Makes a folder when it is unpickled by an ordinary reader."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("damage", ["truncated", "no zip", "no array", "empty"])
def test_damaged_files_are_named(damage, tmp_path):
    path = tmp_path / "y.npz"
    np.savez(path, **{"z" if damage == "no array" else "y": np.arange(1000)})
    content = {"truncated": path.read_bytes()[:500], "no zip": b"hello", "empty": b""}
    if damage in content:
        path.write_bytes(content[damage])
    with pytest.raises(DamagedFileError, match=r"y\.npz must be an \.npz file with the array 'y'"):
        read_plain_array(path, "y")
