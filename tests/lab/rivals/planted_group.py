"""A task with a known explanation: does a tree of carbons carry a nitro group?"""

from __future__ import annotations

from functools import cache

import torch
from torch_geometric.data import Batch, Data

from nicegnn.target.zoo import GIN


def nitro_graph(label: int, seed: int) -> Data:
    """Returns a tree of carbons with an N that carries two O (label 1), or with N and O apart."""
    generator = torch.Generator().manual_seed(seed)

    def below(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    n = 6 + below(5)  # number of the N; two O come after it
    bonds = [(below(v), v) for v in range(1, n + 1)]
    bonds += [(n if label else below(n), oxygen) for oxygen in (n + 1, n + 2)]
    ends = torch.tensor(bonds).repeat_interleave(2, dim=0)
    ends[1::2] = ends[1::2].flip(1)
    order = torch.randperm(n + 3, generator=generator)
    x = torch.zeros(n + 3, 3)
    x[order, torch.tensor([0] * n + [1, 2, 2])] = 1
    truth = torch.tensor([False] * n + [bool(label)] * 2).repeat_interleave(2)
    return Data(
        x=x, edge_index=order[ends].t().contiguous(), edge_truth=truth, y=torch.tensor([label])
    )


@cache
def nitro_task() -> tuple[GIN, tuple[Data, ...], tuple[Data, ...]]:
    """Returns a GIN that knows nitro groups, training graphs, and test graphs with the group."""
    graphs = [nitro_graph(number % 2, number) for number in range(260)]
    batch = Batch.from_data_list(graphs[:200])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GIN(3, 2, hidden_size=16)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(60):
        logit = model(batch.x, batch.edge_index, batch.batch)
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(logit, batch.y).backward()
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    model.eval()
    test = Batch.from_data_list(graphs[200:])
    found = model(test.x, test.edge_index, test.batch).argmax(1)
    assert float((found == test.y).float().mean()) > 0.95
    return model, tuple(graphs[:200]), tuple(g for g in graphs[200:] if int(g.y) == 1)
