"""NICE and its rivals on graphs that are no molecules, with planted motifs as known truth."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.bench.cell import content_hash
from nicegnn.bench.motif_tasks import TASKS, MotifConfig, MotifTask
from nicegnn.bench.study_rows import has_part, write_part
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.metrics import graph_keys, random_rank, random_ties, roc_auc
from nicegnn.metrics.ranking import graph_sum
from nicegnn.progress import progress_bar
from nicegnn.rivals.registry import find_entry, get_explainer, list_explainers
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.zoo import device_of

logger = logging.getLogger("nicegnn")

EXPERIMENT = "motifs"
VERSION = 1  # raise it when the same settings give other rows
MAX_GRAPHS = 100
NODES_PER_STEP = 32  # most nodes in a step of a fit: computation graphs are large, not molecules
TARGETS_FOLDER = "targets"  # within the folder of this experiment
TARGET = "target"  # setting of the rows about a target itself
CANNOT = "cannot/"  # begins the metric of a row that says why there is no number

#: All explainers; those that gate messages by a mask stand there with noise corruption as well.
METHODS = (
    *list_explainers(),
    "integrated-gradients+nc",
    "gnnexplainer+nc",
    "pgexplainer+nc",
    "refine+nc",
    "confexplainer+nc",
    "occlusion+nc",
)


class UnfinishedError(NicegnnError, RuntimeError):
    """Parts of a run broke for reasons that no method foresees, such as too little memory."""


def compute(
    datasets: Sequence[str] = tuple(TASKS),
    *,
    targets: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    device: str | None = None,
    max_graphs: int | None = MAX_GRAPHS,
    progress: bool = True,
    explainers: Sequence[str] = METHODS,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    fit_graphs: int | None = None,
    config: MotifConfig | None = None,
) -> None:
    """Writes the numbers of every explainer, task, target and seed; finished parts are skipped.

    A seed stands for everything: data, split, weights of the target, and the explainer. Rows:
    ``setting`` is the explainer; metrics are means over explained graphs or nodes: ``roc_auc`` and
    ``recall@k`` (see `agreement`), ``kept_area/em`` and ``kept_area/nc`` for graphs; further
    ``num_explained``, ``explain_seconds`` (per graph or node) and ``fit_seconds``. An explainer
    that cannot work there has one row ``cannot/<why>`` instead. The row of setting ``target`` is
    the test ``accuracy``, with the wanted one as its ``level``.

    Args:
        datasets: names of `TASKS`.
        targets: which targets of the tasks; by default all.
        max_graphs: most graphs or nodes to explain; none for all of the test part.
        explainers: names for `get_explainer`.
        settings: changes of defaults by explainer, such as ``{"nice": {"boundary__steps": 50}}``.
        fit_graphs: most training graphs or nodes to fit on; none for all.
        config: sizes of data and training.

    Raises:
        UnfinishedError: some parts broke; all others are written.
    """
    settings = settings or {}
    _check(datasets, targets, explainers, settings)
    subjects = [
        (TASKS[name], target, seed)
        for name in datasets
        for target in TASKS[name].targets
        if targets is None or target in targets
        for seed in seeds
    ]
    broken: list[str] = []
    total, done = len(subjects) * len(explainers), 0
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        for kind, target, seed in subjects:
            about = f"{kind.name} {target}, seed {seed}"
            advance(done, f"target of {about}")
            task = kind(seed, config or MotifConfig())
            model = trained_target(task, target, out, device)
            chosen = task.explained(model, max_graphs)
            for name in explainers:
                advance(done, f"{name} on {about}")
                try:
                    _compute_part(task, target, model, chosen, name, settings, fit_graphs, out)
                except Exception as error:  # one method that breaks must not stop the others
                    broken.append(f"{name} on {about}: {type(error).__name__}: {error}")
                    logger.warning("%s", broken[-1])
                done += 1
        advance(done, "")
    if broken:
        raise UnfinishedError(
            f"{len(broken)} of {total} parts broke: {'; '.join(broken)}. All others are in {out}; "
            "the same command computes only what is missing."
        )


def trained_target(
    task: MotifTask, name: str, out: str | Path, device: str | None = None
) -> nn.Module:
    """Returns the target of a task, trained now or before, and records its accuracy."""
    model = task.new_target(name)
    shapes = {weight: list(tensor.shape) for weight, tensor in model.state_dict().items()}
    how = content_hash([VERSION, asdict(task.config), shapes])[:12]  # `repr` changes with PyG
    key = f"{task.name}-{name}-{task.seed}-{how}"
    path = Path(out) / EXPERIMENT / TARGETS_FOLDER / f"{key}.safetensors"
    if not path.is_file():
        model.to(device_of(device))
        task.train(model)
        save_tensors(path, model.state_dict(), {"kind": "motif target"})
    tensors, _ = load_tensors(path, "motif target")
    model.load_state_dict(tensors)
    model.to(device_of(device)).eval()
    if not has_part(out, EXPERIMENT, f"{key}-{TARGET}"):
        accuracy = task.accuracy(model)
        row = _row(task, name, TARGET, "accuracy", accuracy, level=task.accuracy_wanted)
        write_part(out, EXPERIMENT, f"{key}-{TARGET}", [row])
    return model


def agreement(found: Explanation, edge_truth: Tensor, seed: int = 0) -> dict[str, Tensor]:
    r"""Compares scores with the truth among the bonds that can influence the prediction.

    .. math:: recall@K = \frac{|S_K \cap T|}{|T|}, \qquad K = |T|

    Symbols: :math:`T` -> ``true``, the true bonds within reach, bool ``[M]``; :math:`S_K` -> the
    best :math:`K` bonds within reach, equals in random order by `seed`. Precision at K is the same
    number. Bonds count once, whatever their directions. Bonds out of reach of an explained node
    are no part of the question: leaving them low is no merit.

    Args:
        found: explanations of graphs, or of nodes of one graph.
        edge_truth: truly explaining directed edges, bool ``[E]``.

    Returns:
        ``roc_auc`` and ``recall@k``, ``[B]`` each; nan where undefined.
    """
    bonds, num = found.bonds, found.num_graphs
    truth = bonds.sum(edge_truth.to(bonds.batch.device).double()) > 0  # [M]
    key = graph_keys(bonds, num)
    if found.index is not None:  # all copies of one graph
        key = key + found.index
    tie = random_ties(bonds.batch, num, seed, key)
    reached = found.bond_reached
    score, true, batch = found.bond_score[reached], truth[reached], bonds.batch[reached]
    size = graph_sum(true.long(), batch, num)  # K, [B]
    best = random_rank(score, batch, num, tie[reached]) < size[batch]
    hit = graph_sum((best & true).double(), batch, num)
    return {"roc_auc": roc_auc(score, true, batch, num), "recall@k": hit / size}  # 0 / 0 is nan


def _compute_part(
    task: MotifTask,
    target: str,
    model: nn.Module,
    chosen: Tensor,
    name: str,
    settings: Mapping[str, Mapping[str, Any]],
    fit_graphs: int | None,
    out: str | Path,
) -> None:
    """Writes the rows of one explainer unless they are there."""
    explainer: Any = get_explainer(name, model, config=_config(name, model, task, settings))
    how = [VERSION, fingerprint(model), asdict(explainer.config), chosen.tolist(), fit_graphs]
    key = f"{task.name}-{target}-{task.seed}-{name}-{content_hash(how)[:12]}"
    if not has_part(out, EXPERIMENT, key):
        numbers = _measure(task, model, explainer, chosen, fit_graphs)
        rows = [_row(task, target, name, metric, value) for metric, value in numbers.items()]
        write_part(out, EXPERIMENT, key, rows)


def _measure(
    task: MotifTask, model: nn.Module, explainer: Explainer, chosen: Tensor, fit_graphs: int | None
) -> dict[str, float]:
    """Returns means over what is explained, or why an explainer cannot do it."""
    if chosen.numel() == 0:
        return {f"{CANNOT}the target is right about nothing in the test part that has a truth": 1.0}
    numbers: dict[str, float] = {}
    try:
        started = _now(model)
        task.fit(explainer, fit_graphs)
        if explainer.learns:
            numbers["fit_seconds"] = _now(model) - started
        started = _now(model)
        parts = list(task.explain(explainer, chosen))
        numbers["explain_seconds"] = (_now(model) - started) / chosen.numel()
    except NicegnnError as error:
        return {f"{CANNOT}{' '.join(str(error).split())}": 1.0}
    values: dict[str, list[Tensor]] = {}
    for found, truth in parts:
        measured = agreement(found, truth, task.seed) | task.fidelity(model, found, chosen)
        for metric, value in measured.items():
            values.setdefault(metric, []).append(value.double())
    means = {metric: float(torch.cat(value).nanmean()) for metric, value in values.items()}
    return {**means, "num_explained": float(chosen.numel()), **numbers}


def _config(
    name: str, model: nn.Module, task: MotifTask, settings: Mapping[str, Mapping[str, Any]]
) -> Any:
    """Returns an explainer's settings; a fit on nodes takes fewer of them at a time."""
    entry, _ = find_entry(name)
    made: Any = get_explainer(name, model, **settings.get(entry.name, {}))
    config = made.config
    if task.level == "graph" or not entry.learns:
        return config
    if isinstance(config, NICEConfig):
        size = min(config.boundary.batch_size, NODES_PER_STEP)
        return config.with_(boundary__batch_size=size)
    return config.with_(fit_batch_size=min(config.fit_batch_size, NODES_PER_STEP))


def _row(
    task: MotifTask,
    target: str,
    setting: str,
    metric: str,
    value: float,
    level: float = float("nan"),
) -> dict[str, Any]:
    return {
        "dataset": task.name,
        "target": target,
        "setting": setting,
        "level": level,
        "seed": task.seed,
        "metric": metric,
        "value": value,
    }


def _check(
    datasets: Sequence[str],
    targets: Sequence[str] | None,
    explainers: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raises `ConfigError` for names that nothing has, before anything is computed."""
    for name in datasets:
        if name not in TASKS:
            raise ConfigError(f"`datasets` must be of {tuple(TASKS)} (got {name!r}).")
    known = {target for name in datasets for target in TASKS[name].targets}
    unknown = sorted(set(targets or ()) - known)
    if unknown:
        raise ConfigError(f"`targets` must be of {sorted(known)} for these tasks (got {unknown}).")
    for name in explainers:
        entry, mechanism = find_entry(name)
        if mechanism is not None and mechanism not in entry.mechanisms:
            raise ConfigError(
                f"{entry.name} works with mechanisms {entry.mechanisms} (got {name!r})."
            )
    for name in settings:
        if find_entry(name)[0].name != name:
            raise ConfigError(f"`settings` are by plain names of explainers (got {name!r}).")


def _now(model: nn.Module) -> float:
    """Returns the time when all that the device was asked to do is done."""
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
