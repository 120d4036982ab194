"""EM against NC with the same gates, true or random: Table 2 and Appendix G of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.bench.job import Job
from nicegnn.bench.rows import Block
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.task import Task
from nicegnn.datasets import MoleculeDataset
from nicegnn.errors import ConfigError
from nicegnn.graph.case import Bonds, make_case, rank_within
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import perturbation_distances
from nicegnn.metrics import Truth, selected_graphs
from nicegnn.seeding import mix
from nicegnn.studies.bond_scores import molecules_of
from nicegnn.target.training import predict

METRICS = ("D_repr", "D_pred", "confidence")
_EDGES_AT_ONCE = 200_000
_NOISE = "mechanism_comparison"  # addresses the noise; another word would give other rows


@dataclass(frozen=True)
class MechanismStudy(Study):
    """Distances from the clean computation under EM and NC.

    Rows of each graph: ``setting`` is ``em/gt``, ``nc/gt``, ``em/rand``, ``nc/rand``, or ``clean``
    (confidence only); metrics are `METRICS`.

    Attributes:
        num_draws: noise draws of NC for each configuration.
        num_random: random configurations for each true one.
    """

    name = "mechanisms"
    title = "EM against NC under true and random gates"

    num_draws: int = 50
    num_random: int = 20

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(extra={"num_draws": self.num_draws, "num_random": self.num_random})

    def measure(self, job: Job) -> Iterator[Block]:
        r"""Yields rows of each correctly classified graph of label 1 with a truth (Appendix G).

        Gates are 1 on the bonds of one true alternative (GT), or on as many random bonds of the
        graph (Rand), and 0 elsewhere. Results are averaged over draws and random configurations,
        then over the alternatives of a graph.
        """
        graphs = molecules_of(job).part(job.part)
        positions, confidence = right_positions(job)
        mechanisms: dict[str, Mechanism] = {
            "em": ElementMask(),
            "nc": NoiseCorruption(mix(job.seed, _NOISE)),
        }
        values: dict[tuple[str, str], list[Tensor]] = {}
        configurations = true_configurations(graphs, positions)
        for turn, chosen in enumerate(configurations):
            shuffle = mix(job.seed, "rand", turn)
            for name, mechanism in mechanisms.items():
                for gates, wanted in (("gt", None), ("rand", self.num_random)):
                    some = chosen.gates(wanted, shuffle)
                    value = self._distances(job, chosen.batch, some, mechanism)
                    values.setdefault((name, gates), []).append(value)
        home = torch.cat([chosen.home for chosen in configurations])
        yield Block("confidence", confidence, graph=positions, setting="clean")
        for (name, gates), parts in values.items():
            mean = _mean_by(torch.cat(parts, dim=1), home, positions.numel())  # [3, B]
            for metric, row in zip(METRICS, mean, strict=True):
                yield Block(metric, row, graph=positions, setting=f"{name}/{gates}")

    def _distances(
        self, job: Job, batch: Batch, gates: Sequence[Tensor], mechanism: Mechanism
    ) -> Tensor:
        """Returns the mean of each metric over several gates, ``[3, A]``."""
        total = torch.zeros(len(METRICS), int(batch.num_graphs), dtype=torch.double)
        for turn, gate in enumerate(gates):
            found = perturbation_distances(
                job.model,
                batch,
                gate,
                mechanism,
                num_draws=self.num_draws,
                seed=mix(job.seed, "configuration", turn),
            )
            total += torch.stack([found.representation, found.prediction, found.confidence]).cpu()
        return total / len(gates)


def right_positions(job: Job) -> tuple[Tensor, Tensor]:
    """Returns the explained graphs that the target gets right, ``[B]``, and its confidence."""
    graphs = molecules_of(job).part(job.part)
    prob = _probability(job.model, graphs, job.positions)  # [B, C]
    truth = Truth.from_dataset(graphs, job.positions)
    correct = selected_graphs(graphs.y[job.positions], prob.argmax(1), truth, "strict")
    if not bool(correct.any()):
        raise ConfigError(
            f"The target {job.target} must get a graph of {job.task.name} right (it gets none). "
            "Explain more graphs, or train it longer."
        )
    return job.positions[correct], prob[correct].max(1).values


def _probability(model: nn.Module, graphs: MoleculeDataset, positions: Tensor) -> Tensor:
    return predict(model, graphs.index_select(positions)).cpu()


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


def true_configurations(graphs: MoleculeDataset, positions: Tensor) -> list[Configurations]:
    """Returns all true configurations of the graphs at these positions, a batch at a time."""
    truth = Truth.from_dataset(graphs, positions)
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
        batch = graphs.batch(positions[home[rows]])
        found.append(Configurations(batch, home[rows], gate, make_case(batch).bonds))
    return found


def _mean_by(value: Tensor, home: Tensor, num: int) -> Tensor:
    total = value.new_zeros(value.size(0), num).index_add(1, home, value)
    return total / torch.bincount(home, minlength=num)
