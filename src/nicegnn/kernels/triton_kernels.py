"""Kernels of damaged passes on a GPU: what one Triton program does; `triton_pass` launches them.

States of a graph, ``[A, W]``, stay on the chip. Sums over neighbours are products with the graph's
dense adjacency; the two messages of the damaged bond are then exchanged. Masks of all edges change
the adjacency instead. Import this module late: it needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scramble(word):
    word = word ^ ((word >> 16) & 0xFFFF)
    word = word * -2048144789
    word = word ^ ((word >> 13) & 0x7FFFF)
    word = word * -1028477387
    return word ^ ((word >> 16) & 0xFFFF)


@triton.jit
def _direction(draw, slot, low, high, size, COLUMNS: tl.constexpr, ANTITHETIC: tl.constexpr):
    """The direction of `mechanisms.DirectionTable`, [COLUMNS]; columns from `size` on are 0."""
    column = tl.arange(0, COLUMNS)
    half = (size + 1) // 2
    pair = tl.where(column < half, column, column - half)
    number = column * 0 + draw
    if ANTITHETIC:
        number = number // 2
    row = _scramble(_scramble(number * -1640531527 + low) + slot)
    word = _scramble(row + _scramble(pair * -1640531527 + high))
    radius = tl.sqrt(-2.0 * tl.log(((word & 0xFFFF).to(tl.float32) + 0.5) * 1.52587890625e-05))
    angle = (word >> 16).to(tl.float32) * 9.587379924285257e-05  # pi / 2^15
    value = tl.where(column < half, tl.cos(angle), tl.sin(angle)) * radius
    value = tl.where(column < size, value, 0.0)
    value = value / tl.maximum(tl.sqrt(tl.sum(value * value, 0)), 1e-30)
    if ANTITHETIC:
        value = value * (1 - 2 * (draw % 2)).to(tl.float32)
    return value


@triton.jit
def _change(
    message, draw, slot, seeds, COLUMNS: tl.constexpr, NOISE: tl.constexpr, ANTITHETIC: tl.constexpr
):
    """What damage adds to a message, [COLUMNS]."""
    change = -message
    if NOISE:
        low, high, size = tl.load(seeds), tl.load(seeds + 1), tl.load(seeds + 2)
        norm = tl.sqrt(tl.sum(message * message, 0))
        change += norm * _direction(draw, slot, low, high, size, COLUMNS, ANTITHETIC)
    return change


@triton.jit
def _finish(
    inner, numbers, second, second_shift, after_scale, after_shift,
    W: tl.constexpr, HAS_SECOND: tl.constexpr, HAS_AFTER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`Layer.finish`, [A, W]."""
    column = tl.arange(0, W)
    tile = column[:, None] * W + column[None, :]
    state = tl.maximum(inner, tl.load(numbers + 1))
    if HAS_SECOND:
        state = tl.dot(state, tl.load(second + tile), input_precision=PRECISION)
        state = state + tl.load(second_shift + column)[None, :]
        state = tl.maximum(state, tl.load(numbers + 2))
    if HAS_AFTER:
        state = state * tl.load(after_scale + column)[None, :]
        state = state + tl.load(after_shift + column)[None, :]
    return state


@triton.jit
def _next(
    total, state, layer, weight, scale, own, shift, second, second_shift, after_scale, after_shift,
    numbers, W: tl.constexpr, HAS_MAP: tl.constexpr, HAS_OWN: tl.constexpr,
    HAS_SECOND: tl.constexpr, HAS_AFTER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """States after a layer whose nodes received `total`, [A, W]; `Layer.inner` and `finish`."""
    column = tl.arange(0, W)
    tile = column[:, None] * W + column[None, :]
    square, line = layer * W * W, layer * W
    total += tl.load(numbers + layer * 3) * state
    if HAS_MAP:
        inner = tl.dot(total, tl.load(weight + square + tile), input_precision=PRECISION)
    else:
        inner = total * tl.load(scale + line + column)[None, :]
    if HAS_OWN:
        inner += tl.dot(state, tl.load(own + square + tile), input_precision=PRECISION)
    inner += tl.load(shift + line + column)[None, :]
    return _finish(
        inner, numbers + layer * 3, second + square, second_shift + line, after_scale + line,
        after_shift + line, W, HAS_SECOND, HAS_AFTER, PRECISION,
    )  # fmt: skip


@triton.jit
def _pooled(state, num_nodes, A: tl.constexpr, IS_MEAN: tl.constexpr):
    """Sum or mean of the states of a graph's nodes, [W]."""
    is_node = (tl.arange(0, A) < num_nodes)[:, None]
    pooled = tl.sum(tl.where(is_node, state, 0.0), 0)
    if IS_MEAN:
        pooled = pooled / num_nodes.to(tl.float32)
    return pooled


@triton.jit
def masked_kernel(
    out, which, graphs, adjacency, first_base, first_sent, before, weight, scale, own, shift,
    second, second_shift, after_scale, after_shift, numbers, num_rows, space, inner_size,
    LAYERS: tl.constexpr, A: tl.constexpr, W: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_MAP: tl.constexpr, HAS_OWN: tl.constexpr, HAS_SECOND: tl.constexpr,
    HAS_AFTER: tl.constexpr, IS_MEAN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Runs one graph with one row of masks, which are in its adjacency."""
    job, mask = tl.program_id(0), tl.program_id(1)
    graph = tl.load(which + job)
    first_node = tl.load(graphs + graph * 5).to(tl.int64)
    num_nodes = tl.load(graphs + graph * 5 + 1)
    matrix = mask.to(tl.int64) * space + tl.load(graphs + graph * 5 + 2)
    row, column = tl.arange(0, A), tl.arange(0, W)
    is_node = (row < num_nodes)[:, None]
    neighbours = tl.load(adjacency + matrix + row[:, None] * A + row[None, :])
    place = (first_node + row)[:, None] * inner_size + column[None, :]
    known = is_node & (column < inner_size)[None, :]
    sent = tl.load(first_sent + place, mask=known, other=0.0)
    inner = tl.load(first_base + place, mask=known, other=0.0)
    inner += tl.dot(neighbours, sent, input_precision=PRECISION)
    state = _finish(
        inner, numbers, second, second_shift, after_scale, after_shift,
        W, HAS_SECOND, HAS_AFTER, PRECISION,
    )  # fmt: skip
    for layer in range(1, LAYERS):
        sent = state
        if HAS_BEFORE:
            tile = column[:, None] * W + column[None, :]
            sent = tl.dot(state, tl.load(before + layer * W * W + tile), input_precision=PRECISION)
        total = tl.dot(neighbours, sent, input_precision=PRECISION)
        state = _next(
            total, state, layer, weight, scale, own, shift, second, second_shift, after_scale,
            after_shift, numbers, W, HAS_MAP, HAS_OWN, HAS_SECOND, HAS_AFTER, PRECISION,
        )  # fmt: skip
    pooled = _pooled(state, num_nodes, A, IS_MEAN)
    tl.store(out + (job.to(tl.int64) * num_rows + mask) * W + column, pooled)


@triton.jit(do_not_specialize=["num_draws", "num_edges", "input_size"])
def pass_kernel(
    out, jobs, graphs, edges, coefficient, adjacency, first_message, first_inner, first_map,
    edge_terms, before, weight, scale, own, shift, second, second_shift, after_scale, after_shift,
    numbers, seeds, num_draws, num_edges, input_size, inner_size,
    LAYERS: tl.constexpr, A: tl.constexpr, W: tl.constexpr, F: tl.constexpr, E: tl.constexpr,
    DRAWS: tl.constexpr, NOISE: tl.constexpr, ANTITHETIC: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_MAP: tl.constexpr, HAS_OWN: tl.constexpr, HAS_SECOND: tl.constexpr,
    HAS_AFTER: tl.constexpr, HAS_EDGE: tl.constexpr, IS_MEAN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Runs the graph of one bond with several draws of damage, one after the other."""
    job = tl.program_id(0)
    graph = tl.load(jobs + job * 4)
    first_node = tl.load(graphs + graph * 5).to(tl.int64)
    num_nodes = tl.load(graphs + graph * 5 + 1)
    matrix = tl.load(graphs + graph * 5 + 2)
    first_edge = tl.load(graphs + graph * 5 + 3)
    own_edges = tl.load(graphs + graph * 5 + 4)
    first_draw = tl.load(jobs + job * 4 + 3)
    row, column, wide = tl.arange(0, A), tl.arange(0, W), tl.arange(0, F)
    tile = column[:, None] * W + column[None, :]
    is_node = (row < num_nodes)[:, None]
    edge_row = tl.arange(0, E)
    edge_place = first_edge + edge_row
    is_edge = edge_row < own_edges
    for turn in range(DRAWS):
        number = tl.program_id(1) * DRAWS + turn
        draw = first_draw + number
        place = (first_node + row)[:, None] * inner_size + column[None, :]
        known = is_node & (column < inner_size)[None, :]
        inner = tl.load(first_inner + place, mask=known, other=0.0)
        for side in tl.static_range(2):  # the first layer: only receivers of the bond change
            found = tl.load(jobs + job * 4 + 1 + side)
            edge = tl.maximum(found, 0)
            message = tl.load(
                first_message + edge.to(tl.int64) * input_size + wide,
                mask=wide < input_size,
                other=0.0,
            )
            slot = tl.load(edges + edge * 3 + 2)
            change = _change(message, draw, slot, seeds, F, NOISE, ANTITHETIC)
            change = change * tl.where(found >= 0, tl.load(coefficient + edge), 0.0)
            if HAS_MAP:
                mapped = tl.load(first_map + wide[:, None] * W + column[None, :])
                change = tl.sum(change[:, None] * mapped, 0)
            else:
                change = change * tl.load(scale + column)
            receiver = tl.load(edges + edge * 3 + 1)
            inner += tl.where((row == receiver)[:, None], change[None, :], 0.0)
        state = _finish(
            inner, numbers, second, second_shift, after_scale, after_shift,
            W, HAS_SECOND, HAS_AFTER, PRECISION,
        )  # fmt: skip
        for layer in range(1, LAYERS):
            own_seeds = seeds + layer * 3
            sent = state
            if HAS_BEFORE:
                sent = tl.dot(
                    state, tl.load(before + layer * W * W + tile), input_precision=PRECISION
                )
            if HAS_EDGE:
                senders = tl.load(edges + edge_place * 3, mask=is_edge, other=-1)
                receivers = tl.load(edges + edge_place * 3 + 1, mask=is_edge, other=-1)
                gather = (senders[:, None] == row[None, :]).to(tl.float32)
                messages = tl.dot(gather, sent, input_precision=PRECISION)
                term = (layer * num_edges + edge_place).to(tl.int64)[:, None] * W + column[None, :]
                messages += tl.load(edge_terms + term, mask=is_edge[:, None], other=0.0)
                messages = tl.maximum(messages, 0.0)
                for side in tl.static_range(2):
                    found = tl.load(jobs + job * 4 + 1 + side)
                    here = (edge_place == found)[:, None]
                    old = tl.sum(tl.where(here, messages, 0.0), 0)
                    slot = tl.load(edges + tl.maximum(found, 0) * 3 + 2)
                    change = _change(old, draw, slot, own_seeds, W, NOISE, ANTITHETIC)
                    messages += tl.where(here, change[None, :], 0.0)
                scatter = (receivers[None, :] == row[:, None]).to(tl.float32)
                total = tl.dot(scatter, messages, input_precision=PRECISION)
            else:
                neighbours = tl.load(adjacency + matrix + row[:, None] * A + row[None, :])
                total = tl.dot(neighbours, sent, input_precision=PRECISION)
                for side in tl.static_range(2):
                    found = tl.load(jobs + job * 4 + 1 + side)
                    edge = tl.maximum(found, 0)
                    sender = tl.load(edges + edge * 3)
                    old = tl.sum(tl.where((row == sender)[:, None], sent, 0.0), 0)
                    slot = tl.load(edges + edge * 3 + 2)
                    change = _change(old, draw, slot, own_seeds, W, NOISE, ANTITHETIC)
                    change = change * tl.where(found >= 0, tl.load(coefficient + edge), 0.0)
                    receiver = tl.load(edges + edge * 3 + 1)
                    total += tl.where((row == receiver)[:, None], change[None, :], 0.0)
            state = _next(
                total, state, layer, weight, scale, own, shift, second, second_shift, after_scale,
                after_shift, numbers, W, HAS_MAP, HAS_OWN, HAS_SECOND, HAS_AFTER, PRECISION,
            )  # fmt: skip
        pooled = _pooled(state, num_nodes, A, IS_MEAN)
        place = (job.to(tl.int64) * num_draws + number) * W + column
        tl.store(out + place, pooled, mask=column < tl.where(number < num_draws, W, 0))
