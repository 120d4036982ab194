"""K-medoids of many sets of points at once, whatever the order in which points come."""

from __future__ import annotations

import torch
from torch import Tensor

from nicegnn.seeding import normal_rows

_ROUNDS = 20  # most rounds of reassignment
_EQUAL = 1e-3  # points that are nearer are the same but for rounding; coordinates have spread 1
_ROWS = 128  # of distances that are worked on at a time: they fit into a cache
_SAME = 1e-6  # relative difference of two costs that counts as rounding


def k_medoids(points: Tensor, home: Tensor, num_sets: int, num: int, most: int = 512) -> Tensor:
    r"""Returns ``num`` central points of each set, as numbers of points, ``[B, K]``.

    .. math:: \min_{b_1 \dots b_K} \sum_i \min_k \| z_i - z_{b_k} \|_2

    Symbols: :math:`z` -> ``points``, ``[n, D]``, with coordinates of about spread 1; set of each
    point -> ``home``, ``[n]``; :math:`b` -> the result.

    Medoids are added one by one, each where it lowers the sum most (BUILD of Kaufman and
    Rousseeuw); then points go to their nearest medoid, and medoids to the middle of their points,
    until nothing changes. A projection of the points breaks ties, so that their order does not
    matter; of a set of more than ``most`` points, evenly spaced ones along it are looked at. A set
    with fewer different points than ``num`` repeats them in turn; an empty one has the number -1.
    """
    key = points.double() @ _direction(points)  # [n]
    member, present = _thinned(key, home, num_sets, most)  # [B, S] each
    if member.size(1) == 0:
        return home.new_full((num_sets, num), -1)
    z, key = points.double()[member], key[member]
    distance = torch.cdist(z, z)  # [B, S, S]
    distance.masked_fill_(distance < _EQUAL, 0.0)
    distance.masked_fill_(~present.unsqueeze(1), 0.0)  # what is no point costs nothing
    medoid, number = _build(distance, present, key, num)
    medoid = _alternate(distance, present, key, medoid)
    turn = torch.arange(num, device=home.device).expand_as(medoid)
    medoid = medoid.gather(1, turn % number.unsqueeze(1).clamp(min=1))
    row = member.gather(1, medoid)
    return torch.where((number > 0).unsqueeze(1), row, -1)


def spread_rows(points: Tensor, num: int) -> Tensor:
    """Returns rows that are evenly spaced along a projection of the points, ``[num]`` at most.

    They stand for the whole set: a kind of points is drawn as often as it occurs, whatever the
    order of the points.
    """
    key = points.double() @ _direction(points)
    num = min(num, key.numel())
    place = (2 * torch.arange(num, device=key.device) + 1) * key.numel() // (2 * num)
    return key.argsort(stable=True)[place]


def _direction(points: Tensor) -> Tensor:
    """Returns a fixed direction, ``[D]``."""
    zero = torch.zeros(1, dtype=torch.long)
    return normal_rows(0, zero, zero, points.size(1))[0].double().to(points.device)


def _thinned(key: Tensor, home: Tensor, num_sets: int, most: int) -> tuple[Tensor, Tensor]:
    """Returns the points of each set that are looked at, in order of their keys, and a mask."""
    order = key.argsort(stable=True)
    order = order[home[order].argsort(stable=True)]  # by set, then by key
    size = torch.bincount(home, minlength=num_sets)
    start = size.cumsum(0) - size
    taken = size.clamp(max=most)
    column = torch.arange(int(taken.max()) if num_sets else 0, device=home.device)
    present = column < taken.unsqueeze(1)
    step = column * size.unsqueeze(1) // taken.unsqueeze(1).clamp(min=1)
    place = (start.unsqueeze(1) + step).clamp(max=max(0, order.numel() - 1))
    return torch.where(present, order[place], 0) if order.numel() else place, present


def _cheapest(cost: Tensor, allowed: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the allowed point of least cost in each row, and that cost; key breaks ties."""
    cost = cost.masked_fill(~allowed, torch.inf)
    least = cost.amin(-1, keepdim=True)
    is_least = cost <= least + _SAME * least.abs() + 1e-12
    return key.masked_fill(~is_least, -torch.inf).argmax(-1), least.squeeze(-1)


def _build(distance: Tensor, present: Tensor, key: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Returns the first medoids of each set, ``[B, K]``, and how many of them differ, ``[B]``."""
    chosen: list[Tensor] = []
    nearest = distance.new_full(present.shape, torch.inf).masked_fill(~present, 0.0)  # [B, S]
    number = torch.zeros_like(present[:, 0], dtype=torch.long)
    before = distance.new_full((present.size(0),), torch.inf)
    for _ in range(num):
        rows, limit = torch.split(distance, _ROWS, dim=1), nearest.unsqueeze(1)
        cost = torch.cat([torch.minimum(block, limit).sum(2) for block in rows], dim=1)  # [B, S]
        best, least = _cheapest(cost, present, key)
        number += (least < before * (1 - _SAME) - 1e-12) & present[:, 0]
        row = distance.gather(1, best.view(-1, 1, 1).expand(-1, 1, distance.size(2))).squeeze(1)
        nearest, before = torch.minimum(nearest, row), least
        chosen.append(best)
    return torch.stack(chosen, dim=1), number


def _alternate(distance: Tensor, present: Tensor, key: Tensor, medoid: Tensor) -> Tensor:
    """Moves medoids to the middle of their points until nothing changes, ``[B, K]``."""
    for _ in range(_ROUNDS):
        to_medoid = distance.gather(2, medoid.unsqueeze(1).expand(-1, distance.size(1), -1))
        is_near = to_medoid <= to_medoid.amin(2, keepdim=True) * (1 + _SAME) + 1e-12
        cluster = is_near.to(torch.uint8).argmax(2)  # the first of equally near ones, [B, S]
        is_in = torch.nn.functional.one_hot(cluster, medoid.size(1)).bool() & present.unsqueeze(2)
        cost = (distance @ is_in.to(distance)).transpose(1, 2)  # of each point, [B, K, S]
        moved, least = _cheapest(cost, is_in.transpose(1, 2), key.unsqueeze(1).expand_as(cost))
        moved = torch.where(least.isinf(), medoid, moved)  # a repeated medoid has no points
        if torch.equal(moved, medoid):
            break
        medoid = moved
    return medoid
