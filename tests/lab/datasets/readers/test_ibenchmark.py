"""The table of ibenchmark: truths by hand, what is missing or damaged, molecules of a pattern."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from nicegnn_lab.datasets import DamagedFileError, MissingDataError
from nicegnn_lab.datasets.readers.ibenchmark import FILE_NAME, graphs_with_pattern, published_graphs


def write_table(folder: Path, *rows: tuple[str, str, str, str, str]) -> Path:
    """Writes rows of task, part, SMILES, activity and truth."""
    lines = ["task,part,mol_id,smiles,activity,atom_truth"]
    lines += [
        f"{task},{part},M{n},{smiles},{value},{truth}"
        for n, (task, part, smiles, value, truth) in enumerate(rows)
    ]
    path = folder / FILE_NAME
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return path


def test_true_bonds_join_two_positive_atoms(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        ("amide_class", "train", "CC(=O)NC", "1", "0 1 1 1 0"),
        ("amide_class", "test", "CCO", "0", "0 0 0"),
        ("N_minus_O", "test", "NCO", "0", "1 0 -1"),
    )
    parts = published_graphs("amide_class", tmp_path)
    (first,), (second,) = parts["train"], parts["test"]
    assert (int(first.y), int(second.y)) == (1, 0)
    assert first.y.dtype is second.y.dtype
    assert not first.y.is_floating_point()
    assert first.edge_truth[::2].tolist() == [False, True, True, False]  # C-C, C=O, C-N, N-C
    assert not second.edge_truth.any()
    (value,) = published_graphs("N_minus_O", tmp_path)["test"]
    assert value.y.is_floating_point()
    assert value.node_truth.tolist() == [1, 0, -1]


def test_missing_file_is_one_plain_error(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=f"{FILE_NAME} must be the tidy table .* Place it"):
        published_graphs("N", tmp_path)


def test_truth_of_another_length_names_the_molecule(tmp_path: Path) -> None:
    write_table(tmp_path, ("N", "train", "CCN", "1", "0 1"))
    with pytest.raises(DamagedFileError, match="got 2 for 3 atoms of CCN"):
        published_graphs("N", tmp_path)


def test_half_of_the_molecules_match_and_true_are_all_matches(tmp_path: Path) -> None:
    smiles = ["CS(=O)(=O)C", "CS(=O)(=O)N", "CCO", "CCN", "CCC", "CSC"]
    write_table(tmp_path, *(("N", "train", one, "0", "0") for one in [*smiles, "CCO"]))
    graphs = graphs_with_pattern("S(=O)=O", 10, 0, tmp_path)
    assert sorted(int(graph.y) for graph in graphs) == [0, 0, 1, 1]  # as many as match
    for graph in graphs:
        true = {graph.smiles: graph.edge_truth[::2].tolist()}
        assert true[graph.smiles] == ([False, True, True, False] if graph.y else [False] * 2)
    again = graphs_with_pattern("S(=O)=O", 10, 0, tmp_path)
    assert [graph.smiles for graph in graphs] == [graph.smiles for graph in again]
    assert len(graphs_with_pattern("S(=O)=O", 1, 0, tmp_path)) == 2
