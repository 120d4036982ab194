"""The cells of a study, and the settings of explainers from TOML files."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

import nicegnn_lab
from nicegnn.config import Count, check_choice, check_number
from nicegnn.errors import ConfigError
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of
from nicegnn_lab.bench.study import (
    RUNNER_VERSION,
    Cell,
    Study,
    Variant,
    code_hash,
    flat_settings,
    make_explainer,
    without_defaults,
)
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import MoleculeTask, Task
from nicegnn_lab.datasets.registry import DATASETS
from nicegnn_lab.rivals import find_entry

TARGETS_FOLDER = Path("results/targets")
_CONFIGS = Path(nicegnn_lab.__file__).parent / "configs"
#: Chosen settings of explainers, and settings to try; read unless another file is named.
CHOSEN_FILE, SEARCH_FILE = _CONFIGS / "explainers.toml", _CONFIGS / "search.toml"

#: Settings by explainer, or by dataset or target and then by explainer.
Tables = Mapping[str, Mapping[str, Any]]

#: Values that identities leave out, so that new entries change no key.
_NEUTRAL_ROWS: dict[str, Any] = {"version": 1, "setting": "", "level": None, "extra": {}}
_NEUTRAL_SCORES: dict[str, Any] = {
    "part": "test",
    "max_graphs": None,
    "fit_graphs": None,
    "explainer": "",
    "mechanism": "",
    "settings": {},
    "defaults": 1,
    "code": "",
    "target_code": "",
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
    """Returns all cells, each once; a wrong name or setting is an error before anything runs."""
    if not seeds or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"`seeds` must be whole numbers (got {seeds!r}).")
    for name, most in (("max_graphs", max_graphs), ("fit_graphs", fit_graphs)):
        if most is not None:
            check_number(name, most, Count, " or be None")
    try:
        place = device_of(device)
    except RuntimeError:
        raise ConfigError(f"`device` must be 'cpu' or 'cuda' (got {device!r}).") from None
    most = study.max_graphs if max_graphs is None else max_graphs
    cells: dict[str, Cell] = {}
    possible: set[str] = set()
    for task, own_seeds in _tasks(study, tuple(datasets or ()), seeds):
        possible |= set(task.targets)
        for target in (name for name in targets or study.targets if name in task.targets):
            model = task.model(target, Path(targets_folder), place)
            about = _about_task(study, task, target, model, most)
            for variant in study.variants(task, target):
                chosen, settings = _resolved(variant, model, fit_graphs, task)
                level = None if chosen.level is None else float(chosen.level)
                rows = {"version": study.version, "setting": chosen.setting, "level": level}
                rows = without_defaults(rows | {"extra": dict(chosen.extra)}, _NEUTRAL_ROWS)
                scores = without_defaults({**about, **settings}, _NEUTRAL_SCORES)
                here = (study.name, task.name, task.is_stand_in, target, chosen)
                for seed in own_seeds:
                    identity = {"study": study.name, **rows, "scores": {**scores, "seed": seed}}
                    cell = Cell(*here, seed, identity)
                    cells.setdefault(cell.key, cell)
    for name in targets or ():
        check_choice("target", name, sorted(possible))
    return list(cells.values())


def _tasks(
    study: Study, datasets: tuple[str, ...], seeds: Sequence[int]
) -> Iterator[tuple[Task, tuple[int, ...]]]:
    """Yields tasks with the seeds of their cells; a generated task has only its own seed."""
    first, *others = dict.fromkeys(seeds)
    for name in dict.fromkeys(datasets or study.datasets or DATASETS):
        task = study.task(name, first)
        yield task, (first,) if task.is_seeded else (first, *others)
        for seed in others if task.is_seeded else ():
            yield study.task(name, seed), (seed,)


def _about_task(
    study: Study, task: Task, target: str, model: nn.Module, most: int | None
) -> dict[str, Any]:
    if most is not None:  # else nothing is read that tuning must not see
        most = _below(most, task.explained(model, study.part).numel())
    return {
        "runner": RUNNER_VERSION,
        "dataset": task.name,
        **task.identity,
        "target": target,
        "model": fingerprint(model),
        "target_code": TARGETS[target].code if target in TARGETS else "",
        "part": study.part,
        "max_graphs": most,
    }


def _resolved(
    variant: Variant, model: nn.Module, fit_graphs: int | None, task: Task
) -> tuple[Variant, dict[str, Any]]:
    if not variant.explainer:
        return variant, {}
    name, mechanism = find_mechanism(variant.explainer, variant.mechanism)
    chosen = replace(variant, explainer=name, mechanism=mechanism)
    try:
        explainer = make_explainer(chosen, model, 0)
        default = make_explainer(Variant(explainer=name), model, 0)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"Explainer {name!r}: {error}") from error
    entry, _ = find_entry(name)
    num_train = len(task.training()) if isinstance(task, MoleculeTask) else 0
    return chosen, {
        "explainer": name,
        "mechanism": mechanism,
        "settings": without_defaults(*(flat_settings(e.config) for e in (explainer, default))),
        "defaults": entry.defaults_version,
        "code": code_hash(type(explainer).__module__),
        "fit_graphs": _below(fit_graphs, num_train) if entry.learns else None,
    }


def _below(wanted: int | None, available: int) -> int | None:
    return None if wanted is None or wanted >= available else wanted  # a limit that cuts nothing


def read_settings(path: str | Path) -> dict[str, dict[str, Any]]:
    """Reads a TOML file with a table per explainer.

    Settings in ``[pgexplainer]`` are replaced by ``[benzene.pgexplainer]`` for one dataset, by
    ``[gcn.pgexplainer]`` for one target, by ``[gcn.benzene.pgexplainer]`` for both, and then by
    tables ``"pgexplainer+nc"`` for one mechanism. Settings of NICE's parts are written
    ``boundary__steps = 100``.
    """
    tables = read_toml(path, "settings of explainers")
    try:
        check_tables(tables)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return tables


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Reads a TOML file; `what` it should hold is named in errors."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read {what} from {path}: {error}") from error


def check_tables(tables: Mapping[str, Any]) -> None:
    """Raises `ConfigError` unless tables are of explainers, or of datasets or targets."""
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"`{name}` must be a table, [{name}] in TOML (got {table!r}).")
        if name in DATASETS or name in TARGETS:
            check_tables(table)
            continue
        find_mechanism(name)
        if "seed" in table:
            raise ConfigError(f"`{name}` must not set `seed`; the command sets it with --seed.")
        if table.get("undirected") is False:
            raise ConfigError(f"`undirected` of {name} must be true: bonds are compared.")


def settings_of(name: str, tables: Tables, dataset: str, target: str) -> dict[str, Any]:
    """Returns the settings of an explainer, such as ``refine+nc``, on one dataset and target."""
    explainer, mechanism = find_mechanism(name)
    of_target = tables.get(target, {})
    settings: dict[str, Any] = {}
    layers = (tables, tables.get(dataset, {}), of_target, of_target.get(dataset, {}))
    for own in (explainer, f"{explainer}+{mechanism}"):
        for layer in layers:
            settings |= dict(layer.get(own, {}))
    return settings


def find_mechanism(name: str, wanted: str = "") -> tuple[str, str]:
    """Returns an explainer's plain name and its mechanism, by default its first, or empty."""
    entry, asked = find_entry(name)
    try:
        allowed = entry.mechanisms
    except ImportError as error:
        raise ConfigError(f"Explainer {entry.name!r} cannot be imported: {error}.") from error
    mechanism = wanted or asked or (allowed[0] if allowed else "")
    if mechanism and mechanism not in allowed:
        names = " or ".join(map(repr, allowed)) or "none"
        raise ConfigError(f"`mechanism` of {entry.name} must be {names} (got {mechanism!r}).")
    return entry.name, mechanism
