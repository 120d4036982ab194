"""Finds out whether a model mixes the graphs of a batch, or gives random answers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.errors import TargetError
from nicegnn.graph.batch import replicate
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.target.frozen_model import Target
from nicegnn.target.message_layers import capture_states

_COMPARED = 3  # graphs of a batch


@torch.no_grad()
def find_mixing(target: Target, batch: Batch) -> None:
    """Notes on the target whether a graph's answer depends on the other graphs of its batch.

    The clean answers of up to three graphs alone are compared with those in one batch, beside
    copies of them with masked messages. They differ if a normalisation has no ``batch`` or no
    running statistics. Such a model must be run graph by graph, because all noise draws of a
    graph go into one batch. The target remembers the result until the model's weights change.

    Raises:
        TargetError: if two clean answers of the same graph differ, or another model answers.
    """
    facts = target.facts
    sizes = torch.bincount(batch.batch[batch.edge_index[0]], minlength=batch.num_graphs)
    if facts.mixes_is_known or int(sizes.max()) == 0:
        return
    facts.mixes, parts, together = False, [batch], batch
    if batch.num_graphs > 1:
        order = torch.where(sizes > 0, sizes, sizes.max() + 1).argsort(stable=True)  # small first
        order = order[: min(_COMPARED, int((sizes > 0).sum()))]
        stack = GraphStack(batch, batch.edge_index.device, wanted=target.may_read)
        if not stack.is_complete:
            return  # nobody can tell which part belongs to which graph
        parts, together = [stack.take(graph) for graph in torch.split(order, 1)], stack.take(order)
    with capture_states(target.model) as states:
        answers = [target.call(part) for part in parts]
    if not states:
        raise TargetError(
            "No MessagePassing layer of the model ran. `inputs` must call the model that it is "
            "given: inputs=lambda model, batch: model(...)."
        )
    alone, rows = torch.cat(answers), together.num_graphs
    rows = together.num_nodes if target.level == "node" else rows
    if alone.size(0) != rows or not bool(torch.isfinite(alone).all()):
        return  # another check names the reason
    again = target.call(parts[0])
    if not _is_close(again, answers[0]):
        raise TargetError(
            "Two calls of the model on the same graph must give the same output (they differ by "
            f"{float((answers[0] - again).abs().max()):.2g}). It draws random numbers in "
            "evaluation mode too: use nn.Dropout, or F.dropout(..., training=self.training)."
        )
    if target.batched is None and target.may_take_batches:
        copies, num_edges = replicate(together, 2), together.edge_index.size(1)
        gate = alone.new_ones(2 * num_edges)
        gate[num_edges:] = torch.arange(num_edges, device=gate.device) % 3 // 2  # two of three
        with intervene(target.model, ElementMask(), gate, edge_index=copies.edge_index):
            out = target.call(copies)
        facts.mixes = out.size(0) != 2 * rows or not _is_close(out[:rows], alone)
        if not facts.mixes and _is_close(out[rows:], alone):
            return  # graphs whose messages do not matter tell nothing
    facts.mixes_is_known = True


def _is_close(out: Tensor, expected: Tensor) -> bool:
    """Whether two outputs differ by no more than rounding errors."""
    largest = expected.abs().max().clamp(min=1e-3)
    limit = torch.finfo(expected.dtype).eps ** 0.5 * largest
    return out.shape == expected.shape and bool(((out - expected).abs() <= limit).all())
