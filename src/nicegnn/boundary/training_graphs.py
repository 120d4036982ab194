"""Training graphs of a fit: what its steps need again and again is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.boundary.gate_network import GateNetwork, bond_parts, bond_representation
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
    own: Tensor | None  # standardised parts of `bond_parts`, if they are kept
    context: Tensor | None
    sizes: list[tuple[int, int]]  # graphs and rows of `own` of each head

    def logits(self, net: GateNetwork, config: NICEConfig) -> Tensor:
        """Returns a network's gate logit of each bond, ``[M]``."""
        if self.own is None:
            return net.bond_logits(bond_representation(self.query, config.boundary), self.query)
        bonds, is_ordered = self.query.case.bonds, config.boundary.bond_ends == "ordered"
        home = self.query.case.edge_batch if is_ordered else bonds.batch
        logit = net.sorted_logits(self.own, self.context, home, self.sizes)
        return bonds.mean(logit) if is_ordered else logit


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
        self.target, self.config, self.seed = target, config, seed
        self.stack = stack = GraphStack(graphs, target.device)
        settings = config.boundary
        read = batch_of_step(len(stack), settings.max_graphs, mix(seed, "graphs"), 0).sort().values
        kept, explained, clean = list[Tensor](), list[Tensor](), list[Tensor]()
        reference, sample = list[Tensor](), list[Tensor]()
        own, context, inputs = list[Tensor](), list[Tensor](), list[CleanPass]()
        room = 0 if stack.lost else _KEPT_NUMBERS
        chain: Chain | None = None
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
                if number == 0:
                    chain = _read_chain(query, mechanisms)
                if room > 0:
                    case = query.case
                    is_ordered = settings.bond_ends == "ordered"
                    home = case.edge_batch if is_ordered else case.bonds.batch
                    found = bond_parts(query, settings)
                    own.append(found[0][wanted[home]])
                    room -= own[-1].numel()
                    if found[1] is not None:
                        context.append(found[1][chosen])
                    some = None if chain is None else _inputs(chain, query, chosen)
                    if some is None:  # all graphs must be ones that a chain can run
                        chain, inputs = None, []
                    else:
                        inputs.append(some)
                        room -= some.x.numel()
                        room -= sum(t.numel() for t in some.edge_terms if t is not None)
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
        self.num_classes = query.clean.size(1) if target.mode != "regression" else 1
        self.table_width = -(-int(stack.num_edges[self.kept].max()) // 64) * 64
        bonds = torch.cat(sample)
        self._mean, self._scale = bonds.mean(0), bonds.std(0, unbiased=False).clamp(min=1e-6)
        self._label = self.explained.clamp(min=0).cpu()
        if not settings.class_gates:
            self._label = torch.zeros_like(self._label)
        self._cases: CaseStack | None = None
        self._inputs: CleanPass | None = None
        if room > 0:
            net, width = self.new_network(), own[0].size(1)  # all networks standardise alike
            self._template = query
            self._own = torch.cat([net.scaled(own.pop(0)) for _ in range(len(own))])
            self._context = net.scaled(torch.cat(context), width) if context else None
            whole = stack.only(*_EDGE_KEYS).take(self.kept)
            self._cases = CaseStack(make_case(whole, undirected=config.undirected))
            self._inputs = CleanPass.join(inputs) if inputs else None
        all_mask = all(query.under(mechanism).is_masking for mechanism in mechanisms)
        self._needs_only_chain = self._inputs is not None and all_mask

    def new_network(self) -> GateNetwork:
        """Returns an untrained network on the target's device."""
        settings = self.config.boundary
        heads = self.num_classes if settings.class_gates else 1
        start = settings.start if settings.objective == "penalty" else 0.5
        sizes = self._mean.numel(), settings.hidden_size, heads
        with SeededWeights(mix(self.seed, "weights")):
            net = GateNetwork(*sizes, start, is_standardised=settings.standardise)
        net.to(self._mean)
        net.mean.copy_(self._mean)
        net.scale.copy_(self._scale)
        if settings.class_gates:
            net.trained[torch.unique(self.explained.clamp(min=0))] = True
        else:
            net.trained.fill_(True)
        return net

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
            return Drawn(self.query(graphs, mechanism, explained, offset), None, None, [])
        batch = None if self._needs_only_chain else self.stack.take(graphs)
        taken = self._cases.take(chosen, batch)
        case = replace(taken.case, slot=taken.case.slot + offset[taken.case.edge_batch])
        query = self._template.about(case, self.clean[here], explained).under(mechanism)
        if self._inputs is not None:
            query.shared.masked = self._inputs.take(taken).masked
        is_ordered = self.config.boundary.bond_ends == "ordered"
        label, heads = self._label[chosen], self.num_classes
        rows = self._cases.sizes[1 if is_ordered else 2, chosen]
        if not self.config.boundary.class_gates:
            heads = 1
        num_graphs = torch.bincount(label, minlength=heads).tolist()
        num_rows = rows.new_zeros(heads).index_add(0, label, rows).tolist()
        own = self._own[taken.edges if is_ordered else taken.bonds]
        context = None if self._context is None else self._context[here]
        return Drawn(query, own, context, list(zip(num_graphs, num_rows, strict=True)))

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
