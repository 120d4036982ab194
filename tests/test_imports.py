"""What importing the package costs: nothing heavy or optional may come along."""

from __future__ import annotations

import subprocess
import sys

import pytest

OPTIONAL = ("rdkit", "matplotlib", "sklearn", "networkx", "scipy", "ray", "captum", "typer")


def test_core_imports_and_explains_without_optional_packages() -> None:
    code = f"""
import sys, torch, nicegnn, nicegnn.datasets, nicegnn.molecule.drawing, nicegnn.target.training
from torch_geometric.data import Data
from nicegnn.target.zoo import GIN
graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
config = nicegnn.NICEConfig().with_(boundary__graph_steps=2, attribution__num_draws=2)
nicegnn.NICE(GIN(3, 2), config).explain(graph)
print(sorted(set({OPTIONAL!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["NICE", "NICEConfig", "intervene", "scale_profile"])
def test_public_names_are_where_the_documentation_says(name: str) -> None:
    import nicegnn

    assert name in nicegnn.__all__
    assert hasattr(nicegnn, name)
