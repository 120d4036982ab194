"""EM against NC with the same gates, true or random: Table 2 and Appendix G of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.bench.study_rows import has_part, write_part
from nicegnn.bench.subject import TARGETS_FOLDER, Subject, subjects
from nicegnn.errors import ConfigError
from nicegnn.graph.case import Bonds, find_bonds, rank_within
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import perturbation_distances
from nicegnn.metrics import Truth, selected_graphs
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.tables.methods import datasets_in, stand_in_note, stand_ins
from nicegnn.tables.study_rows import mean_and_std, number, read_one_run, subject_title
from nicegnn.tables.table import Table
from nicegnn.target.training import predict

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT = "mechanism_comparison"
VERSION = 1  # raise it when the same settings give other rows
METRICS = ("D_repr", "D_pred", "confidence")
_CELLS = [(metric, gates) for metric in METRICS[:2] for gates in ("gt", "rand")]
_EDGES_AT_ONCE = 200_000

Pair = tuple[float, float]

#: The paper's mean and deviation of D_repr (GT, Rand) and D_pred (GT, Rand), from Table 2 (Rings)
#: and the table of Appendix G; GIN.
PAPER_DISTANCES: dict[str, dict[str, tuple[Pair, Pair, Pair, Pair]]] = {
    "mutagenicity": {
        "em": ((0.77, 0.12), (0.46, 0.19), (0.53, 0.17), (0.29, 0.02)),
        "nc": ((0.45, 0.14), (0.38, 0.12), (0.52, 0.11), (0.44, 0.11)),
    },
    "benzene": {
        "em": ((0.03, 0.07), (0.11, 0.09), (0.77, 0.26), (0.38, 0.18)),
        "nc": ((0.03, 0.03), (0.06, 0.04), (0.74, 0.15), (0.43, 0.26)),
    },
    "alkane-carbonyl": {
        "em": ((0.92, 0.33), (0.61, 0.12), (0.39, 0.26), (0.42, 0.08)),
        "nc": ((0.88, 0.13), (0.56, 0.04), (0.44, 0.25), (0.53, 0.06)),
    },
    "fluoride-carbonyl": {
        "em": ((0.61, 0.17), (0.83, 0.21), (0.16, 0.16), (0.11, 0.12)),
        "nc": ((0.59, 0.11), (0.76, 0.24), (0.17, 0.15), (0.19, 0.16)),
    },
    "rings-count": {
        "em": ((0.31, 0.09), (0.63, 0.22), (0.57, 0.15), (0.59, 0.12)),
        "nc": ((0.07, 0.02), (0.08, 0.02), (0.02, 0.01), (0.04, 0.04)),
    },
    "rings-max": {
        "em": ((0.45, 0.10), (0.61, 0.11), (0.36, 0.16), (0.48, 0.18)),
        "nc": ((0.16, 0.03), (0.16, 0.04), (0.14, 0.05), (0.13, 0.06)),
    },
}


def compute(
    datasets: Sequence[str],
    *,
    targets: Sequence[str] = ("gin",),
    seeds: Sequence[int] = (0,),
    out: str | Path,
    device: str | None = None,
    max_graphs: int | None = None,
    progress: bool = True,
    targets_folder: str | Path = TARGETS_FOLDER,
    num_draws: int = 50,
    num_random: int = 20,
) -> None:
    """Writes distances and confidence of every graph; finished parts are skipped.

    Rows: ``setting`` is ``em/gt``, ``nc/gt``, ``em/rand``, ``nc/rand``, or ``clean`` (confidence
    only); ``level`` is the graph's position in the test part; ``metric`` is one of `METRICS`.

    Args:
        num_draws: noise draws of NC for each configuration.
        num_random: random configurations for each true one.
    """
    settings = {"version": VERSION, "num_draws": num_draws, "num_random": num_random}
    total = len(datasets) * len(targets) * len(seeds)
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        done = 0
        found = subjects(
            datasets, targets, targets_folder=targets_folder, device=device, max_graphs=max_graphs
        )
        for subject in found:
            for seed in seeds:
                advance(done, f"{subject.dataset.name} {subject.target} seed {seed}")
                key = subject.key(seed, settings)
                if not has_part(out, EXPERIMENT, key):
                    rows = list(compare(subject, num_draws, num_random, seed))
                    write_part(out, EXPERIMENT, key, rows)
                done += 1
        advance(done, "")


def compare(
    subject: Subject, num_draws: int, num_random: int, seed: int
) -> Iterator[dict[str, Any]]:
    r"""Yields rows of each correctly classified graph of label 1 with a truth (Appendix G).

    Gates are 1 on the bonds of one true alternative (GT), or on as many random bonds of the graph
    (Rand), and 0 elsewhere. Results are averaged over draws and random configurations, then over
    the alternatives of a graph.
    """
    test = subject.dataset.test
    prob = predict(subject.model, test.index_select(subject.positions)).cpu()  # [B, C]
    truth = Truth.from_dataset(test, subject.positions)
    correct = selected_graphs(test.y[subject.positions], prob.argmax(1), truth, "strict")
    positions = subject.positions[correct]
    if positions.numel() == 0:
        raise ConfigError(
            f"The target {subject.target} classifies no graph of {subject.dataset.name} correctly."
        )
    mechanisms: dict[str, Mechanism] = {
        "em": ElementMask(),
        "nc": NoiseCorruption(mix(seed, EXPERIMENT)),
    }
    values: dict[tuple[str, str], list[Tensor]] = {}
    configurations = true_configurations(subject, positions)
    for turn, chosen in enumerate(configurations):
        shuffle = mix(seed, "rand", turn)
        for name, mechanism in mechanisms.items():
            for gates, wanted in (("gt", None), ("rand", num_random)):
                some = chosen.gates(wanted, shuffle)
                value = _distances(subject, chosen.batch, some, mechanism, num_draws, seed)
                values.setdefault((name, gates), []).append(value)
    home = torch.cat([chosen.home for chosen in configurations])
    for place, value in zip(positions.tolist(), prob[correct].max(1).values.tolist(), strict=True):
        yield subject.row("clean", "confidence", value, seed=seed, level=place)
    for (name, gates), parts in values.items():
        mean = _mean_by(torch.cat(parts, dim=1), home, positions.numel())  # [3, B]
        for metric, row in zip(METRICS, mean.tolist(), strict=True):
            for place, value in zip(positions.tolist(), row, strict=True):
                yield subject.row(f"{name}/{gates}", metric, value, seed=seed, level=place)


@dataclass(frozen=True)
class Configurations:
    """True configurations of some graphs; a graph with several alternatives is there as often.

    Attributes:
        batch: one graph per configuration, A of them.
        home: number of its graph, ``[A]``.
        edge_gate: 1 on the directed edges of the alternative, ``[E]``.
        bonds: of the batch.
    """

    batch: Batch
    home: Tensor
    edge_gate: Tensor
    bonds: Bonds

    def gates(self, num_random: int | None, seed: int) -> list[Tensor]:
        """Returns the true gates, or so many random ones with as many open bonds, ``[E]`` each."""
        if num_random is None:
            return [self.edge_gate]
        num = self.home.numel()
        is_open = self.bonds.sum(self.edge_gate) > 0  # [M]
        size = torch.zeros(num, dtype=torch.long).index_add(0, self.bonds.batch, is_open.long())
        generator = torch.Generator().manual_seed(seed)
        found = []
        for _ in range(num_random):
            key = torch.rand(is_open.numel(), generator=generator)
            chosen = rank_within(key, self.bonds.batch, num) < size[self.bonds.batch]
            found.append(chosen.float()[self.bonds.edge_bond])
        return found


def true_configurations(subject: Subject, positions: Tensor) -> list[Configurations]:
    """Returns all true configurations of graphs of the test part, a batch of them at a time."""
    test = subject.dataset.test
    truth = Truth.from_dataset(test, positions)
    home = truth.alternative_batch  # [A]
    number_of_edges = truth.num_edges
    begin = number_of_edges.cumsum(0) - number_of_edges
    local = truth.entry_edge - begin[home[truth.entry_alternative]]  # edge within its graph, [P]
    length = number_of_edges[home]
    group = (length.cumsum(0) - length) // _EDGES_AT_ONCE  # [A]
    found = []
    for value in torch.unique(group).tolist():
        rows = (group == value).nonzero().view(-1)
        entries = (group[truth.entry_alternative] == value).nonzero().view(-1)
        start = length[rows].cumsum(0) - length[rows]
        gate = torch.zeros(int(length[rows].sum()))
        gate[start[truth.entry_alternative[entries] - rows[0]] + local[entries]] = 1.0
        batch = test.batch(positions[home[rows]])
        bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
        found.append(Configurations(batch, home[rows], gate, bonds))
    return found


def _distances(
    subject: Subject,
    batch: Batch,
    gates: Sequence[Tensor],
    mechanism: Mechanism,
    num_draws: int,
    seed: int,
) -> Tensor:
    """Returns the mean of each metric over several gates, ``[3, A]``."""
    total = torch.zeros(len(METRICS), int(batch.num_graphs), dtype=torch.double)
    for turn, gate in enumerate(gates):
        found = perturbation_distances(
            subject.model,
            batch,
            gate,
            mechanism,
            num_draws=num_draws,
            seed=mix(seed, "configuration", turn),
        )
        total += torch.stack([found.representation, found.prediction, found.confidence]).cpu()
    return total / len(gates)


def _mean_by(value: Tensor, home: Tensor, num: int) -> Tensor:
    total = value.new_zeros(value.size(0), num).index_add(1, home, value)
    return total / torch.bincount(home, minlength=num)


def table(out: str | Path) -> Table:
    """Returns D_repr and D_pred of both mechanisms, ours beside the paper's."""
    rows = read_one_run(out, EXPERIMENT)
    names = datasets_in(rows)
    marked = stand_ins(names)
    lines = []
    for (dataset, target), some in rows.groupby(["dataset", "target"], sort=False):
        title = subject_title(dataset, target, marked)
        paper = PAPER_DISTANCES.get(dataset) if target == "gin" else None
        for name in ("em", "nc"):
            ours = [mean_and_std(_by_graph(some, name, *cell)) for cell in _CELLS]
            lines.append([title, name.upper(), *ours, *_paper_cells(paper, name)])
        means = {n: [float(_by_graph(some, n, *c).mean()) for c in _CELLS] for n in ("em", "nc")}
        theirs = [""] * len(_CELLS)
        if paper is not None:
            theirs = _improvement(*([mean for mean, _ in paper[name]] for name in ("em", "nc")))
        lines.append([title, "Imp.", *_improvement(means["em"], means["nc"]), *theirs])
    headings = [f"{metric} {gates.upper()}" for metric, gates in _CELLS]
    return Table(
        name=EXPERIMENT,
        title="EM and NC with the same gates: distance from the clean computation",
        columns=["dataset", "", *headings, *(f"paper {heading}" for heading in headings)],
        rows=lines,
        notes=(
            "Mean ± standard deviation over correctly classified test graphs of label 1; lower is "
            "better. GT opens the true bonds, RAND as many random ones. D_pred is in nats, so it "
            "grows with the confidence of the target. Imp. is the relative reduction by NC.",
            *stand_in_note(names, marked),
        ),
    )


def _by_graph(rows: pd.DataFrame, mechanism: str, metric: str, gates: str) -> Any:
    """Returns a value per graph, the mean over seeds."""
    chosen = rows[(rows["setting"] == f"{mechanism}/{gates}") & (rows["metric"] == metric)]
    return chosen.groupby("level")["value"].mean()


def _paper_cells(paper: dict[str, Any] | None, mechanism: str) -> list[str]:
    if paper is None:
        return [""] * len(_CELLS)
    return [f"{mean:.2f} ± {std:.2f}" for mean, std in paper[mechanism]]


def _improvement(em: Sequence[float], nc: Sequence[float]) -> list[str]:
    r"""Returns :math:`(D_{EM} - D_{NC}) / D_{EM}` (Eq. 30) in percent, ``-`` if EM is at 0."""
    return [
        f"{number(100 * (e - n) / e, 1)}%" if e >= 0.005 else "-"
        for e, n in zip(em, nc, strict=True)
    ]
