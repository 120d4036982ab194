"""Tables of one's own: truths by atoms, and errors that name line and reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nicegnn_lab.datasets.data_files import DamagedFileError
from nicegnn_lab.datasets.dataset import MoleculeDataset, load_dataset
from nicegnn_lab.datasets.registry import register_dataset
from tests.lab.own_names import names_restored


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with names_restored():
        yield


def load(folder: Path, lines: list[str], **settings: Any) -> MoleculeDataset:
    (folder / "mine.csv").write_text("\n".join(["smiles,label,truth", *lines]) + "\n")
    register_dataset("mine", folder / "mine.csv", **settings)
    return load_dataset("mine", cache=folder / "cache")


def true_pairs(dataset: MoleculeDataset, position: int) -> set[tuple[int, int]]:
    data = dataset[position]
    ends = data.edge_index[:, data.edge_truth].t().tolist()
    return {(u, v) for u, v in ends if u < v}


NITRO = "CC[N+](=O)[O-]"  # bonds 0-1, 1-2, 2-3, 2-4


@pytest.mark.parametrize("truth", ["2 3 4", '"2,3,4"'])
def test_a_truth_marks_the_bonds_of_the_group(tmp_path: Path, truth: str) -> None:
    dataset = load(tmp_path, ["CCC,0,", f"{NITRO},1,{truth}", "CCO,0.0,"])
    assert dataset.y.tolist() == [0, 1, 0]
    assert [true_pairs(dataset, position) for position in range(3)] == [
        set(),
        {(2, 3), (2, 4)},
        set(),
    ]
    assert dataset[1].node_truth.nonzero().view(-1).tolist() == [2, 3, 4]
    assert dataset.num_node_features == 11


def test_parted_truths_hold_each_by_themselves(tmp_path: Path) -> None:
    lines = ["CCC,0,", "FCCCl,1,0 1; 2 3", "CCCC,1,"]
    dataset = load(tmp_path, lines)
    assert dataset[1].edge_alternatives == [[0, 1], [4, 5], [0, 1, 4, 5]]  # the union comes last
    assert dataset[2].edge_alternatives == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("CCO,1,0 9", r"line 3 \(CCO\): its atoms are 0 to 2 \(got '9' in the truth\)"),
        ("CCO,1,-1", "its atoms are 0 to 2"),
        ("CCO,1,first", "got 'first'"),
        ("CCO,1,1", "must hold both ends of a bond"),
        ("CCO,1,0 2", "must hold both ends of a bond"),
        ("CCO,0,0 1", r"label 0 must have no truth \(got '0 1'\)"),
        ("CCO,2,", r"the label must be 0 or 1 \(got '2'\)"),
        ("CCO,yes,", r"the label must be 0 or 1 \(got 'yes'\)"),
        ("CCO,nan,", "the label must be 0 or 1"),
    ],
)
def test_a_truth_that_does_not_fit_is_named_with_line_and_reason(
    tmp_path: Path, line: str, reason: str
) -> None:
    with pytest.raises(DamagedFileError, match=reason) as caught:
        load(tmp_path, ["CCC,0,", line])
    assert str(caught.value).startswith(f"{tmp_path / 'mine.csv'} must hold molecules with labels")
    assert not list(tmp_path.glob("cache/**/*.safetensors"))


def test_many_misfits_are_counted_and_a_bad_smiles_is_one(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"got 9 of 9 rows that do not: .*; 4 more\)"):
        load(tmp_path, ["CCO,1,7 8"] * 9)
    with pytest.raises(DamagedFileError, match=r"got 1 of 3 .*: line 3 \(C1CC\): .*ring"):
        load(tmp_path, ["CCC,0,", "C1CC,1,0 1", "CCO,1,1 2"])


def test_other_columns_a_published_split_and_other_atoms(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    rows = [f"{'C' * n}O,{n % 2},{'0 1' if n % 2 else ''},{part}" for n, part in
            enumerate(["train", "train", "valid", "test", "test"], 2)]  # fmt: skip
    table.write_text("\n".join(["molecule,active,why,part", *rows]))
    names = {"smiles": "molecule", "label": "active", "truth": "why", "split": "part"}
    register_dataset("other", table, vocabulary=["C", "O"], **names)
    dataset = load_dataset("other", cache=tmp_path)
    assert dataset.num_node_features == 2
    assert [len(part) for part in (dataset.train, dataset.valid, dataset.test)] == [2, 1, 2]
    assert dataset.split == "0"
    table.write_text(table.read_text().replace("valid", "dev"))
    with pytest.raises(DamagedFileError, match=r"the part must be one of .* \(got 'dev'\)"):
        load_dataset("other", cache=tmp_path)


def test_the_cache_follows_table_and_reading(tmp_path: Path) -> None:
    lines = ["CCC,0,", "FCCCl,1,0 1"]
    assert true_pairs(load(tmp_path, lines), 1) == {(0, 1)}
    assert true_pairs(load(tmp_path, ["CCC,0,", "FCCCl,1,1 2"]), 1) == {(1, 2)}
    (tmp_path / "mine.csv").write_text("smiles,label,truth,more\nCCC,0,,\nFCCCl,1,1 2,2 3\n")
    register_dataset("mine", tmp_path / "mine.csv", truth="more")
    assert true_pairs(load_dataset("mine", cache=tmp_path / "cache"), 1) == {(2, 3)}
