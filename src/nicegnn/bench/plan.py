"""The cells of a benchmark: every combination, with all that can change its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nicegnn.bench.cell import RUNNER_VERSION, Cell, data_key
from nicegnn.bench.config import BenchConfig
from nicegnn.bench.selection import explained_positions
from nicegnn.bench.settings import Choice, check_tables, choose, full_settings, settings_for
from nicegnn.bench.targets import load_target, target_path
from nicegnn.datasets import MoleculeDataset, load_dataset
from nicegnn.datasets.registry import facts_of
from nicegnn.errors import ConfigError, StoreError
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import GraphClassifier


def make_cells(config: BenchConfig) -> list[Cell]:
    """Returns all cells, each once; a wrong name or setting is an error before anything runs.

    Datasets and targets are read, because their content is a part of the keys.
    """
    check_tables(config.settings)
    for name in config.datasets:
        if not facts_of(name).has_bond_truth:
            raise ConfigError(f"The truth of {name!r} lies on atoms; a benchmark needs true bonds.")
    cells: dict[str, Cell] = {}
    for name in config.datasets:
        dataset = load_dataset(name)
        about = _about_data(dataset, config)
        for target in config.targets:
            tables = settings_for(config.settings, name, target)
            choices = [choose(explainer, tables) for explainer in config.explainers]
            model = read_target(config.targets_folder, dataset, target)
            for choice in choices:
                for seed in config.seeds:
                    cell = _cell(about, target, model, choice, seed)
                    cells.setdefault(cell.key, cell)
    return list(cells.values())


def read_target(
    folder: Path, dataset: MoleculeDataset, target: str, device: Any = "cpu"
) -> GraphClassifier:
    """Returns a trained target, after checking that it was trained on these data and this split."""
    path = target_path(folder, dataset.name, target)
    if not path.is_file():
        raise StoreError(
            f"There is no target {path}; train it with `nicegnn train --dataset {dataset.name} "
            f"--target {target} --out {folder}`, or name another --targets-folder."
        )
    found = load_target(path, device=device)
    now = {"data": dict(dataset.report.files), "split": dataset.origin.split}
    changed = [key for key, value in now.items() if found.manifest.get(key) != value]
    if changed:
        raise StoreError(
            f"{path} was trained with another {' and '.join(changed)}, so it may know the test "
            "graphs; train a target on these data."
        )
    return found.model


def _about_data(dataset: MoleculeDataset, config: BenchConfig) -> dict[str, Any]:
    """Returns what makes the graphs of a cell these graphs."""
    available = explained_positions(getattr(dataset, config.part)).numel()
    if available == 0:
        raise ConfigError(
            f"{dataset.name} has no graph of label 1 with a truth in its {config.part} part."
        )
    return {
        "dataset": dataset.name,
        "data": data_key(dataset),
        "split": dataset.origin.split,
        "part": config.part,
        "explained": config.explained,
        "max_graphs": _below(config.max_graphs, available),
        "fit_graphs": _below(config.fit_graphs, len(dataset.train)),
    }


def _cell(
    about: dict[str, Any], target: str, model: GraphClassifier, choice: Choice, seed: int
) -> Cell:
    try:
        explainer = choice.make(model, seed)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"Explainer {choice.explainer!r}: {error}") from error
    identity = about | {
        "runner": RUNNER_VERSION,
        "target": target,
        "model": fingerprint(model),
        "explainer": choice.explainer,
        "mechanism": choice.mechanism,
        "settings": full_settings(explainer, choice.values),
        "seed": seed,
    }
    if not choice.learns:
        identity["fit_graphs"] = None  # changes nothing
    return Cell(
        dataset=about["dataset"],
        target=target,
        explainer=choice.explainer,
        mechanism=choice.mechanism,
        seed=seed,
        settings=dict(choice.values),
        identity=identity,
    )


def _below(wanted: int | None, available: int) -> int | None:
    """Returns a limit, or none where it is no limit."""
    return None if wanted is None or wanted >= available else wanted
