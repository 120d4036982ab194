"""Inner states of a model: node states of each layer."""

from __future__ import annotations

import torch

from nicegnn.target.message_layers import capture_states
from tests.target.small_models import Batched


def test_states_are_those_of_the_last_forward_pass_and_hooks_go(batch, snapshot):
    model = Batched().eval()
    before = snapshot(model)
    with capture_states(model) as states:
        model(batch.x, batch.edge_index, batch.batch)
        model(2 * batch.x, batch.edge_index, batch.batch)
        first = model.first(2 * batch.x, batch.edge_index)
    torch.testing.assert_close(states[0], first)
    assert snapshot(model) == before
