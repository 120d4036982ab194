"""Molecule graphs, chemistry rules that know the true explanation, and generated molecules."""

from nicegnn.datasets.generated import (
    GENERATED_TASKS,
    GenerationError,
    alternatives_mask,
    generate_dataset,
    generate_smiles,
)
from nicegnn.datasets.molecules import (
    ATOMS_BXAIC,
    ATOMS_GRAPHXAI,
    ATOMS_MUTAGENICITY,
    BOND_TYPES,
    MoleculeError,
    graph_from_tables,
    molecule_graph,
    molecule_tables,
    parse_smiles,
)
from nicegnn.datasets.rules import GRAPHXAI_RULES, RULES, Rule, Truth, truth_of

__all__ = [
    "ATOMS_BXAIC",
    "ATOMS_GRAPHXAI",
    "ATOMS_MUTAGENICITY",
    "BOND_TYPES",
    "GENERATED_TASKS",
    "GRAPHXAI_RULES",
    "RULES",
    "GenerationError",
    "MoleculeError",
    "Rule",
    "Truth",
    "alternatives_mask",
    "generate_dataset",
    "generate_smiles",
    "graph_from_tables",
    "molecule_graph",
    "molecule_tables",
    "parse_smiles",
    "truth_of",
]
