"""Several gate networks instead of one: does the mean of their orders rank better?

    python experiments/ensemble_study.py benzene --target gin --out results/study    # resumable
    python experiments/ensemble_study.py --table results/study > results/study/ensembles.md

Each network learns from its own seed. One network that learns as long as all of them together is
beside them, for the price is the same. Graphs are validation graphs of label 1 that the target gets
right. What the best bonds keep, and what is lost without them, needs no truth and chooses. Fits are
short, so that a CPU can do them.
"""

from __future__ import annotations

from pathlib import Path

import command
import torch
from removal_study import CONFIG, JUDGES, side_by_side
from score_study import measure, prepared, tidy
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn import NICE
from nicegnn.attribution.bond_by_bond import bond_wise_gradient
from nicegnn.bench.study_rows import has_part, read_experiment, write_part
from nicegnn.boundary.fit import gate_logits
from nicegnn.explain.nice import combine, standardise
from nicegnn.graph.case import case_of
from nicegnn.intervention.query import Query

NAME = "ensemble_study"
SIZE = 4  # networks


def orders(nice: NICE, batch: Batch) -> list[Tensor]:
    """Returns the order of bonds in each view, standardised within graphs."""
    case = case_of(batch, undirected=nice.config.undirected)
    query = Query(nice.target, case, nice.mechanism, chunk_edges=nice.config.chunk_edges)
    with nice.target.frozen(), torch.no_grad():
        return [
            standardise(case, gate_logits(view.gates, query.under(view.mechanism), nice.config))
            for view in nice.views
        ]


def losses(nice: NICE, batch: Batch, seed: int) -> list[Tensor]:
    """Returns what is lost without each bond in each view; no network has a say in it."""
    query = Query(
        nice.target,
        case_of(batch, undirected=nice.config.undirected),
        nice.mechanism,
        chunk_edges=nice.config.chunk_edges,
    )
    with nice.target.frozen():
        return [
            bond_wise_gradient(query.under(view.mechanism), nice.config.attribution, seed).score
            for view in nice.views
        ]


def study(name: str, target: str, out: Path, num: int, seed: int, device: torch.device) -> None:
    """Computes all rows of one dataset and target, unless they are there."""
    key = f"{name}-{target}-{seed}"
    if has_part(out, NAME, key):
        return
    dataset, model, batch, truth, chunk = prepared(name, target, num, device)
    config = CONFIG.with_(chunk_edges=chunk, fallback=False)  # all networks have the same views
    found = []
    for member in range(SIZE):
        nice = NICE(model, config)
        nice.fit(dataset.train, seed=SIZE * seed + member, progress=False)
        found.append(orders(nice, batch))
    print("networks", f"{SIZE} x {nice.fit_report.seconds:.0f} s", flush=True)
    long = NICE(model, config.with_(boundary__steps=SIZE * config.boundary.steps))
    long.fit(dataset.train, seed=SIZE * seed, progress=False)
    learned = {f"one network, seed {member}": one for member, one in enumerate(found)}
    learned["one network, as long as all"] = orders(long, batch)
    for size in (2, SIZE):
        views = zip(*found[:size], strict=True)
        learned[f"mean of {size} networks"] = [torch.stack(view).mean(0) for view in views]
    case, lost = case_of(batch, undirected=config.undirected), losses(nice, batch, seed)
    rows = []
    for setting, views in learned.items():
        for ending, score in (
            ("", combine(case, *views, *lost)),
            (", order alone", combine(case, *views)),
        ):
            with nice.target.frozen():
                values = measure(nice, batch, truth, score, JUDGES)
            rows += tidy(name, target, setting + ending, batch.num_graphs, seed, values)
    write_part(out, NAME, key, rows)
    print("done", key, flush=True)


def table(out: Path) -> str:
    """Returns the study as Markdown; a network alone is the mean of all that were fitted."""
    rows = read_experiment(out, NAME)
    rows["setting"] = rows.setting.astype(str).str.replace(r", seed \d+", "", regex=True)
    title = "One gate network or several, on validation graphs, percent"
    return side_by_side(rows, title, "order of")


if __name__ == "__main__":
    command.main(__doc__.splitlines()[0], study, table, num_graphs=100)
