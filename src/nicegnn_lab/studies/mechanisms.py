"""EM, NC and exchange with the same gates: distances (Table 2, Appendix G), scale."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.config import Anchor
from nicegnn.errors import ConfigError
from nicegnn.graph.case import Bonds, make_case, rank_within
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.seeding import mix
from nicegnn.target.training import predict
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant
from nicegnn_lab.bench.targets import TARGETS
from nicegnn_lab.bench.task import Task
from nicegnn_lab.datasets.dataset import MoleculeDataset
from nicegnn_lab.metrics.agreement import Truth, selected_graphs
from nicegnn_lab.metrics.scale import perturbation_distances, scale_profile

METRICS = ("D_repr", "D_pred", "confidence")
DAMAGES = ("em", "nc", "exchange")
_EDGES_AT_ONCE = 200_000


@dataclass(frozen=True)
class MechanismStudy(Study):
    """Distances from the clean computation under EM, NC and exchange.

    Rows of each graph: ``setting`` is ``em/gt``, ``nc/gt``, ``exchange/gt``, the same with
    ``rand``, or ``clean`` (confidence only); metrics are `METRICS`. A second variant damages clean
    messages instead of propagated ones; its settings are ``em-clean/gt`` and so on.
    """

    name = "mechanisms"
    title = "EM, NC and exchange under true and random gates"
    version = 2  # version 1 had no exchange

    num_draws: int = 50  # draws of NC and of exchange for each configuration
    num_random: int = 20  # random configurations for each true one

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        about = {"num_draws": self.num_draws, "num_random": self.num_random}
        yield Variant(extra=about)
        yield Variant("clean messages", extra={**about, "anchor": "clean"})

    def measure(self, job: Job) -> Iterator[Block]:
        """Yields rows of each correctly classified graph of label 1 with a truth (Appendix G).

        Gates are 1 on the bonds of one true alternative (GT), or on as many random ones (Rand).
        Values are means over draws and random configurations, then over a graph's alternatives.
        """
        positions, confidence = right_positions(job)
        anchor: Anchor = job.cell.variant.extra.get("anchor", "propagated")
        added = "-clean" if anchor == "clean" else ""
        seed = mix(job.seed, "mechanism_comparison")
        sample = job.molecules.background(job.model).sample
        mechanisms: dict[str, Mechanism] = {
            "em": ElementMask(anchor=anchor),
            "nc": NoiseCorruption(seed, anchor=anchor),
            "exchange": Exchange(sample, each="edge", seed=seed, anchor=anchor),
        }
        values: dict[str, list[Tensor]] = {}
        configurations = true_configurations(job.graphs, positions)
        for turn, chosen in enumerate(configurations):
            for name, mechanism in mechanisms.items():
                for kind, wanted in (("gt", None), ("rand", self.num_random)):
                    gates = chosen.gates(wanted, mix(job.seed, "rand", turn))
                    distances = self._distances(job, chosen.batch, gates, mechanism)
                    values.setdefault(f"{name}{added}/{kind}", []).append(distances)
        home = torch.cat([chosen.home for chosen in configurations])
        if not added:
            yield Block("confidence", confidence, graph=positions, setting="clean")
        for setting, parts in values.items():
            value = torch.cat(parts, dim=1)  # [3, A]
            total = value.new_zeros(len(METRICS), positions.numel()).index_add(1, home, value)
            mean = total / torch.bincount(home, minlength=positions.numel())  # [3, B]
            for metric, row in zip(METRICS, mean, strict=True):
                yield Block(metric, row, graph=positions, setting=setting)

    def _distances(
        self, job: Job, batch: Batch, gates: Sequence[Tensor], mechanism: Mechanism
    ) -> Tensor:
        """Returns the mean of each metric over several gates, ``[3, A]``."""
        total = torch.zeros(len(METRICS), int(batch.num_graphs), dtype=torch.double)
        for turn, gate in enumerate(gates):
            seed = mix(job.seed, "configuration", turn)
            far = perturbation_distances(
                job.model, batch, gate, mechanism, num_draws=self.num_draws, seed=seed
            )
            total += torch.stack([far.representation, far.prediction, far.confidence]).cpu()
        return total / len(gates)


def right_positions(job: Job) -> tuple[Tensor, Tensor]:
    """Returns positions of graphs that the target gets right and its confidence, ``[B]`` each."""
    graphs = job.graphs
    prob = predict(job.model, graphs.index_select(job.positions)).cpu()  # [B, C]
    truth = Truth.from_graphs(graphs.batch(job.positions))
    correct = selected_graphs(graphs.y[job.positions], prob.argmax(1), truth, "strict")
    if not bool(correct.any()):
        raise ConfigError(
            f"The target {job.cell.target} predicts no explained graph of {job.task.name} right. "
            "Explain more graphs, or train it longer."
        )
    return job.positions[correct], prob[correct].max(1).values


@dataclass(frozen=True)
class Configurations:
    """True configurations of some graphs, one for each alternative of a graph."""

    batch: Batch  # one graph per configuration, A of them
    home: Tensor  # number of its graph, [A]
    edge_gate: Tensor  # 1 on the directed edges of the alternative, [E]
    bonds: Bonds

    def gates(self, num_random: int | None, seed: int) -> list[Tensor]:
        """Returns the true gates, or random ones with as many open bonds, ``[E]`` each."""
        if num_random is None:
            return [self.edge_gate]
        num = self.home.numel()
        is_open = self.bonds.sum(self.edge_gate) > 0  # [M]
        size = torch.zeros(num, dtype=torch.long).index_add(0, self.bonds.batch, is_open.long())
        generator = torch.Generator().manual_seed(seed)
        gates = []
        for _ in range(num_random):
            key = torch.rand(is_open.numel(), generator=generator)
            chosen = rank_within(key, self.bonds.batch, num) < size[self.bonds.batch]
            gates.append(chosen.float()[self.bonds.edge_bond])
        return gates


def true_configurations(graphs: MoleculeDataset, positions: Tensor) -> list[Configurations]:
    """Returns all true configurations of the graphs at these positions, in batches."""
    truth = Truth.from_graphs(graphs.batch(positions))
    home = truth.alternative_batch  # [A]
    begin = truth.num_edges.cumsum(0) - truth.num_edges
    local = truth.entry_edge - begin[home[truth.entry_alternative]]  # edge within its graph, [P]
    length = truth.num_edges[home]
    start = length.cumsum(0) - length
    gate = torch.zeros(int(length.sum()))
    gate[start[truth.entry_alternative] + local] = 1.0
    part, configurations = start // _EDGES_AT_ONCE, []
    for value in torch.unique(part).tolist():
        is_in = part == value  # [A]
        batch = graphs.batch(positions[home[is_in]])
        for key, held in batch.to_dict().items():
            if isinstance(held, list):  # PyG walks through its words whenever a batch is moved
                del batch[key]
        own, bonds = gate[is_in.repeat_interleave(length)], make_case(batch).bonds
        configurations.append(Configurations(batch, home[is_in], own, bonds))
    return configurations


@dataclass(frozen=True)
class ScaleStudy(Study):
    """Message scale of every layer, with gates open on the true bonds of all alternatives.

    Rows of each graph that the target gets right: ``setting`` is ``clean`` or one of `DAMAGES`,
    ``level`` the layer from 1, ``metric`` is ``scale``, ``ratio`` (to clean) or ``ratio_fixed``
    (with clean inputs of the layer).
    """

    name = "scale"
    title = "Message scale under EM, NC and exchange"
    version = 2  # version 1 had no exchange
    max_graphs = 200
    targets = tuple(TARGETS)

    num_draws: int = 16  # draws over which the scale under NC and exchange is averaged

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(extra={"num_draws": self.num_draws})

    def measure(self, job: Job) -> Iterator[Block]:
        positions, _ = right_positions(job)
        batch = job.batch(positions)
        gate = batch.edge_truth.float()  # [E]
        sample = job.molecules.background(job.model).sample
        given: dict[str, Any] = {"num_draws": self.num_draws, "seed": job.seed}
        profile = scale_profile(job.model, batch, gate, exchange=sample, **given)
        values = {("clean", "scale"): profile.clean}
        for name in DAMAGES:
            value = profile.ratio[f"{name}_propagated"]
            values[name, "scale"] = torch.where(value.isnan(), 0.0, value) * profile.clean
            values[name, "ratio"] = value
            values[name, "ratio_fixed"] = profile.ratio[f"{name}_fixed"]
        for (setting, metric), value in values.items():
            for layer, row in enumerate(value, start=1):  # [B] each
                yield Block(metric, row, graph=positions, setting=setting, level=float(layer))
