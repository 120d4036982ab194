"""Tables of the wide bench: damages, explainers, what damage makes, and the verdict."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from nicegnn.explain.trust import chance_of
from nicegnn_lab.datasets.readers.chembl import RULES, is_put_aside
from nicegnn_lab.studies.wide import BACKBONES, EMBEDDED, LOWEST_ACCURACY, RIVALS, SHARES
from nicegnn_lab.tables.table import Table, number, read_study

#: Damages by their setting in rows, in the order of tables.
DAMAGES = {
    "zero": "zero (masking)",
    "deletion": "nothing: the bond is taken out",
    "noise": "noise",
    "noise, clean": "noise, into clean messages",
    "mean": "the mean message",
    "exchange": "**another edge's messages (8 medoids)**",
    "exchange, signed": "the same, gains count against losses",
    "exchange, 2": "2 medoids",
    "exchange, 4": "4 medoids",
    "exchange, 16": "16 medoids",
    "exchange, clean": "8 medoids, into clean messages",
    "exchange, own": "8 medoids of the molecule itself",
    "atoms": "features of the bond's two atoms",
    "bonds and atoms": "bonds and atoms together",
}
NAMES = DAMAGES | {rival: rival for rival in RIVALS}
_TARGET = ["dataset", "target"]
HALVES = ("open", "put aside", "benchmarks", "another recipe")
FITTED_ON = ("open", "benchmarks")  # molecules that the verdict's chance was fitted on
PARTS = 6  # equally large ones, of the calibration


def wide_tables(studies: str | Path) -> list[Table]:
    """Returns all tables of the wide bench."""
    rows = with_halves(read_study(studies, "wide"))
    return [
        _targets(rows),
        *(_agreement(rows, half) for half in HALVES),
        _copies(rows),
        _made(rows),
        _calibration(judged_molecules(rows)),
    ]


def with_halves(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of targets that learned their task, each with its ``half``."""
    valid = rows[rows["metric"] == "valid_accuracy"].set_index(_TARGET)["value"]
    learned = valid[valid >= LOWEST_ACCURACY].index
    rows = rows[[key in learned for key in zip(rows["dataset"], rows["target"], strict=True)]]
    half_of = {rule: "put aside" if is_put_aside(rule) else "open" for rule in RULES}
    half = rows["dataset"].map(half_of).fillna("benchmarks")
    return rows.assign(half=half.where(~rows["target"].isin(list(EMBEDDED)), "another recipe"))


def _targets(rows: pd.DataFrame) -> Table:
    lines = []
    for half in HALVES:
        some = rows[rows["half"] == half]
        right = 100 * some[some["metric"] == "accuracy"].groupby(_TARGET)["value"].mean()
        target = right.index.get_level_values(1).str.removesuffix("-embedded")
        count = [str(int((target == backbone).sum())) for backbone in BACKBONES]
        tasks = str(some["dataset"].nunique())
        lines.append([half, tasks, *count, number(right.mean(), 1), number(right.min(), 1)])
    columns = ["half", "tasks", *BACKBONES, "mean accuracy", "lowest"]
    note = (
        f"Targets that are right on at least {LOWEST_ACCURACY:.0%} of validation graphs. Another "
        "recipe: an input layer before the first convolution, fewer epochs, both halves."
    )
    title = "The wide bench: targets by backbone, and their test accuracy in percent"
    return Table("wide", title, columns, lines, notes=[note])


def _agreement(rows: pd.DataFrame, half: str) -> Table:
    some = rows[(rows["half"] == half) & (rows["metric"] == "roc_auc")]
    auc = 100 * some.groupby([*_TARGET, "setting"])["value"].mean().unstack("setting")
    backbone = auc.index.get_level_values("target")
    present = [one for one in (*BACKBONES, *EMBEDDED) if (backbone == one).any()]
    lines = []
    for setting, name in NAMES.items():
        if setting not in auc:
            continue
        value = auc[setting]
        means = [number(value[backbone == one].mean(), 1) for one in present]
        worst = " ".join(value.idxmin())
        numbers = [value.mean(), value.min()]
        below = str(int((value < 70).sum()))
        lines.append([name, *means, *(number(v, 1) for v in numbers), worst, below])
    columns = ["replaced by", *present, "mean", "worst", "worst on", "below 70"]
    title = f"What should replace a message: ROC-AUC of true bonds in percent, {half}"
    return Table("wide", title, columns, lines)


def _copies(rows: pd.DataFrame) -> Table:
    number_of = rows[rows["metric"] == "copies"].set_index([*_TARGET, "graph"])["value"]
    auc = rows[rows["metric"] == "roc_auc"].join(number_of.rename("copies"), on=[*_TARGET, "graph"])
    auc = auc[auc["copies"] > 1]
    mean = 100 * auc.groupby(["setting", "half"])["value"].mean().unstack("half")
    lines = []
    for setting, name in NAMES.items():
        if setting in mean.index:
            of_half = [mean.loc[setting].get(half, np.nan) for half in HALVES[:2]]
            lines.append([name, *(number(value, 1) for value in of_half)])
    count = auc[auc["setting"] == "exchange"].groupby("half")["value"].size()
    note = (
        f"Molecules: {int(count.get('open', 0))} open, {int(count.get('put aside', 0))} put aside."
    )
    title = "Molecules with two copies of the group or more, ROC-AUC in percent"
    return Table("wide", title, ["replaced by", *HALVES[:2]], lines, notes=[note])


def _made(rows: pd.DataFrame) -> Table:
    some = rows[(rows["metric"] == "made") & rows["half"].isin(HALVES[:2])]
    share = 100 * some.groupby(["setting", "level"])["value"].mean().unstack("level")
    lines = [
        [DAMAGES[setting].strip("*"), *(number(share.loc[setting, level], 0) for level in SHARES)]
        for setting in DAMAGES
        if setting in share.index
    ]
    columns = ["replaced by", *(f"{level:.0%} of bonds" for level in SHARES)]
    title = "Made out of nothing: molecules of the other label that become the class, percent"
    return Table("wide", title, columns, lines)


def judged_molecules(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a line per molecule: ``largest``, ``share`` and ``best_true``."""
    some = rows[rows["metric"].isin(["largest", "share", "best_true"])]
    key = ["half", *_TARGET, "graph", "metric"]
    return some.set_index(key)["value"].unstack("metric").reset_index().dropna()


def fit_chance(molecules: pd.DataFrame) -> tuple[float, float, float]:
    r"""Returns the coefficients of `chance_of`, by maximum likelihood.

    Every molecule counts once; one of several best bonds counts by its true share.
    """
    largest, true = np.log1p(molecules["largest"].to_numpy()), molecules["best_true"].to_numpy()
    features = np.stack([largest, molecules["share"].to_numpy()], axis=1)
    model = LogisticRegression(C=np.inf, max_iter=1000, tol=1e-8)
    both = np.concatenate([np.ones(len(true)), np.zeros(len(true))])
    weights = np.concatenate([true, 1 - true])
    model.fit(np.concatenate([features, features]), both, sample_weight=weights)
    return (float(model.intercept_[0]), float(model.coef_[0, 0]), float(model.coef_[0, 1]))


def foretold(molecules: pd.DataFrame) -> np.ndarray:
    """Returns the chance that the best bond is a true one, for each molecule."""
    numbers = (torch.tensor(molecules[name].to_numpy(copy=True)) for name in ("largest", "share"))
    return chance_of(*numbers).numpy()


def _calibration(molecules: pd.DataFrame) -> Table:
    fitted = fit_chance(molecules[molecules["half"].isin(FITTED_ON)])
    lines = []
    groups = {half: molecules[molecules["half"] == half] for half in HALVES}
    aside = groups["put aside"]
    groups |= {f"put aside, {b}": aside[aside["target"] == b] for b in BACKBONES}
    times = (("three times as sure", 3.0), ("a third as sure", 1 / 3))
    groups |= {
        f"put aside, {words}": aside.assign(largest=aside["largest"] * by) for words, by in times
    }
    for name, some in groups.items():
        if len(some) >= 10 * PARTS:
            lines.append([name, str(len(some)), *_sixths(some)])
    columns = [
        *("molecules of", "number", "best bond true", "ROC-AUC"),
        *(f"sixth {part + 1}" for part in range(PARTS)),
        "largest gap",
    ]
    names = ("constant", "log(1 + largest)", "share")
    told = (f"{name} {value:.2f}" for name, value in zip(names, fitted, strict=True))
    note = (
        "Sixths by the foretold chance that the best bond is a true one: foretold / seen, percent. "
        f"Fitted on {' and '.join(FITTED_ON)}: {', '.join(told)}; `trust.py` holds these rounded."
    )
    title = "The verdict's chance, foretold and seen"
    return Table("wide", title, columns, lines, notes=[note])


def told_and_seen(some: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Returns the foretold and the seen chance of equally large parts, in percent."""
    chance, true = foretold(some), some["best_true"].to_numpy()
    parts = np.array_split(np.argsort(chance, kind="stable"), PARTS)
    told, seen = (100 * np.array([v[part].mean() for part in parts]) for v in (chance, true))
    return told, seen


def _sixths(some: pd.DataFrame) -> list[str]:
    chance, true = foretold(some), some["best_true"].to_numpy()
    told, seen = told_and_seen(some)
    is_true = true >= 0.5
    auc = roc_auc_score(is_true, chance) if 0 < is_true.mean() < 1 else np.nan
    pairs = [f"{one:.0f} / {other:.0f}" for one, other in zip(told, seen, strict=True)]
    area = number(100 * float(auc), 1)
    return [number(100 * true.mean(), 1), area, *pairs, number(abs(told - seen).max(), 1)]
