"""Inner states of a model: node states of each layer, and the representation of a graph."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import nn as gnn

from nicegnn.errors import TargetError
from nicegnn.target.message_layers import capture_readout, capture_states
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


def test_readout_is_the_input_of_the_head(batch, snapshot):
    model = Batched().eval()
    before = snapshot(model)
    h = model.second(model.first(batch.x, batch.edge_index).tanh(), batch.edge_index).tanh()
    expected = gnn.global_mean_pool(h, batch.batch)
    for name in (None, "head"):
        with capture_readout(model, 5, name) as readout:
            model(batch.x, batch.edge_index, batch.batch)
            torch.testing.assert_close(readout.value, expected)
    assert snapshot(model) == before


def test_readout_that_cannot_be_found_is_refused_with_advice(batch):
    model = Batched()
    with pytest.raises(TargetError, match="got 'tail'"), capture_readout(model, 5, "tail"):
        raise AssertionError("the context must not open")
    with capture_readout(model, 6) as readout:
        model(batch.x, batch.edge_index, batch.batch)
        with pytest.raises(TargetError, match=r"representation='module\.name'"):
            _ = readout.value
