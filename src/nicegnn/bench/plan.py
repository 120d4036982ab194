"""The cells of a study: every variant, with all that can change its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from nicegnn.bench.cell import RUNNER_VERSION, Cell, changed_settings, without_defaults
from nicegnn.bench.job import SHELL, make_explainer
from nicegnn.bench.settings import find_mechanism
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.task import Task, list_molecule_tasks
from nicegnn.errors import ConfigError
from nicegnn.rivals.registry import find_entry
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of

TARGETS_FOLDER = Path("results/targets")

#: What the identity of scores holds only where it is not this.
NEUTRAL: dict[str, Any] = {
    "part": "test",
    "explained": "label",
    "needs_right": False,
    "max_graphs": None,
    "fit_graphs": None,
    "explainer": "",
    "mechanism": "",
    "settings": {},
    "defaults": 1,
}


def make_cells(
    study: Study,
    datasets: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    *,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    max_graphs: int | None = None,
    fit_graphs: int | None = None,
) -> list[Cell]:
    """Returns all cells, each once; a wrong name or setting is an error before anything runs.

    Datasets and targets are read, because their content is a part of the keys.
    """
    _check(seeds, max_graphs, fit_graphs)
    wanted = tuple(targets or study.targets)
    limits = {
        "max_graphs": study.max_graphs if max_graphs is None else max_graphs,
        "fit_graphs": fit_graphs,
    }
    cells: dict[str, Cell] = {}
    known: set[str] = set()
    for task, own_seeds in _tasks(study, tuple(datasets or ()), seeds):
        known |= set(task.targets)
        for target in (target for target in wanted if target in task.targets):
            model = task.model(target, Path(targets_folder), device_of(device))
            about = _about_task(study, task, target, model, limits["max_graphs"])
            for variant in study.variants(task, target):
                chosen, settings = _resolved(variant, model, limits["fit_graphs"], task)
                for seed in own_seeds:
                    cell = _cell(study, task, target, chosen, {**about, **settings}, seed)
                    cells.setdefault(cell.key, cell)
    unknown = sorted(set(targets or ()) - known)
    if unknown:
        raise ConfigError(f"`target` must be one of {sorted(known)} (got {unknown}).")
    return list(cells.values())


def _tasks(
    study: Study, datasets: tuple[str, ...], seeds: Sequence[int]
) -> Iterator[tuple[Task, tuple[int, ...]]]:
    """Yields tasks with the seeds that they serve; a generated task serves its own seed alone."""
    for name in dict.fromkeys(datasets or study.datasets or list_molecule_tasks()):
        first = study.task(name, seeds[0])
        if not first.is_seeded:
            yield first, tuple(dict.fromkeys(seeds))
            continue
        for seed in dict.fromkeys(seeds):
            yield (first if seed == seeds[0] else study.task(name, seed)), (seed,)


def _about_task(
    study: Study, task: Task, target: str, model: nn.Module, most: int | None
) -> dict[str, Any]:
    """Returns what makes the explained graphs and the target these, as plain values."""
    available = task.explained(model, study.part, None, study.needs_right).numel()
    return {
        "runner": RUNNER_VERSION,
        "dataset": task.name,
        **task.identity,
        "target": target,
        "model": fingerprint(model),
        "part": study.part,
        "explained": study.explained,
        "needs_right": study.needs_right,
        "max_graphs": _below(most, available),
    }


def _resolved(
    variant: Variant, model: nn.Module, fit_graphs: int | None, task: Task
) -> tuple[Variant, dict[str, Any]]:
    """Returns a variant with its mechanism named, and what its scores depend on."""
    if not variant.explainer:
        return variant, {}
    settings = dict(variant.settings)
    wanted = variant.mechanism or settings.pop("mechanism", "")
    name, mechanism = find_mechanism(variant.explainer, wanted)
    chosen = replace(variant, explainer=name, mechanism=mechanism, settings=settings)
    try:
        explainer = make_explainer(chosen, model, 0)
        default = make_explainer(Variant(explainer=name), model, 0)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"Explainer {name!r}: {error}") from error
    shell = {key: settings[key] for key in SHELL if key in settings}
    entry, _ = find_entry(name)
    return chosen, {
        "explainer": name,
        "mechanism": mechanism,
        "settings": changed_settings(explainer, default, shell),
        "defaults": max(entry.defaults_version, type(explainer).defaults_version),
        "fit_graphs": _below(fit_graphs, task.num_train) if entry.learns else None,
    }


def _cell(
    study: Study, task: Task, target: str, variant: Variant, about: dict[str, Any], seed: int
) -> Cell:
    identity = {
        "version": study.version,
        "setting": variant.setting,
        "level": None if math.isnan(variant.level) else float(variant.level),
        "extra": dict(variant.extra),
    }
    neutral = {"version": 1, "setting": "", "level": None, "extra": {}}
    return Cell(
        study=study.name,
        dataset=task.name,
        stand_in=task.is_stand_in,
        target=target,
        variant=variant,
        seed=seed,
        identity={
            "study": study.name,
            **without_defaults(identity, neutral),
            "scores": {**without_defaults(about, NEUTRAL), "seed": seed},
        },
    )


def _below(wanted: int | None, available: int) -> int | None:
    """Returns a limit, or none where it is no limit."""
    return None if wanted is None or wanted >= available else wanted


def _check(seeds: Sequence[int], max_graphs: int | None, fit_graphs: int | None) -> None:
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"`seeds` must be whole numbers (got {seeds!r}).")
    for name, value in (("max_graphs", max_graphs), ("fit_graphs", fit_graphs)):
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigError(f"`{name}` must be at least 1, or none for all (got {value!r}).")
