"""Cells and keys: every change that can change a number gives another key, and no other does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, StoreError
from nicegnn.target.training import TrainConfig
from nicegnn.target.zoo import GIN
from nicegnn_lab.bench.measure import MetricConfig
from nicegnn_lab.bench.study import content_hash, flat_settings
from nicegnn_lab.bench.targets import train_target
from nicegnn_lab.datasets.dataset import load_dataset
from nicegnn_lab.rivals import EXPLAINERS, get_explainer
from tests.lab.bench.small_bench import PAPER, Asked, World, use_world
from tests.lab.datasets.small_files import write_molecules


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def key_of(config: Asked) -> str:
    (cell,) = config.cells()
    return cell.key


def scores_key(config: Asked) -> str:
    (cell,) = config.cells()
    return content_hash(cell.identity["scores"])


def test_key_changes_with_all_that_can_change_a_number(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "nice-paper")
    tables = {"nice-paper": PAPER | {"boundary__steps": 11}}
    changed = [
        replace(base, explainers=("nice",)),
        replace(base, explainers=("nice-paper+em",)),
        replace(base, seeds=(1,)),
        replace(base, max_graphs=5),
        replace(base, max_graphs=6),
        replace(base, fit_graphs=20),
        replace(base, settings=tables),
        replace(base, settings={"nice-paper+nc": PAPER | {"boundary__beta": 0.5}}),
    ]
    for key in (key_of, scores_key):
        keys = [key(config) for config in (base, *changed)]
        assert len(set(keys)) == len(keys)
        assert key(base) == keys[0]


def test_key_keeps_still_where_no_number_changes(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "nice-paper")
    key = key_of(base)
    assert key_of(replace(base, out=tmp_path / "elsewhere", device=None)) == key
    assert (
        key_of(replace(base, explainers=("nice-paper+nc", "nice-paper"))) == key
    )  # one cell, asked twice
    assert key_of(replace(base, max_graphs=10**6, fit_graphs=10**6)) == key  # no limit at all
    default = PAPER | {"undirected": NICEConfig().undirected, "chunk_edges": 1000}
    assert key_of(replace(base, settings={"nice-paper": default})) == key
    saliency = replace(base, explainers=("saliency",))
    assert key_of(replace(saliency, fit_graphs=20)) == key_of(saliency)  # it fits nothing


def test_metrics_change_the_key_of_rows_and_not_of_scores(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "random", metrics=MetricConfig())
    others = [
        MetricConfig(removals=()),
        MetricConfig(num_draws=8),
    ]
    configs = [base, *(replace(base, metrics=other) for other in others)]
    assert len({key_of(config) for config in configs}) == 3
    assert len({scores_key(config) for config in configs}) == 1


def test_a_new_setting_with_a_default_changes_no_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting that nobody knew when a cell was stored has its default in that cell."""
    config = world.config(tmp_path, "nice-paper", "pgexplainer")
    before = [cell.key for cell in config.cells()]
    plain = flat_settings

    def with_a_new_one(settings: Any) -> dict[str, Any]:
        return plain(settings) | {"boundary__sharpness": 1.0}

    monkeypatch.setattr("nicegnn_lab.bench.plan.flat_settings", with_a_new_one)
    assert [cell.key for cell in config.cells()] == before

    def changed(settings: Any) -> dict[str, Any]:
        is_default = settings in (EXPLAINERS["nice-paper"].defaults(), type(settings)())
        return plain(settings) | {"boundary__sharpness": 1.0 if is_default else 2.0}

    monkeypatch.setattr("nicegnn_lab.bench.plan.flat_settings", changed)
    assert config.cells()[0].key != before[0]  # quick settings are not the defaults


#: Version and a hash of the default settings of every explainer. Keys of stored cells hold what
#: differs from the defaults: a default that changes must raise `defaults_version` in the list of
#: explainers, or stored cells would be taken for cells with the new default. A new setting may be
#: added, and one that nobody set removed, at any time; then write the new hash.
DEFAULTS = {
    "nice": (4, "05e89be5"),
    "nice-student": (4, "05e89be5"),
    "nice-paper": (2, "49a92c29"),
    "nice-paper-converged": (2, "331ac698"),
    "nice-paper-tuned": (2, "49a92c29"),
    "nice-propagated": (2, "44e2c04c"),
    "nice-propagated-converged": (2, "b995104c"),
    "random": (1, "1b7141d4"),
    "ground-truth": (1, "1b7141d4"),
    "saliency": (1, "96a02afb"),
    "guided-backprop": (1, "a5d3a6b0"),
    "integrated-gradients": (1, "81598826"),
    "gnnexplainer": (1, "8562f3d6"),
    "pgexplainer": (1, "e5e69f88"),
    "refine": (1, "181f3231"),
    "d4explainer": (1, "04cf8584"),
    "proxyexplainer": (1, "88300742"),
    "confexplainer": (1, "6bb673da"),
    "confexplainer-supervised": (1, "648a7b95"),
    "graphmask": (1, "b01ff354"),
    "occlusion": (1, "1b7141d4"),
    "subgraphx": (1, "94613704"),
}


def test_defaults_change_only_with_their_version() -> None:
    found = {}
    for name, entry in EXPLAINERS.items():
        settings = flat_settings(get_explainer(name, GIN(3, 2)).config)
        found[name] = (entry.defaults_version, content_hash(settings)[:8])
    assert found == DEFAULTS


def test_missing_or_foreign_target_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn lab train-targets"):
        world.config(tmp_path, "random", targets=("gcn",)).cells()
    with pytest.raises(ConfigError, match=r"`target` must be one of .*'mlp'"):
        world.config(tmp_path, "random", targets=("gin", "mlp")).cells()
    write_molecules(tmp_path / "data", num=40, seed=1)
    other = load_dataset("benzene", root=tmp_path / "data", cache=tmp_path / "cache")
    train_target(other, "gin", tmp_path / "t", TrainConfig(epochs=1), progress=False)
    config = world.config(tmp_path, "random")
    with pytest.raises(StoreError, match="another data"):
        replace(config, targets_folder=tmp_path / "t").cells()
