"""Kernels of damaged passes on a GPU: what one Triton program does; `triton_pass` launches them.

States of a graph, ``[A, W]``, stay on the chip. Sums over neighbours are products with the graph's
dense adjacency; the two messages of the damaged bond are then exchanged. Import this module late:
it needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _finish(
    inner, second, second_shift, W: tl.constexpr, HAS_SECOND: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """`Layer.finish`, [A, W]."""
    column = tl.arange(0, W)
    tile = column[:, None] * W + column[None, :]
    state = tl.maximum(inner, 0.0)
    if HAS_SECOND:
        state = tl.dot(state, tl.load(second + tile), input_precision=PRECISION)
        state = state + tl.load(second_shift + column)[None, :]
        state = tl.maximum(state, 0.0)
    return state


@triton.jit
def _next(
    total, state, layer, weight, own, shift, second, second_shift, root, W: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_OWN: tl.constexpr, HAS_SECOND: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """States after a layer whose nodes received `total`, [A, W]; `Layer.inner` and `finish`."""
    column = tl.arange(0, W)
    tile = column[:, None] * W + column[None, :]
    square, line = layer * W * W, layer * W
    inner = total + tl.load(root + layer) * state
    if HAS_WEIGHT:
        inner = tl.dot(inner, tl.load(weight + square + tile), input_precision=PRECISION)
    if HAS_OWN:
        inner += tl.dot(state, tl.load(own + square + tile), input_precision=PRECISION)
    inner += tl.load(shift + line + column)[None, :]
    return _finish(inner, second + square, second_shift + line, W, HAS_SECOND, PRECISION)


@triton.jit(do_not_specialize=["num_draws", "num_edges", "num_rows"])
def pass_kernel(
    out, jobs, rows, given, atom_sent, atom_own, graphs, edges, coefficient, outer, adjacency,
    first_mapped, first_sent, first_own, first_inner, edge_terms, before, weight, own, shift,
    second, second_shift, root, num_draws, num_edges, num_rows, inner_size,
    LAYERS: tl.constexpr, A: tl.constexpr, W: tl.constexpr, E: tl.constexpr, DRAWS: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_OWN: tl.constexpr,
    HAS_SECOND: tl.constexpr, HAS_EDGE: tl.constexpr, IS_MEAN: tl.constexpr,
    IS_ATOM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Runs the graph of one bond, or atom, with several draws of damage, one after the other."""
    job = tl.program_id(0)
    graph = tl.load(jobs + job * 4)
    first_node = tl.load(graphs + graph * 5).to(tl.int64)
    num_nodes = tl.load(graphs + graph * 5 + 1)
    matrix = tl.load(graphs + graph * 5 + 2)
    first_edge = tl.load(graphs + graph * 5 + 3)
    own_edges = tl.load(graphs + graph * 5 + 4)
    atom = tl.load(jobs + job * 4 + 3)  # by number in its graph
    row, column = tl.arange(0, A), tl.arange(0, W)
    tile = column[:, None] * W + column[None, :]
    is_node = (row < num_nodes)[:, None]
    edge_row = tl.arange(0, E)
    edge_place = first_edge + edge_row
    is_edge = edge_row < own_edges
    for turn in range(DRAWS):
        number = tl.program_id(1) * DRAWS + turn
        draw = tl.minimum(number, num_draws - 1)
        said = tl.load(rows + job.to(tl.int64) * num_draws + draw).to(tl.int64)
        place = (first_node + row)[:, None] * inner_size + column[None, :]
        is_stored = is_node & (column < inner_size)[None, :]
        inner = tl.load(first_inner + place, mask=is_stored, other=0.0)
        for side in tl.static_range(2):  # the first layer: only receivers of the bond change
            side_edge = tl.load(jobs + job * 4 + 1 + side)
            edge = tl.maximum(side_edge, 0).to(tl.int64)
            change = tl.load(outer + edge) * tl.load(given + said * W + column)
            change -= tl.load(coefficient + edge) * tl.load(first_mapped + edge * W + column)
            receiver = tl.where(side_edge >= 0, tl.load(edges + edge * 2 + 1), -1)
            inner += tl.where((row == receiver)[:, None], change[None, :], 0.0)
        if IS_ATOM:  # the atom itself, and what it sends
            place = (first_node + atom) * W + column
            change = tl.load(atom_own + said * W + column) - tl.load(first_own + place)
            inner += tl.where((row == atom)[:, None], change[None, :], 0.0)
            change = tl.load(atom_sent + said * W + column) - tl.load(first_sent + place)
            inner += tl.load(adjacency + matrix + row * A + atom)[:, None] * change[None, :]
        state = _finish(inner, second, second_shift, W, HAS_SECOND, PRECISION)
        for layer in range(1, LAYERS):
            new = tl.load(given + (layer * num_rows + said) * W + column)
            sent = state
            if HAS_BEFORE:
                sent = tl.dot(
                    state, tl.load(before + layer * W * W + tile), input_precision=PRECISION
                )
            if HAS_EDGE:
                senders = tl.load(edges + edge_place * 2, mask=is_edge, other=-1)
                receivers = tl.load(edges + edge_place * 2 + 1, mask=is_edge, other=-1)
                gather = (senders[:, None] == row[None, :]).to(tl.float32)
                messages = tl.dot(gather, sent, input_precision=PRECISION)
                term = (layer * num_edges + edge_place).to(tl.int64)[:, None] * W + column[None, :]
                messages += tl.load(edge_terms + term, mask=is_edge[:, None], other=0.0)
                messages = tl.maximum(messages, 0.0)
                for side in tl.static_range(2):
                    here = (edge_place == tl.load(jobs + job * 4 + 1 + side))[:, None]
                    messages = tl.where(here, new[None, :], messages)
                scatter = (receivers[None, :] == row[:, None]).to(tl.float32)
                total = tl.dot(scatter, messages, input_precision=PRECISION)
            else:
                neighbours = tl.load(adjacency + matrix + row[:, None] * A + row[None, :])
                total = tl.dot(neighbours, sent, input_precision=PRECISION)
                for side in tl.static_range(2):
                    side_edge = tl.load(jobs + job * 4 + 1 + side)
                    edge = tl.maximum(side_edge, 0).to(tl.int64)
                    sender = tl.load(edges + edge * 2)
                    old = tl.sum(tl.where((row == sender)[:, None], sent, 0.0), 0)
                    change = tl.load(outer + edge) * new - tl.load(coefficient + edge) * old
                    receiver = tl.where(side_edge >= 0, tl.load(edges + edge * 2 + 1), -1)
                    total += tl.where((row == receiver)[:, None], change[None, :], 0.0)
            state = _next(
                total, state, layer, weight, own, shift, second, second_shift, root, W,
                HAS_WEIGHT, HAS_OWN, HAS_SECOND, PRECISION,
            )  # fmt: skip
        pooled = tl.sum(tl.where(is_node, state, 0.0), 0)
        if IS_MEAN:
            pooled = pooled / num_nodes.to(tl.float32)
        place = (job.to(tl.int64) * num_draws + number) * W + column
        tl.store(out + place, pooled, mask=column < tl.where(number < num_draws, W, 0))
