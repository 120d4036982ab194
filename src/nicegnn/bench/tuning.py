r"""Choosing settings without truth: the same rule and the same number of trials for every method.

A trial fits an explainer on training graphs, explains validation graphs that the target predicts
as class 1, and asks how far the best bonds alone carry the prediction:

.. math:: c = \frac1{2Q} \sum_{r \in \{em, nc\}} \sum_q \mathrm{mean}_G\, p_{\hat y}(S_q^r(G))

Symbols: :math:`S_q^r(G)` -> the graph with only its best share :math:`q` of bonds, the others
removed by :math:`r`; :math:`p_{\hat y}` -> probability of the predicted class. True explanations
and labels are not read.
"""

from __future__ import annotations

import itertools
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_geometric.data import Batch

from nicegnn.bench.selection import draw, fit_set
from nicegnn.bench.settings import Choice, choose, full_settings
from nicegnn.bench.targets import MAIN_TARGET, TrainedTarget
from nicegnn.datasets import MoleculeDataset
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.metrics import RATIOS, fidelity_curve
from nicegnn.progress import progress_bar
from nicegnn.rivals.registry import find_entry
from nicegnn.store import write_json
from nicegnn.target.frozen_model import fingerprint
from nicegnn.target.training import predict

REMOVALS = ("em", "nc")


@dataclass(frozen=True)
class TuneConfig:
    """How settings are chosen."""

    num_graphs: int = 200  # validation graphs that are explained
    fit_graphs: int | None = None  # most training graphs to fit on; none for all
    steps: int | None = None  # steps of every fit, to save time; none for the method's own
    num_draws: int = 8  # noise draws of removal "nc"
    seed: int = 0  # seed of every trial
    chunk_edges: int = 400_000  # directed edges times copies in one call of the model


@dataclass(frozen=True)
class Trial:
    """One set of settings and what it reached.

    Attributes:
        settings: what differs from the method's defaults.
        criterion: the rule's value, higher is better.
        kept: mean probability kept under each removal.
        seconds: of fitting and explaining.
        error: why it failed, else empty.
    """

    settings: dict[str, Any]
    criterion: float
    kept: dict[str, float]
    seconds: dict[str, float]
    error: str = ""


def read_search(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Reads candidates of each explainer: a TOML table of lists, all combinations of which count.

    Example of a file: ``[pgexplainer]`` with ``learning_rate = [0.003, 0.01]`` and ``size = [0.005,
    0.05]`` has four candidates.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"Cannot read a search space from {path}: {error}") from error
    found = {}
    for name, table in tables.items():
        lists = {key: value if isinstance(value, list) else [value] for key, value in table.items()}
        find_entry(name)
        found[name] = [
            dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())
        ]
    return found


def tune(
    dataset: MoleculeDataset,
    target: TrainedTarget,
    name: str,
    candidates: Sequence[Mapping[str, Any]],
    config: TuneConfig,
    *,
    log: Path,
    progress: bool = True,
) -> list[Trial]:
    """Tries all candidates that the log does not hold yet, and returns all trials, best first.

    Args:
        name: explainer, with ``+nc`` for a mechanism.
        log: JSON file of trials; written after each one.
    """
    choice = choose(name, {})
    model = target.model
    batch = _validation_graphs(dataset, model, config)
    identity = {
        "dataset": dataset.name,
        "target": target.manifest["target"],
        "explainer": name,
        "model": fingerprint(model),
        "config": {
            key: value
            for key, value in asdict(config).items()
            if key != "chunk_edges" and not (key == "steps" and value is None)
        },
    }
    trials = _read_log(log, identity)
    done = [trial.settings for trial in trials]
    wanted = [dict(candidate) for candidate in candidates if dict(candidate) not in done]
    fits = _Fits(choice, dataset, model, config)
    with progress_bar(f"{dataset.name} {name}", len(candidates), shown=progress) as advance:
        for settings in wanted:
            trials.append(_try(fits, settings, batch, config))
            write_json(log, identity | {"trials": [asdict(trial) for trial in trials]})
            best = max(trials, key=_rank)
            advance(len(trials), f"best {best.criterion:.3f} {best.settings}")
    return sorted(trials, key=_rank, reverse=True)


def _rank(trial: Trial) -> float:
    return trial.criterion if trial.criterion == trial.criterion else -1.0  # nan last


def _validation_graphs(dataset: MoleculeDataset, model: Any, config: TuneConfig) -> Batch:
    predicted = predict(model, dataset.valid).argmax(1).cpu()
    positions = (predicted == 1).nonzero().view(-1)
    if positions.numel() == 0:
        raise ConfigError(f"The target predicts no validation graph of {dataset.name} as class 1.")
    return dataset.valid.batch(positions[draw(positions.numel(), config.num_graphs, "tune")])


class _Fits:
    """Makes fitted explainers; a fit is used again where only the way of explaining changes."""

    def __init__(
        self, choice: Choice, dataset: MoleculeDataset, model: Any, config: TuneConfig
    ) -> None:
        self._choice, self._model, self._config = choice, model, config
        self._graphs = fit_set(dataset.train, config.fit_graphs)
        self._fitted: dict[str, tuple[Explainer, float]] = {}  # the last one, with its seconds

    def get(self, settings: Mapping[str, Any]) -> tuple[Explainer, float]:
        """Returns a fitted explainer with these settings and the seconds that its fit took."""
        choice, config = self._choice, self._config
        tried = {**settings, **_shortened(choice, config)}
        explainer = Choice(choice.explainer, choice.mechanism, choice.learns, tried).make(
            self._model, config.seed
        )
        full_settings(explainer, tried)
        fixed = {k: v for k, v in sorted(tried.items()) if k not in explainer.explain_settings}
        key = json.dumps(fixed)
        if key in self._fitted:
            fitted, seconds = self._fitted[key]
            return explainer.adopt(fitted), seconds
        started = time.monotonic()
        explainer.fit(self._graphs, progress=False)
        seconds = time.monotonic() - started
        self._fitted = {key: (explainer, seconds)}
        return explainer, seconds


def _try(fits: _Fits, settings: dict[str, Any], batch: Batch, config: TuneConfig) -> Trial:
    try:
        explainer, fit_seconds = fits.get(settings)
        started = time.monotonic()
        kept = kept_probability(explainer, batch, config)
        seconds = {"fit": fit_seconds, "explain": time.monotonic() - started}
    except (RuntimeError, ValueError) as error:  # a setting that does not work is a result too
        nothing = dict.fromkeys(REMOVALS, float("nan"))
        return Trial(settings, float("nan"), nothing, {}, f"{type(error).__name__}: {error}")
    return Trial(settings, sum(kept.values()) / len(kept), kept, seconds)


def _shortened(choice: Choice, config: TuneConfig) -> dict[str, int]:
    if config.steps is None or not choice.learns:
        return {}
    key = "boundary__steps" if choice.explainer.startswith("nice") else "steps"
    return {key: config.steps}


def kept_probability(explainer: Explainer, batch: Batch, config: TuneConfig) -> dict[str, float]:
    """Returns the mean probability that the best bonds alone keep, for each removal."""
    found = explainer.explain(batch, seed=config.seed)
    return {
        removal: float(
            fidelity_curve(
                explainer.target,
                batch,
                found.bonds,
                found.bond_score,
                removal=removal,
                ratios=RATIOS,
                num_draws=config.num_draws,
                explained=found.target,
                chunk_edges=config.chunk_edges,
            ).prob_kept.nanmean()
        )
        for removal in REMOVALS
    }


def _read_log(log: Path, identity: dict[str, Any]) -> list[Trial]:
    if not log.exists():
        log.parent.mkdir(parents=True, exist_ok=True)
        return []
    try:
        stored = json.loads(log.read_text(encoding="utf-8"))
        trials = [Trial(**trial) for trial in stored.pop("trials")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{log} is damaged ({error}); delete it to tune anew.") from error
    if stored != json.loads(json.dumps(identity)):
        changed = sorted(key for key in identity if stored.get(key) != identity[key])
        raise StoreError(
            f"{log} belongs to another search: {', '.join(changed)} differ. Delete it, or name "
            "another folder."
        )
    return trials


def best_settings(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Returns the chosen settings by dataset and explainer, from all logs of a folder.

    Those of targets other than `MAIN_TARGET` are in a table of their own by the target's name.
    """
    found: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for log in sorted(Path(folder).glob("*.json")):
        try:
            stored = json.loads(log.read_text(encoding="utf-8"))
            best = max((Trial(**trial) for trial in stored["trials"]), key=_rank)
            target, dataset, name = (stored[key] for key in ("target", "dataset", "explainer"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{log} is damaged ({error!r}); delete it to tune anew.") from error
        tables = found if target == MAIN_TARGET else others.setdefault(target, {})
        tables.setdefault(dataset, {})[name] = best.settings
    return found | others


def settings_toml(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns settings as `best_settings` gives them as TOML, one table per explainer."""
    lines = ["# Written by `nicegnn tune`; the trials behind it are in results/tuning."]

    def add(path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        if path and not any(isinstance(value, Mapping) for value in table.values()):
            lines.extend(["", f'[{".".join(path[:-1])}."{path[-1]}"]'])
            lines.extend(f"{key} = {json.dumps(value)}" for key, value in table.items())
            return
        for name, part in table.items():
            add((*path, name), part)

    add((), settings)
    return "\n".join(lines) + "\n"
