"""A model and its explainer from a file of molecules with labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.nice import NICE
from nicegnn.molecule.domain import Domain
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.molecule.splits import TEST, TRAIN, VALID, random_split, scaffold_of, scaffold_split
from nicegnn.pretrained.model_file import (
    EXPLAINER_ENDING,
    MODES,
    ModelCard,
    one_output,
    save_model,
)
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import graph_of
from nicegnn.screening.loading import usable_device
from nicegnn.screening.reading import Reader, Record
from nicegnn.screening.settings import LearnConfig, Task
from nicegnn.seeding import mix
from nicegnn.store import write_text
from nicegnn.target.training import (
    TrainConfig,
    calibration,
    predict,
    r_squared,
    train_model,
    wilson_interval,
)
from nicegnn.target.zoo import GraphClassifier, make_model

MOST_CLASSES = 20  # different labels that are still taken for classes
FEWEST = 20  # molecules with labels
UNEVEN = 1.5  # classes weigh the same where the largest is so many times the smallest
_PATIENCE = 20  # epochs without improvement before training ends; after half the rate is halved
_WEIGHED = "Classes of different size weighed the same in training."


@dataclass(frozen=True)
class Learned:
    """A trained model with its cards, one for each label, and what was left out."""

    model: GraphClassifier
    cards: dict[str, ModelCard]
    rejects: list[tuple[Record, str]]
    files: dict[str, str]

    @property
    def card(self) -> ModelCard:
        """The first card."""
        return next(iter(self.cards.values()))


@dataclass(frozen=True)
class _Labelled:
    task: Task
    classes: dict[str, tuple[str, ...]]  # of each label; empty for values
    graphs: list[Data]  # y is [1], or [1, L] for several labels with nan for empty cells
    rejects: list[tuple[Record, str]]


def learn(
    reader: Reader,
    out: str | Path,
    config: LearnConfig,
    *,
    progress: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> Learned:
    """Trains a model on the labels of a file, judges it on held-out molecules, and saves both.

    The file `out` holds weights, cards and a background of training molecules; cards also stand
    beside it as TOML, and a student as a file that ends in ``.nice.safetensors``.
    """
    out, device = Path(out), usable_device(config.device)
    labelled = _read(reader, config, progress)
    task, labels = labelled.task, [*labelled.classes]
    several, pairs = len(labels) > 1, [*zip(labelled.graphs, _split(labelled, config), strict=True)]
    train, valid, test = ([g for g, its in pairs if its == code] for code in (TRAIN, VALID, TEST))
    if not (train and valid and test):
        raise ConfigError(
            f"`split` must leave molecules to train, to validate and to test (got "
            f"{(len(train), len(valid), len(test))} of them with {config.split!r}). Use --split "
            "random, or more molecules of other scaffolds."
        )
    num_outputs = len(labels) if several else len(labelled.classes[labels[0]]) or 1
    first = labelled.graphs[0]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(mix(config.seed, "model"))
        model = make_model(
            config.kind,
            int(first.x.size(1)),
            num_outputs,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            edge_size=int(first.edge_attr.size(1)),
        ).to(device)
    training = TrainConfig(
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        epochs=config.epochs,
        patience=_PATIENCE // 2,
        stop_after=_PATIENCE,
        seed=config.seed,
    )
    say(f"Training a {config.kind.upper()} on {len(train)} molecules ({task}).")
    mode, is_even = "multilabel" if several else MODES[task], not several
    if mode == "multiclass":
        count = Counter(float(graph.y) for graph in train).values()
        is_even = max(count) <= UNEVEN * min(count)
    learned: dict[str, Any] = {"mode": mode, "balanced": not is_even, "progress": progress}
    report = train_model(model, train, valid, training, **learned)
    early = f" after {report.epochs} of {config.epochs} epochs" * (report.epochs < config.epochs)
    say(f"Training ended{early}; the weights of epoch {report.best_epoch + 1} are kept.")
    stem, cards = out.name.removesuffix(".safetensors"), {}
    for number, label in enumerate(labels):
        own: Task = "binary" if several else task
        known, seen = (_known(graphs, number) if several else graphs for graphs in (train, test))
        one = one_output(model, number) if several else model
        measured, baseline = judge(one, known, seen, own)
        notes = [config.note, "" if is_even else _WEIGHED]
        notes += [f"One of {len(labels)} labels: {', '.join(labels)}."] if several else []
        cards[label] = ModelCard(
            name=f"{stem}:{label}" if several else stem,
            question=config.question or f"{label} of {reader.path.name}",
            task=own,
            classes=labelled.classes[label],
            unit=config.unit,
            featurizer=config.featurizer,
            data=config.data or f"column {label} of {reader.path.name}",
            split=f"{config.split}, seed {config.seed}: {len(known)} train, {len(valid)} "
            f"validation, {len(seen)} test",
            architecture=f"{config.kind.upper()}, {config.num_layers} layers of "
            f"{config.hidden_size}",
            note=" ".join(filter(None, notes)),
            doubt=_doubt(measured, baseline),
            test=measured,
            baseline=baseline,
        )
    files = _save(out, model, cards, train)
    if config.teach and not several:
        say("Teaching a student.")
        files["student"] = str(out.with_name(stem + EXPLAINER_ENDING))
        nice = NICE(model, background=train, mode=MODES[task])
        nice.teach(train, seed=config.seed, progress=progress)
        nice.save(files["student"])
    return Learned(model, cards, labelled.rejects, files)


def _known(graphs: Sequence[Data], number: int) -> list[Data]:
    """Returns graphs whose label of this number is known, with it alone as ``y``."""
    chosen = [graph for graph in graphs if bool(graph.y[0, number].isfinite())]
    return [Data(**{**graph.to_dict(), "y": graph.y[0, number].long().view(1)}) for graph in chosen]


def _save(
    out: Path, model: GraphClassifier, cards: Mapping[str, ModelCard], train: Sequence[Data]
) -> dict[str, str]:
    """Writes the model and its cards; returns what is where."""
    several, first = len(cards) > 1, next(iter(cards.values()))
    mode = "regression" if several else MODES[first.task]  # messages are the same in any mode
    background = NICE(model, background=train, mode=mode).background
    domain = Domain.of([graph.smiles for graph in train])
    save_model(out, model, first, background, domain, cards if several else {})
    files, stem = {"model": str(out)}, out.name.removesuffix(".safetensors")
    for number, (label, card) in enumerate(cards.items(), start=1):
        path = out.with_name(f"{stem}-{number}.toml" if several else f"{stem}.toml")
        files[f"card of {label}" if several else "card"] = str(path)
        write_text(path, card.to_toml())
    return files


def _read(reader: Reader, config: LearnConfig, progress: bool) -> _Labelled:
    check_choice("featurizer", config.featurizer, FEATURIZERS)  # a file holds no code
    reader.check_columns(config.label)
    records = list(reader)
    if not records:
        raise ConfigError("There are no molecules to train on: the file has a header and no rows.")

    def by_number(word: str) -> tuple[float, str]:
        number = _number(word)
        return (math.inf if number is None else number, word)

    words = {
        label: sorted({record.values[label] for record in records} - {""}, key=by_number)
        for label in config.label
    }
    task = _task({word for column in words.values() for word in column}, config)
    classes = {label: _classes(label, words[label], task, config) for label in words}
    several, first = len(words) > 1, config.label[0]
    graphs, rejects = [], []
    with progress_bar("Reading", len(records), shown=progress) as advance:
        for number, record in enumerate(records, start=1):
            advance(number, "molecules")
            cells = {label: record.values[label] for label in words}
            try:
                graph = graph_of(record, FEATURIZERS[config.featurizer])
            except NicegnnError as error:
                rejects.append((record, str(error)))
                continue
            y = [
                (words[label].index(cell) if classes[label] else _number(cell)) if cell else None
                for label, cell in cells.items()
            ]
            if not any(cells.values()):
                rejects.append((record, f"The cell of column {first!r} is empty."))
            elif not several and y[0] is None:
                rejects.append((record, f"{cells[first]!r} is not a number."))
            else:
                known = [math.nan if one is None else one for one in y]
                graph.y = torch.tensor([known], dtype=torch.float) if several else torch.tensor(y)
                graphs.append(graph)
    if len(graphs) < FEWEST:
        why = f" The first reject: {rejects[0][1]}" if rejects else ""
        raise ConfigError(
            f"There must be at least {FEWEST} molecules with labels (got {len(graphs)}).{why}"
        )
    return _Labelled(task, classes, graphs, rejects)


def _task(labels: set[str], config: LearnConfig) -> Task:
    """Returns whether labels are classes or values, by how the column looks."""
    if config.task != "auto":
        return config.task
    values = [_number(label) for label in labels]
    whole = all(value is not None and value.is_integer() for value in values)
    is_value = None not in values and not (whole and len(labels) <= MOST_CLASSES)
    return "regression" if is_value else "classification"


def _classes(label: str, words: Sequence[str], task: Task, config: LearnConfig) -> tuple[str, ...]:
    """Returns the names of a label's classes; a value has none."""
    several = len(config.label) > 1
    if task == "regression" and not several:
        return ()
    if task == "regression" or not 2 <= len(words) <= (2 if several else MOST_CLASSES):
        most = "" if several else f" to {MOST_CLASSES}"
        raise ConfigError(
            f"Column {label!r} must have 2{most} different labels (got {len(words)}). Name another "
            "column; values are learned one column at a time, with --task regression."
        )
    if config.classes and (several or len(config.classes) != len(words)):
        raise ConfigError(
            f"`classes` must name the {len(words)} labels {[*words]} of a single column (got "
            f"{config.classes})."
        )
    if several and [_number(word) for word in words] == [0, 1]:
        return f"not {label}", label
    return tuple(config.classes) or tuple(words)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _split(labelled: _Labelled, config: LearnConfig) -> list[int]:
    """Returns the part of each molecule; those that differ in stereo alone stay together."""
    chem, smiles = require_rdkit(), [graph.smiles for graph in labelled.graphs]
    flat = [chem.MolToSmiles(parse_smiles(one), isomericSmiles=False) for one in smiles]
    if config.split == "random":
        return random_split(flat, config.seed).tolist()
    return scaffold_split(map(scaffold_of, flat)).tolist()


def judge(
    model: GraphClassifier, train: Sequence[Data], test: Sequence[Data], task: Task
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the quality on test graphs, and that of always the same answer."""
    if not test:
        return {}, {}
    trained, wanted = (torch.cat([g.y for g in graphs]) for graphs in (train, test))
    if task == "regression":
        predicted = predict(model, test, mode="regression").view(-1).cpu()
        told = []
        for answer in (predicted, torch.full_like(predicted, float(trained.mean()))):
            gap = (answer - wanted).double()
            rmse, mae = float(gap.square().mean().sqrt()), float(gap.abs().mean())
            told.append(_short({"r2": r_squared(answer, wanted), "mae": mae, "rmse": rmse}))
        return told[0], told[1]
    probability = predict(model, test, mode=MODES[task]).cpu()
    common = Counter(trained.tolist()).most_common(1)[0][0]
    right, measured = probability.argmax(1) == wanted, calibration(probability, wanted)
    recalled = [right[wanted == label] for label in sorted({*wanted.tolist()})]  # of each class
    z = 1.96 / math.sqrt(len(recalled))  # so that the mean of the lower ends is that of the mean
    low = [wilson_interval(int(hits.sum()), hits.numel(), z)[0] for hits in recalled]
    recall = [float(hits.double().mean()) for hits in recalled]
    quality = {
        "accuracy": measured.accuracy,
        "accuracy_low": measured.interval[0],
        "accuracy_high": measured.interval[1],
        "balanced_accuracy": math.fsum(recall) / len(recalled),
        "balanced_accuracy_low": math.fsum(low) / len(low),
        "calibration_error": measured.ece,
    }
    if probability.size(1) == len(recalled) == 2:
        score, is_one = probability[:, 1], wanted == 1
        gap = score[is_one][:, None] - score[~is_one]
        quality["auc"] = float(((gap > 0).double() + 0.5 * (gap == 0).double()).mean())
    constant = float((wanted == common).double().mean())
    return _short(quality), _short({"accuracy": constant, "balanced_accuracy": 1 / len(recalled)})


def _doubt(test: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Returns a sentence if the model is no better than always the same answer."""
    if "mae" in test:
        is_better, plain = test["mae"] < baseline["mae"], "the mean of the training values"
    else:
        low, same = test.get("balanced_accuracy_low", 0), baseline.get("balanced_accuracy", 1)
        is_better, plain = low > same, "the most frequent class"
    said = f"It is no better than {plain}: do not use it, and do not trust its explanations."
    return "" if is_better else said


def _short(values: dict[str, Any]) -> dict[str, float]:
    return {key: float(f"{value:.4g}") for key, value in values.items()}
