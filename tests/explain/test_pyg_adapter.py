"""NICE inside ``torch_geometric.explain``, side by side with PyG's own explainers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import (
    Explainer,
    ExplainerAlgorithm,
    fidelity,
    unfaithfulness,
)

from nicegnn import NICE, NICEAlgorithm, NICEConfig
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, take_snapshot

FAST = NICEConfig()
GRAPH_TASK = {
    "mode": "multiclass_classification",
    "task_level": "graph",
    "return_type": "raw",
}


@pytest.fixture
def model() -> GIN:
    torch.manual_seed(0)
    return GIN(NUM_FEATURES, 3, hidden_size=8).eval()


def explainer_for(
    model: nn.Module, algorithm: ExplainerAlgorithm, kind: str = "model", **changes: str
) -> Explainer:
    return Explainer(
        model,
        algorithm=algorithm,
        explanation_type=kind,
        edge_mask_type="object",
        model_config=GRAPH_TASK | changes,
    )


def test_result_is_an_explanation_that_pygs_tools_accept(
    model: GIN, ring: Data, tmp_path: Path
) -> None:
    explainer = explainer_for(model, NICEAlgorithm(FAST))
    before = take_snapshot(model)
    explanation = explainer(ring.x, ring.edge_index)
    assert take_snapshot(model) == before
    assert explanation.validate()
    assert explanation.edge_mask.min() >= 0
    assert explanation.edge_mask.max() == 1
    alone = NICE(model, FAST).explain(ring)
    torch.testing.assert_close(explanation.edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
    positive, negative = fidelity(explainer, explanation)
    assert {positive, negative} <= {0.0, 1.0}
    assert 0 <= unfaithfulness(explainer, explanation, top_k=4) <= 1
    kept = explanation.get_explanation_subgraph()
    assert kept.edge_index.size(1) == int((explanation.edge_mask > 0).sum())
    explanation.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    assert (tmp_path / "graph.png").stat().st_size > 1000
    assert explanation.nice.completeness_gap.shape == (1,)


def test_batches_with_extra_arguments_equal_single_graphs(model: GIN, batch: Batch) -> None:
    explainer = explainer_for(model, NICEAlgorithm(FAST))
    together = explainer(batch.x, batch.edge_index, batch=batch.batch)
    first = batch[0]
    alone = explainer(first.x, first.edge_index)
    torch.testing.assert_close(
        together.edge_mask[: first.num_edges], alone.edge_mask, rtol=1e-3, atol=1e-4
    )
    one = explainer(batch.x, batch.edge_index, batch=batch.batch, index=0)
    assert one.edge_mask[first.num_edges :].abs().sum() == 0


@pytest.mark.parametrize(
    ("mode", "return_type", "columns"),
    [
        ("binary_classification", "raw", 1),
        ("binary_classification", "probs", 1),
        ("multiclass_classification", "log_probs", 3),
        ("multiclass_classification", "probs", 3),
        ("regression", "raw", 1),
    ],
)
def test_every_mode_of_pyg_is_read_right(
    mode: str, return_type: str, columns: int, ring: Data
) -> None:
    torch.manual_seed(0)

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = GIN(NUM_FEATURES, columns, hidden_size=8)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            out = self.inner(x, edge_index, batch)
            if return_type == "raw":
                return out
            if columns == 1:
                return out.sigmoid()
            return out.softmax(1) if return_type == "probs" else out.log_softmax(1)

    model = Wrapped().eval()
    explainer = explainer_for(model, NICEAlgorithm(FAST), mode=mode, return_type=return_type)
    explanation = explainer(ring.x, ring.edge_index)
    assert torch.isfinite(explanation.edge_mask).all()
    if mode == "regression":
        expected = NICE(model, FAST, mode="regression").explain(ring)
    elif columns == 1:
        expected = NICE(model.inner, FAST, mode="binary").explain(ring)
    else:
        expected = NICE(model.inner, FAST).explain(ring)
    torch.testing.assert_close(explanation.edge_score, expected.edge_score, rtol=1e-2, atol=1e-4)
