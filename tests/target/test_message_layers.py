"""Inner states of a model, and models of other libraries."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.target.message_layers import Adapter, capture_states
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


class Adapted(Batched):
    """A model of another library, whose users have plain dictionaries."""

    mode = "regression"

    def read_graphs(self, molecules: Any) -> Any:
        return [Data.from_dict(one) for one in molecules]


def test_an_adapter_reads_what_the_users_of_a_library_have(graphs):
    assert isinstance(Adapted(), Adapter)
    assert not isinstance(Batched(), Adapter)
    dicts = [graph.to_dict() for graph in graphs]
    found = NICE(Adapted(1), background=dicts).explain(dicts)
    wanted = NICE(Batched(1), background=graphs, mode="regression").explain(graphs)
    torch.testing.assert_close(found.bond_score, wanted.bond_score)
