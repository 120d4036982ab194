"""Tables of the studies behind our defaults: gates, scores, their parts, rivals, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nicegnn.bench.targets import TARGETS
from nicegnn.studies.bond_scores import JUDGES
from nicegnn.studies.gates import FITS, changes
from nicegnn.studies.scores import FOUR
from nicegnn.tables.cells import (
    MISSING,
    number,
    read_study,
    stand_ins,
    subject_title,
    values_of,
)
from nicegnn.tables.table import Table

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
        there = set(part["setting"])
        found.append(
            Table(
                name="gates",
                title=f"What becomes of gates, on validation graphs, target {target}",
                columns=["boundary", *datasets],
                rows=[
                    [setting, *(cells.get((setting, name), MISSING) for name in datasets)]
                    for setting in changes()
                    if setting in there
                ],
                notes=[_TOLD],
                num_left=1 + len(datasets),
            )
        )
    return found


def depth_table(studies: str | Path) -> Table:
    """Returns a line per readout and number of layers: the target, and both ways to fit gates."""
    rows = read_study(studies, "depth")
    words = rows["setting"].str.split(", ", n=1)  # readout, fit
    rows = rows.assign(readout=words.str[0], fit=words.str[1])
    lines = []
    for (dataset, readout, level), part in rows.groupby(["dataset", "readout", "level"]):
        sure = [values_of(part, metric).iloc[0] for metric in ("accuracy", "confidence")]
        fits = [_told(part[part["fit"] == fit]) for fit in FITS]
        about = [f"{level:.0f}", *(f"{100 * value:.1f}" for value in sure)]
        lines.append([dataset, readout, *about, *fits])
    columns = ["dataset", "readout", "layers", "accuracy", "mean probability", *FITS]
    return Table(
        name="depth",
        title="Readout and depth, on validation graphs",
        columns=columns,
        rows=lines,
        notes=[_TOLD],
        num_left=len(columns),
    )


def _told(rows: pd.DataFrame) -> str:
    """Returns the cell of one fit: what was restored, both AUCs, and how the fit judges itself."""
    value = rows.set_index("metric")["value"]
    status = rows.loc[rows["metric"] == "fit_status", "note"].iloc[0]
    aucs = f"{100 * value['gate_roc_auc']:.0f} / {100 * value['big_roc_auc']:.0f}"
    return f"{value['restored']:.2f} / {aucs}, {status}"


def scores_tables(studies: str | Path) -> list[Table]:
    """Returns agreement of each score, what it keeps, and how well that tells which is right."""
    wide = _wide(studies, "scores").assign(criterion=_mean_over("kept", ("em", "nc")))
    found = []
    for target, part in wide.groupby(level="target"):
        part = part.droplevel("target")
        for metric, what in (
            ("roc_auc strict", "ROC-AUC, bonds, union of alternatives"),
            ("criterion", "probability that the best bonds keep (no truth)"),
        ):
            grid = 100 * part[metric].unstack("dataset")
            grid = grid.assign(mean=grid.mean(axis=1)).sort_values(
                "mean", ascending=False, kind="stable"
            )
            title = f"Scores side by side, on validation graphs, target {target}: {what}"
            found.append(_grid("scores", title, "score", grid))
        lines = []
        for dataset, one in part.groupby(level="dataset"):
            auc = 100 * one["roc_auc strict"]
            rank = one["criterion"].corr(auc, method="spearman")
            chosen = auc[one["criterion"].idxmax()]
            lines.append([dataset, f"{rank:.2f}", f"{chosen:.1f}", f"{auc.max():.1f}"])
        heads = ("rank correlation of criterion and AUC", "AUC chosen", "best AUC")
        title = f"How well the criterion tells, target {target}"
        found.append(Table("scores", title, ["dataset", *heads], lines))
    return found


def parts_tables(studies: str | Path) -> list[Table]:
    """Returns what each set of parts keeps, its agreement with the truth, and who would choose."""
    wide = _wide(studies, "parts").assign(
        criterion=_mean_over("kept", ("em", "nc")), needed=_mean_over("needed", ("em", "nc"))
    )
    found = []
    for target, part in wide.groupby(level="target"):
        part = part.droplevel("target")
        mean = part["criterion"].unstack("dataset").mean(axis=1)
        order = mean.sort_values(ascending=False, kind="stable").index
        for metric, what in (
            ("criterion", "probability that the best bonds keep, percent (no truth)"),
            ("roc_auc paper", "ROC-AUC, protocol paper, percent"),
        ):
            grid = 100 * part[metric].unstack("dataset").loc[order]
            title = (
                "Parts of the score, by noise and by masking, on validation graphs, target "
                f"{target}: {what}"
            )
            found.append(_grid("parts", title, "score", grid.assign(mean=grid.mean(axis=1))))
    whole = wide.groupby(level="setting").agg(
        kept=("criterion", "mean"),
        needed=("needed", "mean"),
        auc=("roc_auc paper", "mean"),
        f1=("f1 paper", "mean"),
        lowest=("roc_auc paper", "min"),
    )
    told = {
        "kept": whole["kept"],
        "needed": whole["needed"],
        "both together": whole["kept"] + whole["needed"],
    }
    ranks = ", ".join(
        f"{name} {value.corr(whole['auc'], method='spearman'):+.2f}" for name, value in told.items()
    )
    heads = ("kept (no truth)", "needed (no truth)", "ROC-AUC", "F1", "lowest ROC-AUC")
    note = (
        f"Means over {wide.groupby(level=_SUBJECT).ngroups} targets. Kept: what the best bonds "
        "keep of the probability; needed: what is lost without them. Rank correlation of these "
        f"means with the mean ROC-AUC over the scores: {ranks}."
    )
    grid = (100 * whole).sort_values("kept", ascending=False, kind="stable")
    title = "Parts of the score, all targets together"
    found.append(_grid("parts", title, "score", grid, heads, notes=[note]))
    lines = []
    for (target, dataset), one in wide.groupby(level=_SUBJECT):
        one = one.droplevel(_SUBJECT)
        auc = 100 * one["roc_auc paper"]
        rank = one["criterion"].corr(auc, method="spearman")
        values = (auc[one["criterion"].idxmax()], auc[" + ".join(FOUR)], auc.max())
        lines.append([target, dataset, f"{rank:+.2f}", *(f"{value:.1f}" for value in values)])
    columns = [*_SUBJECT, "rank correlation with AUC", "AUC chosen", "AUC, all four", "best"]
    title = "How well the criterion tells, target by target"
    found.append(Table("parts", title, columns, lines, num_left=2))
    return found


def removal_tables(studies: str | Path) -> list[Table]:
    """Returns what is kept where bonds are masked, taken out of the graph, or both."""
    title = "Bonds masked or taken out of the graph, on validation graphs, percent"
    return list(_side_by_side(_wide(studies, "removal"), "removal", title, "bonds are"))


def ensembles_tables(studies: str | Path) -> list[Table]:
    """Returns one network beside several; a network alone is the mean of all that were fitted."""
    rows = read_study(studies, "ensembles")
    rows["setting"] = rows["setting"].str.replace(r", seed \d+", "", regex=True)
    title = "One gate network or several, on validation graphs, percent"
    return list(_side_by_side(_widened(rows), "ensembles", title, "order of"))


def _side_by_side(wide: pd.DataFrame, name: str, title: str, what: str) -> Iterator[Table]:
    """Yields settings of each target: what each keeps, and its agreement with the truth."""
    wide = wide.assign(three_kept=_mean_over("kept"), three_needed=_mean_over("needed"))
    shown = {
        "three_kept": "kept, three judges",
        "three_needed": "needed, three judges",
        **{f"kept {judge}": f"kept, {judge}" for judge in JUDGES},
        "roc_auc paper": "ROC-AUC",
        "f1 paper": "F1",
        "lowest": "lowest ROC-AUC",
    }
    for target, part in wide.groupby(level="target"):
        num = part.groupby(level="dataset").ngroups
        by_setting = part.groupby(level="setting")
        mean = by_setting.mean().assign(lowest=by_setting["roc_auc paper"].min())
        grid = (100 * mean).sort_values("three_kept", ascending=False, kind="stable")[list(shown)]
        where = f"{title}, target {target}"
        yield _grid(name, f"{where}: mean over {num} datasets", what, grid, list(shown.values()))
        for metric in ("three_kept", "roc_auc paper"):
            grid = 100 * part.droplevel("target")[metric].unstack("dataset").loc[mean.index]
            yield _grid(name, f"{where}: {shown[metric]}", what, grid)


def quick_table(studies: str | Path) -> Table:
    """Returns the default fit beside the short one, mean over the datasets that both have.

    Default fits are those of study ``parts``, the four parts joined. Short fits are those of
    ``removal`` (bonds masked) and of ``ensembles`` (each network alone). In ``removal`` the fit
    could leave noise out, in the others not. Default fits were judged on up to 250 graphs, short
    ones on up to 100. Where a dataset has fewer, the graphs are the same, and the last row counts
    these targets alone.
    """
    pandas = _pandas()
    default = _chosen(studies, "parts", " \\+ ".join(FOUR))
    masked = _chosen(studies, "removal", "masked")
    short = pandas.concat([masked, _chosen(studies, "ensembles", r"one network, seed \d+")])
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
    kept = 100 * _mean_over("kept", ("em", "nc"))(wide)
    graphs = rows[rows["metric"] == "num_graphs"].groupby(_SUBJECT)["value"].max()
    frame: pd.DataFrame = _pandas().DataFrame(
        {"kept": kept, "auc": 100 * wide["roc_auc paper"], "graphs": graphs.reindex(wide.index)}
    )
    return frame


def rivals_tables(studies: str | Path) -> list[Table]:
    """Returns, for each dataset, rivals with one thing changed, and masks that treat all alike."""
    rows = read_study(studies, "rivals")
    found = []
    for dataset, part in rows.groupby("dataset"):
        wide = _widened(part).droplevel(_SUBJECT)
        kept = _mean_over("kept", ("em", "nc"))(wide)
        ran = wide[wide["roc_auc paper"].notna()].sort_index()
        lines = [
            [
                str(setting),
                f"{100 * one['roc_auc paper']:.1f}",
                f"{100 * kept[setting]:.1f}",
                "" if one["own_mask"] != one["own_mask"] else f"{100 * one['own_mask']:.1f}",
            ]
            for setting, one in ran.iterrows()
        ]
        title = f"Rivals as benchmarked, and with one thing changed, on {dataset}, percent"
        heads = ("AUC", "best bonds keep", "its mask keeps")
        found.append(Table("rivals", title, ["setting", *heads], lines))
        alike = wide["probability"].dropna()
        names = sorted(alike.index, key=lambda text: float(text.split()[-1]))
        found.append(
            Table(
                name="rivals",
                title=f"What the target answers when all messages shrink alike, on {dataset}",
                columns=["messages", "probability of the class, percent"],
                rows=[[name, f"{100 * alike[name]:.1f}"] for name in names],
            )
        )
    return found


def truth_table(studies: str | Path) -> Table:
    """Returns what each target loses without a true bond, and without another."""
    wide = _wide(studies, "truth").droplevel("setting").reorder_levels(["dataset", "target"])
    lines = []
    for (dataset, target), one in wide.sort_index().iterrows():
        right = f"{100 * one['label_by_count']:.1f}" if dataset == "rings-count" else MISSING
        ratio = one["lost_other"] / one["lost_true"]
        lines.append(
            [
                dataset,
                target,
                *(f"{value:.2f}" for value in (one["lost_true"], one["lost_other"], ratio)),
                f"{100 * one['roc_auc strict']:.1f}",
                f"{one['odds_by_count']:.2f}",
                right,
            ]
        )
    return Table(
        name="truth",
        title="What targets lose without a true bond, and without another, on validation graphs",
        columns=[
            "dataset",
            "target",
            "lost without a true bond, log-odds",
            "without another",
            "ratio, other to true",
            "AUC of the loss, %",
            "rank correlation of log-odds and number of rings",
            "label of Rings-Count by number, % right",
        ],
        rows=lines,
        num_left=2,
    )


def fallback_table(studies: str | Path) -> Table:
    """Returns how noise and masking judge each class, targets side by side."""
    rows = read_study(studies, "fallback")
    wide = _widened(rows)
    there = set(rows["target"])
    targets = [name for name in TARGETS if name in there]
    pairs = sorted({(dataset, setting) for _, dataset, setting in wide.index})
    lines, bold = [], set()
    for place, (dataset, setting) in enumerate(pairs):
        line = [dataset, setting.removeprefix("class ")]
        for target in targets:
            if (target, dataset, setting) not in wide.index:
                line.append(MISSING)
                continue
            one = wide.loc[target, dataset, setting]
            gain, error = 100 * (one["kept em"] - one["kept nc"]), 100 * one["error"]
            if one["masks"]:
                bold.add((place, len(line)))
            line.append(f"{one['fall']:.1f}; {gain:+.1f} ± {error:.1f}")
        lines.append(line)
    return Table(
        name="fallback",
        title="Noise and masking as judges, on training graphs",
        columns=["dataset", "class", *targets],
        rows=lines,
        best=frozenset(bold),
        notes=[
            "Cells: fall of the log-odds when noise replaces every message; gain of masking over "
            "noise in the probability kept by the best bonds, in points, with its standard error. "
            "Bold: NICE masks. There noise raises the log-odds of a class whose bonds masking "
            "ranks clearly better, and no class is ranked worse."
        ],
        num_left=2 + len(targets),
    )


def fallback_test_table(studies: str | Path) -> Table:
    """Returns what NICE reaches with and without leave to mask, and occlusion beside it."""
    rows = read_study(studies, "fallback-test")
    rows, marked = rows[rows["protocol"] == "paper"], stand_ins(rows)
    lines = []
    for (dataset, target), part in rows.groupby(["dataset", "target"], sort=False):
        alone = 100 * values_of(part[part["explainer"] == "occlusion"], "roc_auc", "paper").mean()
        for setting in ("off", "on"):
            mine = part[part["setting"] == setting]
            seeds = ", ".join(map(str, sorted(mine["seed"].unique())))
            means = [100 * values_of(mine, metric, "paper").mean() for metric in ("roc_auc", "f1")]
            numbers = [number(float(mean), 1) for mean in (*means, alone)]
            lines.append([subject_title(dataset, "gin", marked), target, setting, seeds, *numbers])
    heads = ("ROC-AUC", "F1", "leaving out one bond at a time, ROC-AUC")
    return Table(
        name="fallback-test",
        title="Masking where noise cannot judge, on test graphs",
        columns=["dataset", "target", "fallback", "seeds", *heads],
        rows=lines,
        notes=[
            "Targets on which `NICE.fit` masks. NICE with noise alone (`nice+nc`), which may mask "
            "instead (on) or not (off); protocol `paper`, test graphs of label 1, percent."
        ],
        num_left=4,
    )


def _wide(studies: str | Path, study: str) -> pd.DataFrame:
    return _widened(read_study(studies, study))


def _widened(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns means over graphs and seeds by target, dataset and setting.

    Columns are metrics, with their protocol or removal behind them: ``roc_auc paper``.
    """
    rows = rows[rows["metric"] != "num_graphs"]  # about a whole cell, which has many settings
    column = (rows["metric"] + " " + rows["protocol"]).str.strip()
    return rows.assign(column=column).pivot_table(
        index=[*_SUBJECT, "setting"], columns="column", values="value"
    )


def _mean_over(
    metric: str, judges: Sequence[str] = JUDGES
) -> Callable[[pd.DataFrame], pd.Series[float]]:
    """Returns a function that averages a metric over several ways to remove bonds."""
    return lambda wide: wide[[f"{metric} {judge}" for judge in judges]].mean(axis=1)


def _grid(
    name: str,
    title: str,
    what: str,
    grid: pd.DataFrame,
    heads: Iterable[str] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Returns a frame of numbers with one digit as a table; `what` names its first column."""
    return Table(
        name=name,
        title=title,
        columns=[what, *(grid.columns if heads is None else heads)],
        rows=[[str(key), *(f"{v:.1f}" for v in values)] for key, values in grid.iterrows()],
        notes=notes,
    )


def _pandas() -> Any:
    return import_module("pandas")
