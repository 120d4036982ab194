"""The demo: train a model on generated molecules, explain new ones, and judge that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import torch
from torch_geometric.data import Batch

import nicegnn
from nicegnn.config import NICEConfig, Settings, check_choice, check_count
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.seeding import SeededWeights, mix
from nicegnn.store import write_json, write_text
from nicegnn.target.training import TrainConfig, accuracy_of, train_classifier
from nicegnn.target.zoo import make_model
from nicegnn_lab.datasets.generator import GENERATED_TASKS, generate_dataset
from nicegnn_lab.metrics import Truth, graph_keys, random_rank, random_ties, truth_metrics
from nicegnn_lab.metrics.ranking import graph_sum

PICTURED = 6  # molecules in the picture


@dataclass(frozen=True)
class DemoConfig(Settings):
    """Settings of the demo."""

    task: str = "benzene"  # what labels the molecules, one of `GENERATED_TASKS`
    num_molecules: int = 1000  # generated to train on; a tenth as many are explained
    epochs: int = 40  # most epochs of the training
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("task", self.task, GENERATED_TASKS)
        check_count(self, "num_molecules", "epochs")


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured on new molecules of label 1 that are predicted to have it."""

    accuracy: float  # of the model, on the new molecules
    num_judged: int  # molecules
    best_is_true: float  # share of them whose best bond is a true one
    by_chance: float  # the same for a bond taken at random
    roc_auc: float  # mean over them, of true bonds against the others
    seconds: float

    def __str__(self) -> str:
        return (
            f"The model is right on {self.accuracy:.1%} of new molecules. In {self.num_judged} of "
            f"label 1, the best bond is a true one in {self.best_is_true:.1%} (by chance "
            f"{self.by_chance:.1%}); ROC AUC of true bonds {self.roc_auc:.3f}. It took "
            f"{self.seconds:.0f} s."
        )


def run_demo(
    out: str | Path,
    config: DemoConfig | None = None,
    *,
    say: Callable[[str], object] = lambda text: None,
) -> DemoResult:
    """Trains, explains and judges; the folder `out` then holds a page, a picture and a JSON file.

    `say` is told what happens, step by step.
    """
    config, out, started = config or DemoConfig(), Path(out), time.monotonic()
    num_new = max(20, config.num_molecules // 10)
    say(f"1/3 Generating {config.num_molecules + num_new} molecules for {config.task} ...")
    graphs = generate_dataset(config.task, config.num_molecules + num_new, seed=config.seed)
    new, old = graphs[:num_new], graphs[num_new:]
    say("2/3 Training a GINE, which is not told where the label comes from ...")
    with SeededWeights(mix(config.seed, "demo")):
        sizes = {"hidden_size": 32, "num_layers": 3, "edge_size": old[0].edge_attr.size(1)}
        model = make_model("gine", old[0].x.size(1), 2, **sizes)
    fifth = len(old) // 5
    training = TrainConfig(
        learning_rate=0.003, batch_size=64, epochs=config.epochs, patience=10, seed=config.seed
    )
    train_classifier(model, old[fifth:], old[:fifth], training, progress=False)
    say(f"3/3 Explaining {num_new} new molecules ...")
    batch = Batch.from_data_list(new)
    explainer = NICE(model, NICEConfig(seed=config.seed), background=old[fifth:])
    explanation = explainer.explain(batch)
    is_judged = (batch.y == 1) & (explanation.prediction.argmax(1) == 1)  # [B]
    if not bool(is_judged.any()):
        raise ConfigError(
            f"`epochs` must let the model find {config.task} in a new molecule (got "
            f"{config.epochs}). Train longer, or on more molecules."
        )
    truth, bonds = Truth.from_graphs(batch), explanation.bonds
    areas = truth_metrics(explanation.ranking, bonds, truth)["roc_auc"]
    is_true = bonds.sum(batch.edge_truth.double()) > 0  # [M]
    tie = random_ties(bonds.batch, num_new, config.seed, graph_keys(bonds, num_new))
    rank = random_rank(explanation.ranking, bonds.batch, num_new, tie)
    size = torch.bincount(bonds.batch, minlength=num_new)  # [B]
    hit = graph_sum(((rank == 0) & is_true).double(), bonds.batch, num_new)  # [B]
    chance = graph_sum(is_true.double(), bonds.batch, num_new) / size
    result = DemoResult(
        accuracy=accuracy_of(model, new),
        num_judged=int(is_judged.sum()),
        best_is_true=float(hit[is_judged].mean()),
        by_chance=float(chance[is_judged].mean()),
        roc_auc=float(areas[is_judged].nanmean()),
        seconds=round(time.monotonic() - started, 1),
    )
    shown = Batch.from_data_list([new[n] for n in is_judged.nonzero().view(-1)[:PICTURED].tolist()])
    pictured = explainer.explain(shown)
    title = f"Which bonds does the model need to see {config.task}?"
    true = pictured.bonds.sum(shown.edge_truth.double()) > 0  # [M]
    picture = pictured.draw(title=title, truth=true)
    picture.save(out / "picture.png")
    write_text(out / "page.html", _page(title, str(result), picture.svg))
    about = {"nicegnn": nicegnn.__version__, "demo": config.to_dict(), "result": asdict(result)}
    write_json(out / "result.json", about)
    return result


def _page(title: str, text: str, svg: str) -> str:
    head = f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    return f"{head}\n<h1>{escape(title)}</h1>\n<p>{escape(text)}</p>\n{svg}\n</html>\n"
