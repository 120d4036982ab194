"""Queries: answers of the frozen target while a mechanism changes the messages of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import GraphError, TargetError
from nicegnn.graph.case import OWN_KEYS, Case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.background import own_prototypes, record_batches
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import (
    CleanMessages,
    InterventionReport,
    Mechanism,
    intervene,
    is_anchored,
)
from nicegnn.intervention.mixing import mixes_graphs
from nicegnn.kernels.chain import read_chain
from nicegnn.target.frozen_model import LINKS, Target
from nicegnn.target.message_layers import capture_states

_CPU_NUMBERS = 1_600_000  # messages in one call, of so many numbers together: they fit into a cache
_GPU_SHARE, _GPU_EDGES = 8, 8_000_000  # one of so many parts of free memory; the most edges
_TEMPORARY = 16  # tensors of all messages that a call holds at its peak


@dataclass
class SharedState:
    """What a query shares with its copies, made on first use."""

    report: InterventionReport = field(default_factory=InterventionReport)
    clean: CleanMessages | None = None
    own: Prototypes | None = None  # of the graphs themselves
    stack: GraphStack | None = None
    follower: Any = None  # see `neighbourhoods.Follower`
    fused: Any = None  # see `fused.Fused`
    watch: Callable[[int, int], None] = lambda done, total: None  # told of bonds that are done


class Query:
    """The clean answer of the target on a case, and its answers under gates.

    Args:
        explained: class or output to explain, by default the predicted class.
        chunk_edges: most directed edges times draws in one call of the model, by default chosen
            for the device: what fits into a CPU's cache, or an eighth of a GPU's free memory.
        degradation: kind of loss, see `Target.degradation`.
    """

    def __init__(
        self,
        target: Target,
        case: Case,
        mechanism: Mechanism,
        *,
        explained: int | Tensor | None = None,
        chunk_edges: int | None = None,
        degradation: str = "log-prob",
    ) -> None:
        if (kind := target.edge_kind(case.batch)) is not None:
            case = case.with_kinds(kind, max(int(kind.max()) + 1, target.num_kinds[1]))
        self.target, self.case, self.degradation_kind = target, case, degradation
        self.shared, self.chain = SharedState(), read_chain(target)
        self.is_batched = target.is_batched  # whether one call of the model takes several graphs
        out, states = self._first_call()
        if self.chain is None and mixes_graphs(target, self.stack, out):
            self.is_batched = False
            out, states = self._first_call()
        self._check_shape(out)
        target.settle(out, case.batch, self._parts[0])
        self.clean = target.read(out)[case.rows]  # [B, C]
        self.states = states  # L x [V, F]
        self.explained = target.choose(self.clean, explained)  # [B]
        self.chunk_edges = chunk_edges or _chosen_chunk(self.states)
        self.chunk_draws = max(1, self.chunk_edges // max(1, case.num_edges))
        self._take(mechanism)

    @property
    def stack(self) -> GraphStack:
        """The graphs with all that the model may read, built on first use: kernels need none."""
        if self.shared.stack is None:
            batch, reads = self.case.batch, self.target.may_read
            self.shared.stack = GraphStack(
                batch, batch.ptr.device, wanted=lambda key: key not in OWN_KEYS and reads(key)
            )
        return self.shared.stack

    @torch.no_grad()
    def _first_call(self) -> tuple[Tensor, list[Tensor]]:
        """Returns the clean output, and the states that each layer returns, ``L x [V, F]``."""
        case, outs, collected = self.case, [], []
        self._parts = [case.batch]  # what calls of the model take
        if not self.is_batched and case.num_graphs > 1:
            numbers = torch.split(torch.arange(case.num_graphs), 1)
            self._parts = [self.copies(one) for one in numbers]
        with capture_states(self.target.model) as states:
            for part in self._parts:
                outs.append(self.target.call(part))
                collected.append(list(states))
        if not states:
            why = "No MessagePassing layer ran. `inputs` must call the model that it is given"
            raise TargetError(f"{why}: inputs=lambda model, batch: model(...).")
        return torch.cat(outs), [torch.cat(layer) for layer in zip(*collected, strict=True)]

    @property
    def notes(self) -> list[str]:
        """What a user should know of the model."""
        if self.is_batched or not self.target.is_batched:
            return []
        why = "A graph's output depends on the other graphs of its batch, so the model was run "
        return [f"{why}graph by graph. Give its normalisation `batch`, or running statistics."]

    def losing(self, degradation: str) -> Query:
        """Returns the same query with another kind of loss, see `Target.degradation`."""
        other = copy.copy(self)
        other.degradation_kind = degradation
        return other

    def under(self, mechanism: Mechanism) -> Query:
        """Returns the same query with another mechanism."""
        other = copy.copy(self)
        other._take(mechanism)
        return other

    def _take(self, mechanism: Mechanism) -> None:
        """Sets the mechanism; an exchange without prototypes gets those of the graphs."""
        self.mechanism = mechanism
        if isinstance(mechanism, Exchange) and mechanism.prototypes is None:
            if self.shared.own is None:
                self.shared.own = own_prototypes(self.clean_messages, self.case, mechanism.num)
            self.mechanism = mechanism.having(self.shared.own)

    @property
    def clean_messages(self) -> CleanMessages:
        """Messages of the clean pass, recorded on first use."""
        if self.shared.clean is None:
            self.shared.clean = record_batches(self.target, self._parts)
        return self.shared.clean

    @property
    def is_random(self) -> bool:
        return bool(getattr(self.mechanism, "is_random", True))

    def draws(self, num: int) -> int:
        """Returns `num`, or how many draws a mechanism has that is not random."""
        return num if self.is_random else getattr(self.mechanism, "num_draws", None) or 1

    def degradation(self, bond_gate: Tensor, num_draws: int, stream: int, first: int = 0) -> Tensor:
        """Returns the degradation under `num_draws` draws, ``[N, B]``; differentiable.

        Gates are ``[M]`` or, one row per draw, ``[N, M]``. Equal streams give equal draws.
        """
        gate = self.case.edge_gate(bond_gate).expand(num_draws, self.case.num_edges)  # [N, E]
        out = self.answers(gate, stream, first)
        return self.target.degradation(self.clean, out, self.explained, self.degradation_kind)

    def answers(self, edge_gate: Tensor, stream: int = 0, first: int = 0) -> Tensor:
        """Returns log-probabilities (or values) under gates ``[N, E]``, ``[N, B, C]``."""
        answer = self.target.read(self.outputs(edge_gate, stream, first).flatten(0, 1))
        return answer.view(edge_gate.size(0), self.case.num_graphs, -1)

    def evidence(self, edge_gate: Tensor, stream: int = 0, first: int = 0) -> Tensor:
        """Returns the explained class's logit (or value) under gates ``[N, E]``, ``[N, B]``."""
        return self.target.evidence(self.outputs(edge_gate, stream, first), self.explained)

    def loss_of(self, output: Tensor, graph: Tensor) -> Tensor:
        """Returns the loss of raw output ``[K, C]`` against the clean one of `graph`, ``[K]``."""
        answer = self.target.read(output).unsqueeze(0)
        clean, explained = self.clean[graph], self.explained[graph]
        return self.target.degradation(clean, answer, explained, self.degradation_kind)[0]

    @torch.no_grad()
    def sample(self, bond_gate: Tensor, num_draws: int, stream: int) -> Tensor:
        """Like `degradation`, without gradients and in chunks of draws, ``[N, B]``."""
        parts = [
            self.degradation(bond_gate, min(self.chunk_draws, num_draws - first), stream, first)
            for first in range(0, num_draws, self.chunk_draws)
        ]
        return torch.cat(parts)

    def slopes(self, bond_gate: Tensor, num_draws: int, stream: int) -> tuple[Tensor, Tensor]:
        """Returns each draw's degradation ``[N, B]`` and its slope in the gates ``[N, M]``."""
        values, slopes = list[Tensor](), list[Tensor]()
        for first in range(0, num_draws, self.chunk_draws):
            num = min(self.chunk_draws, num_draws - first)
            gate = bond_gate.detach().expand(num, -1).clone().requires_grad_()
            value = self.degradation(gate, num, stream, first)
            total = value.sum() + 0 * gate.sum()  # has a slope even if no message arrives
            values.append(value.detach())
            slopes.extend(torch.autograd.grad(total, gate))
        return torch.cat(values), torch.cat(slopes)

    def outputs(self, gate: Tensor, stream: int = 0, first: int = 0) -> Tensor:
        """Returns the model's raw output under gates ``[N, E]``, ``[N, B, C]``."""
        num_draws, num_graphs = gate.size(0), self.case.num_graphs
        number = torch.arange(num_draws * num_graphs, device=gate.device)  # of a copy of a graph
        answers = []
        for copy_of in torch.split(number, number.numel() if self.is_batched else 1):
            edges, home = self.stack.edges_of(copy_of % num_graphs)
            row = copy_of[home] // num_graphs
            copies = self.copies(copy_of % num_graphs)
            answers.append(self.damaged(copies, edges, gate[row, edges], first + row, stream))
        out = torch.cat(answers)
        return out.view(num_draws, -1, out.size(1))[:, self.case.rows]

    def damaged(
        self, batch: Batch, edges: Tensor, gate: Tensor, draw: Tensor, stream: int
    ) -> Tensor:
        """Returns the raw output for a batch whose edges are copies of `edges`, ``[K]``."""
        case, model = self.case, self.target.model
        told: dict[str, Any] = {"draw": draw, "origin": edges, "stream": stream}
        told |= {"slot": case.slot[edges], "graph": case.edge_batch[edges]}
        if case.kind is not None:
            told["kind"] = case.kind[edges]
        if is_anchored(self.mechanism):
            told["clean"] = self.clean_messages
        passing = intervene(model, self.mechanism, gate, edge_index=batch.edge_index, **told)
        with passing as self.shared.report:
            return self.target.call(batch)

    def copies(self, graph: Tensor) -> Batch:
        """Returns a batch of copies of graphs, ``[K]``."""
        if not self.stack.is_complete:
            raise GraphError(
                "`graphs` must be a batch that can be taken apart (got attributes that belong to "
                f"no node, edge or graph: {sorted(self.stack.lost)}). Pass a list of graphs."
            )
        return self.stack.take(graph)

    @torch.no_grad()
    def _check_shape(self, out: Tensor) -> None:
        """Refuses output that is not one row per graph or node, and one column per class."""
        batch, level, got = self.case.batch, self.target.level, out.size(0)
        expected = batch.num_nodes if level == "node" else batch.num_graphs
        is_square = got == out.size(1) == batch.num_nodes
        if got != expected:
            why = "). If it takes one graph per call, leave `batch` out of forward(), or `inputs`."
            if level == "graph" and got == batch.num_nodes and not is_square:
                why = ", one per node); pass `index=` to explain nodes."
            elif is_square or got == batch.num_edges:
                counted = "node and as many columns" if is_square else "edge"
                why = f", one for each {counted}). {LINKS}"
            raise TargetError(
                f"The model must return one row per {level}, {expected} (got {got}{why}"
            )
        part, number = self._parts[0], out.size(1)
        pairs = part.get("edge_label_index")
        units = {"node": part.num_nodes, "edge": part.num_edges}
        units |= {"pair": pairs.size(1)} if isinstance(pairs, Tensor) else {}
        unit = next((name for name, size in units.items() if size == number), None)
        if self.target.is_batched or unit is None:
            return
        # one value per node or edge of a single graph looks like its classes
        doubled = self.target.call(self.copies(torch.zeros(2, dtype=torch.long))).size(1)
        if doubled == 2 * number:
            advice = "Pass `index=` to explain nodes." if unit == "node" else LINKS
            raise TargetError(
                f"The model must return one column per class (got {number}, one per {unit} of the "
                f"graph). {advice}"
            )


def _chosen_chunk(states: Sequence[Tensor]) -> int:
    """Returns how many messages one call of the model should have, by its states ``[V, F]``."""
    device, width = states[0].device, max(state.size(1) for state in states)
    if device.type != "cuda":
        return max(1, _CPU_NUMBERS // width)
    free = torch.cuda.mem_get_info(device)[0]
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    size = width * states[0].element_size() * _TEMPORARY
    return max(1, min(_GPU_EDGES, free // _GPU_SHARE // size))
