"""Molecule graphs: benchmarks, rules that know the true explanation, generated molecules."""

from nicegnn_lab.datasets.data_files import (
    ChecksumError,
    DamagedFileError,
    DownloadError,
    MissingDataError,
    cache_folder,
    data_folder,
)
from nicegnn_lab.datasets.dataset import (
    MoleculeDataset,
    dataset_statistics,
    load_dataset,
)
from nicegnn_lab.datasets.generator import (
    GENERATED_TASKS,
    generate_dataset,
)
from nicegnn_lab.datasets.prepare import download_dataset, prepare_dataset
from nicegnn_lab.datasets.registry import DATASETS, FAMILIES, register_dataset
from nicegnn_lab.datasets.rules import truth_of

__all__ = [
    "DATASETS",
    "FAMILIES",
    "GENERATED_TASKS",
    "ChecksumError",
    "DamagedFileError",
    "DownloadError",
    "MissingDataError",
    "MoleculeDataset",
    "cache_folder",
    "data_folder",
    "dataset_statistics",
    "download_dataset",
    "generate_dataset",
    "load_dataset",
    "prepare_dataset",
    "register_dataset",
    "truth_of",
]
