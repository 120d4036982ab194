"""Tables of atom scores: known contributions, logP, activity cliffs, and what scores add up to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from nicegnn_lab.datasets.readers.atoms import CLASSES, CLIFFS, IBENCHMARK
from nicegnn_lab.metrics.statistics import holm, paired_test
from nicegnn_lab.studies.atoms import BACKBONES, GROUPS
from nicegnn_lab.tables.table import Table, number, read_study

if TYPE_CHECKING:
    import pandas as pd

#: Scores by their setting in rows, in the order of tables.
NAMES = {
    "exchange": "**exchange: 8 prototype atoms**",
    "exchange, mean": "the same, gains count against losses",
    "exchange, alone": "what it brings where all atoms are exchanged",
    "exchange, both": "exchange, and what it brings alone",
    "zero": "zero features",
    "mean": "mean features",
    "occlusion": "occlusion: the atom is taken out",
    "Shapley": "Shapley values by 8 permutations, features set to zero",
    "Myerson": "Myerson values by 8 permutations, atoms taken out",
    "GNNExplainer": "GNNExplainer, a mask of atoms",
    "saliency": "saliency",
    "input x gradient": "input x gradient",
    "integrated gradients": "integrated gradients from zero",
    "integrated gradients, mean": "integrated gradients from the mean",
    "integrated gradients, prototypes": "integrated gradients from 8 prototypes",
    "random": "random",
}
#: `REMOVALS` of atoms in words.
REMOVED = {"exchange": "exchanged", "zero": "zeroed", "out": "taken out"}
_TARGET = ["dataset", "target", "seed"]  # what makes one trained target
AGAINST = (
    "Against exchange: the mean difference over targets, and the p-value of a signed-rank test "
    "over them, by Holm."
)


def atom_tables(studies: str | Path) -> list[Table]:
    """Returns all tables of the study of atoms."""
    rows = read_study(studies, "atoms")
    counted, groups, logp, cliffs = (
        rows[rows["dataset"].isin(names)] for names in (IBENCHMARK, GROUPS, ("crippen",), CLIFFS)
    )
    made = [_targets(rows[~rows["dataset"].isin(GROUPS)])]
    kinds = {"counted atoms and logP": (*IBENCHMARK, "crippen"), "groups": GROUPS, "cliffs": CLIFFS}
    if len(counted):
        made += _counted(counted)
    if len(groups):
        made.append(_ranked("ROC-AUC of the atoms of a group, in percent", groups, GROUPS))
    if len(logp):
        made.append(_logp(logp))
    if len(cliffs):
        made.append(_cliffs(cliffs))
    for kind, names in kinds.items():
        own = rows[rows["dataset"].isin(names)]
        if len(own):
            made.append(_fidelity(kind, own))
    return [*made, _sums(rows[~rows["dataset"].isin((*CLIFFS, *GROUPS))])]


def _targets(rows: pd.DataFrame) -> Table:
    own = rows[rows["setting"] == ""]
    seeds = own.groupby("dataset")["seed"].nunique()
    mean = own.groupby(["dataset", "target", "metric"])["value"].mean()
    lines = []
    for name in dict.fromkeys(rows["dataset"]):
        metric, words = ("accuracy", "accuracy") if name in CLASSES else ("r2", "R2")
        cells = [number(mean.get((name, target, metric), np.nan), 3) for target in BACKBONES]
        errors = [number(mean.get((name, target, "rmse"), np.nan), 2) for target in BACKBONES]
        lines.append([name, words, *cells, *errors, str(seeds[name])])
    columns = ["task", "measure", *BACKBONES, *(f"RMSE {target}" for target in BACKBONES), "seeds"]
    title = "Targets of the study of atoms, on test molecules"
    return Table("atoms", title, columns, lines, num_left=2)


def _by_score(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Returns the mean over molecules of a metric, a line per score, a column per target."""
    some = rows[(rows["metric"] == metric) & (rows["setting"] != "")]
    wide = some.groupby(["setting", *_TARGET], sort=False)["value"].mean()
    table = wide.unstack(_TARGET)
    return table.reindex([name for name in NAMES if name in table.index])


def _counted(rows: pd.DataFrame) -> Iterator[Table]:
    """AUC and Top-n by task, and the means over targets."""
    yield _ranked("ROC-AUC of atoms that count up, in percent", rows, IBENCHMARK)
    up, down, error = (_by_score(rows, name) for name in ("top_n", "bottom_n", "rmse"))
    more = {
        "atoms that count down": 100 * _by_score(rows, "negative_auc").mean(axis=1),
        "Bottom-n": 100 * down.mean(axis=1),
    }
    more = {title: own.map(lambda v: number(v, 1)) for title, own in more.items()}
    more["RMSE"] = error.mean(axis=1).map("{:.3f}".format)
    title = "Top-n in percent; AUC and Bottom-n of atoms that count down; RMSE after scaling"
    yield _by_task(title, up, IBENCHMARK, more)


def _ranked(title: str, rows: pd.DataFrame, tasks: Sequence[str]) -> Table:
    """AUC by task, mean ranks, and a paired test of each score against exchange over targets."""
    area = _by_score(rows, "positive_auc")
    note = f"Means over the targets of a task, {area.shape[1]} in all. {AGAINST}"
    return _by_task(title, area, tasks, _compared(100 * area), [note])


def _compared(table: pd.DataFrame) -> dict[str, Mapping[str, str] | pd.Series]:
    """Returns mean ranks, and a paired test of each score against exchange over targets."""
    own = torch.tensor(table.loc["exchange"].tolist())
    tests = {
        name: paired_test(torch.tensor(table.loc[name].tolist()), own)
        for name in table.index
        if name != "exchange"
    }
    p_value = dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))
    gap = {name: f"{test.mean:+.1f}" for name, test in tests.items()}
    return {
        "mean rank": table.rank(ascending=False).mean(axis=1).map("{:.1f}".format),
        "against exchange": {name: gap.get(name, "") for name in table.index},
        "p": {name: f"{p_value[name]:.3f}" if name in p_value else "" for name in table.index},
    }


def _by_task(
    title: str,
    table: pd.DataFrame,
    tasks: Sequence[str],
    more: Mapping[str, Mapping[str, str] | pd.Series],
    notes: Sequence[str] = (),
) -> Table:
    tasks = [name for name in tasks if name in table.columns.get_level_values(0)]
    lines = []
    for setting in table.index:
        means = [100 * table.loc[setting, task].mean() for task in tasks]
        numbers = [number(v, 1) for v in (*means, float(np.mean(means)))]
        lines.append([NAMES[setting], *numbers, *(own[setting] for own in more.values())])
    return Table("atoms", title, ["score", *tasks, "mean", *more], lines, notes=notes)


def _logp(rows: pd.DataFrame) -> Table:
    title = "logP by atoms (crippen): Kendall's tau, overlap of signs, AUC of both signs in percent"
    names = {"tau": "tau", "overlap": "overlap", "positive_auc": "positive AUC"}
    tau, overlap = (100 * _by_score(rows, metric).max(axis=1) for metric in ("tau", "overlap"))
    more = {
        "best tau": tau.map(lambda v: number(v, 1)),
        "best overlap": overlap.map(lambda v: number(v, 1)),
    }
    return _each_target(rows, title, names | {"negative_auc": "negative AUC"}, more)


def _cliffs(rows: pd.DataFrame) -> Table:
    """Agreement with activity cliffs, over all pairs, and over those in the right order."""
    names = {
        "direction": "direction",
        "direction_right": "where the order is right",
        "direction_wrong": "where it is wrong",
        "mask_sign": "signs of atoms",
        "mask_auc": "AUC of atoms that differ",
    }
    title = "Activity cliffs: agreement with the measured difference, in percent"
    own = rows[rows["setting"] == ""]
    right = 100 * own[own["metric"] == "pair_right"].groupby("target")["value"].mean()
    said = ", ".join(f"{target} {value:.0f}" for target, value in right.items())
    compared = _compared(100 * _by_score(rows, "direction"))
    note = f"Pairs that targets put in the measured order, in percent: {said}. {AGAINST}"
    return _each_target(rows, title, names, more=compared, notes=[note])


def _fidelity(kind: str, rows: pd.DataFrame) -> Table:
    """What is lost without the best atoms, and kept by them, for each way to remove atoms."""
    found = {
        f"{what}: {words}": 100 * _by_score(rows[rows["protocol"] == way], f"{what}_area")
        for what in ("lost", "kept")
        for way, words in REMOVED.items()
    }
    mean: pd.DataFrame = sum(found.values()) / len(found)
    more = {title: own.mean(axis=1).map(lambda v: number(v, 1)) for title, own in found.items()}
    more |= {"mean": mean.mean(axis=1).map(lambda v: number(v, 1)), **_compared(mean)}
    lines = [[NAMES[name], *(own[name] for own in more.values())] for name in mean.index]
    title = f"Fidelity on {kind}: distance from the mean that is lost or kept, in percent"
    note = (
        "Lost without the best 10 to 50 percent of the atoms, kept by these alone: areas below the "
        f"curves, means over {mean.shape[1]} targets. {AGAINST}"
    )
    return Table("atoms", title, ["score", *more], lines, notes=[note])


def _each_target(
    rows: pd.DataFrame,
    title: str,
    names: Mapping[str, str],
    more: Mapping[str, Mapping[str, str] | pd.Series],
    notes: Sequence[str] = (),
) -> Table:
    """Returns a line per score: means over targets of several metrics, and ``more`` columns."""
    found = {metric: 100 * _by_score(rows, metric) for metric in names}
    index = next(iter(found.values())).index
    tables = [table.reindex(index) for table in found.values()]
    lines = [
        [
            NAMES[setting],
            *(number(table.loc[setting].mean(), 1) for table in tables),
            *(own[setting] for own in more.values()),
        ]
        for setting in index
    ]
    return Table("atoms", title, ["score", *names.values(), *more], lines, notes=notes)


def _sums(rows: pd.DataFrame) -> Table:
    """How far scores add up to the prediction above the background's mean."""
    share, correlation = (_by_score(rows, name) for name in ("adds_up", "sum_correlation"))
    tasks = list(dict.fromkeys(rows["dataset"]))
    lines = [
        [
            NAMES[setting],
            *(number(correlation.loc[setting, task].mean(), 2) for task in tasks),
            number(correlation.loc[setting].mean(), 2),
            number(share.loc[setting].median(), 2),
        ]
        for setting in share.index
    ]
    columns: Sequence[str] = ["score", *tasks, "mean", "share explained"]
    note = (
        "Correlation over molecules of the sum of the scores with the prediction above the mean of "
        "the background. Share explained: 1 if both are equal, 0 for scores of 0; the median over "
        "targets."
    )
    return Table("atoms", "How far scores add up to the prediction", columns, lines, notes=[note])
