"""Cells and keys: every change that can change a number gives another key, and no other does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE as NICEExplainer
from nicegnn.target.training import TrainConfig
from nicegnn.target.zoo import GIN
from nicegnn_lab.bench import BenchConfig, MetricConfig
from nicegnn_lab.bench.study import content_hash, flat_settings, without_defaults
from nicegnn_lab.bench.targets import train_target
from nicegnn_lab.bench.task import data_key
from nicegnn_lab.datasets import load_dataset
from nicegnn_lab.rivals import EXPLAINERS, get_explainer, list_explainers
from tests.lab.bench.default_values import DEFAULTS
from tests.lab.bench.small_bench import NICE, World, use_world
from tests.lab.datasets.small_files import write_molecules


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def key_of(config: BenchConfig) -> str:
    (cell,) = config.cells()
    return cell.key


def scores_key(config: BenchConfig) -> str:
    (cell,) = config.cells()
    return content_hash(cell.identity["scores"])


def test_key_changes_with_all_that_can_change_a_number(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "nice")
    tables = {"nice": NICE | {"boundary__steps": 11}}
    changed = [
        replace(base, explainers=("nice-paper",)),
        replace(base, explainers=("nice+em",)),
        replace(base, seeds=(1,)),
        replace(base, part="valid"),
        replace(base, explained="predicted"),
        replace(base, max_graphs=5),
        replace(base, max_graphs=6),
        replace(base, fit_graphs=20),
        replace(base, settings=tables),
        replace(base, settings={"nice+both": NICE | {"score": "gate"}}),
    ]
    for key in (key_of, scores_key):
        keys = [key(config) for config in (base, *changed)]
        assert len(set(keys)) == len(keys)
        assert key(base) == keys[0]


def test_key_keeps_still_where_no_number_changes(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "nice")
    key = key_of(base)
    assert key_of(replace(base, out=tmp_path / "elsewhere", device=None)) == key
    assert key_of(replace(base, explainers=("nice+both", "nice"))) == key  # one cell, asked twice
    assert key_of(replace(base, max_graphs=10**6, fit_graphs=10**6)) == key  # no limit at all
    default = NICE | {"score": NICEConfig().score, "chunk_edges": 1000}
    assert key_of(replace(base, settings={"nice": default})) == key
    saliency = replace(base, explainers=("saliency",))
    assert key_of(replace(saliency, fit_graphs=20)) == key_of(saliency)  # it fits nothing


def test_metrics_change_the_key_of_rows_and_not_of_scores(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "random", metrics=MetricConfig())
    others = [
        MetricConfig(top=0.2),
        MetricConfig(removals=()),
        MetricConfig(num_draws=8),
    ]
    configs = [base, *(replace(base, metrics=other) for other in others)]
    assert len({key_of(config) for config in configs}) == 4
    assert len({scores_key(config) for config in configs}) == 1


def test_a_new_setting_with_a_default_changes_no_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that nobody knew when a cell was stored has its default in that cell."""
    config = world.config(tmp_path, "nice", "pgexplainer")
    before = [cell.key for cell in config.cells()]
    plain = flat_settings

    def with_a_new_one(settings: Any) -> dict[str, Any]:
        return plain(settings) | {"boundary__sharpness": 1.0}

    monkeypatch.setattr("nicegnn_lab.bench.study.flat_settings", with_a_new_one)
    assert [cell.key for cell in config.cells()] == before

    def changed(settings: Any) -> dict[str, Any]:
        is_default = settings in (NICEConfig(), type(settings)())
        return plain(settings) | {"boundary__sharpness": 1.0 if is_default else 2.0}

    monkeypatch.setattr("nicegnn_lab.bench.study.flat_settings", changed)
    assert config.cells()[0].key != before[0]  # the quick settings of nice are not its defaults


def test_a_raised_version_of_defaults_changes_the_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path, "nice", "random")
    before = [cell.key for cell in config.cells()]
    monkeypatch.setattr(NICEExplainer, "defaults_version", 9)
    after = [cell.key for cell in config.cells()]
    assert after[0] != before[0]
    assert after[1] == before[1]


def changed_defaults(
    known: Mapping[str, tuple[int, Mapping[str, Any]]],
    now: Mapping[str, tuple[int, Mapping[str, Any]]],
) -> list[str]:
    """Returns a line for each default that changed although its version was not raised."""
    return [
        f"The default of {name}.{setting} changed from {value!r} to {values.get(setting)!r}, so "
        f"stored cells would be taken for others: raise `defaults_version` of {name} (now "
        f"{version}) and write the new value into tests/bench/default_values.py."
        for name, (version, values) in now.items()
        for setting, value in known.get(name, (version, {}))[1].items()
        if version == known[name][0] and values.get(setting) != value
    ]


def defaults_now() -> dict[str, tuple[int, dict[str, Any]]]:
    """Returns version and default settings of every explainer."""
    model = GIN(3, 2)
    found = {}
    for name in list_explainers():
        explainer: Any = get_explainer(name, model)
        plain = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in flat_settings(explainer.config).items()
        }
        version = max(explainer.defaults_version, EXPLAINERS[name].defaults_version)
        found[name] = (version, plain)
    return found


def test_defaults_change_only_with_their_version() -> None:
    lines = changed_defaults(DEFAULTS, defaults_now())
    assert not lines, "\n".join(lines)
    unknown = sorted(set(list_explainers()) - set(DEFAULTS))
    assert not unknown, f"Write the defaults of {unknown} into tests/bench/default_values.py."


def test_a_changed_default_without_a_raised_version_is_told() -> None:
    known = {"refine": (1, {"steps": 300, "gone": 1})}
    (line,) = changed_defaults(known, {"refine": (1, {"steps": 200, "gone": 1, "new": 3})})
    assert line.startswith("The default of refine.steps changed from 300 to 200")
    assert "raise `defaults_version` of refine" in line
    assert changed_defaults(known, {"refine": (2, {"steps": 200, "gone": 1})}) == []
    assert len(changed_defaults(known, {"refine": (1, {"steps": 300})})) == 1  # removed


def test_other_data_or_target_give_another_key(world: World, tmp_path: Path) -> None:
    dataset = world.dataset()
    write_molecules(tmp_path / "data", num=40, seed=1)
    other = load_dataset("benzene", root=tmp_path / "data", cache=tmp_path / "cache")
    again = load_dataset("benzene", root=world.data, cache=tmp_path / "cache")
    assert data_key(dataset) == data_key(again)
    resplit = load_dataset("benzene", root=world.data, cache=world.cache, seed=1)
    assert len({data_key(d) for d in (dataset, other, resplit)}) == 3

    train_target(dataset, "gin", tmp_path / "t", TrainConfig(epochs=2), progress=False)
    base = world.config(tmp_path, "random")
    assert key_of(base) != key_of(replace(base, targets_folder=tmp_path / "t"))


def test_hash_does_not_depend_on_the_order_of_names() -> None:
    assert content_hash({"a": 1, "b": [2, (3,)]}) == content_hash({"b": [2, [3]], "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 1.5})


def test_only_differences_from_defaults_are_left() -> None:
    values = {"same": (1, 2), "changed": 3, "unknown": None}
    assert without_defaults(values, {"same": [1, 2], "changed": 2, "new": 0}) == {
        "changed": 3,
        "unknown": None,
    }


def test_missing_or_foreign_target_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn lab train-targets"):
        world.config(tmp_path, "random", targets=("gcn",)).cells()
    with pytest.raises(ConfigError, match=r"`target` must be one of .*'mlp'"):
        world.config(tmp_path, "random", targets=("gin", "mlp")).cells()
    resplit = load_dataset("benzene", root=world.data, cache=world.cache, seed=1)
    train_target(resplit, "gin", tmp_path / "t", TrainConfig(epochs=1), progress=False)
    config = world.config(tmp_path, "random")
    with pytest.raises(StoreError, match="another split"):
        replace(config, targets_folder=tmp_path / "t").cells()


def test_wrong_names_are_errors_before_anything_runs(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'saliency'.*steps"):
        world.config(tmp_path, "saliency", settings={"saliency": {"steps": 3}}).cells()
    with pytest.raises(ConfigError, match="atoms"):
        replace(world.config(tmp_path, "random"), datasets=("P",)).cells()
    with pytest.raises(ConfigError, match="must be one of"):
        replace(world.config(tmp_path, "random"), datasets=("benzol",)).cells()
    assert not any(tmp_path.iterdir())
