"""Target models of the benchmarks: trained as in Appendix C, stored with a manifest."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch import nn

import nicegnn
from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, StoreError, TargetError
from nicegnn.molecule.splits import PARTS
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, save_tensors, write_json
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.training import TrainConfig, calibration, predict, train_model
from nicegnn.target.zoo import make_model
from nicegnn_lab.bench.study import code_hash
from nicegnn_lab.datasets.dataset import MoleculeDataset


@dataclass(frozen=True)
class Recipe:
    """How a target model is made: a graph model with one logit per class, for `TARGETS`.

    ``nicegnn lab train-targets`` trains it and stores its weights, unless `is_trained`: then `make`
    also loads weights, and its model is used as it is.
    """

    make: Callable[..., nn.Module]  # of the numbers of node features and classes
    is_trained: bool = False  # whether `make` returns a trained model

    @property
    def is_ours(self) -> bool:
        """Whether nicegnn makes the model, from settings that are stored."""
        return isinstance(self.make, partial) and self.make.func is make_model

    @property
    def code(self) -> str:
        """A hash of the code of a target of one's own, else empty."""
        return "" if self.is_ours else code_hash(self.make.__module__)


def _backbone(kind: str, readout: str) -> Recipe:
    return Recipe(partial(make_model, kind, hidden_size=32, num_layers=3, readout=readout))


#: All targets by name; a plugin adds its own.
TARGETS: dict[str, Recipe] = {
    "gin": _backbone("gin", "sum"),  # the paper's
    "gin-mean": _backbone("gin", "mean"),
    "gcn": _backbone("gcn", "mean"),
    "gat": _backbone("gat", "mean"),
}
#: Settings chosen on this target are used for targets without their own.
MAIN_TARGET = "gin"


class TrainedTarget(NamedTuple):
    """A trained target model with the manifest of its training."""

    model: nn.Module
    manifest: dict[str, Any]


def make_target(name: str, num_features: int, seed: int = 0, **settings: Any) -> nn.Module:
    """Returns a target model with two logits; nicegnn's have 3 layers of size 32, not trained."""
    check_choice("target", name, TARGETS)
    make = TARGETS[name].make
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mix(seed, "target"))
        try:
            model = make(num_features, 2, **settings)
            if not isinstance(model, nn.Module):
                raise TypeError(f"its function must return a model, not {type(model).__name__}")
        except Exception as error:
            raise TargetError(
                f"Target {name!r} cannot be made for {num_features} node features and 2 classes "
                f"({type(error).__name__}: {error}). Correct its function."
            ) from error
    return model


def target_path(folder: str | Path, dataset: str, target: str) -> Path:
    """Returns the file of a target's weights; the manifest is the ``.json`` beside it."""
    return Path(folder) / dataset / f"{target}.safetensors"


def train_target(
    dataset: MoleculeDataset,
    target: str,
    folder: str | Path,
    config: TrainConfig | None = None,
    *,
    num_seeds: int = 1,
    device: str | torch.device = "cpu",
    progress: bool = True,
) -> TrainedTarget:
    """Trains a target on a dataset and stores its best validation checkpoint with a manifest.

    Of several seeds (of weights and order, not of the split), the first with the best validation
    accuracy is kept.
    """
    config = config or TrainConfig()
    check_choice("target", target, TARGETS)
    if TARGETS[target].is_trained:
        raise ConfigError(f"`target` must need training (got {target!r}, which is trained).")
    path = target_path(folder, dataset.name, target)
    if path.is_file():
        return load_target(path, dataset, device=device)
    seeds = range(config.seed, config.seed + num_seeds)
    runs = [_train_one(dataset, target, replace(config, seed=s), device, progress) for s in seeds]
    best = max(runs, key=lambda run: run.manifest["valid"]["accuracy"])  # the first of them
    reached = {run.manifest["training"]["seed"]: run.manifest["valid"]["accuracy"] for run in runs}
    manifest = best.manifest | {"valid_accuracy_by_seed": reached}
    description = {"kind": "target", "settings": manifest["settings"], "target": target}
    save_tensors(path, best.model.state_dict(), description)
    write_json(path.with_suffix(".json"), manifest)
    return load_target(path, device=device)


def _train_one(
    dataset: MoleculeDataset,
    target: str,
    config: TrainConfig,
    device: str | torch.device,
    progress: bool,
) -> TrainedTarget:
    model: Any = make_target(target, dataset.num_node_features, config.seed).to(device)
    report = train_model(model, dataset.train, dataset.valid, config, progress=progress)
    place = next(model.parameters()).device
    sizes = {"in_size": dataset.num_node_features, "num_classes": 2}  # the rest is in its code
    manifest = {
        "dataset": dataset.name,
        "title": dataset.title,
        "is_stand_in": dataset.is_stand_in,
        "data": dict(dataset.files),
        "split": dataset.split,
        "sizes": {part: len(getattr(dataset, part)) for part in PARTS},
        "target": target,
        "settings": dict(model.settings) if TARGETS[target].is_ours else sizes,
        "training": asdict(config),
        "fingerprint": fingerprint(model),
        **{
            part: calibration(predict(model, graphs), graphs.y)
            for part, graphs in (("valid", dataset.valid), ("test", dataset.test))
        },
        "nicegnn": nicegnn.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
        "best_epoch": report.best_epoch,
        "epochs": report.epochs,
    }
    return TrainedTarget(model, manifest)


def load_target(
    path: str | Path, dataset: MoleculeDataset | None = None, *, device: str | torch.device = "cpu"
) -> TrainedTarget:
    """Reads a trained target and its manifest, and checks that they belong together.

    With a dataset, it must have been trained on these data and this split.
    """
    path = Path(path)
    tensors, description = load_tensors(path, "target")
    try:
        manifest = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"Cannot read the manifest of {path}: {error}") from error
    now = {} if dataset is None else {"data": dict(dataset.files), "split": dataset.split}
    if changed := [name for name, value in now.items() if manifest.get(name) != value]:
        raise StoreError(
            f"{path} was trained with another {' and '.join(changed)} and may have seen the test "
            "graphs. Delete it and train again, or name another folder."
        )
    name, settings = description["target"], dict(description["settings"])
    if name not in TARGETS:
        raise StoreError(
            f"{path} needs the target {name!r}, which no plugin adds. Name its plugin."
        )
    num_features, _ = settings.pop("in_size"), settings.pop("num_classes")
    model = make_target(name, num_features, **settings)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = "".join(str(error).split("\n\t")[1:2])  # the first weight, below a title
        raise StoreError(
            f"{path} does not fit the target {name!r}, which has other weights now "
            f"({reason}) Train it again, into another folder."
        ) from error
    if fingerprint(model) != manifest["fingerprint"]:
        raise StoreError(
            f"{path} and its manifest do not belong together: the fingerprint of the weights is "
            f"{fingerprint(model)}, the manifest has {manifest['fingerprint']}. Train it again."
        )
    return TrainedTarget(model.to(device).eval(), manifest)


def read_target(
    folder: Path, dataset: MoleculeDataset, target: str, device: str | torch.device = "cpu"
) -> nn.Module:
    """Returns a trained target; one from a file must have been trained on these data and split."""
    check_choice("target", target, TARGETS)
    if TARGETS[target].is_trained:
        return make_target(target, dataset.num_node_features).to(device).eval()
    path = target_path(folder, dataset.name, target)
    if not path.is_file():
        raise StoreError(
            f"There is no target {path}. Train it with `nicegnn lab train-targets --dataset "
            f"{dataset.name} --target {target} --out {folder}`, or name another --targets-folder."
        )
    return load_target(path, dataset, device=device).model
