"""Mutagenicity in each of its layouts by hand, and damaged files that are named."""

import pytest

from nicegnn.molecule.smiles import ATOMS_MUTAGENICITY
from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.dataset import load_dataset
from tests.lab.datasets.small_files import bonds_of, load, tidy_mutagenicity, tu_texts, tu_zip


@pytest.mark.parametrize("write", [tidy_mutagenicity, tu_zip])
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


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("node_labels", lambda text: text[:-4], "lines in Mutagenicity_node_labels.txt"),
        ("A", lambda text: text + "7\n", "two numbers in each line"),
        ("A", lambda text: text.replace("2, 3", "2, 999"), "atom numbers from 1 to"),
        ("graph_labels", lambda text: text + "x\n", "whole numbers in Mutagenicity_graph_labels"),
        ("edge_labels", lambda text: "", "lines in Mutagenicity_edge_labels.txt"),
    ],
)
def test_damaged_tu_files_are_named(part, change, message, tmp_path):
    texts = tu_texts()
    tu_zip(tmp_path, {**texts, part: change(texts[part])})
    with pytest.raises(DamagedFileError, match=message):
        load_dataset("mutagenicity", root=tmp_path)


def test_damaged_or_incomplete_zip_is_named(tmp_path):
    path = tu_zip(tmp_path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DamagedFileError, match=r"Mutagenicity\.zip must be a zip of text files"):
        load_dataset("mutagenicity", root=tmp_path)
    tu_zip(tmp_path, {key: text for key, text in tu_texts().items() if key != "A"})
    with pytest.raises(DamagedFileError, match=r"must hold Mutagenicity_A\.txt"):
        load_dataset("mutagenicity", root=tmp_path)
