"""Put a mechanism of your own in the place of noise corruption."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE, Site
from nicegnn.target.zoo import GIN


class Reversal:
    """Mixes each message with itself read backwards: the same norm, another meaning, no noise.

    It looks at one edge at a time, so a graph's scores do not depend on its batch.
    """

    is_random = False

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        rho = gate.unsqueeze(1)
        return rho * message + (1 - rho) * message.flip(1)


graph = Data(
    x=torch.eye(4),
    edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]]),
)
torch.manual_seed(0)
model = GIN(4, 2)
print(NICE(model, mechanism=Reversal()).explain(graph).bond_score)
