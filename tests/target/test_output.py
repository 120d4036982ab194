"""Outputs are read by the function behind them: logits, probabilities, or what cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool

from nicegnn import NICE
from nicegnn.errors import TargetError
from tests.conftest import NUM_FEATURES

Head = Callable[[Tensor], Tensor]
BINARY = {"mode": "binary"}


class Headed(nn.Module):
    """Small logits, two or one, with a function behind them."""

    def __init__(self, head: Head, columns: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = GraphConv(NUM_FEATURES, columns), head

    def logits(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return 0.1 * global_add_pool(self.conv(x, edge_index).tanh(), batch)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.logits(x, edge_index, batch))


class Hidden(torch.autograd.Function):
    """A sigmoid that PyTorch's functions do not show."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return torch.from_numpy(1 / (1 + np.exp(-value.detach().numpy())))


def mean_of_two(z: Tensor) -> Tensor:
    return torch.stack([z.sigmoid(), z.sigmoid()]).mean(0)


def both(z: Tensor) -> Tensor:
    p = z.sigmoid()
    return torch.cat([1 - p, p], dim=1)


def expected(model: Headed, graphs: list[Data]) -> Tensor:
    """Returns log-probabilities of the logits."""
    rows = []
    for graph in graphs:
        z = model.logits(graph.x, graph.edge_index, torch.zeros(graph.num_nodes).long())
        rows.append(torch.cat([torch.zeros_like(z), z], 1) if z.size(1) == 1 else z)
    return torch.cat(rows).log_softmax(1).detach()


@pytest.mark.parametrize(
    ("head", "columns", "settings"),
    [
        (torch.sigmoid, 1, {}),
        (nn.Sigmoid(), 1, {}),
        (lambda z: z.clone().sigmoid_(), 1, {}),
        (torch.special.expit, 1, {}),
        (lambda z: z.sigmoid().squeeze(1), 1, {}),
        (mean_of_two, 1, {}),
        (f.logsigmoid, 1, {}),
        (lambda z: z.sigmoid().log(), 1, BINARY),
        (lambda z: z.sigmoid().clamp(1e-6, 1 - 1e-6), 1, BINARY),
        (lambda z: 1 - (-z).sigmoid(), 1, BINARY),
        (lambda z: z, 1, BINARY),
        (lambda z: 2 * (z / 2), 1, BINARY),
        (lambda z: z, 2, {}),
        (lambda z: z.softmax(1), 2, {}),
        (lambda z: z.exp() / z.exp().sum(1, keepdim=True), 2, {}),
        (lambda z: z.log_softmax(1), 2, {}),
        (lambda z: z.softmax(1).log(), 2, {}),
        (lambda z: z.log_softmax(1).exp(), 2, {"mode": "multiclass"}),
        (both, 1, {}),
        (lambda z: z - 7, 2, {"return_type": "raw"}),
        (lambda z: z.log_softmax(1), 2, {"return_type": "log_probs"}),
        (lambda z: z.softmax(1), 2, {"return_type": "probs"}),
        (lambda z: z, 1, BINARY | {"return_type": "raw"}),
        (Hidden.apply, 1, BINARY | {"return_type": "probs"}),
        (f.logsigmoid, 1, BINARY | {"return_type": "log_probs"}),
        (torch.sigmoid, 1, BINARY | {"return_type": "probs"}),
        (lambda z: (z, "more"), 2, {}),
    ],
)
def test_outputs_are_read_by_the_function_behind_them(
    head: Head, columns: int, settings: dict[str, Any], graphs: list[Data]
) -> None:
    model = Headed(head, columns)
    nice, wanted = NICE(model, **settings), expected(model, graphs)
    torch.testing.assert_close(nice.explain(graphs).prediction, wanted, rtol=1e-4, atol=1e-5)
    for graph, row in zip(graphs, wanted, strict=True):  # one by one they are read alike
        alone = nice.explain(graph).prediction[0]
        torch.testing.assert_close(alone, row, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("head", "columns", "settings", "words"),
    [
        (lambda z: z, 1, {}, "mode='binary' or mode='regression'"),
        (torch.sigmoid, 2, {}, "mode='multilabel' with target="),
        (torch.sigmoid, 2, {"mode": "multiclass"}, "must add up to 1"),
        (torch.sigmoid, 2, {"mode": "multiclass", "return_type": "probs"}, "must add up to 1"),
        (torch.sigmoid, 2, {"mode": "binary"}, r"one value per graph \(got 2 columns\)"),
        (torch.sigmoid, 1, {"return_type": "raw"}, "its last step is a sigmoid"),
        (lambda z: z.softmax(1), 2, {"return_type": "raw"}, "its last step is a softmax"),
        (
            lambda z: z.softmax(1) / 2,
            2,
            {"return_type": "probs"},
            r"add up to 1.*add up to 0\.5 to 0\.5",
        ),
        (lambda z: -z.abs() - 1, 2, {"return_type": "log_probs"}, "must add up to 1"),
        (lambda z: z + 5, 2, {"return_type": "probs"}, r"must lie in \[0, 1\]"),
        (Hidden.apply, 1, {"mode": "binary"}, "Pass return_type='raw' or 'probs'"),
        (Hidden.apply, 2, {}, "Pass return_type='raw' or 'probs'"),
        (lambda z: 0.9 * z.sigmoid(), 1, {"mode": "binary"}, "Pass return_type='raw' or 'probs'"),
        (lambda z: z.sigmoid() ** 2, 2, {}, "Pass return_type='raw' or 'probs'"),
    ],
)
def test_what_cannot_be_told_or_contradicts_is_named(
    head: Head, columns: int, settings: dict[str, Any], words: str, graphs: list[Data]
) -> None:
    with pytest.raises(TargetError, match=words):
        NICE(Headed(head, columns), **settings).explain(graphs)


def test_gates_inside_a_model_say_nothing_about_its_output(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    last = nn.Linear(2, 2)
    model = Headed(lambda z: 0.01 * last(z * z.sigmoid()).abs(), 2)
    out = NICE(model).explain(graphs)
    assert (out.prediction.exp() - 0.5).abs().max() < 0.01  # logits from 0 to 0.01
