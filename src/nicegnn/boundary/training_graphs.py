"""Training graphs of a fit: what its steps need again and again is computed once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from nicegnn.kernels.chain import CannotFuse, Chain, read_chain
from nicegnn.kernels.clean_pass import CleanPass, clean_pass
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
    representations, clean answers and bonds are kept. If the model is a chain (see
    `kernels.chain`) and masks are learned, its inputs are kept too, and steps run it without PyG.
    """

    def __init__(
        self,
        target: Target,
        graphs: Sequence[Data],
        mechanisms: Sequence[Mechanism],
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
        reused = _Reused(config, mechanisms, 0 if stack.lost else _KEPT_NUMBERS)
        with progress_bar("Reading graphs", read.numel(), shown=progress) as advance:
            parts = torch.split(read.to(target.device), settings.batch_size)
            for number, part in enumerate(parts):
                query = self.query(part, mechanisms[0])
                wanted = stack.num_edges[part] > 0
                if settings.classes:
                    allowed = torch.tensor(settings.classes, device=target.device)
                    wanted &= torch.isin(query.explained, allowed)
                chosen = wanted.nonzero().view(-1)
                kept.append(part[chosen])
                explained.append(query.explained[chosen])
                risks = [corrupted_risk(query.under(m), settings, seed) for m in mechanisms]
                reference.append(torch.stack(risks)[:, chosen])
                clean.append(query.clean[chosen])
                if number < _SAMPLED_PARTS:
                    sample.append(bond_representation(query, settings))
                reused.add(query, wanted)
                advance(number * settings.batch_size + part.numel(), "")
        self.kept = torch.cat(kept)  # numbers in the stack, [G]
        if self.kept.numel() == 0:
            raise GraphError(
                f"At least one of the {read.numel()} training graphs must have edges and a "
                f"predicted class among {settings.classes or 'all classes'} (got none)."
            )
        self.explained = torch.cat(explained)  # [G]
        self.reference = torch.cat(reference, dim=1)  # risk at full corruption, [K, G]
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
        self._inputs: CleanPass | None = None
        if reused.room > 0:
            self._own, self._context, self._inputs = reused.joined(self._network)
            whole = stack.only(*_EDGE_KEYS).take(self.kept)
            self._cases = CaseStack(make_case(whole, undirected=config.undirected))
        all_mask = all(query.under(mechanism).is_masking for mechanism in mechanisms)
        self._needs_only_chain = self._inputs is not None and all_mask

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
        batch = None if self._needs_only_chain else self.stack.take(graphs)
        taken = self._cases.take(chosen, batch)
        case = replace(taken.case, slot=taken.case.slot + offset[taken.case.edge_batch])
        query = self._template.about(case, self.clean[here], explained).under(mechanism)
        if self._inputs is not None:
            query.shared.masked = self._inputs.take(taken).masked
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


class _Reused:
    """Collects what steps need again, batch by batch, while there is room for its numbers."""

    def __init__(self, config: NICEConfig, mechanisms: Sequence[Mechanism], room: int) -> None:
        self.config, self.mechanisms, self.room = config, mechanisms, room
        self.own, self.context = list[Tensor](), list[Tensor]()
        self.inputs = list[CleanPass]()
        self.chain: Chain | None = None

    def add(self, query: Query, wanted: Tensor) -> None:
        """Takes the wanted graphs of a query, bool ``[B]``."""
        if self.room <= 0:
            return
        if not self.own:
            self.chain = _read_chain(query, self.mechanisms)
        chosen, settings = wanted.nonzero().view(-1), self.config.boundary
        own, context = bond_parts(query, settings)
        self.own.append(own[wanted[bond_homes(query, settings)]])
        self.room -= self.own[-1].numel()
        if context is not None:
            self.context.append(context[chosen])
        some = None if self.chain is None else _inputs(self.chain, query, chosen)
        if some is None:  # all graphs must be ones that a chain can run
            self.chain, self.inputs = None, []
            return
        self.inputs.append(some)
        self.room -= some.x.numel()
        self.room -= sum(term.numel() for term in some.edge_terms if term is not None)

    def joined(self, net: GateNetwork) -> tuple[Tensor, Tensor | None, CleanPass | None]:
        """Returns parts of `bond_parts`, as a network standardises them, and inputs of a chain."""
        width = self.own[0].size(1)
        own = torch.cat([net.scaled(self.own.pop(0)) for _ in range(len(self.own))])
        context = net.scaled(torch.cat(self.context), width) if self.context else None
        return own, context, CleanPass.join(self.inputs) if self.inputs else None


def _read_chain(query: Query, mechanisms: Sequence[Mechanism]) -> Chain | None:
    """Returns the model as a chain if masking is learned and it answers as the model does."""
    target, case = query.target, query.case
    if not (target.level == "graph" and target.is_batched and case.num_edges):
        return None
    masking = [m for m in mechanisms if query.under(m).is_masking]
    if not masking:
        return None
    try:
        chain = read_chain(target.model, partial(target.call, case.batch), case.batch.batch)
        inputs = clean_pass(chain, partial(target.call, case.batch), case.batch)
    except CannotFuse:
        return None
    generator = torch.Generator().manual_seed(0)
    gate = torch.rand(case.num_edges, generator=generator).to(query.clean)
    with torch.no_grad():
        found = inputs.masked(gate)
        expected = query.under(masking[0]).outputs(gate.unsqueeze(0))[0]
    return chain if torch.allclose(found, expected, rtol=1e-3, atol=1e-3) else None


def _inputs(chain: Chain, query: Query, chosen: Tensor) -> CleanPass | None:
    """Returns what the layers of a chain see of some graphs of a query, ``[B]``, if it can run."""
    batch = query.case.batch
    try:
        whole = clean_pass(chain, partial(query.target.call, batch), batch)
    except CannotFuse:
        return None
    if chosen.numel() == query.case.num_graphs:
        return whole
    return whole.take(CaseStack(query.case).take(chosen.cpu()))
