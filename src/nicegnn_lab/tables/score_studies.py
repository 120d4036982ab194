"""Tables of the studies behind our defaults: gates, scores, their parts, rivals, targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nicegnn_lab.studies.bond_scores import JUDGES
from nicegnn_lab.studies.gates import FITS, changes
from nicegnn_lab.studies.scores import FOUR, JOINS
from nicegnn_lab.tables.table import (
    MISSING,
    Table,
    read_study,
    values_of,
)

if TYPE_CHECKING:
    import pandas as pd

_TOLD = (
    "Cells: restored share, AUC of the gate, AUC of the attribution (percent), and how the fit "
    "judges the gates of class 1."
)
_SUBJECT = ["target", "dataset"]


def gates_tables(studies: str | Path) -> list[Table]:
    """Returns a table per target: what became of the gates under each change, by dataset."""
    rows = read_study(studies, "gates")
    found = []
    for target, part in rows.groupby("target"):
        datasets = sorted(part["dataset"].unique())
        cells = {key: _told(some) for key, some in part.groupby(["setting", "dataset"])}
        lines = [
            [setting, *(cells.get((setting, name), MISSING) for name in datasets)]
            for setting in changes()
            if setting in set(part["setting"])
        ]
        title = f"Gates under one change at a time, on validation graphs, target {target}"
        columns = ["boundary", *datasets]
        found.append(Table("gates", title, columns, lines, notes=[_TOLD], num_left=len(columns)))
    return found


def depth_table(studies: str | Path) -> Table:
    """Returns a line per readout and number of layers: the target, and ways to fit gates."""
    rows = read_study(studies, "depth")
    words = rows["setting"].str.split(", ", n=1)  # readout, fit
    rows = rows.assign(readout=words.str[0], fit=words.str[1])
    known = [fit for fit in FITS if fit in set(rows["fit"])]
    lines = []
    for (dataset, readout, level), part in rows.groupby(["dataset", "readout", "level"]):
        sure = [values_of(part, metric).iloc[0] for metric in ("accuracy", "confidence")]
        fits = [_told(part[part["fit"] == fit]) for fit in known]
        about = [f"{level:.0f}", *(f"{100 * value:.1f}" for value in sure)]
        lines.append([dataset, readout, *about, *fits])
    columns = ["dataset", "readout", "layers", "accuracy", "mean probability", *known]
    title = "Readout and depth, on validation graphs"
    return Table("depth", title, columns, lines, notes=[_TOLD], num_left=len(columns))


def _told(rows: pd.DataFrame) -> str:
    """Returns the cell of one fit: what was restored, both AUCs, and how the fit judges itself."""
    value = rows.set_index("metric")["value"]
    status = rows.loc[rows["metric"] == "fit_status", "note"].iloc[0]
    aucs = f"{100 * value['gate_roc_auc']:.0f} / {100 * value['big_roc_auc']:.0f}"
    return f"{value['restored']:.2f} / {aucs}, {status}"


def scores_tables(studies: str | Path) -> list[Table]:
    """Returns agreement of each score, what it keeps, and how well that tells which is right."""
    wide = _widened(read_study(studies, "scores"))
    found = []
    for target, part in wide.groupby(level="target"):
        part = part.droplevel("target")
        for metric, what in (
            ("roc_auc strict", "ROC-AUC, bonds, union of alternatives"),
            ("criterion", "probability that the best bonds keep (no truth)"),
        ):
            grid = _by_dataset(part[metric])
            grid = grid.sort_values("mean", ascending=False, kind="stable")
            title = f"Scores side by side, on validation graphs, target {target}: {what}"
            found.append(_grid("scores", title, "score", grid))
        lines = []
        for dataset, one in part.groupby(level="dataset"):
            rank, chosen, best = _choice(one["criterion"], 100 * one["roc_auc strict"])
            lines.append([dataset, f"{rank:.2f}", f"{chosen:.1f}", f"{best:.1f}"])
        heads = ("rank correlation of criterion and AUC", "AUC chosen", "best AUC")
        title = f"How well the criterion tells, target {target}"
        found.append(Table("scores", title, ["dataset", *heads], lines))
    return found


def parts_tables(studies: str | Path) -> list[Table]:
    """Returns what each set of parts keeps, its agreement with the truth, and who would choose."""
    wide = _widened(read_study(studies, "parts"))
    found = []
    for target, part in wide.groupby(level="target"):
        mean = part.groupby(level="setting")["criterion"].mean()
        order = mean.sort_values(ascending=False, kind="stable").index
        for metric, what in (
            ("criterion", "probability that the best bonds keep, percent (no truth)"),
            ("roc_auc paper", "ROC-AUC, protocol paper, percent"),
        ):
            title = (
                "Parts of the score, by noise and by masking, on validation graphs, target "
                f"{target}: {what}"
            )
            grid = _by_dataset(part[metric].droplevel("target")).loc[order]
            found.append(_grid("parts", title, "score", grid))
    whole = wide.groupby(level="setting").agg(
        kept=("criterion", "mean"),
        needed=("needed", "mean"),
        auc=("roc_auc paper", "mean"),
        f1=("f1 paper", "mean"),
        lowest=("roc_auc paper", "min"),
    )
    judges = whole[["kept", "needed"]].assign(**{"both together": whole["kept"] + whole["needed"]})
    ranks = judges.corrwith(whole["auc"], method="spearman")
    told = ", ".join(f"{name} {rank:+.2f}" for name, rank in ranks.items())
    heads = ("kept (no truth)", "needed (no truth)", "ROC-AUC", "F1", "lowest ROC-AUC")
    note = (
        f"Means over {wide.groupby(level=_SUBJECT).ngroups} targets. Kept: what the best bonds "
        "keep of the probability; needed: what is lost without them. Rank correlation of these "
        f"means with the mean ROC-AUC over the scores: {told}."
    )
    grid = (100 * whole).sort_values("kept", ascending=False, kind="stable")
    title = "Parts of the score, all targets together"
    found.append(_grid("parts", title, "score", grid, heads, notes=[note]))
    lines = []
    for (target, dataset), one in wide.groupby(level=_SUBJECT):
        auc = 100 * one["roc_auc paper"]
        rank, chosen, best = _choice(one["criterion"], auc)
        values = (chosen, auc[target, dataset, " + ".join(FOUR)], best)
        lines.append([target, dataset, f"{rank:+.2f}", *(f"{value:.1f}" for value in values)])
    columns = [*_SUBJECT, "rank correlation with AUC", "AUC chosen", "AUC, all four", "best"]
    title = "How well the criterion tells, target by target"
    found.append(Table("parts", title, columns, lines, num_left=2))
    return found


def joins_tables(studies: str | Path) -> list[Table]:
    """Returns what sets of parts keep and need on all targets, and how far from the default."""
    wide = _widened(read_study(studies, "joins"), JUDGES)
    is_same = (wide["kept em"] - wide["kept delete"]).abs() < 1e-6  # bonds only send messages
    counts_once = is_same.groupby(level=_SUBJECT).transform("all")
    for name, metric in (("criterion", "kept"), ("needed", "needed")):
        two = wide[[f"{metric} em", f"{metric} nc"]].mean(axis=1)
        wide[name] = two.where(counts_once, wide[name])
    wide["sum"] = wide["criterion"] + wide["needed"]
    is_default = wide.index.get_level_values("setting") == " + ".join(JOINS[0])
    default = wide["sum"].where(is_default).groupby(level=_SUBJECT).transform("max")
    by_setting = wide.assign(ahead=wide["sum"] - default).groupby(level="setting")
    grid = by_setting[["criterion", "needed", "sum", "ahead"]].mean()
    auc = by_setting["roc_auc paper"]
    grid = grid.assign(error=by_setting["ahead"].sem(), auc=auc.mean(), lowest=auc.min())
    grid = (100 * grid).sort_values("sum", ascending=False, kind="stable")
    heads = ("kept", "needed", "sum", "to the default", "± error", "ROC-AUC", "lowest ROC-AUC")
    note = (
        f"Means over {wide.groupby(level=_SUBJECT).ngroups} targets and all seeds, percent; fits "
        "are short. Kept and needed, without truth: the probability that the best 10 to 90% of "
        "bonds keep, and that is lost without them, the others being masked, corrupted or deleted; "
        "deletion counts once where it is the same as masking. The error is that of the mean "
        "difference over targets."
    )
    title = "Parts joined into a score, on validation graphs"
    return [_grid("joins", title, "parts", grid, heads, [note])]


def _choice(criterion: pd.Series[float], auc: pd.Series[float]) -> tuple[float, float, float]:
    """Returns how well a criterion ranks by AUC, the AUC that it chooses, and the best there is."""
    return criterion.corr(auc, method="spearman"), auc[criterion.idxmax()], auc.max()


def removal_tables(studies: str | Path) -> list[Table]:
    """Returns what is kept where bonds are masked, taken out of the graph, or both."""
    title = "Bonds masked or taken out of the graph, on validation graphs, percent"
    rows = read_study(studies, "removal")
    return list(_side_by_side(rows, "removal", title, "bonds are"))


def ensembles_tables(studies: str | Path) -> list[Table]:
    """Returns one network beside several; a network alone is the mean of all that were fitted."""
    rows = read_study(studies, "ensembles")
    rows["setting"] = rows["setting"].str.replace(r", seed \d+", "", regex=True)
    title = "One gate network or several, on validation graphs, percent"
    return list(_side_by_side(rows, "ensembles", title, "order of"))


def _side_by_side(rows: pd.DataFrame, name: str, title: str, what: str) -> Iterator[Table]:
    """Yields settings of each target: what each keeps, and its agreement with the truth."""
    wide = _widened(rows, JUDGES)
    shown = {
        "criterion": "kept, three judges",
        "needed": "needed, three judges",
        **{f"kept {judge}": f"kept, {judge}" for judge in JUDGES},
        "roc_auc paper": "ROC-AUC",
        "f1 paper": "F1",
        "lowest": "lowest ROC-AUC",
    }
    for target, part in wide.groupby(level="target"):
        num = part.groupby(level="dataset").ngroups
        by_setting = part.groupby(level="setting")
        mean = by_setting.mean().assign(lowest=by_setting["roc_auc paper"].min())
        grid = (100 * mean).sort_values("criterion", ascending=False, kind="stable")[list(shown)]
        where = f"{title}, target {target}"
        yield _grid(name, f"{where}: mean over {num} datasets", what, grid, shown.values())
        for metric in ("criterion", "roc_auc paper"):
            grid = 100 * part.droplevel("target")[metric].unstack("dataset")
            yield _grid(name, f"{where}: {shown[metric]}", what, grid)


def quick_table(studies: str | Path) -> Table:
    """Returns the default fit beside the short one, mean over the datasets that both have.

    Default fits are those of study ``parts``, the four parts joined. Short fits are those of
    ``removal`` (bonds masked; the fit could leave noise out) and of ``ensembles`` (each network
    alone). Default fits were judged on up to 250 graphs, short ones on up to 100. The last row
    counts targets whose graphs are the same in both.
    """
    from pandas import concat

    default = _chosen(studies, "parts", " \\+ ".join(FOUR))
    masked = _chosen(studies, "removal", "masked")
    short = concat([masked, _chosen(studies, "ensembles", r"one network, seed \d+")])
    both = default.join(short.add_suffix("_quick"), how="inner")
    parts = dict(list(both.groupby(level="target")))
    parts["the same graphs in both"] = both[both["graphs"] == both["graphs_quick"]]
    lines = []
    for target, part in parts.items():
        mean = part.mean()[["kept", "kept_quick", "auc", "auc_quick"]]
        lines.append([str(target), str(len(part)), *(f"{value:.1f}" for value in mean)])
    heads = ("kept, default", "kept, quick", "ROC-AUC, default", "ROC-AUC, quick")
    title = "The default fit and a short one, on validation graphs, percent"
    return Table("quick", title, ["target", "datasets", *heads], lines)


def _chosen(studies: str | Path, study: str, setting: str) -> pd.DataFrame:
    """Returns the values of the settings that match, in percent, by target and dataset."""
    rows = read_study(studies, study)
    wide = _widened(rows[rows["setting"].str.fullmatch(setting)]).groupby(level=_SUBJECT).mean()
    graphs = rows[rows["metric"] == "num_graphs"].groupby(_SUBJECT)["value"].max()
    percent = 100 * wide[["criterion", "roc_auc paper"]].set_axis(["kept", "auc"], axis=1)
    return percent.assign(graphs=graphs)


def rivals_tables(studies: str | Path) -> list[Table]:
    """Returns, for each dataset, rivals with one thing changed, and masks that treat all alike."""
    found = []
    for dataset, part in _widened(read_study(studies, "rivals")).groupby(level="dataset"):
        percent = (
            100
            * part.droplevel(_SUBJECT)[["roc_auc paper", "criterion", "own_mask", "probability"]]
        )
        ran = percent[percent["roc_auc paper"].notna()].drop(columns="probability")
        lines = [
            [str(setting), *("" if v != v else f"{v:.1f}" for v in values)]
            for setting, values in ran.iterrows()
        ]
        title = f"Rivals as benchmarked, and with one thing changed, on {dataset}, percent"
        heads = ("AUC", "best bonds keep", "its mask keeps")
        found.append(Table("rivals", title, ["setting", *heads], lines))
        alike = percent["probability"].dropna()
        names = sorted(alike.index, key=lambda text: float(text.split()[-1]))
        title = f"What the target answers when all messages shrink alike, on {dataset}"
        columns = ["messages", "probability of the class, percent"]
        lines = [[name, f"{alike[name]:.1f}"] for name in names]
        found.append(Table("rivals", title, columns, lines))
    return found


def truth_table(studies: str | Path) -> Table:
    """Returns what each target loses without a true bond, and without another."""
    wide = (
        _widened(read_study(studies, "truth"))
        .droplevel("setting")
        .reorder_levels(["dataset", "target"])
    )
    lines = []
    for (dataset, target), one in wide.sort_index().iterrows():
        lost, other = one["lost_true"], one["lost_other"]
        lines.append(
            [
                *(dataset, target, f"{lost:.2f}", f"{other:.2f}", f"{other / lost:.2f}"),
                f"{100 * one['roc_auc strict']:.1f}",
                f"{one['odds_by_count']:.2f}",
                f"{100 * one['label_by_count']:.1f}" if dataset == "rings-count" else MISSING,
            ]
        )
    columns = [
        *("dataset", "target", "lost without a true bond, log-odds", "without another"),
        *("ratio, other to true", "AUC of the loss, %"),
        "rank correlation of log-odds and number of rings",
        "label of Rings-Count by number, % right",
    ]
    title = "What targets lose without a true bond, and without another, on validation graphs"
    return Table("truth", title, columns, lines, num_left=2)


def _widened(rows: pd.DataFrame, judges: Sequence[str] = ("em", "nc")) -> pd.DataFrame:
    """Returns means over graphs and seeds by target, dataset and setting.

    Columns are metrics, with their protocol or removal behind them: ``roc_auc paper``. Where there
    are judges, ``criterion`` is the mean of what they say is kept, ``needed`` of what is needed.
    """
    rows = rows[rows["metric"] != "num_graphs"]  # about a whole cell, which has many settings
    column = (rows["metric"] + " " + rows["protocol"]).str.strip()
    wide = rows.assign(column=column).pivot_table(
        index=[*_SUBJECT, "setting"], columns="column", values="value"
    )
    for name, metric in (("criterion", "kept"), ("needed", "needed")):
        columns = [f"{metric} {judge}" for judge in judges]
        if set(columns) <= set(wide):
            wide[name] = wide[columns].mean(axis=1)
    return wide


def _by_dataset(values: pd.Series[float]) -> pd.DataFrame:
    """Returns values in percent, a row per setting and a column per dataset, and their mean."""
    grid = 100 * values.unstack("dataset")
    return grid.assign(mean=grid.mean(axis=1))


def _grid(
    name: str,
    title: str,
    what: str,
    grid: pd.DataFrame,
    heads: Iterable[str] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Returns a frame of numbers with one digit as a table; `what` names its first column."""
    columns = [what, *(grid.columns if heads is None else heads)]
    lines = [[str(key), *(f"{v:.1f}" for v in values)] for key, values in grid.iterrows()]
    return Table(name, title, columns, lines, notes=notes)
