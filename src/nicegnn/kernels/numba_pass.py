"""Damaged passes of a chain on a CPU: differences from the clean pass, at nodes they reach alone.

Import this module late: it needs Numba (``pip install "nicegnn[speed]"``), and compiles once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor

from nicegnn.kernels.chain import CleanPass, Damage, PackedChain

MOST_NODES = 1024  # of a graph: a bond looks at each of them once
_BLOCK = 128  # bonds that a thread takes at a time
_SETTINGS = {"cache": True, "error_model": "numpy", "fastmath": {"contract"}}


@njit(inline="always", **_SETTINGS)
def _add_product(rows, matrix, num, out):
    """Adds ``rows @ matrix`` to `out` for the first `num` rows.

    Two rows and four lines of the matrix at a time: this more than doubles the speed.
    """
    inner, wide = matrix.shape[0], matrix.shape[1]
    even, whole = num - num % 2, inner - inner % 4
    for i in range(0, even, 2):
        a, b = out[i], out[i + 1]
        p, q = rows[i], rows[i + 1]
        for k in range(0, whole, 4):
            s, t, u, v = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
            p0, p1, p2, p3 = p[k], p[k + 1], p[k + 2], p[k + 3]
            q0, q1, q2, q3 = q[k], q[k + 1], q[k + 2], q[k + 3]
            for j in range(wide):
                a[j] += p0 * s[j] + p1 * t[j] + p2 * u[j] + p3 * v[j]
                b[j] += q0 * s[j] + q1 * t[j] + q2 * u[j] + q3 * v[j]
        for k in range(whole, inner):
            p0, q0, s = p[k], q[k], matrix[k]
            for j in range(wide):
                a[j] += p0 * s[j]
                b[j] += q0 * s[j]
    for i in range(even, num):
        a = out[i]
        for k in range(inner):
            p0, s = rows[i, k], matrix[k]
            for j in range(wide):
                a[j] += p0 * s[j]


@njit(inline="always", **_SETTINGS)
def _above(value, floor):
    return value if value > floor else floor  # `max` also looks for NaN, and is slow


@njit(inline="always", **_SETTINGS)
def _reach(node, start, number, reached, count):
    """Numbers a node, if it has no number yet, and returns how many have one."""
    if number[node - start] >= 0:
        return count
    number[node - start] = count
    reached[count] = node
    return count + 1


@njit(nogil=True, **_SETTINGS)
def _finished(inner, second, second_shift, has_second):
    """States of a layer from what its first ReLU gets, ``[R, W]``; `Layer.finish`."""
    rows, wide = inner.shape
    zero = np.float32(0)
    for r in range(rows):
        for j in range(wide):
            inner[r, j] = _above(inner[r, j], zero)
    if not has_second:
        return inner
    final = np.empty((rows, wide), np.float32)
    final[:] = second_shift
    _add_product(inner, second, rows, final)
    for r in range(rows):
        for j in range(wide):
            final[r, j] = _above(final[r, j], zero)
    return final


@njit(nogil=True, **_SETTINGS)
def _passes(
    begin, end, out, edges, graph, atom, row, given, atom_sent, atom_own, node_start, pointer,
    leaving, sender, receiver, coefficient, outer, loop, terms, first_mapped, first_sent, first_own,
    sent, inner, state, before, weight, own, second, second_shift, root, has_before, has_map,
    has_own, has_second,
):  # fmt: skip
    """Adds to clean pooled states, [J, N, W], what damage changes, for jobs `begin` to `end`."""
    num_draws, wide, num_layers = out.shape[1], out.shape[2], weight.shape[0]
    zero, has_terms = np.float32(0), terms.shape[0] > 0
    for job in range(begin, end):
        start = node_start[graph[job]]
        size = node_start[graph[job] + 1] - start
        number = np.full(size, -1, np.int32)  # of a node among those reached
        reached = np.empty(size, np.int64)  # nearest first
        counts = np.empty(num_layers, np.int64)  # reached nodes after each layer
        first, count = atom[job], 0
        if first >= 0:
            count = _reach(first, start, number, reached, count)
        for edge in edges[job]:
            if edge >= 0:
                count = _reach(receiver[edge], start, number, reached, count)
        counts[0] = count
        for layer in range(0 if first >= 0 else 1, num_layers):
            for i in range(counts[max(layer - 1, 0)]):
                for place in range(pointer[reached[i]], pointer[reached[i] + 1]):
                    count = _reach(receiver[leaving[place]], start, number, reached, count)
            counts[layer] = count
        change = np.zeros((count * num_draws, wide), np.float32)  # of states, by node and draw
        old = np.empty(wide, np.float32)  # the clean message of an edge
        for layer in range(num_layers):
            now, known = counts[layer], 0 if layer == 0 else counts[layer - 1]
            rows = now * num_draws
            found_state = np.empty((rows, wide), np.float32)
            for i in range(now):
                found_state[i * num_draws : (i + 1) * num_draws] = inner[layer, reached[i]]
            total, moved = found_state, change  # mapped already in the first layer
            if layer > 0:  # what nodes receive
                total = np.zeros((rows, wide), np.float32)
                if has_before:
                    moved = np.zeros((known * num_draws, wide), np.float32)
                    _add_product(change, before[layer], known * num_draws, moved)
            elif first >= 0:  # the atom itself, and what it sends
                known = 1
                for draw in range(num_draws):
                    other = row[job, draw]
                    for j in range(wide):
                        found_state[draw, j] += atom_own[other, j] - first_own[first, j]
                        moved[draw, j] = atom_sent[other, j] - first_sent[first, j]
            for i in range(known):
                node = reached[i]
                for place in range(pointer[node], pointer[node + 1]):
                    edge = leaving[place]
                    if edge == edges[job, 0] or edge == edges[job, 1]:
                        continue
                    share = coefficient[edge]
                    target = number[receiver[edge] - start] * num_draws
                    for draw in range(num_draws):
                        new, into = moved[i * num_draws + draw], total[target + draw]
                        if has_terms:
                            for j in range(wide):
                                clean = sent[layer, node, j] + terms[layer, edge, j]
                                into[j] += _above(clean + new[j], zero) - _above(clean, zero)
                        else:
                            for j in range(wide):
                                into[j] += share * new[j]
                if loop.shape[0] > 0:
                    for r in range(i * num_draws, (i + 1) * num_draws):
                        for j in range(wide):
                            total[r, j] += loop[node] * moved[r, j]
            for side in range(2):  # the bond's own messages
                edge = edges[job, side]
                if edge < 0:
                    continue
                share, other = coefficient[edge], outer[edge]
                for j in range(wide):
                    old[j] = first_mapped[edge, j] if layer == 0 else sent[layer, sender[edge], j]
                    if layer > 0 and has_terms:
                        old[j] = _above(old[j] + terms[layer, edge, j], zero)
                target = number[receiver[edge] - start] * num_draws
                for draw in range(num_draws):
                    into, said = total[target + draw], given[layer, row[job, draw]]
                    for j in range(wide):
                        into[j] += other * said[j] - share * old[j]
            if layer > 0:
                for r in range(known * num_draws):
                    for j in range(wide):
                        total[r, j] += root[layer] * change[r, j]
                if has_map:
                    _add_product(total, weight[layer], rows, found_state)
                else:
                    for r in range(rows):
                        for j in range(wide):
                            found_state[r, j] += total[r, j]
                if has_own:
                    _add_product(change, own[layer], known * num_draws, found_state)
            found_state = _finished(found_state, second[layer], second_shift[layer], has_second)
            for i in range(now):
                for r in range(i * num_draws, (i + 1) * num_draws):
                    for j in range(wide):
                        change[r, j] = found_state[r, j] - state[layer, reached[i], j]
        for i in range(count):
            for draw in range(num_draws):
                for j in range(wide):
                    out[job, draw, j] += change[i * num_draws + draw, j]


class Passes:
    """Damaged passes over one batch."""

    def __init__(self, clean: CleanPass) -> None:
        chain, (sender, receiver) = clean.chain, clean.edge_index
        width = -(-chain.width // 8) * 8  # whole vectors of numbers
        self.packed = packed = PackedChain(chain, width, clean.x.device)
        num_nodes = clean.x.size(0)
        leaving = sender.argsort(stable=True)  # edges by their sender
        pointer = torch.zeros(num_nodes + 1, dtype=torch.long)
        pointer[1:] = torch.bincount(sender, minlength=num_nodes).cumsum(0)
        sent, inner, state = (torch.zeros(len(chain.layers), num_nodes, width) for _ in range(3))
        for number, stage in enumerate(clean.stages):
            for store, value in zip((sent, inner, state), (stage.sent, *stage[2:]), strict=True):
                if number or store is not sent:  # first messages are known by edge
                    store[number, :, : value.size(1)] = value
        first_mapped = packed.mapped_first(clean.stages[0].message)
        self.size = clean.ptr.diff()
        self.pooled_clean = torch.zeros(clean.num_graphs, width)
        self.pooled_clean.index_add_(0, clean.batch, state[-1])
        tensors = (
            *(clean.ptr, pointer, leaving, sender, receiver, clean.coefficient, clean.outer),
            torch.zeros(0) if clean.loop is None else clean.loop,
            clean.padded_terms(width) if chain.kind == "gine" else torch.zeros(0, 0, 0),
            *(first_mapped, *packed.of_atoms(clean.x)),
            *(sent, inner, state, packed.before, packed.weight, packed.own, packed.second),
            *(packed.second_shift, packed.root),
        )
        self.arrays = [value.contiguous().numpy() for value in tensors]

    def fits(self, graph: Tensor) -> Tensor:
        return self.size[graph] <= MOST_NODES

    def pooled(self, damage: Damage) -> Tensor:
        """Returns the pooled states of all damaged graphs, ``[J, N, W]``."""
        packed, num = self.packed, damage.graph.numel()
        out = self.pooled_clean[damage.graph].unsqueeze(1).repeat(1, damage.row.size(1), 1)
        damaged = [damage.edges, damage.graph, damage.atom, damage.row, packed.given(damage.values)]
        damaged += packed.of_atoms(damage.x)
        arrays = [value.contiguous().numpy() for value in damaged]
        given = (out.numpy(), *arrays, *self.arrays, *packed.has.values())
        threads = torch.get_num_threads()
        if threads == 1 or num < 2 * _BLOCK:
            _passes(0, num, *given)
        else:
            starts = range(0, num, _BLOCK)
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda a: _passes(a, min(a + _BLOCK, num), *given), starts))
        if packed.chain.is_mean:
            out /= self.size[damage.graph].view(-1, 1, 1)
        return out[..., : packed.chain.width]
