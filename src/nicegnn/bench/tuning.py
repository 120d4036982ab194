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
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_geometric.data import Batch

from nicegnn.bench.job import Job
from nicegnn.bench.plan import TARGETS_FOLDER, choose, make_cells, read_toml
from nicegnn.bench.rows import Block, read_rows
from nicegnn.bench.run import RunReport, Work, run_cells
from nicegnn.bench.study import Study, Variant, without_defaults
from nicegnn.bench.targets import MAIN_TARGET
from nicegnn.bench.task import MoleculeTask, Task, draw
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.explainer import Explainer
from nicegnn.metrics import fidelity_curve
from nicegnn.rivals.registry import EXPLAINERS, find_entry
from nicegnn.target.training import predict

TUNING_FOLDER = Path("results/tuning")
REMOVALS = ("em", "nc")
_CHUNK_EDGES = {"cuda": 2_000_000, "cpu": 400_000}  # directed edges times copies in one call

Candidates = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Tuning(Study):
    """Settings of explainers, each tried by the probability that its best bonds keep.

    Rows: ``setting`` is the tried settings as JSON; ``criterion`` is the rule's value, higher is
    better, with the error in its note where a trial failed; ``kept`` is the mean probability under
    each removal; further ``fit_seconds`` and ``explain_seconds``.
    """

    name = "tuning"
    title = "Settings of explainers, chosen without truth"
    part = "valid"

    space: Candidates  # by explainer, see `read_search`
    num_graphs: int = 200  # validation graphs that are explained
    num_draws: int = 8  # noise draws of removal "nc"
    steps: int | None = None  # steps of every fit, to save time; none for the method's own

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        given = {"num_graphs": self.num_graphs, "num_draws": self.num_draws}
        usual = {"num_graphs": Tuning.num_graphs, "num_draws": Tuning.num_draws}
        for name, candidates in self.space.items():
            explainer, mechanism, _ = choose(name, {})
            for candidate in candidates:
                settings = dict(candidate)
                if self.steps is not None and EXPLAINERS[explainer].learns:
                    is_nice = explainer.startswith("nice")
                    settings["boundary__steps" if is_nice else "steps"] = self.steps
                yield Variant(
                    setting=json.dumps(dict(candidate)),
                    explainer=explainer,
                    mechanism=mechanism,
                    settings=settings,
                    extra=without_defaults(given, usual),
                )

    def measure(self, job: Job) -> Iterator[Block]:
        batch = self._graphs(job)
        try:
            explainer = job.explainer()
            started = time.perf_counter()
            kept = kept_probability(explainer, batch, self.num_draws, job.seed)
            seconds = time.perf_counter() - started
        except (RuntimeError, ValueError) as error:  # a setting that does not work is a result too
            yield Block("criterion", math.nan, note=f"{type(error).__name__}: {error}")
            return
        yield Block("criterion", sum(kept.values()) / len(kept))
        for removal, value in kept.items():
            yield Block("kept", value, removal)
        fitted = job.fit_facts(explainer)["fit_seconds"]
        yield Block("fit_seconds", math.nan if fitted is None else fitted)
        yield Block("explain_seconds", seconds)

    def _graphs(self, job: Job) -> Batch:
        """Returns validation graphs that the target predicts as class 1."""
        if not isinstance(job.task, MoleculeTask):
            raise ConfigError(f"`dataset` must be one of molecules (got {job.task.name!r}).")
        graphs = job.task.part(job.part)
        positions = (predict(job.model, graphs).argmax(1).cpu() == 1).nonzero().view(-1)
        if positions.numel() == 0:
            raise ConfigError(
                f"The target predicts no validation graph of {job.task.name} as class 1; train "
                "another one."
            )
        return graphs.batch(positions[draw(positions.numel(), self.num_graphs, "tune")])


def run_tuning(
    space: Candidates,
    datasets: Sequence[str],
    targets: Sequence[str] = (MAIN_TARGET,),
    explainers: Sequence[str] = (),
    *,
    out: str | Path = TUNING_FOLDER,
    targets_folder: str | Path = TARGETS_FOLDER,
    device: str | None = None,
    fit_graphs: int | None = None,
    progress: bool = False,
    **changes: Any,
) -> RunReport:
    """Tries all candidates that were not tried yet; see `best_trials` for what they reached.

    Args:
        explainers: those of the space to try, with ``+nc`` for a mechanism; none for all. One
            without candidates has one trial with its defaults.
        changes: settings of `Tuning`.
    """
    chosen = {
        name: space.get(name, space.get(find_entry(name)[0].name, [{}]))
        for name in explainers or space
    }
    root, trained = Path(out).absolute(), Path(targets_folder).absolute()
    study = Tuning(chosen, **changes)
    given: dict[str, Any] = {"targets_folder": trained, "device": device, "fit_graphs": fit_graphs}
    cells = make_cells(study, datasets, targets, **given)
    return run_cells(Work(study, root, trained, device), cells, progress=progress)


def kept_probability(
    explainer: Explainer, batch: Batch, num_draws: int, seed: int
) -> dict[str, float]:
    """Returns the mean probability that the best bonds alone keep, for each removal."""
    found = explainer.explain(batch, seed=seed)
    return {
        removal: float(
            fidelity_curve(
                explainer.target,
                batch,
                found.bonds,
                found.bond_score,
                removal=removal,
                num_draws=num_draws,
                explained=found.target,
                chunk_edges=_CHUNK_EDGES[explainer.target.device.type],
            ).prob_kept.nanmean()
        )
        for removal in REMOVALS
    }


def read_search(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Reads candidates of each explainer: a TOML table of lists, all combinations of which count.

    Example of a file: ``[pgexplainer]`` with ``learning_rate = [0.003, 0.01]`` and ``size = [0.005,
    0.05]`` has four candidates. Where not all combinations are wanted, each table
    ``[[pgexplainer.trial]]`` adds those of its own lists to the settings that all trials share.
    """
    found = {}
    for name, table in read_toml(path, "a search space").items():
        find_entry(name)
        trials = table.get("trial", [{}]) if isinstance(table, Mapping) else table
        if not isinstance(trials, list) or not all(isinstance(trial, Mapping) for trial in trials):
            raise ConfigError(
                f"{path}: `trial` of {name!r} must be an array of tables, [[{name}.trial]] in TOML "
                f"(got {trials!r})."
            )
        shared = {key: value for key, value in table.items() if key != "trial"}
        found[name] = [one for trial in trials for one in _combinations({**shared, **trial})]
    return found


def _combinations(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lists = [value if isinstance(value, list) else [value] for value in table.values()]
    for values in itertools.product(*lists):
        yield dict(zip(table, values, strict=True))


@dataclass(frozen=True)
class BestTrial:
    """The trial that was chosen among those of one explainer on one dataset and target."""

    dataset: str
    target: str
    explainer: str  # its name, with "+nc" for a mechanism that is not its own
    settings: dict[str, Any]  # what differs from the explainer's defaults
    criterion: float  # the rule's value
    worst: float  # that of the worst trial
    num_trials: int  # failed ones included


def best_trials(folder: str | Path = TUNING_FOLDER) -> list[BestTrial]:
    """Returns the chosen trials of all rows of a folder, by dataset, target and explainer."""
    rows = read_rows(folder, where={"metric": "criterion"})
    if rows.empty:
        raise StoreError(f"There are no trials in {folder}; make them with `nicegnn tune`.")
    found = []
    keys = ["dataset", "target", "explainer", "mechanism"]
    for (dataset, target, explainer, mechanism), some in rows.groupby(keys, observed=True):
        entry, _ = find_entry(explainer)
        is_own = mechanism == (entry.mechanisms[0] if entry.mechanisms else "")
        value = some["value"].astype("float64").fillna(-1.0)  # failed trials come last
        found.append(
            BestTrial(
                dataset,
                target,
                explainer if is_own else f"{explainer}+{mechanism}",
                json.loads(some["setting"][value.idxmax()]),
                float(value.max()),
                float(value.min()),
                len(some),
            )
        )
    return sorted(found, key=lambda one: f"{one.dataset}-{one.target}-{one.explainer}.")


def best_settings(folder: str | Path = TUNING_FOLDER) -> dict[str, dict[str, Any]]:
    """Returns the chosen settings by dataset and explainer, from all trials of a folder.

    Those of targets other than `MAIN_TARGET` are in a table of their own by the target's name.
    """
    found: dict[str, dict[str, Any]] = {}
    others: dict[str, dict[str, Any]] = {}
    for best in best_trials(folder):
        tables = found if best.target == MAIN_TARGET else others.setdefault(best.target, {})
        tables.setdefault(best.dataset, {})[best.explainer] = best.settings
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
