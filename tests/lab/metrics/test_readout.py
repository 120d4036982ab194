"""The representation of a graph is what the head of a model reads."""

from __future__ import annotations

import torch
from torch_geometric import nn as gnn

from nicegnn_lab.metrics.scale import capture_readout
from tests.target.small_models import Batched


def test_readout_is_the_input_of_the_head(batch, snapshot):
    model = Batched().eval()
    before = snapshot(model)
    h = model.second(model.first(batch.x, batch.edge_index).tanh(), batch.edge_index).tanh()
    expected = gnn.global_mean_pool(h, batch.batch)
    with capture_readout(model, 5) as readout:
        model(batch.x, batch.edge_index, batch.batch)
        torch.testing.assert_close(readout.value, expected)
    assert snapshot(model) == before
