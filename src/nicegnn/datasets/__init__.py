"""Molecule graphs: benchmarks, rules that know the true explanation, generated molecules."""

from nicegnn.datasets.dataset import MoleculeDataset
from nicegnn.datasets.download import download_dataset
from nicegnn.datasets.errors import (
    ChecksumError,
    DamagedFileError,
    DataError,
    DownloadError,
    MissingDataError,
)
from nicegnn.datasets.folders import cache_folder, data_folder
from nicegnn.datasets.generated import (
    GENERATED_TASKS,
    GenerationError,
    alternatives_mask,
    generate_dataset,
    generate_smiles,
)
from nicegnn.datasets.load import load_dataset
from nicegnn.datasets.prepare import prepare_dataset
from nicegnn.datasets.records import LoadReport
from nicegnn.datasets.registry import DATASETS, FAMILIES, Facts
from nicegnn.datasets.rules import GRAPHXAI_RULES, RULES, Rule, Truth, truth_of
from nicegnn.datasets.statistics import Statistics, dataset_statistics
from nicegnn.datasets.verify import Agreement, verify_dataset
from nicegnn.molecule.smiles import (
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
from nicegnn.paper.dataset_statistics import PAPER, statistics_markdown

__all__ = [
    "ATOMS_BXAIC",
    "ATOMS_GRAPHXAI",
    "ATOMS_MUTAGENICITY",
    "BOND_TYPES",
    "DATASETS",
    "FAMILIES",
    "GENERATED_TASKS",
    "GRAPHXAI_RULES",
    "PAPER",
    "RULES",
    "Agreement",
    "ChecksumError",
    "DamagedFileError",
    "DataError",
    "DownloadError",
    "Facts",
    "GenerationError",
    "LoadReport",
    "MissingDataError",
    "MoleculeDataset",
    "MoleculeError",
    "Rule",
    "Statistics",
    "Truth",
    "alternatives_mask",
    "cache_folder",
    "data_folder",
    "dataset_statistics",
    "download_dataset",
    "generate_dataset",
    "generate_smiles",
    "graph_from_tables",
    "load_dataset",
    "molecule_graph",
    "molecule_tables",
    "parse_smiles",
    "prepare_dataset",
    "statistics_markdown",
    "truth_of",
    "verify_dataset",
]
