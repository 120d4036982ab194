"""Whether a model mixes the graphs of a batch: such a model is run graph by graph."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.errors import TargetError
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.target.frozen_model import Target

_COMPARED = 3  # graphs of a batch


@torch.no_grad()
def mixes_graphs(target: Target, stack: GraphStack, out: Tensor) -> bool:
    """Whether a graph's answer depends on the other graphs of its batch.

    The clean output ``out`` of up to three small graphs is compared with theirs beside copies of
    them with masked messages. They differ if a normalisation has no ``batch`` or no running
    statistics. Raises `TargetError` if two clean answers of the same graphs differ.
    """
    sizes = stack.num_edges
    if not stack.is_complete or not bool(torch.isfinite(out).all()) or int(sizes.max()) == 0:
        return False  # nobody can tell, or nothing can be damaged
    everything = torch.arange(len(stack), device=sizes.device)
    if not target.is_batched or target.batched:  # what the user said counts
        _refuse_random(target, stack, out, everything if target.batched else everything[:1])
        return False
    some = torch.where(sizes > 0, sizes, sizes.max() + 1).argsort(stable=True)  # small first
    some = some[: min(_COMPARED, int((sizes > 0).sum()))]
    rows = stack.nodes_of(some) if target.level == "node" else some
    num_rows = int(stack.num_nodes.sum()) if target.level == "node" else len(stack)
    if out.size(0) != num_rows:  # of one graph alone it may be right
        return len(stack) > 1 and target.call(stack.take(some[:1])).size(0) == 1
    copies = stack.take(some.repeat(2))
    gate = torch.ones(copies.num_edges, dtype=out.dtype, device=out.device)
    masked = torch.arange(gate.numel() // 2, device=gate.device) % 3 > 0  # two of three
    gate[gate.numel() // 2 :][masked] = 0
    with intervene(target.model, ElementMask(), gate, edge_index=copies.edge_index):
        beside = target.call(copies)
    is_same = beside.size(0) == 2 * rows.numel() and is_close(beside[: rows.numel()], out[rows])
    if not is_same:
        _refuse_random(target, stack, out, everything)
    return not is_same


def _refuse_random(target: Target, stack: GraphStack, out: Tensor, graphs: Tensor) -> None:
    again = target.call(stack.take(graphs))
    first = out[: again.size(0)]
    if first.shape == again.shape and not is_close(again, first):
        far = float((first - again).abs().max())
        raise TargetError(
            f"Two calls of the model on a graph must give the same output (they differ by {far:.2g}"
            "). Do not draw in evaluation mode: F.dropout(..., training=self.training)."
        )


def is_close(out: Tensor, expected: Tensor) -> bool:
    """Whether two outputs differ by no more than rounding errors."""
    largest = expected.abs().max().clamp(min=1e-3)
    limit = torch.finfo(expected.dtype).eps ** 0.5 * largest
    return out.shape == expected.shape and bool(((out - expected).abs() <= limit).all())
