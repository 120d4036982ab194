"""A model and its explainer from a file of molecules with labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.config import Settings, check_choice, check_count, check_positive
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.explain.registry import find_entry, get_explainer
from nicegnn.molecule.domain import Domain
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.molecule.splits import TEST, TRAIN, VALID, random_split, scaffold_of, scaffold_split
from nicegnn.pretrained import EXPLAINER_ENDING, Pretrained
from nicegnn.pretrained.model_file import MODES, ModelCard, Stored, save_model
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import graph_of
from nicegnn.screening.loading import ModelConfig, usable_device
from nicegnn.screening.reading import Reader, Record
from nicegnn.seeding import mix
from nicegnn.store import write_text
from nicegnn.target.training import (
    TrainConfig,
    calibration,
    predict,
    r_squared,
    train_classifier,
    train_regressor,
    wilson_interval,
)
from nicegnn.target.zoo import GraphClassifier, make_model

LearnTask = Literal["auto", "classification", "regression"]
MOST_CLASSES = 20  # different labels that are still taken for classes
FEWEST = 20  # molecules with labels
UNEVEN = 1.5  # classes weigh the same where the largest is so many times the smallest
_WEIGHED = "Classes of different size weighed the same in training."


@dataclass(frozen=True)
class LearnConfig(Settings):
    """How a model is trained on a file of molecules."""

    molecules: str = ""  # file
    smiles_column: str = ""  # by default found
    label: str = ""  # column of the labels or values
    task: LearnTask = "auto"  # by default as the column looks
    kind: Literal["gin", "gine"] = "gine"  # gine also reads bond features
    featurizer: str = "rich"  # how SMILES become graphs
    split: Literal["scaffold", "random"] = (
        "scaffold"  # scaffold: test molecules have rare scaffolds
    )
    hidden_size: int = 32  # width of the layers
    num_layers: int = 3  # message-passing layers
    epochs: int = 100  # most epochs
    stop_after: int = 20  # epochs without a better checkpoint before training ends
    batch_size: int = 128  # graphs per step
    learning_rate: float = 0.003  # of Adam
    teach: bool = False  # also teach a student, for very many molecules; it lies beside the model
    device: str = "cpu"  # or cuda
    seed: int = 0  # of split, weights and order
    name: str = ""  # of the model, for its card; by default the file's
    question: str = ""  # what it predicts, in words
    classes: tuple[str, ...] = ()  # names of the classes, in the order of their labels
    unit: str = ""  # of a value
    data: str = ""  # where the molecules come from; by default the file's name
    note: str = ""  # what else a reader of the card must know

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "hidden_size", "num_layers", "epochs", "stop_after", "batch_size")
        check_positive(self, "learning_rate")
        object.__setattr__(self, "classes", tuple(self.classes))


@dataclass(frozen=True)
class Learned:
    """A trained model with its card, and what was left out."""

    model: GraphClassifier
    card: ModelCard
    rejects: list[tuple[Record, str]]
    files: dict[str, str]


@dataclass(frozen=True)
class _Labelled:
    graphs: list[Data]  # with ``y``
    smiles: list[str]
    classes: tuple[str, ...]  # empty for values


def learn(
    reader: Reader,
    out: str | Path,
    config: LearnConfig,
    *,
    progress: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> Learned:
    """Trains a model on the labels of a file, judges it on held-out molecules, and saves both.

    The file `out` holds weights, card and a background of training molecules; the card also stands
    beside it as TOML, and a student as a file that ends in ``.nice.safetensors``.
    """
    out, device = Path(out), usable_device(config.device)
    records = list(reader)
    rejects: list[tuple[Record, str]] = []
    task = _task(records, config)
    check_choice("featurizer", config.featurizer, FEATURIZERS)  # a file holds no code
    featurizer = FEATURIZERS[config.featurizer]
    labelled = _read(records, config, task, featurizer, rejects, progress)
    part = _split(labelled.smiles, config)
    graphs = {
        code: [g for g, its in zip(labelled.graphs, part.tolist(), strict=True) if its == code]
        for code in (TRAIN, VALID, TEST)
    }
    sizes = {code: len(members) for code, members in graphs.items()}
    if not all(sizes.values()):
        raise ConfigError(
            f"`split` must leave molecules to train, to validate and to test (got "
            f"{tuple(sizes.values())} of them with {config.split!r}). Use --split random, or more "
            "molecules of other scaffolds."
        )
    model = _model(labelled, config).to(device)
    training = TrainConfig(
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        epochs=config.epochs,
        patience=max(1, config.stop_after // 2),
        stop_after=config.stop_after,
        seed=config.seed,
    )
    say(f"Training a {config.kind.upper()} on {sizes[TRAIN]} molecules ({task}).")
    parts, is_even = (graphs[TRAIN], graphs[VALID]), True
    if task == "regression":
        train_regressor(model, *parts, training, progress=progress)
    else:
        count = Counter(float(graph.y) for graph in graphs[TRAIN]).values()
        is_even = max(count) <= UNEVEN * min(count)
        train_classifier(model, *parts, training, balanced=not is_even, progress=progress)
    test, baseline = judge(model, graphs[TRAIN], graphs[TEST], task)
    notes = [config.note, *([] if is_even else [_WEIGHED])]
    card = ModelCard(
        name=config.name or out.name.removesuffix(".safetensors"),
        question=config.question or f"{config.label} of {reader.path.name}",
        task="regression" if task == "regression" else "classification",
        classes=labelled.classes,
        unit=config.unit,
        featurizer=config.featurizer,
        data=config.data or f"column {config.label} of {reader.path.name}",
        split=f"{config.split}, seed {config.seed}: {sizes[TRAIN]} train, {sizes[VALID]} "
        f"validation, {sizes[TEST]} test",
        architecture=f"{config.kind.upper()}, {config.num_layers} layers of {config.hidden_size}",
        note=" ".join(note for note in notes if note),
        doubt=_doubt(test, baseline),
        test=test,
        baseline=baseline,
    )
    stem = out.name.removesuffix(".safetensors")
    files = {"model": str(out), "card": str(out.with_name(f"{stem}.toml"))}
    nice = NICE(model, background=graphs[TRAIN], mode=MODES[card.task])
    seen = [s for s, its in zip(labelled.smiles, part.tolist(), strict=True) if its == TRAIN]
    save_model(out, Stored(model, card, nice.background, Domain.of(seen)))
    write_text(files["card"], card.to_toml())
    if config.teach:
        say("Teaching a student.")
        files["student"] = str(out.with_name(stem + EXPLAINER_ENDING))
        nice.teach(graphs[TRAIN], seed=config.seed, progress=progress)
        nice.save(files["student"])
    return Learned(model, card, rejects, files)


@dataclass(frozen=True)
class FitConfig(Settings):
    """How an explainer is fitted on a file of molecules."""

    molecules: str = ""  # file
    smiles_column: str = ""  # by default found
    explainer: str = "nice"  # name of a method that learns
    most: int = 2000  # molecules to fit on, the first of the file
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "most")


def fit_explainer(
    reader: Reader, subject: Pretrained, config: FitConfig, *, progress: bool = False
) -> tuple[Explainer, list[tuple[Record, str]]]:
    """Returns an explainer that knows the molecules of a file, and what was left out.

    They are the background of NICE; a method that learns is fitted on them.
    """
    mode, graphs = MODES[subject.card.task], list[Data]()
    rejects: list[tuple[Record, str]] = []
    entry, _ = find_entry(config.explainer)
    is_nice = issubclass(entry.load(), NICE)
    if not entry.learns and not is_nice:
        raise ConfigError(
            f"`explainer` must learn from molecules (got {config.explainer!r}, which does not). "
            f"Use it as it is: nicegnn explain --explainer {config.explainer}."
        )
    for record in islice(reader, config.most):
        graph = graph_of(record, subject.featurizer)
        if isinstance(graph, str):
            rejects.append((record, graph))
        else:
            graphs.append(graph)
    if not graphs:
        first = f" The first reject: {rejects[0][1]}" if rejects else ""
        raise ConfigError(f"There must be at least one molecule to fit on (got none).{first}")
    settings: dict[str, Any] = {"mode": mode, "seed": config.model.seed}
    settings |= {"background": graphs} if is_nice else {}
    explainer = get_explainer(config.explainer, subject.model, **settings)
    if entry.learns:
        explainer.fit(graphs, progress=progress)
    return explainer, rejects


def _task(records: Sequence[Record], config: LearnConfig) -> str:
    """Returns whether labels are classes or values, by how the column looks."""
    if not records:
        raise ConfigError("There are no molecules to train on: the file has a header and no rows.")
    if config.task != "auto":
        return config.task
    labels = {record.values[config.label] for record in records} - {""}
    if all(_number(label) is not None for label in labels):
        whole = all(float(label).is_integer() for label in labels)
        return "classification" if whole and len(labels) <= MOST_CLASSES else "regression"
    return "classification"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _read(
    records: Sequence[Record],
    config: LearnConfig,
    task: str,
    featurizer: Featurizer,
    rejects: list[tuple[Record, str]],
    progress: bool,
) -> _Labelled:
    labels = sorted({r.values[config.label] for r in records} - {""}, key=_order)
    if task == "classification" and not 2 <= len(labels) <= MOST_CLASSES:
        raise ConfigError(
            f"Column {config.label!r} must have 2 to {MOST_CLASSES} different labels (got "
            f"{len(labels)}). Name another column, or --task regression."
        )
    if config.classes and len(config.classes) != len(labels):
        raise ConfigError(
            f"`classes` must name the {len(labels)} labels {labels} (got {len(config.classes)})."
        )
    graphs, smiles = [], []
    with progress_bar("Reading", len(records), shown=progress) as advance:
        for number, record in enumerate(records, start=1):
            label = record.values[config.label]
            graph = graph_of(record, featurizer)
            if not isinstance(graph, str) and not label:
                graph = f"The cell of column {config.label!r} is empty."
            elif not isinstance(graph, str) and task == "regression" and _number(label) is None:
                graph = f"{label!r} is not a number."
            if isinstance(graph, str):
                rejects.append((record, graph))
            else:
                y = float(label) if task == "regression" else labels.index(label)
                graph.y = torch.tensor([y])
                graphs.append(graph)
                smiles.append(record.smiles)
            advance(number, "molecules")
    if len(graphs) < FEWEST:
        first = f" The first reject: {rejects[0][1]}" if rejects else ""
        raise ConfigError(
            f"There must be at least {FEWEST} molecules with labels (got {len(graphs)}).{first}"
        )
    names = () if task == "regression" else tuple(config.classes) or tuple(labels)
    return _Labelled(graphs, smiles, names)


def _order(label: str) -> tuple[float, str]:
    number = _number(label)
    return (float("inf") if number is None else number, label)


def _split(smiles: Sequence[str], config: LearnConfig) -> Tensor:
    """Returns the part of each molecule; those that differ in stereo alone stay together."""
    chem = require_rdkit()
    flat = [chem.MolToSmiles(parse_smiles(one), isomericSmiles=False) for one in smiles]
    twin = _numbered(flat)
    if config.split == "random":
        return random_split(twin, config.seed)
    return scaffold_split(_numbered([scaffold_of(one) for one in smiles]), twin)


def _numbered(words: Sequence[str]) -> Tensor:
    number: dict[str, int] = {}
    return torch.tensor([number.setdefault(word, len(number)) for word in words])


def _model(labelled: _Labelled, config: LearnConfig) -> GraphClassifier:
    check_choice("kind", config.kind, ("gin", "gine"))
    first = labelled.graphs[0]
    edges = first.get("edge_attr")
    if config.kind == "gine" and edges is None:
        raise ConfigError(
            f"`kind` must be gin with {config.featurizer!r}, which gives no bond features."
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mix(config.seed, "model"))
        return make_model(
            config.kind,
            int(first.x.size(1)),
            max(1, len(labelled.classes)),
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            edge_size=0 if edges is None else int(edges.size(1)),
        )


def judge(
    model: GraphClassifier, train: Sequence[Data], test: Sequence[Data], task: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the quality on test graphs, and that of always the same answer."""
    trained, wanted = (torch.cat([g.y for g in graphs]) for graphs in (train, test))
    if task == "regression":
        predicted = predict(model, test, mode="regression").view(-1).cpu()
        same = torch.full_like(predicted, float(trained.mean()))
        return _errors(predicted, wanted), _errors(same, wanted)
    probability, common = predict(model, test).cpu(), Counter(trained.tolist()).most_common(1)[0][0]
    right, measured = probability.argmax(1) == wanted, calibration(probability, wanted)
    recalled = [right[wanted == label] for label in sorted({*wanted.tolist()})]  # of each class
    z = 1.96 / math.sqrt(len(recalled))  # so that the mean of the lower ends is that of the mean
    low = [wilson_interval(int(hits.sum()), hits.numel(), z)[0] for hits in recalled]
    quality = {
        "accuracy": measured.accuracy,
        "accuracy_low": measured.interval[0],
        "accuracy_high": measured.interval[1],
        "balanced_accuracy": math.fsum(float(hits.double().mean()) for hits in recalled)
        / len(recalled),
        "balanced_accuracy_low": math.fsum(low) / len(low),
        "calibration_error": measured.ece,
    }
    if probability.size(1) == len(recalled) == 2:
        quality["auc"] = area_under_curve(probability[:, 1], wanted == 1)
    constant = float((wanted == common).double().mean())
    return _short(quality), _short({"accuracy": constant, "balanced_accuracy": 1 / len(recalled)})


def area_under_curve(score: Tensor, is_true: Tensor) -> float:
    r"""Returns the chance that a true molecule has a higher score than a false one; ties are half.

    >>> area_under_curve(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0, 1, 0, 1]).bool())
    0.875
    """
    gap = score[is_true][:, None] - score[~is_true]
    return float(((gap > 0).double() + 0.5 * (gap == 0).double()).mean())


def _doubt(test: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Returns a sentence if the model is no better than always the same answer."""
    if "mae" in test:
        is_better, plain = test["mae"] < baseline["mae"], "the mean of the training values"
    else:
        is_better = test["balanced_accuracy_low"] > baseline["balanced_accuracy"]
        plain = "the most frequent class"
    said = f"It is no better than {plain}: do not use it, and do not trust its explanations."
    return "" if is_better else said


def _errors(predicted: Tensor, wanted: Tensor) -> dict[str, float]:
    gap = (predicted - wanted).double()
    measures = {
        "r2": r_squared(predicted, wanted),
        "mae": float(gap.abs().mean()),
        "rmse": float(gap.square().mean().sqrt()),
    }
    return _short(measures)


def _short(values: dict[str, Any]) -> dict[str, float]:
    return {key: float(f"{value:.4g}") for key, value in values.items()}
