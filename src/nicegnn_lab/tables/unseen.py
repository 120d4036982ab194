"""Tables of the study of unseen targets: bonds target by target, and atoms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nicegnn_lab.studies.unseen import METHODS, TARGET
from nicegnn_lab.tables.table import MISSING, Table, number, read_study

if TYPE_CHECKING:
    import pandas as pd

MARK = 72.0  # percent; the lowest AUC of the default is compared with it
_SUBJECT = ["dataset", "target"]
#: Scores of atoms by their setting in rows.
_SCORES = {
    "atom_score": "NICE, `atom_score`",
    "atom_loss": "NICE, `atom_loss` (noise)",
    "zeroed": "change without the atom's features",
    "random": "random",
}
_PROTOCOLS = ("positive", "negative", "either")


def unseen_tables(studies: str | Path) -> list[Table]:
    """Returns methods over all targets, each target, and scores of atoms."""
    rows = read_study(studies, "unseen")
    return [*_bonds(rows), _atoms(rows)]


def _bonds(rows: pd.DataFrame) -> list[Table]:
    auc = 100 * rows[rows["metric"] == "roc_auc"].pivot_table(
        index=_SUBJECT, columns="explainer", values="value", sort=False
    )
    auc = auc[[name for name in METHODS if name in auc]]
    lines = []
    for name, some in auc.items():
        lowest = " ".join(some.idxmin())
        numbers = [some.mean(), some.std(), some.min()]
        above = f"{int((some > MARK).sum())} of {len(some)}"
        lines.append([str(name), *(number(value, 1) for value in numbers), lowest, above])
    columns = ["method", "mean", "spread", "lowest", "lowest on", f"targets above {MARK:g}"]
    note = (
        "Mean over at most 60 test graphs of label 1 with a truth, protocol paper; mean, standard "
        "deviation and lowest over targets. All settings are defaults."
    )
    title = "Bonds on targets that nobody tuned for, ROC-AUC in percent"
    whole = Table("unseen", title, columns, lines, notes=[note])
    right = 100 * rows[rows["metric"] == "accuracy"].groupby(_SUBJECT)["value"].mean()
    each = [
        [*key, number(right[key], 1), *(number(value, 1) for value in values)]
        for key, values in zip(auc.index, auc.to_numpy().tolist(), strict=True)
    ]
    title = "Each of these targets: test accuracy and ROC-AUC, percent"
    return [whole, Table("unseen", title, [*_SUBJECT, "accuracy", *auc], each, num_left=2)]


def _atoms(rows: pd.DataFrame) -> Table:
    found = rows[rows["metric"].str.startswith("atom_")]
    known = rows[rows["setting"] == TARGET].groupby(_SUBJECT)["value"].mean()
    lines = []
    for (dataset, target), some in found.groupby(_SUBJECT, sort=False):
        for setting, name in _SCORES.items():
            own = some[some["setting"] == setting]
            by = own[own["metric"] == "atom_roc_auc"].groupby("protocol")["value"].mean()
            hits, true = (
                own.loc[own["metric"] == metric, "value"].sum()
                for metric in ("atom_hits", "atom_true")
            )
            aucs = [number(100 * by[p], 1) if p in by else MISSING for p in _PROTOCOLS]
            right = number(100 * known[dataset, target], 1)
            lines.append([dataset, name, right, *aucs, number(100 * hits / true, 1)])
    columns = [
        *("task of ibenchmark", "score", "accuracy or R²"),
        *("AUC, positive atoms", "AUC, negative atoms", "AUC, either by size", "Top-n"),
    ]
    note = (
        "At most 200 test molecules with a positive atom; AUC is the mean over molecules, Top-n "
        "the share of positive atoms among as many best ones, summed over molecules. Negative "
        "atoms are sought with the sign turned, which a score without direction cannot do. "
        f"{MISSING}: no such atoms, or no direction."
    )
    title = "Atoms on published tasks, a GINE trained on the published part, percent"
    return Table("unseen", title, columns, lines, notes=[note], num_left=2)
