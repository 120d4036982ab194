"""Chemprop models on the tasks of the study of atoms: NICE's atom scores beside Myerson values.

    python benchmarks/chemprop_atoms.py --runs runs.jsonl --out results/studies/atoms/chemprop.json
    python benchmarks/chemprop_atoms.py --out results/studies/atoms/chemprop.json --table

Molecules, parts, training and metrics are those of `nicegnn lab experiment atoms`, and so are the
test molecules that are explained. ``--runs`` keeps a line for each model: a second call goes on
where the first one stopped. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import product
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from chemprop import nn as parts
from chemprop.data import BatchMolGraph, MoleculeDatapoint
from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
from chemprop.models import MPNN
from chemprop_rivals import timed
from myerson.chemprop_explain import MyersonSamplingExplainer
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.seeding import SeededWeights, mix
from nicegnn.store import write_json
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.training import TrainConfig, train_model
from nicegnn_lab.datasets.readers.atoms import CLASSES, IBENCHMARK, AtomMolecules
from nicegnn_lab.studies.atom_scores import OTHERS, Ground, lay_ground
from nicegnn_lab.studies.atoms import AtomTask, in_order, judged, of_target
from nicegnn_lab.tables.atoms import NAMES
from nicegnn_lab.tables.table import Table, number

#: Five of the targets with activity cliffs, of 1,300 to 1,700 molecules.
CLIFFS = ("CHEMBL287_Ki", "CHEMBL2147_Ki", "CHEMBL4792_Ki", "CHEMBL228_Ki", "CHEMBL239_EC50")
TASKS = (*IBENCHMARK, "crippen", *CLIFFS)
_KEPT = ("smiles", "y", "atom_truth")  # of the study's graphs
METRICS = ("positive_auc", "negative_auc", "tau", "overlap", "direction")
RIVALS = ("zero", "occlusion", "integrated gradients", "random")  # of the study
#: Scores in the order of tables.
LABELS = {
    "NICE": NAMES["exchange"],
    "Myerson": "Chemprop's Myerson values, {steps} steps",
    **{name: NAMES[name] for name in RIVALS},
}
#: Columns of the table of scores: a metric, and the tasks whose mean it is.
COLUMNS: dict[str, tuple[str, Sequence[str]]] = {
    **{name: ("positive_auc", [name]) for name in IBENCHMARK},
    "mean": ("positive_auc", IBENCHMARK),
    "N_minus_O, down": ("negative_auc", ["N_minus_O"]),
    "logP: up": ("positive_auc", ["crippen"]),
    "tau": ("tau", ["crippen"]),
    "overlap": ("overlap", ["crippen"]),
    "cliffs: direction": ("direction", CLIFFS),
    "seconds": ("seconds", TASKS),
}


class ChempropTask(AtomTask):
    """A task of the study whose graphs have the features that Chemprop reads."""

    targets: Iterable[str] = ("chemprop",)
    most: Mapping[str, int] = {"train": 1000, "test": 300}

    def __init__(self, name: str, seed: int, width: int = 128, depth: int = 3) -> None:
        super().__init__(name, seed)
        self.width, self.depth = width, depth

    def point(self, graph: Data) -> MoleculeDatapoint:
        """Returns Chemprop's datapoint of a molecule, its atoms in the order of the graph's."""
        return MoleculeDatapoint.from_smi(graph.smiles, keep_h=self.name == "crippen")

    @cached_property
    def parts(self) -> AtomMolecules:
        """The molecules of the study, read as Chemprop reads them."""
        known, model = super().parts, self.model("chemprop")

        def read(graph: Data) -> Data:
            made = model.read_graphs(self.point(graph))
            return made.update({key: graph[key] for key in _KEPT if key in graph})

        own = {part: [*map(read, getattr(known, part))] for part in ("train", "valid", "test")}
        return AtomMolecules(**own, pairs=known.pairs)

    def model(self, target: str, *_: Any) -> Any:
        """Returns an MPNN with its first weights, as a model of graphs."""
        with SeededWeights(mix(self.seed, self.name, target)):
            block = parts.BondMessagePassing(d_h=self.width, depth=self.depth)
            sizes = {"input_dim": self.width, "hidden_dim": self.width}
            head = (
                parts.RegressionFFN(**sizes)
                if self.mode == "regression"
                else parts.MulticlassClassificationFFN(n_classes=2, **sizes)
            )
            return ChempropModel(MPNN(block, parts.NormAggregation(norm=20), head))

    def train(self, model: nn.Module, training: TrainConfig) -> None:
        """Trains a model in place; afterwards it predicts in the unit of the values."""
        own = self.parts.train, self.parts.valid
        train_model(model, *own, training, mode=self.mode, progress=False)
        if self.mode == "regression":
            y = torch.cat([graph.y for graph in self.parts.train])
            scale = parts.UnscaleTransform([float(y.mean())], [float(y.std(correction=0))])
            model.predictor.output_transform = scale.eval()


class Payoff:
    """What Myerson values share out: the log-odds of class 1, or the value."""

    device = torch.device("cpu")

    def __init__(self, ground: Ground) -> None:
        self.ground, self.target = ground, ground.query.target

    def __call__(self, bmg: BatchMolGraph) -> Tensor:
        out = self.target.model(bmg.V, bmg.edge_index, bmg.E, bmg.batch)
        return self.ground.read(self.target.read(out))


@torch.no_grad()
def myerson(ground: Ground, points: Sequence[MoleculeDatapoint], steps: int) -> Tensor:
    """Returns Chemprop's own explanation, Myerson values by sampling, of all atoms, ``[V]``."""
    featurise, payoff, found = SimpleMoleculeMolGraphFeaturizer(), Payoff(ground), []
    for point in points:
        graph = featurise(point.mol)
        sampler = MyersonSamplingExplainer(graph, payoff, seed=0, number_of_samples=steps)
        found += list(sampler.sample_all_myerson_values())
    return torch.tensor(found, dtype=torch.float)


def scores_of(
    ground: Ground, points: Sequence[MoleculeDatapoint], steps: int
) -> dict[str, Callable[[], Tensor]]:
    """Returns what computes each score of all atoms, ``[V]``; of classes, class 1 is explained."""
    target, graphs = ground.query.target, ground.batch.to_data_list()
    explainer = NICE(target.model, background=ground.background, mode=target.mode)
    explained = 0 if target.mode == "regression" else 1
    return {
        "NICE": lambda: explainer.explain(graphs, target=explained).atom_score,
        "Myerson": lambda: myerson(ground, points, steps),
        **{name: partial(OTHERS[name], ground) for name in RIVALS},
    }


def measure(task: ChempropTask, training: TrainConfig, most: int, steps: int) -> dict[str, Any]:
    """Trains a model, and returns its quality and the agreement of all scores of atoms."""
    model = task.model("chemprop")
    task.train(model, training)
    quality = {block.metric: float(block.value) for block in of_target(task, model)}
    place = task.right(model, "test")[:most]
    graphs = [task.parts.test[n] for n in place.tolist()]
    ground = lay_ground(model, task.mode, graphs, task.parts.train, task.seed)
    pairs = [pair for pair in task.parts.pairs if max(pair.place) < len(graphs)]
    if pairs:
        quality["pair_right"] = float(in_order(ground, pairs).double().mean())
    run = {"task": task.name, "seed": task.seed, "explained": len(graphs), "pairs": len(pairs)}
    run |= {"quality": quality, "scores": {}}
    for name, score_of in scores_of(ground, [task.point(one) for one in graphs], steps).items():
        score, seconds = timed(score_of)
        blocks = judged(name, score.detach(), ground, pairs)
        values = {block.metric: torch.as_tensor(block.value).nanmean() for block in blocks}
        own = {metric: float(values[metric]) for metric in METRICS if metric in values}
        run["scores"][name] = own | {"seconds": seconds / len(graphs)}
    return run


def means(entries: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean of each value over the entries that have it."""
    found: dict[str, list[float]] = defaultdict(list)
    for entry in entries:
        for key, value in entry.items():
            found[key].append(value)
    return {key: round(fmean(values), 4) for key, values in found.items()}


def collected(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the means over the seeds of each task, and the columns of the table of scores."""
    tasks: dict[str, Any] = {}
    for name in [name for name in TASKS if any(run["task"] == name for run in runs)]:
        own = [run for run in runs if run["task"] == name]
        tasks[name] = {
            "seeds": sorted(run["seed"] for run in own),
            "explained": sum(run["explained"] for run in own),
            "pairs": sum(run["pairs"] for run in own),
            "quality": means(run["quality"] for run in own),
            "scores": {score: means(run["scores"][score] for run in own) for score in LABELS},
        }
    columns: dict[str, dict[str, float]] = {score: {} for score in LABELS}
    for title, (metric, some) in COLUMNS.items():
        for score, own in columns.items():
            found = means(tasks[name]["scores"][score] for name in some if name in tasks)
            if metric in found:
                own[title] = found[metric]
    return {"tasks": tasks, "table": columns}


def tables(content: Mapping[str, Any]) -> list[Table]:
    """Returns the table of models and that of scores."""
    models = []
    for name, task in content["tasks"].items():
        metric = "accuracy" if name in CLASSES else "r2"
        own, words = task["quality"], metric.replace("r2", "R2")
        cells = [number(own[key], 3) for key in (f"valid_{metric}", metric)]
        cells += [number(own.get("rmse", nan), 2), number(100 * own.get("pair_right", nan), 1)]
        count = [len(task["seeds"]), task["pairs"] or task["explained"]]
        models.append([name, words, *cells, *map(str, count)])
    titles = [title for title in COLUMNS if any(title in own for own in content["table"].values())]
    rows = []
    for score, own in content["table"].items():
        share = [number(100 * own[t], 1) for t in titles if t != "seconds"]
        label = LABELS[score].format(steps=content["settings"]["steps"])
        rows.append([label, *share, number(own["seconds"], 3)])
    columns = ["task", "measure", "validation", "test", "RMSE", "pairs in order"]
    return [
        Table("chemprop", "", [*columns, "seeds", "explained"], models, num_left=2),
        Table("chemprop", "", ["score", *titles], rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="means, as JSON")
    parser.add_argument("--runs", type=Path, help="a line for each model")
    parser.add_argument("--table", action="store_true", help="print the tables of --out alone")
    parser.add_argument("--tasks", nargs="*", default=TASKS, choices=TASKS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--molecules", type=int, default=40, help="explained ones")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rate", type=float, default=3e-3, help="of learning")
    parser.add_argument("--steps", type=int, default=20, help="of Myerson values")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table:
        content = json.loads(options.out.read_text())
        print("\n".join(table.to_markdown() for table in tables(content)))
        return
    training = TrainConfig(learning_rate=options.rate, batch_size=32, epochs=options.epochs)
    options.runs.touch()
    known = [json.loads(line) for line in options.runs.read_text().splitlines()]
    for seed, name in product(options.seeds, options.tasks):
        if any((run["task"], run["seed"]) == (name, seed) for run in known):
            continue
        task = ChempropTask(name, seed, options.width, options.depth)
        known.append(measure(task, training, options.molecules, options.steps))
        with options.runs.open("a") as file:
            print(json.dumps(known[-1]), file=file)
    settings = ("molecules", "width", "depth", "epochs", "rate", "steps")
    told = {key: getattr(options, key) for key in settings}
    write_json(options.out, {"settings": told, **collected(known)})


if __name__ == "__main__":
    main()
