"""Cells and keys: every change that can change a number gives another key, and no other does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nicegnn.bench import BenchConfig, MetricConfig, make_cells
from nicegnn.bench.cell import content_hash, data_key
from nicegnn.bench.selection import explained_positions, fit_set
from nicegnn.bench.targets import train_target
from nicegnn.config import NICEConfig
from nicegnn.datasets import load_dataset
from nicegnn.errors import ConfigError, StoreError
from nicegnn.target.training import TrainConfig
from tests.bench.small_bench import NICE, World, use_world
from tests.datasets.small_files import write_molecules


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def key_of(config: BenchConfig) -> str:
    (cell,) = make_cells(config)
    return cell.key


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
    keys = [key_of(config) for config in (base, *changed)]
    assert len(set(keys)) == len(keys)
    assert key_of(base) == keys[0]


def test_key_keeps_still_where_no_number_changes(world: World, tmp_path: Path) -> None:
    base = world.config(tmp_path, "nice")
    key = key_of(base)
    assert key_of(replace(base, out=tmp_path / "elsewhere", device=None)) == key
    assert key_of(replace(base, metrics=MetricConfig())) == key
    assert key_of(replace(base, explainers=("nice+both", "nice"))) == key  # one cell, asked twice
    assert key_of(replace(base, max_graphs=10**6, fit_graphs=10**6)) == key  # no limit at all
    default = NICE | {"score": NICEConfig().score}  # the default, written out
    assert key_of(replace(base, settings={"nice": default})) == key
    saliency = replace(base, explainers=("saliency",))
    assert key_of(replace(saliency, fit_graphs=20)) == key_of(saliency)  # it fits nothing


def test_rows_have_a_key_of_their_own(world: World, tmp_path: Path) -> None:
    (cell,) = make_cells(world.config(tmp_path, "random"))
    metrics = MetricConfig()
    others = [
        replace(metrics, top=0.2),
        replace(metrics, removals=()),
        replace(metrics, num_draws=8),
    ]
    keys = {cell.row_key(m) for m in (metrics, *others)}
    assert len(keys) == 4
    assert cell.key not in keys


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


def test_graphs_are_those_of_label_one_with_a_truth_and_subsets_are_fixed(world: World) -> None:
    test = world.dataset().test
    positions = explained_positions(test)
    for position, graph in enumerate(test):
        wanted = int(graph.y) == 1 and bool(graph.edge_truth.any())
        assert wanted == (position in positions.tolist())
    some = explained_positions(test, 4)
    assert some.numel() == 4
    assert torch.equal(some, some.sort().values)
    assert set(some.tolist()) < set(positions.tolist())
    assert torch.equal(some, explained_positions(test, 4))
    train = world.dataset().train
    assert len(fit_set(train, 7)) == 7
    assert fit_set(train, 7).smiles == fit_set(train, 7).smiles
    assert len(fit_set(train, None)) == len(train)


def test_missing_or_foreign_target_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn train"):
        make_cells(world.config(tmp_path, "random", targets=("gcn",)))
    resplit = load_dataset("benzene", root=world.data, cache=world.cache, seed=1)
    train_target(resplit, "gin", tmp_path / "t", TrainConfig(epochs=1), progress=False)
    config = world.config(tmp_path, "random")
    with pytest.raises(StoreError, match="another split"):
        make_cells(replace(config, targets_folder=tmp_path / "t"))


def test_wrong_names_are_errors_before_anything_runs(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'saliency'.*steps"):
        make_cells(world.config(tmp_path, "saliency", settings={"saliency": {"steps": 3}}))
    with pytest.raises(ConfigError, match="atoms"):
        make_cells(replace(world.config(tmp_path, "random"), datasets=("P",)))
    with pytest.raises(ConfigError, match="expected one of"):
        make_cells(replace(world.config(tmp_path, "random"), datasets=("benzol",)))
    assert not any(tmp_path.iterdir())
