"""Reference classifiers: readouts, and names that are unknown."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.target.training import predict
from nicegnn.target.zoo import GIN, make_model
from tests.conftest import NUM_FEATURES


def test_unknown_models_and_readouts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`readout` must be one of .* \(got 'median'\)"):
        GIN(3, 2, readout="median")
    with pytest.raises(ConfigError, match=r"`name` must be one of .* \(got 'mlp'\)"):
        make_model("mlp", 3, 2)


@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
def test_readouts_pool_each_graph_by_itself(readout: str, graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=4, readout=readout).eval()
    together = predict(model, graphs)
    alone = torch.cat([predict(model, [graph]) for graph in graphs])
    torch.testing.assert_close(together, alone)
