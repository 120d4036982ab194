"""Target models: training that is stored, repeated and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from nicegnn.errors import ConfigError, StoreError
from nicegnn.target.training import TrainConfig, accuracy_of
from nicegnn.target.zoo import make_model
from nicegnn_lab.bench.targets import (
    TARGETS,
    Recipe,
    load_target,
    make_target,
    read_target,
    target_path,
    train_target,
)
from nicegnn_lab.datasets.dataset import load_dataset
from tests.lab.datasets.small_files import write_molecules
from tests.lab.own_names import names_restored


@pytest.mark.parametrize("name", list(TARGETS))
def test_targets_are_seeded_and_have_the_papers_size(name: str) -> None:
    first, again, other = (make_target(name, 14, seed) for seed in (0, 0, 1))
    assert first.settings["hidden_size"] == 32
    assert first.settings["num_layers"] == 3
    states = [m.state_dict()["head.weight"] for m in (first, again, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    with pytest.raises(ConfigError, match="must be one of"):
        make_target("mlp", 14)


@pytest.fixture
def dataset(tmp_path: Path):  # type: ignore[no-untyped-def]
    write_molecules(tmp_path, 60)
    return load_dataset("benzene", root=tmp_path, cache=tmp_path / "cache")


FAST = TrainConfig(epochs=12, batch_size=16)


def test_trained_target_is_stored_and_not_trained_twice(tmp_path: Path, dataset) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "targets"
    first = train_target(dataset, "gin", out, FAST, progress=False)
    path = target_path(out, "benzene", "gin")
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["gin.json", "gin.safetensors"]
    stored = load_target(path)
    assert accuracy_of(stored.model, dataset.test) == stored.manifest["test"]["accuracy"]
    written = path.stat().st_mtime_ns
    again = train_target(dataset, "gin", out, FAST, progress=False)
    assert path.stat().st_mtime_ns == written
    assert again.manifest == first.manifest == stored.manifest
    assert stored.manifest["data"] == dataset.files
    assert stored.manifest["split"] == "random, seed 0"
    assert sum(stored.manifest["sizes"].values()) == len(dataset)


def test_weights_and_manifest_must_belong_together(tmp_path: Path, dataset) -> None:  # type: ignore[no-untyped-def]
    train_target(dataset, "gcn", tmp_path, FAST, progress=False)
    path = target_path(tmp_path, "benzene", "gcn")
    manifest = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(manifest | {"fingerprint": "0" * 16}))
    with pytest.raises(StoreError, match="belong together"):
        load_target(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(StoreError, match="manifest"):
        load_target(path)


# --- targets of one's own ------------------------------------------------------------------------


@pytest.fixture
def own() -> Iterator[None]:
    with names_restored():
        yield


def test_own_target_is_trained_stored_and_read(tmp_path: Path, dataset, own: None) -> None:  # type: ignore[no-untyped-def]
    sizes = []

    def mine(num_features: int, num_classes: int, hidden_size: int = 8) -> nn.Module:
        sizes.append((num_features, num_classes))
        return make_model("gcn", num_features, num_classes, hidden_size=hidden_size)

    TARGETS["mine"] = Recipe(mine)
    first = train_target(dataset, "mine", tmp_path, FAST, progress=False)
    assert set(sizes) == {(dataset.num_node_features, 2)}
    again = read_target(tmp_path, dataset, "mine")
    for one, other in zip(first.model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    wider = partial(mine, hidden_size=16)
    wider.__module__, wider.__qualname__ = mine.__module__, mine.__qualname__  # type: ignore[attr-defined]
    TARGETS["mine"] = Recipe(wider)  # its code has changed
    with pytest.raises(StoreError, match=r"does not fit the target 'mine'.*Train it again"):
        read_target(tmp_path, dataset, "mine")
    del TARGETS["mine"]
    with pytest.raises(StoreError, match="needs the target 'mine', which no plugin adds"):
        load_target(target_path(tmp_path, "benzene", "mine"))


def test_own_trained_target_is_used_as_it_is(tmp_path: Path, dataset, own: None) -> None:  # type: ignore[no-untyped-def]
    def ready(num_features: int, num_classes: int) -> nn.Module:
        model = make_model("gin", num_features, num_classes)
        nn.init.constant_(model.head.bias, 3.0)
        return model

    TARGETS["ready"] = Recipe(ready, is_trained=True)
    model = read_target(tmp_path, dataset, "ready")
    assert model.get_parameter("head.bias").tolist() == [3.0, 3.0]
    assert not model.training
    with pytest.raises(ConfigError, match=r"must need training \(got 'ready', which is trained\)"):
        train_target(dataset, "ready", tmp_path, FAST, progress=False)
