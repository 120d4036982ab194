"""Packed molecules: batches cut from them are those of PyG."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import many
import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

from nicegnn.molecule.featurizers import FEATURIZERS

SMILES = ["Cc1ccccc1", "[Na+].[Cl-]", "C1CC(", "C", "OC(=O)C#N", "N[C@@H](C)C(=O)O"]


@pytest.mark.parametrize("name", ["elements", "rich"])
def test_batches_of_a_packed_file_are_those_of_the_featuriser(name: str, tmp_path: Path) -> None:
    many._start(name)
    rows = list(enumerate(SMILES, start=1))
    tensors = many.joined(map(many._read, (rows[:3], rows[3:])))
    assert tensors["missing"].tolist() == [3]
    np.savez_compressed(tmp_path / "packed.npz", **tensors)
    packed = many.PackedGraphs.load(tmp_path / "packed.npz", "cpu")
    graphs = [FEATURIZERS[name](smiles) for number, smiles in rows if number != 3]
    assert len(packed) == len(graphs)
    for first, last in ((0, 5), (1, 4), (4, 5)):
        found, expected = packed.batch(first, last), Batch.from_data_list(graphs[first:last])
        for key in ("x", "edge_index", "edge_attr", "batch", "ptr"):
            assert torch.equal(found[key], expected[key]), key
        assert found.num_graphs == last - first


WITHOUT_RDKIT = """
import runpy, sys
sys.modules["rdkit"] = None  # an import raises
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_run_needs_no_rdkit_and_keeps_what_it_measured(tmp_path: Path) -> None:
    many._start("elements")
    tensors = many.joined([many._read([*enumerate(SMILES)])])
    np.savez_compressed(tmp_path / "packed.npz", **tensors)
    kept = tmp_path / "kept.json"
    for student in ("no", "yes"):
        words = ["run", str(tmp_path / "packed.npz"), "--student", student, "--json", str(kept)]
        command = [sys.executable, "-c", WITHOUT_RDKIT, many.__file__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(kept.read_text())
    assert found["student from tensors, cpu"]["finite"]
    assert list(found) == ["teacher from tensors, cpu", "student from tensors, cpu"]
    assert found["student from tensors, cpu"] == {"model": "benzene", **json.loads(done.stdout)}
