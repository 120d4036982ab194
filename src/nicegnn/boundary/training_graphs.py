"""Training graphs of a fit: what its steps need again and again is computed once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.boundary.gate_network import (
    GateNetwork,
    bond_homes,
    bond_parts,
    bond_representation,
)
from nicegnn.boundary.objective import corrupted_risk
from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError
from nicegnn.graph.case import Case, CaseStack, make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target

_KEPT_NUMBERS = 2**27  # that are kept for all steps, 512 MiB
_SAMPLED_PARTS = 16  # batches whose bonds fix mean and scale of the gate network's inputs
_EDGE_KEYS = ("edge_index", "root_index", "edge_reached")  # what a case reads


@dataclass(frozen=True)
class Drawn:
    """Some training graphs, sorted by the class that is explained."""

    query: Query
    numbers: Tensor  # of the graphs among the kept ones, on the target's device, [B]
    own: Tensor | None = None  # standardised parts of `bond_parts`, if they are kept
    context: Tensor | None = None
    sizes: Sequence[tuple[int, int]] = ()  # graphs and rows of `own` of each head

    def logits(self, net: GateNetwork, config: NICEConfig) -> Tensor:
        """Returns a network's gate logit of each bond, ``[M]``."""
        if self.own is None:
            return net.bond_logits(bond_representation(self.query, config.boundary), self.query)
        logit = net.sorted_logits(
            self.own, self.context, bond_homes(self.query, config.boundary), self.sizes
        )
        is_ordered = config.boundary.bond_ends == "ordered"
        return self.query.case.bonds.mean(logit) if is_ordered else logit


class TrainingGraphs:
    """Graphs that gates are fitted on, their explained classes and their risks at full corruption.

    Graphs without edges, or explained for a class that is not wanted, are left out. Bond
    representations, clean answers and bonds are kept while there is room for them.
    """

    def __init__(
        self,
        target: Target,
        graphs: Sequence[Data],
        mechanism: Mechanism,
        config: NICEConfig,
        seed: int,
        progress: bool,
    ) -> None:
        self.target, self.config = target, config
        self.stack = stack = GraphStack(graphs, target.device)
        settings = config.boundary
        read = batch_of_step(len(stack), settings.max_graphs, mix(seed, "graphs"), 0).sort().values
        kept, explained, clean = list[Tensor](), list[Tensor](), list[Tensor]()
        reference, sample = list[Tensor](), list[Tensor]()
        own, context = list[Tensor](), list[Tensor]()
        room = 0 if stack.lost else _KEPT_NUMBERS  # for numbers that all steps need
        with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
            parts = torch.split(read.to(target.device), settings.batch_size)
            for number, part in enumerate(parts):
                query = self.query(part, mechanism)
                wanted = stack.num_edges[part] > 0
                if settings.classes:
                    allowed = torch.tensor(settings.classes, device=target.device)
                    wanted &= torch.isin(query.explained, allowed)
                chosen = wanted.nonzero().view(-1)
                kept.append(part[chosen])
                explained.append(query.explained[chosen])
                reference.append(corrupted_risk(query, settings, seed)[chosen])
                clean.append(query.clean[chosen])
                if number < _SAMPLED_PARTS:
                    sample.append(bond_representation(query, settings))
                if room > 0:
                    some, whole = bond_parts(query, settings)
                    own.append(some[wanted[bond_homes(query, settings)]])
                    context += [] if whole is None else [whole[chosen]]
                    room -= own[-1].numel()
                advance(number * settings.batch_size + part.numel(), "")
        self.kept = torch.cat(kept)  # numbers in the stack, [G]
        if self.kept.numel() == 0:
            raise GraphError(
                f"At least one of the {read.numel()} training graphs must have edges and a "
                f"predicted class among {settings.classes or 'all classes'} (got none)."
            )
        self.explained = torch.cat(explained)  # [G]
        self.reference = torch.cat(reference)  # risk at full corruption, [G]
        self.clean = torch.cat(clean)  # clean answers, [G, C]
        self.num_left_out = read.numel() - self.kept.numel()
        self.table_width = -(-int(stack.num_edges[self.kept].max()) // 64) * 64
        is_single = target.mode == "regression" or not settings.class_gates
        self.num_heads = 1 if is_single else query.clean.size(1)
        self._label = torch.zeros_like(self.explained) if is_single else self.explained
        self._label = self._label.cpu()  # head of each graph, [G]
        self._network = self._make_network(torch.cat(sample), seed)
        self._template = query
        self._cases: CaseStack | None = None
        if room > 0:
            net, width = self._network, own[0].size(1)
            self._own = torch.cat([net.scaled(own.pop(0)) for _ in range(len(own))])
            self._context = net.scaled(torch.cat(context), width) if context else None
            every = stack.only(*_EDGE_KEYS).take(self.kept)
            self._cases = CaseStack(make_case(every, undirected=config.undirected))

    def _make_network(self, sample: Tensor, seed: int) -> GateNetwork:
        """Returns an untrained network; bond representations ``[M, D]`` fix how it standardises."""
        settings = self.config.boundary
        start = settings.start if settings.objective == "penalty" else 0.5
        sizes = sample.size(1), settings.hidden_size, self.num_heads
        with SeededWeights(mix(seed, "weights")):
            net = GateNetwork(*sizes, start, is_standardised=settings.standardise)
        net.to(sample)
        net.standardise(sample)
        net.trained[torch.unique(self._label).to(net.trained.device)] = True
        return net

    def new_network(self) -> GateNetwork:
        """Returns an untrained network on the target's device."""
        return copy.deepcopy(self._network)

    def sorted_by_class(self, chosen: Tensor) -> Tensor:
        """Returns an order of some graphs, numbers among the kept ones, ``[B]``."""
        return self._label[chosen].argsort(stable=True)

    def draw(self, chosen: Tensor, offset: Tensor, mechanism: Mechanism) -> Drawn:
        """Returns some graphs, numbers among the kept ones on the CPU, sorted by class, ``[B]``.

        Their noise slots are shifted by ``offset``, ``[B]``.
        """
        here = chosen.to(self.kept.device)
        graphs, explained = self.kept[here], self.explained[here]
        if self._cases is None:
            return Drawn(self.query(graphs, mechanism, explained, offset), here)
        taken = self._cases.take(chosen, self.stack.take(graphs))
        case = replace(taken.case, slot=taken.case.slot + offset[taken.case.edge_batch])
        query = self._template.about(case, self.clean[here], explained).under(mechanism)
        is_ordered, label = self.config.boundary.bond_ends == "ordered", self._label[chosen]
        rows = self._cases.sizes[1 if is_ordered else 2, chosen]
        num_graphs = torch.bincount(label, minlength=self.num_heads).tolist()
        num_rows = rows.new_zeros(self.num_heads).index_add(0, label, rows).tolist()
        return Drawn(
            query,
            here,
            own=self._own[taken.edges if is_ordered else taken.bonds],
            context=None if self._context is None else self._context[here],
            sizes=list(zip(num_graphs, num_rows, strict=True)),
        )

    def query(
        self,
        graphs: Tensor,
        mechanism: Mechanism,
        explained: Tensor | None = None,
        offset: Tensor | None = None,
    ) -> Query:
        """Returns a query of some graphs of the stack, ``[B]``, with a clean pass of its own."""
        config = self.config
        case: Case = make_case(self.stack.take(graphs), undirected=config.undirected)
        if offset is not None:
            case = replace(case, slot=case.slot + offset[case.edge_batch])
        if explained is not None and bool((explained < 0).any()):
            explained = None  # a regression model, all outputs of it
        return Query(
            self.target,
            case,
            mechanism,
            explained=explained,
            chunk_edges=config.chunk_edges,
            degradation=config.boundary.degradation,
        )
