"""A model and its explainer from a file of molecules with labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.nice import NICE
from nicegnn.molecule.domain import Domain
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.molecule.smiles import MoleculeError, parse_smiles, require_rdkit
from nicegnn.molecule.splits import TEST, TRAIN, VALID, random_split, scaffold_of, scaffold_split
from nicegnn.pretrained import model_file
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import graph_of
from nicegnn.screening.loading import usable_device
from nicegnn.screening.reading import Reader, Record, listed
from nicegnn.screening.settings import LearnConfig, Task
from nicegnn.seeding import SeededWeights, mix
from nicegnn.store import write_text
from nicegnn.target import training
from nicegnn.target.output import Mode
from nicegnn.target.training import predict, r_squared
from nicegnn.target.zoo import GraphClassifier, make_model

MOST_CLASSES = 20  # different labels that are still taken for classes
FEWEST = 20  # molecules with labels
UNEVEN = 1.5  # classes weigh the same where the largest is so many times the smallest
_PATIENCE = 20  # epochs without improvement before training ends; after half the rate is halved


class Learned(NamedTuple):
    """A trained model, and what was left out."""

    model: GraphClassifier
    cards: dict[str, model_file.ModelCard]  # of each label
    rejects: list[tuple[Record, str]]  # and why each was left out
    files: list[Path]  # the model, its cards, and a student


class _Label(NamedTuple):
    """A column of labels; one of values has no classes."""

    name: str
    cells: tuple[str, ...] = ()  # those of the classes, by number
    classes: tuple[str, ...] = ()  # names of the classes


def learn(
    reader: Reader, out: str | Path, config: LearnConfig, *, progress: bool = False
) -> Learned:
    """Trains a model on the labels of a file, judges it on held-out molecules, and saves both.

    Beside the file `out` stand its cards as TOML, and a student in ``.nice.safetensors``.
    """
    out, device = Path(out), usable_device(config.device)
    task, labels, graphs, rejects = _read(reader, config, progress)
    several, stem = len(labels) > 1, out.name.removesuffix(".safetensors")
    chem, smiles = require_rdkit(), [graph.smiles for graph in graphs]
    # those that differ in stereo alone stay together
    flat = [chem.MolToSmiles(parse_smiles(one), isomericSmiles=False) for one in smiles]
    parts = random_split(flat, config.seed)
    if config.split == "scaffold":
        parts = scaffold_split(map(scaffold_of, flat))
    train, valid, test = (
        [graph for graph, part in zip(graphs, parts.tolist(), strict=True) if part == code]
        for code in (TRAIN, VALID, TEST)
    )
    if not (train and valid and test):
        raise ConfigError(
            "`split` must leave molecules to train, to validate and to test (got "
            f"{(len(train), len(valid), len(test))} of them with {config.split!r}). Use --split "
            "random, or more molecules."
        )
    with SeededWeights(mix(config.seed, "model")):
        model = make_model(
            config.kind,
            int(graphs[0].x.size(1)),
            len(labels) if several else len(labels[0].classes) or 1,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            edge_size=int(graphs[0].edge_attr.size(1)),
        ).to(device)
    same = {
        name: getattr(config, name) for name in ("learning_rate", "batch_size", "epochs", "seed")
    }
    settings = training.TrainConfig(**same, patience=_PATIENCE // 2, stop_after=_PATIENCE)
    mode: Mode = "multilabel" if several else model_file.MODES[task]
    is_even, notes = not several, [config.note] if config.note else []
    if mode == "multiclass":
        count = Counter(float(graph.y) for graph in train).values()
        is_even = max(count) <= UNEVEN * min(count)
    settled = {"balanced": not is_even, "progress": progress}
    training.train_model(model, train, valid, settings, mode=mode, **settled)
    notes += [] if is_even else ["Classes of different size weighed the same in training."]
    notes += [f"One of {len(labels)} labels: {', '.join(config.label)}."] if several else []
    cards = dict[str, model_file.ModelCard]()
    for number, label in enumerate(labels):
        one, known, seen = model, train, test
        if several:
            one, task = model_file.one_output(model, number), "binary"
            known, seen = _known(train, number), _known(test, number)
        measured, baseline = (
            {key: float(f"{value:.4g}") for key, value in told.items()}
            for told in judge(one, known, seen, task)
        )
        cards[label.name] = model_file.ModelCard(
            name=f"{stem}:{label.name}" if several else stem,
            question=config.question or f"{label.name} of {reader.path.name}",
            task=task,
            classes=label.classes,
            unit=config.unit,
            featurizer=config.featurizer,
            data=config.data or f"column {label.name} of {reader.path.name}",
            split=f"{config.split}, seed {config.seed}: {len(known)} train, {len(valid)} "
            f"validation, {len(seen)} test",
            architecture=f"{config.kind.upper()}, {config.num_layers} layers of "
            f"{config.hidden_size}; at most {config.epochs} epochs, batches of "
            f"{config.batch_size}, learning rate {config.learning_rate:g}",
            note=" ".join(notes),
            doubt=_doubt(measured, baseline),
            test=measured,
            baseline=baseline,
        )
    # messages are the same in any mode
    nice = NICE(model, background=train, mode="regression" if several else model_file.MODES[task])
    domain = Domain.of([graph.smiles for graph in train])
    first, own = next(iter(cards.values())), cards if several else None
    model_file.save_model(out, model, first, nice.background, domain, own)
    files = [out]
    for number, card in enumerate(cards.values(), start=1):
        files.append(out.with_name(f"{stem}-{number}.toml" if several else f"{stem}.toml"))
        write_text(files[-1], card.to_toml())
    if config.teach and not several:
        files.append(out.with_name(stem + model_file.EXPLAINER_ENDING))
        nice.teach(train, seed=config.seed, progress=progress)
        nice.save(files[-1])
    return Learned(model, cards, rejects, files)


def _known(graphs: Sequence[Data], number: int) -> list[Data]:
    """Returns graphs whose label of this number is known, with it alone as ``y``."""
    return [
        Data(**{**graph.to_dict(), "y": graph.y[:, number].long()})
        for graph in graphs
        if bool(graph.y[0, number].isfinite())
    ]


def _read(
    reader: Reader, config: LearnConfig, progress: bool
) -> tuple[Task, list[_Label], list[Data], list[tuple[Record, str]]]:
    """Returns the task, the labels, the graphs and what was left out.

    ``y`` of a graph is ``[1]``, or ``[1, L]`` for several labels, with nan for empty cells.
    """
    if absent := [name for name in config.label if name not in reader.values]:
        raise ConfigError(
            f"{reader.path} has no column {absent[0]!r} beside those of SMILES and names; it has "
            f"{listed(reader.values)}. Name one of these."
        )
    records = list(reader)
    if not records:
        raise ConfigError("There are no molecules to train on: the file has a header and no rows.")
    cells = {name: {one.values[name] for one in records} - {""} for name in config.label}
    task = _task(set.union(*cells.values()), config)
    labels = [_label(name, cells[name], task, config) for name in cells]
    graphs, rejects = list[Data](), list[tuple[Record, str]]()
    with progress_bar("Reading", len(records), shown=progress) as advance:
        for done, record in enumerate(records, start=1):
            advance(done, "molecules")
            try:
                graph = graph_of(record, FEATURIZERS[config.featurizer])
                graph.y = _label_tensor(record, labels)
                graphs.append(graph)
            except NicegnnError as error:
                rejects.append((record, str(error)))
    if len(graphs) < FEWEST:
        why = f" The first reject: {rejects[0][1]}" if rejects else ""
        raise ConfigError(
            f"There must be at least {FEWEST} molecules with labels (got {len(graphs)}).{why}"
        )
    return task, labels, graphs, rejects


def _label_tensor(record: Record, labels: Sequence[_Label]) -> Tensor:
    cells = [(label.cells, record.values[label.name]) for label in labels]
    if not any(cell for _, cell in cells):
        raise MoleculeError(f"The cell of column {labels[0].name!r} is empty.")
    if len(labels) > 1:
        known = [of.index(cell) if cell else math.nan for of, cell in cells]
        return torch.tensor([known], dtype=torch.float)
    ((of, cell),) = cells
    number = of.index(cell) if of else _number(cell)
    if number is None:
        raise MoleculeError(f"{cell!r} is not a number.")
    return torch.tensor([number])


def _task(cells: set[str], config: LearnConfig) -> Task:
    """Returns whether labels are classes or values, by how the column looks."""
    if config.task != "auto":
        return config.task
    values = [_number(cell) for cell in cells]
    whole = all(value is not None and value.is_integer() for value in values)
    is_value = None not in values and not (whole and len(cells) <= MOST_CLASSES)
    return "regression" if is_value else "classification"


def _label(name: str, cells: set[str], task: Task, config: LearnConfig) -> _Label:
    """Returns a label with its classes, in the order of numbers and then of words."""
    several = len(config.label) > 1
    if task == "regression" and not several:
        return _Label(name)
    if task == "regression" or not 2 <= len(cells) <= (2 if several else MOST_CLASSES):
        most = "" if several else f" to {MOST_CLASSES}"
        raise ConfigError(
            f"Column {name!r} must have 2{most} different labels (got {len(cells)}). Name another "
            "column; values are learned one column at a time, with --task regression."
        )
    numbers = {cell: _number(cell) for cell in cells}
    words = sorted(cells, key=lambda cell: (numbers[cell] is None, numbers[cell] or 0.0, cell))
    if config.classes and (several or len(config.classes) != len(words)):
        raise ConfigError(
            f"`classes` must name the {len(words)} labels {words} of a single column (got "
            f"{config.classes})."
        )
    classes = tuple(config.classes) or tuple(words)
    if several and [numbers[word] for word in words] == [0, 1]:
        classes = f"not {name}", name
    return _Label(name, tuple(words), classes)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


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
            told.append({"r2": r_squared(answer, wanted), "mae": mae, "rmse": rmse})
        return told[0], told[1]
    probability = predict(model, test, mode=model_file.MODES[task]).cpu()
    common = Counter(trained.tolist()).most_common(1)[0][0]
    right, measured = probability.argmax(1) == wanted, training.calibration(probability, wanted)
    recalled = [right[wanted == label] for label in sorted({*wanted.tolist()})]  # of each class
    z = 1.96 / math.sqrt(len(recalled))  # so that the mean of the lower ends is that of the mean
    low = [training.wilson_interval(int(hits.sum()), hits.numel(), z)[0] for hits in recalled]
    recall = [float(hits.double().mean()) for hits in recalled]
    quality = {
        "accuracy": measured["accuracy"],
        "accuracy_low": measured["interval"][0],
        "accuracy_high": measured["interval"][1],
        "balanced_accuracy": math.fsum(recall) / len(recalled),
        "balanced_accuracy_low": math.fsum(low) / len(low),
        "calibration_error": measured["ece"],
    }
    if probability.size(1) == len(recalled) == 2:
        score, is_one = probability[:, 1], wanted == 1
        gap = score[is_one][:, None] - score[~is_one]
        quality["auc"] = float(((gap > 0).double() + 0.5 * (gap == 0).double()).mean())
    constant = float((wanted == common).double().mean())
    return quality, {"accuracy": constant, "balanced_accuracy": 1 / len(recalled)}


def _doubt(test: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Returns a sentence if the model is no better than always the same answer."""
    if "mae" in test:
        is_better, plain = test["mae"] < baseline["mae"], "the mean of the training values"
    else:
        low, same = test.get("balanced_accuracy_low", 0), baseline.get("balanced_accuracy", 1)
        is_better, plain = low > same, "the most frequent class"
    said = f"It is no better than {plain}: do not use it, and do not trust its explanations."
    return "" if is_better else said
