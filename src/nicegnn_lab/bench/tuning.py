r"""Choosing settings without truth: the same rule and the same number of trials for every method.

A trial fits an explainer on training graphs and explains validation graphs that the target predicts
as class 1. Its criterion is the probability of that class with the best bonds alone:

.. math:: c = \frac1{2Q} \sum_{r \in \{em, nc\}} \sum_q \mathrm{mean}_G\, p_{\hat y}(S_q^r(G))

Symbols: :math:`S_q^r(G)` -> the graph with only its best share :math:`q` of bonds, the others
removed by :math:`r`; :math:`p_{\hat y}` -> probability of the predicted class. True explanations
and labels are not read.
"""

import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_geometric.data import Batch

from nicegnn.errors import ConfigError, StoreError
from nicegnn.target.training import predict
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.plan import read_toml
from nicegnn_lab.bench.rows import Block, read_rows
from nicegnn_lab.bench.study import Study, Variant, without_defaults
from nicegnn_lab.bench.targets import MAIN_TARGET
from nicegnn_lab.bench.task import Task, draw
from nicegnn_lab.metrics.fidelity import fidelity_curve
from nicegnn_lab.rivals import find_entry

TUNING_FOLDER = Path("results/tuning")
REMOVALS = ("em", "nc")
_CHUNK_EDGES = {"cuda": 2_000_000, "cpu": 400_000}  # directed edges times copies in one call


@dataclass(frozen=True)
class Tuning(Study):
    """Settings of explainers, compared by the probability that the best bonds keep.

    Rows: ``setting`` is the settings of a trial as JSON; the ``criterion`` is better if higher, and
    its note is the error of a failed trial; ``kept`` is the mean probability under each removal.
    """

    name = "tuning"
    title = "Settings of explainers, chosen without truth"
    part = "valid"

    space: Mapping[str, Sequence[Mapping[str, Any]]]  # candidates by explainer, see `read_search`
    num_graphs: int = 200  # validation graphs that are explained

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        usual = {"num_graphs": Tuning.num_graphs}
        extra = without_defaults({"num_graphs": self.num_graphs}, usual)
        for name, candidates in self.space.items():
            for settings in candidates:
                trial = json.dumps(dict(settings))
                yield Variant(setting=trial, explainer=name, settings=settings, extra=extra)

    def measure(self, job: Job) -> Iterator[Block]:
        batch = self._graphs(job)
        given: dict[str, Any] = {"num_draws": 8}  # of removal "nc"
        try:
            explainer, started = job.explainer, time.perf_counter()
            out, target = explainer.explain(batch, seed=job.seed), explainer.target
            given |= {"explained": out.target, "chunk_edges": _CHUNK_EDGES[target.device.type]}
            shown = target, batch, out.bonds, out.bond_score
            curves = {name: fidelity_curve(*shown, removal=name, **given) for name in REMOVALS}
        except (RuntimeError, ValueError) as error:  # a failed trial is a result
            yield Block("criterion", math.nan, note=f"{type(error).__name__}: {error}")
            return
        kept = {name: float(curve.prob_kept.nanmean()) for name, curve in curves.items()}
        yield Block("criterion", sum(kept.values()) / len(kept))
        for removal, value in kept.items():
            yield Block("kept", value, removal)
        yield Block("fit_seconds", job.fit_seconds)
        yield Block("explain_seconds", time.perf_counter() - started)

    def _graphs(self, job: Job) -> Batch:
        predicted = predict(job.model, job.graphs).argmax(1).cpu()
        positions = (predicted == 1).nonzero().view(-1)
        if positions.numel() == 0:
            raise ConfigError(
                f"The target predicts no validation graph of {job.task.name} as class 1. Train "
                "another target."
            )
        return job.graphs.batch(positions[draw(positions.numel(), self.num_graphs, "tune")])


def read_search(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Reads the candidates of each explainer: all combinations of the lists in its TOML table.

    ``[pgexplainer]`` with ``learning_rate = [0.003, 0.01]`` and ``size = [0.005, 0.05]`` has four
    candidates. With tables ``[[pgexplainer.trial]]``, candidates are the combinations of the lists
    of each, together with those of ``[pgexplainer]``.
    """
    trials_of: dict[str, list[dict[str, Any]]] = {}
    for name, table in read_toml(path, "a search space").items():
        find_entry(name)
        trials = table.get("trial", [{}]) if isinstance(table, Mapping) else None
        if not isinstance(trials, list) or not all(isinstance(trial, Mapping) for trial in trials):
            raise ConfigError(
                f"{path}: `{name}` must be a table, [{name}] in TOML, and its `trial` an array of "
                f"tables, [[{name}.trial]] (got {table!r})."
            )
        trials_of[name] = []
        for trial in trials:
            own = {key: value for key, value in {**table, **trial}.items() if key != "trial"}
            lists = [value if isinstance(value, list) else [value] for value in own.values()]
            every = itertools.product(*lists)
            trials_of[name] += [dict(zip(own, values, strict=True)) for values in every]
    return trials_of


@dataclass(frozen=True)
class BestTrial:
    """The best trial of one explainer on one dataset and target."""

    dataset: str
    target: str
    explainer: str  # with "+nc" for a mechanism that is not its first
    settings: dict[str, Any]  # that differ from the explainer's defaults
    criterion: float  # of this trial
    worst: float  # criterion of the worst trial
    num_trials: int  # failed ones included


def best_trials(folder: str | Path = TUNING_FOLDER) -> list[BestTrial]:
    """Returns the best trials in a folder, sorted by dataset, target and explainer."""
    rows = read_rows(folder, where={"metric": "criterion"})
    if rows.empty:
        raise StoreError(f"There are no trials in {folder}; run them with `nicegnn lab tune`.")
    best, keys = [], ["dataset", "target", "explainer", "mechanism"]
    for (dataset, target, explainer, mechanism), trials in rows.groupby(keys, observed=True):
        mechanisms = find_entry(explainer)[0].mechanisms
        is_own = mechanism in (mechanisms or ("",))[:1]
        value = trials["value"].astype("float64").fillna(-1.0)  # failed trials come last
        settings = json.loads(trials["setting"][value.idxmax()])
        name = explainer if is_own else f"{explainer}+{mechanism}"
        ends = float(value.max()), float(value.min())
        best.append(BestTrial(dataset, target, name, settings, *ends, len(trials)))
    return sorted(best, key=lambda one: f"{one.dataset}-{one.target}-{one.explainer}.")


def best_settings(folder: str | Path = TUNING_FOLDER) -> dict[str, dict[str, Any]]:
    """Returns the best settings by the name of a TOML table and explainer.

    Tables are datasets, for `MAIN_TARGET`, and then other targets with a dataset, ``gcn.benzene``.
    """
    main: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for best in best_trials(folder):
        is_main = best.target == MAIN_TARGET
        name = best.dataset if is_main else f"{best.target}.{best.dataset}"
        (main if is_main else others).setdefault(name, {})[best.explainer] = best.settings
    return main | dict(sorted(others.items(), key=lambda item: item[0].partition(".")[0]))


def settings_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the settings of `best_settings` as TOML, one line per explainer."""
    lines = ["# Written by `nicegnn lab tune`; the trials behind it are in results/tuning."]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        for explainer, row in table.items():
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items())
            lines.append(f'"{explainer}" = {{ {pairs} }}' if pairs else f'"{explainer}" = {{}}')
    return "\n".join(lines) + "\n"
