"""EM, NC and exchange side by side: what each does to messages, states, and explainers."""

from collections.abc import Iterator

import pandas as pd

from nicegnn_lab.metrics.metric import METRICS
from nicegnn_lab.studies.mechanisms import DAMAGES
from nicegnn_lab.tables.sources import Sources
from nicegnn_lab.tables.studies import TITLES
from nicegnn_lab.tables.table import MISSING, Table, mean_and_std, number, read_study

#: Explainers that were run with more than one mechanism.
_EXPLAINERS = {"nice-paper": "SRB and BIG (the paper's method)"}
_EXPLAINERS |= {name: name for name in ("gnnexplainer", "pgexplainer", "refine", "confexplainer")}
_MEASURES = ("roc_auc", "f1")
_MESSAGES = (("clean", "-clean", "ratio_fixed"), ("propagated", "", "ratio"))
_NOTES = (
    "Explainers: percent, protocol paper, target gin, mean over the eight datasets ± standard "
    "deviation over seeds. Settings were tuned with EM, and with NC; exchange takes those of EM.",
    "Distances, confidence: target gin, gates open on the true bonds, mean over eight datasets. "
    "Scale: of all targets, the last layer's mean squared message norm over its clean one, "
    "median over targets; and targets whose scale is within a factor of 1.5 in every layer.",
)


def damage_table(sources: Sources) -> list[Table]:
    """Returns a line for each quantity, with a column for each damage."""
    bench = sources.bench(_MEASURES)
    bench = bench[(bench["target"] == "gin") & (bench["protocol"] == "paper")]
    lines = [*_of_explainers(bench), *_of_scale(read_study(sources.studies, "scale"))]
    rows = read_study(sources.studies, "mechanisms")
    lines += _of_distances(rows[rows["target"] == "gin"])
    columns = ["what", "of", *(TITLES[name] for name in DAMAGES)]
    title = "EM, NC and exchange side by side"
    return [Table("damages", title, columns, lines, notes=_NOTES, num_left=2)]


def _of_explainers(bench: pd.DataFrame) -> Iterator[list[str]]:
    by_seed = ["metric", "explainer", "mechanism", "seed"]
    rows = bench.astype(dict.fromkeys(("explainer", "mechanism", "dataset", "metric"), "str"))
    means = 100 * rows.groupby([*by_seed, "dataset"])["value"].mean().groupby(by_seed).mean()
    for metric in _MEASURES:
        for name, title in _EXPLAINERS.items():
            found = [means.get((metric, name, damage)) for damage in DAMAGES]
            texts = [MISSING if seeds is None else mean_and_std(seeds, 1) for seeds in found]
            yield [METRICS[metric].title, title, *texts]


def _of_scale(rows: pd.DataFrame) -> Iterator[list[str]]:
    of_target = ["setting", "dataset", "target"]
    for messages, _, metric in _MESSAGES:
        here = rows[rows["metric"] == metric]
        layers = here.groupby([*of_target, "level"])["value"].mean()
        last = layers.groupby(level=of_target).tail(1)
        is_near = layers.between(1 / 1.5, 1.5).groupby(level=of_target).all()
        medians = (number(float(last[name].median())) for name in DAMAGES)
        near = (f"{int(is_near[name].sum())} of {len(is_near[name])}" for name in DAMAGES)
        yield ["message scale, last layer", f"{messages} messages", *medians]
        yield ["targets that keep the scale", f"{messages} messages", *near]


def _of_distances(rows: pd.DataFrame) -> Iterator[list[str]]:
    means = rows.groupby(["metric", "setting", "dataset"])["value"].mean()
    for metric in ("D_repr", "D_pred"):
        for messages, added, _ in _MESSAGES:
            found = [means[metric, f"{name}{added}/gt"] for name in DAMAGES]
            yield [metric, f"{messages} messages", *(number(float(one.mean())) for one in found)]
    clean = means["confidence", "clean"]
    for messages, added, _ in _MESSAGES:
        off = [(means["confidence", f"{name}{added}/gt"] - clean).abs() for name in DAMAGES]
        change = [number(100 * float(one.mean()), 1) for one in off]
        yield ["change of confidence, points", f"{messages} messages", *change]
