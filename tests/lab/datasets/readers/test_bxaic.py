"""B-XAIC, published and stand-in: truths and splits by hand, and bad molecules that are named."""

import pytest
import torch

from nicegnn.molecule.featurizers import Elements
from nicegnn.molecule.smiles import ATOMS_BXAIC
from nicegnn_lab.datasets import DamagedFileError
from nicegnn_lab.datasets.dataset import STAND_IN
from tests.lab.datasets.small_files import load, published_bxaic, tidy_bxaic

pytest.importorskip("rdkit", reason="needs RDKit: pip install 'nicegnn[molecules]'")


@pytest.mark.parametrize("write", [tidy_bxaic, published_bxaic])
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
    dataset = load("indole", tmp_path)
    assert dataset.part.tolist() == [0, 1, 2]
    assert dataset.origin.split == "0"  # the first of five


def test_stand_in_is_called_so_and_yields_to_the_real_files(tmp_path):
    tidy_bxaic(tmp_path)
    dataset = load("pains", tmp_path)
    assert dataset.is_stand_in
    assert STAND_IN in dataset.title
    assert STAND_IN in repr(dataset.test)
    assert "stand-in" in dataset.report.layout
    published_bxaic(tmp_path)
    assert not load("pains", tmp_path).is_stand_in
    assert load("pains", tmp_path).title == "pains"


@pytest.mark.parametrize("order", ["reversed", "as written"])
def test_sdf_atoms_follow_the_smiles(order, tmp_path):
    published_bxaic(tmp_path, order=order)
    for data in load("indole", tmp_path):
        expected = Elements(ATOMS_BXAIC)(data.smiles)
        assert torch.equal(data.x, expected.x)
        assert torch.equal(data.edge_index, expected.edge_index)
        assert torch.equal(data.edge_attr, expected.edge_attr)


def test_truncated_sdf_is_an_error(tmp_path):
    path = published_bxaic(tmp_path) / "explanations.sdf"
    path.write_text(path.read_text()[:-60])
    with pytest.raises(DamagedFileError, match=r"got an end in the middle of molecule 2"):
        load("indole", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<rings_edge>", "<other>", "property 'rings_edge'"),
        ("M  END", "M  ???", "RDKit cannot read"),
        ("0#1", "0#4", "KeyError"),
    ],
)
def test_bad_sdf_molecules_are_reported(old, new, reason, tmp_path):
    path = published_bxaic(tmp_path, order="as written") / "explanations.sdf"
    path.write_text(path.read_text().replace(old, new, 1))
    report = load("rings-count", tmp_path).report
    assert [item.row for item in report.rejected] == [0]
    assert reason in report.rejected[0].reason
