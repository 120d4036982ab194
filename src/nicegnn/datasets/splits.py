r"""Training, validation and test parts of a dataset.

Our own splits never part twins (see `nicegnn.datasets.twins`), published ones no duplicates.

Sizes follow the paper's test sets: :math:`\lceil n / 10 \rceil` graphs each for test and
validation, the rest for training.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nicegnn.datasets.records import PARTS
from nicegnn.seeding import mix

TRAIN, VALID, TEST = range(len(PARTS))


def part_sizes(num_graphs: int) -> tuple[int, int, int]:
    """Returns how many graphs go to train, valid and test.

    >>> part_sizes(8671)
    (6935, 868, 868)
    """
    held_out = min(-(-num_graphs // 10), num_graphs // 2)
    return num_graphs - 2 * held_out, held_out, held_out


def random_split(twin: Tensor, seed: int) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``, drawn from a seed.

    Args:
        twin: group of each graph, ``[N]``; a group goes into one part.
    """
    groups = _members(twin.tolist())
    random.Random(mix("split", seed)).shuffle(groups)
    return _fill(groups, (TEST, VALID, TRAIN), twin.numel())


def scaffold_split(scaffold: Tensor, twin: Tensor) -> Tensor:
    """Returns the part of each graph, int8 ``[N]``; molecules of one scaffold stay together.

    Scaffolds with many molecules go to train first, so valid and test hold the rare ones, as is
    usual. Twins with different scaffolds join these scaffolds.
    """
    joined = _join(scaffold.tolist(), twin.tolist())
    groups = sorted(_members(joined), key=lambda group: (-len(group), group[0]))
    return _fill(groups, (TRAIN, VALID, TEST), twin.numel())


def published_split(part: Tensor, molecule: Sequence[object]) -> tuple[Tensor, int]:
    """Returns a published split with parted duplicates moved to train, and how many were moved.

    Args:
        part: as published, ``[N]``.
        molecule: anything that is equal for equal molecules, ``N`` of them.
    """
    result = part.clone()
    for group in _parted(part, molecule):
        result[group] = TRAIN
    return result, int((result != part).sum())


def num_parted(part: Tensor, twin: Tensor) -> int:
    """Returns how many graphs have a twin in another part.

    >>> num_parted(torch.tensor([0, 2, 0]), torch.tensor([5, 5, 7]))
    2
    """
    return sum(len(group) for group in _parted(part, twin.tolist()))


def _parted(part: Tensor, labels: Iterable[object]) -> list[list[int]]:
    """Groups of equal labels that are not all in one part."""
    parts = part.tolist()
    groups = [group for group in _members(labels) if len(group) > 1]
    return [group for group in groups if len({parts[index] for index in group}) > 1]


def _members(labels: Iterable[object]) -> list[list[int]]:
    groups: dict[object, list[int]] = defaultdict(list)
    for index, label in enumerate(labels):
        groups[label].append(index)
    return list(groups.values())


def _fill(groups: Sequence[Sequence[int]], order: Sequence[int], num_graphs: int) -> Tensor:
    """Puts each group into the first part, in the given order, that has room for it.

    A group too large for any part goes into train.
    """
    room = list(part_sizes(num_graphs))
    part = [TRAIN] * num_graphs
    for group in groups:
        chosen = next((p for p in order if room[p] >= len(group)), TRAIN)
        room[chosen] -= len(group)
        for index in group:
            part[index] = chosen
    return torch.tensor(part, dtype=torch.int8)


def _join(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Labels of the groups that remain when items equal in either labelling are joined."""
    parent = list(range(len(first)))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for labels in (first, second):
        seen: dict[int, int] = {}
        for item, label in enumerate(labels):
            parent[root(item)] = root(seen.setdefault(label, item))
    return [root(item) for item in range(len(first))]
