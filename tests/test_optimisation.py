"""Steps: their order depends on their numbers alone, and gradients of others stay untouched."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from nicegnn.optimisation import batch_of_step, descend


def test_an_epoch_visits_each_graph_once_in_a_new_order() -> None:
    epochs = [torch.cat([batch_of_step(12, 4, 7, 3 * k + j) for j in range(3)]) for k in range(2)]
    for epoch in epochs:
        assert Counter(epoch.tolist()) == Counter(range(12))
    assert not torch.equal(*epochs)
    assert batch_of_step(3, 10, 0, 5).numel() == 3
    assert not torch.equal(batch_of_step(12, 4, 8, 0), batch_of_step(12, 4, 7, 0))


def test_a_step_leaves_the_gradients_of_other_parameters_alone() -> None:
    ours, theirs = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    theirs.grad = torch.full((2,), 7.0)
    loss = (ours * theirs).sum()
    descend(loss, [ours], torch.optim.SGD([ours], 0.5))
    assert ours.tolist() == [0.5, 0.5]
    assert ours.grad is None
    assert theirs.grad.tolist() == [7.0, 7.0]
