"""Queries: what the frozen target answers when the messages of a batch pass a mechanism."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import TargetError
from nicegnn.graph.batch import replicate
from nicegnn.graph.case import Case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.clean_messages import CleanMessages, join_graphs
from nicegnn.intervention.intervene import (
    InterventionReport,
    Mechanism,
    intervene,
    record_messages,
)
from nicegnn.target.frozen_model import Target
from nicegnn.target.inner_states import capture_states

_CPU_EDGES = 50_000  # more in one call of the model only leaves the cache


@dataclass
class SharedState:
    """What all queries share that are made from one another."""

    report: InterventionReport = field(default_factory=InterventionReport)
    clean: CleanMessages | None = None
    stack: GraphStack | None = None


class Query:
    """The clean answer of the target on a case, and its answers under gates.

    Args:
        target: the frozen model.
        case: the graphs.
        mechanism: what happens to messages.
        explained: class or output to explain, by default the predicted class.
        chunk_edges: most directed edges (times draws) in one call of the model without gradients;
            on a CPU never more than 50,000.
        degradation: what counts as a loss, see `Target.degradation`.
    """

    def __init__(
        self,
        target: Target,
        case: Case,
        mechanism: Mechanism,
        *,
        explained: int | Tensor | None = None,
        chunk_edges: int = 400_000,
        degradation: str = "log-prob",
    ) -> None:
        self.degradation_kind = degradation
        self.target = target
        self.case = case
        self.mechanism = mechanism
        if case.batch.edge_index.device.type == "cpu":
            chunk_edges = min(chunk_edges, _CPU_EDGES)
        self.chunk_edges = chunk_edges
        self.chunk_draws = max(1, chunk_edges // max(1, case.num_edges))
        with torch.no_grad(), capture_states(target.model) as states:
            outs, collected = [], []
            for part in self._parts(case.batch):
                outs.append(target.call(part))
                collected.append(list(states))
        out = torch.cat(outs)
        self._check_rows(out)
        target.settle(out)
        self.clean = target.read(out)[case.rows]  # [B, C]
        self.states = [torch.cat(layer) for layer in zip(*collected, strict=True)]  # L x [V, F]
        self.explained = target.choose(self.clean, explained)  # [B]
        self.shared = SharedState()

    @property
    def report(self) -> InterventionReport:
        """What the last intervention saw."""
        return self.shared.report

    def losing(self, degradation: str) -> Query:
        """Returns the same query with another notion of loss, see `Target.degradation`."""
        other = copy.copy(self)
        other.degradation_kind = degradation
        return other

    def under(self, mechanism: Mechanism) -> Query:
        """Returns the same query with another mechanism."""
        other = copy.copy(self)
        other.mechanism = mechanism
        return other

    @property
    def stack(self) -> GraphStack:
        """The graphs with all that the model may read, to cut copies from; built when needed."""
        if self.shared.stack is None:
            wanted = self.target.may_read
            self.shared.stack = GraphStack(self.case.batch, self.clean.device, wanted=wanted)
        return self.shared.stack

    @property
    def clean_messages(self) -> CleanMessages:
        """Messages of the clean pass, recorded when they are first asked for."""
        if self.shared.clean is None:
            case = self.case
            parts = self._parts(case.batch)
            found = [
                record_messages(
                    self.target.model,
                    partial(self.target.call, part),
                    self.clean.new_ones(part.edge_index.size(1)),
                    part.edge_index,
                )
                for part in parts
            ]
            edges = [(case.edge_batch == g).nonzero().view(-1) for g in range(len(parts))]
            self.shared.clean = found[0] if len(found) == 1 else join_graphs(found, edges)
        return self.shared.clean

    def anchored(self, origin: Tensor) -> dict[str, Any]:
        """Returns what `intervene` needs for a mechanism anchored to clean messages, else nothing.

        Args:
            origin: edge of the batch behind each edge of the call.
        """
        if getattr(self.mechanism, "anchor", "propagated") != "clean":
            return {}
        return {"clean": self.clean_messages, "origin": origin}

    @property
    def is_random(self) -> bool:
        """Whether two draws can differ."""
        return bool(getattr(self.mechanism, "is_random", True))

    def draws(self, num: int) -> int:
        """Returns how many draws are worth taking: one where nothing is random."""
        return num if self.is_random else 1

    def degradation(
        self,
        bond_gate: Tensor,
        num_draws: int,
        stream: int,
        first: int = 0,
        *,
        draw: Tensor | None = None,
    ) -> Tensor:
        """Returns the degradation under `num_draws` noise draws, ``[N, B]``; differentiable.

        Args:
            bond_gate: gates ``[M]``, the same in all draws, or ``[N, M]``, one row per draw.
            stream: noise stream; equal streams give equal draws.
            first: number of the first draw.
            draw: number of each row's draw, ``[N]``, where they do not simply count up.
        """
        gate = self.case.edge_gate(bond_gate)
        gate = gate.expand(num_draws, self.case.num_edges)  # [N, E]
        out = self.answers(gate, stream, first, draw=draw)
        return self.target.degradation(self.clean, out, self.explained, self.degradation_kind)

    def answers(
        self, edge_gate: Tensor, stream: int = 0, first: int = 0, *, draw: Tensor | None = None
    ) -> Tensor:
        """Returns log-probabilities (or values) under gates ``[N, E]``, ``[N, B, C]``."""
        return self.target.read(
            self.outputs(edge_gate, stream, first, draw=draw).flatten(0, 1)
        ).view(edge_gate.size(0), self.case.num_graphs, -1)

    def evidence(self, edge_gate: Tensor, stream: int = 0, first: int = 0) -> Tensor:
        """Returns the explained class's logit (or value) under gates ``[N, E]``, ``[N, B]``."""
        return self.target.evidence(self.outputs(edge_gate, stream, first), self.explained)

    def loss_of(self, output: Tensor, graph: Tensor) -> Tensor:
        """Returns how much worse raw output ``[K, C]`` is than clean, a graph each, ``[K]``."""
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
        values, slopes = [], []
        for first in range(0, num_draws, self.chunk_draws):
            num = min(self.chunk_draws, num_draws - first)
            gate = bond_gate.detach().expand(num, -1).clone().requires_grad_()
            value = self.degradation(gate, num, stream, first)
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value.sum(), gate, allow_unused=True)
            else:
                slope = None
            if slope is None:  # no message reached the output
                slope = torch.zeros_like(gate)
            values.append(value.detach())
            slopes.append(slope)
        return torch.cat(values), torch.cat(slopes)

    def outputs(
        self, gate: Tensor, stream: int = 0, first: int = 0, *, draw: Tensor | None = None
    ) -> Tensor:
        """Returns the model's raw output under gates ``[N, E]``, ``[N, B, C]``."""
        num_draws, case = gate.size(0), self.case
        if draw is None:
            draw = torch.arange(first, first + num_draws, device=gate.device)
        if self.target.is_batched:
            copies = replicate(case.batch, num_draws)
            edges = torch.arange(case.num_edges, device=gate.device)
            with intervene(
                self.target.model,
                self.mechanism,
                gate.reshape(-1),
                edge_index=copies.edge_index,
                slot=case.slot.repeat(num_draws),
                draw=draw.repeat_interleave(case.num_edges),
                stream=stream,
                **self.anchored(edges.repeat(num_draws)),
            ) as self.shared.report:
                out = self.target.call(copies)
            return out.view(num_draws, -1, out.size(1))[:, case.rows]
        return self._run_one_by_one(gate, stream, draw)

    def _run_one_by_one(self, gate: Tensor, stream: int, draw: Tensor) -> Tensor:
        """The same for models that take a single graph per call."""
        answers = []
        for n in range(gate.size(0)):
            row = []
            for g, part in enumerate(self._parts(self.case.batch)):
                edges = (self.case.edge_batch == g).nonzero().view(-1)
                with intervene(
                    self.target.model,
                    self.mechanism,
                    gate[n, edges],
                    edge_index=part.edge_index,
                    slot=self.case.slot[edges],
                    draw=draw[n].expand_as(edges),
                    stream=stream,
                    **self.anchored(edges),
                ) as self.shared.report:
                    row.append(self.target.call(part))
            answers.append(torch.cat(row))
        return torch.stack(answers)

    def _parts(self, batch: Batch) -> list[Batch]:
        if self.target.is_batched or batch.num_graphs == 1:
            return [batch]
        if not hasattr(self, "_singles"):
            if hasattr(batch, "_slice_dict"):
                self._singles = [Batch.from_data_list([d]) for d in batch.to_data_list()]
            else:  # cut out of a stack, which PyG cannot take apart
                stack = GraphStack(batch, batch.edge_index.device)
                self._singles = [stack.take(torch.tensor([g])) for g in range(batch.num_graphs)]
        return self._singles

    def _check_rows(self, out: Tensor) -> None:
        batch = self.case.batch
        expected = batch.num_nodes if self.target.level == "node" else batch.num_graphs
        if out.size(0) == expected:
            return
        if self.target.level == "graph" and out.size(0) == batch.num_nodes:
            raise TargetError(
                f"The model returns one row per node ({out.size(0)}) for {batch.num_graphs} "
                "graph(s); pass `index=` to explain a node's prediction."
            )
        raise TargetError(
            f"The model must return one row per {self.target.level}, {expected} "
            f"(got {out.size(0)}). If it takes only one graph per call, leave `batch` out of its "
            "forward() or name its inputs=[...]."
        )
