"""Message scale: Theorem 1 and its corollary by hand, noise corruption at no drift, distances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Batch, Data

from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.seeding import mix
from nicegnn.target.zoo import make_model
from nicegnn_lab.metrics.scale import perturbation_distances, scale_profile


class Sums(nn.Module):
    """Layers that hand on the sum of the messages, so that every scale can be done by hand."""

    def __init__(self, num_layers: int, head: nn.Module | None = None) -> None:
        super().__init__()
        self.convs = nn.ModuleList(gnn.SimpleConv(aggr="sum") for _ in range(num_layers))
        self.head = head or nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(gnn.global_add_pool(x, batch))


@pytest.fixture
def arrow() -> Data:
    """0 -> 1 and 2 -> 1 -> 3 with features of norm 1, 2 and 2."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 0.0], [5.0, 5.0]])
    return Data(x=x, edge_index=torch.tensor([[0, 2, 1], [1, 1, 3]]))


RHO = torch.tensor([0.5, 1.0, 0.1])


# --- by hand -----------------------------------------------------------------------------------


def test_one_layer_by_hand(arrow):
    """Squared norms 1, 4, 4: S = 3, shares 1/9, 4/9, 4/9; EM keeps (0.25 + 4 + 0.04) / 9."""
    profile = scale_profile(Sums(1), arrow, RHO)
    torch.testing.assert_close(profile.clean, torch.tensor([[3.0]]))
    torch.testing.assert_close(profile.ratio["em_fixed"], torch.tensor([[4.29 / 9]]))
    torch.testing.assert_close(profile.ratio["em_propagated"], profile.ratio["em_fixed"])


def test_two_layers_by_hand(arrow):
    """After one layer only nodes 1 and 3 hold something: (3, 0) and (0, 2).

    Clean messages of layer 2 are then 0, 0 and (3, 0). Under EM node 1 holds
    0.5 * (1, 0) + (2, 0) = (2.5, 0), and 0.1 of it is passed on.
    """
    profile = scale_profile(Sums(2), arrow, RHO)
    torch.testing.assert_close(profile.clean, torch.tensor([[3.0], [3.0]]))
    torch.testing.assert_close(profile.ratio["em_fixed"], torch.tensor([[4.29 / 9], [0.01]]))
    torch.testing.assert_close(
        profile.ratio["em_propagated"], torch.tensor([[4.29 / 9], [0.0625 / 9]])
    )


# --- on real layers ----------------------------------------------------------------------------


def model_and_gates(name: str, batch: Batch) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = make_model(name, 5, 2, hidden_size=16, edge_size=3).eval()
    return model, torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(1))


def test_nc_keeps_the_scale_of_fixed_inputs_where_em_loses_it(batch):
    """The ratio of one edge has deviation 2 sqrt(rho (1 - rho) / F) = 1 / sqrt(F) at rho = 0.5."""
    model, gate = model_and_gates("sage", batch)
    half, draws = torch.full_like(gate, 0.5), 200
    profile = scale_profile(model, batch, half, num_draws=draws)
    sizes = torch.tensor([5.0, 16.0, 16.0])[:, None]  # of the messages of each layer
    allowed = 4 * (1 / (sizes * draws)).sqrt()  # at most, with all of a layer's scale on one edge
    assert bool(((profile.ratio["nc_fixed"] - 1).abs() < allowed).all())
    torch.testing.assert_close(profile.ratio["em_fixed"], torch.full((3, 5), 0.25))
    assert float(profile.ratio["em_propagated"][-1].max()) < 0.25


def test_measuring_leaves_model_mode_and_randomness_alone(batch, snapshot):
    model, gate = model_and_gates("gin", batch)
    model.train()
    before, randomness = snapshot(model), torch.get_rng_state()
    scale_profile(model, batch, gate, num_draws=2)
    perturbation_distances(model, batch, gate, NoiseCorruption(), num_draws=2)
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), randomness)


# --- distances ---------------------------------------------------------------------------------


def test_distances_of_em_by_hand(arrow):
    """h(G) = sum of messages = (3, 2), EM gives (2.5, 0.2); logits are h itself."""
    model = Sums(1, nn.Linear(2, 2, bias=False))
    model.head.weight.data.copy_(torch.eye(2))
    got = perturbation_distances(model, arrow, RHO, ElementMask())
    moved = math.hypot(0.5, 1.8) / math.hypot(3, 2)
    assert got.representation.tolist() == pytest.approx([moved], rel=1e-5)
    assert got.prediction.tolist() == [0.0]  # class 0 leads by more than before
    assert got.confidence.tolist() == pytest.approx([1 / (1 + math.exp(-2.3))], rel=1e-5)
    back = perturbation_distances(model, arrow, torch.tensor([0.0, 0.5, 1.0]), ElementMask())
    lost = math.log1p(math.exp(1)) - math.log1p(math.exp(-1))  # from (3, 2) to (1, 2)
    assert back.prediction.tolist() == pytest.approx([lost], rel=1e-5)


def test_distances_of_nc_equal_a_plain_loop(batch):
    model, gate = model_and_gates("gin", batch)
    got = perturbation_distances(model, batch, gate, NoiseCorruption(4), num_draws=3, seed=7)
    args = (batch.x, batch.edge_index, batch.batch)
    edge_batch = batch.batch[batch.edge_index[0]]
    slot = torch.cat([torch.arange(int((edge_batch == g).sum())) for g in range(5)])
    with torch.no_grad():
        h, log_p = model.embed(*args), model(*args).log_softmax(1)
        best = log_p.argmax(1, keepdim=True)
        moved, lost, kept = [], [], []
        for n in range(3):
            stream = mix(7, "distance", n)
            with intervene(model, NoiseCorruption(4), gate, slot=slot, stream=stream):
                log_q = model(*args).log_softmax(1)
            with intervene(model, NoiseCorruption(4), gate, slot=slot, stream=stream):
                moved.append((model.embed(*args) - h).norm(dim=1) / h.norm(dim=1))
            lost.append((log_p - log_q).gather(1, best)[:, 0].clamp(min=0))
            kept.append(log_q.exp().gather(1, best)[:, 0])
    torch.testing.assert_close(got.representation, torch.stack(moved).mean(0))
    torch.testing.assert_close(got.prediction, torch.stack(lost).mean(0))
    torch.testing.assert_close(got.confidence, torch.stack(kept).mean(0))
