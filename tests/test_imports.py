"""What importing the package costs: nothing heavy or optional may come along."""

from __future__ import annotations

import subprocess
import sys

import nicegnn

OPTIONAL = (
    "rdkit",
    "matplotlib",
    "sklearn",
    "networkx",
    "scipy",
    "ray",
    "captum",
    "typer",
    "chemprop",
    "lightning",
)


def test_core_imports_and_explains_without_optional_packages() -> None:
    code = f"""
import sys
sys.modules["numba"] = None  # PyG imports it where it is installed, and with it scipy
import torch, nicegnn, nicegnn.molecule.drawing, nicegnn.target.training
from torch_geometric.data import Data
from nicegnn.target.zoo import GIN
graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
config = nicegnn.NICEConfig().with_(attribution__num_draws=2)
nicegnn.NICE(GIN(3, 2), config).explain(graph)
print(sorted(set({OPTIONAL!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_public_names_are_imported_when_they_are_asked_for() -> None:
    code = """
import sys, nicegnn
assert "torch" not in sys.modules
assert set(nicegnn.__all__) <= set(dir(nicegnn))
assert not hasattr(nicegnn, "nosuch")
assert nicegnn.explain.registry.get_explainer is nicegnn.get_explainer
assert "torch" in sys.modules
from nicegnn import *
assert set(nicegnn.__all__) <= set(globals())
assert all(getattr(sys.modules[home], name) is globals()[name]
           for home, names in nicegnn._HOMES.items() for name in names)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    homes = [name for names in nicegnn._HOMES.values() for name in names]
    assert sorted(homes) == sorted(nicegnn.__all__)
