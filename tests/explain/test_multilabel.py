"""Models of several labels: each label is read as present or absent, whatever the others say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.errors import NotFittedError, TargetError
from nicegnn.explain.registry import get_explainer, list_explainers
from tests.explain.small_models import FAST, PAPER, Smooth

LABELS = 3


class Labels(nn.Module):
    """Three logits or probabilities that do not exclude each other."""

    def __init__(self, return_type: str = "raw") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.return_type = Smooth(LABELS, scale=2.0), return_type

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        out = self.inner(x, edge_index, batch)
        if self.return_type == "raw":
            return out
        return out.sigmoid() if self.return_type == "probs" else nn.functional.logsigmoid(out)


class OneLabel(nn.Module):
    """One label of such a model alone, a binary model."""

    def __init__(self, model: nn.Module, label: int) -> None:
        super().__init__()
        self.model, self.label = model, label

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.model(x, edge_index, batch)[:, self.label : self.label + 1]


@pytest.mark.parametrize("return_type", ["raw", "probs", "log_probs"])
@pytest.mark.parametrize("label", range(LABELS))
def test_a_label_is_explained_as_a_binary_model(
    label: int, return_type: str, graphs: list[Data]
) -> None:
    model = Labels(return_type)
    found = NICE(model, FAST, mode="multilabel", return_type=return_type).explain(
        graphs, target=label
    )
    alone = NICE(OneLabel(model, label), FAST, mode="binary", return_type=return_type)
    expected = alone.explain(graphs)
    assert torch.equal(found.bond_score, expected.bond_score)
    assert torch.equal(found.prediction, expected.prediction)
    assert torch.equal(found.target, expected.target)  # 0 absent, 1 present
    assert any(f"Label {label} is explained" in note for note in found.status.notes)


@pytest.mark.parametrize("name", sorted(set(list_explainers()) - {"ground-truth"}))
def test_rivals_explain_a_label_as_a_binary_model(name: str, graphs: list[Data]) -> None:
    model, results = Labels(), []
    for graph in graphs:
        graph.edge_truth = torch.arange(graph.num_edges) < 2
    for given, settings in (
        (model, {"mode": "multilabel"}),
        (OneLabel(model, 2), {"mode": "binary"}),
    ):
        explainer = get_explainer(name, given, **settings)
        short = {k: 2 for k in ("steps", "num_samples", "rollouts") if hasattr(explainer.config, k)}
        if name.startswith("nice"):
            short = {"boundary": PAPER.boundary}
        config = explainer.config.with_(**short)
        explainer = type(explainer)(given, config, **settings)
        which = 2 if settings["mode"] == "multilabel" else None
        explainer.fit(graphs, target=which, progress=False)
        results.append(explainer.explain(graphs, target=which).bond_score)
    torch.testing.assert_close(*results)


def test_the_label_must_be_named_and_known(ring: Data) -> None:
    nice = NICE(Labels(), FAST, mode="multilabel")
    with pytest.raises(TargetError, match=r"name the label to explain, 0 to 2.*got None"):
        nice.explain(ring)
    with pytest.raises(TargetError, match=r"label from 0 to 2 \(got 5\)"):
        nice.explain(ring, target=5)
    with pytest.raises(TargetError, match="one label for all graphs"):
        nice.explain([ring, ring], target=torch.tensor([0, 1]))
    with pytest.raises(TargetError, match="name the label to explain"):
        NICE(Labels(), PAPER, mode="multilabel").fit([ring], progress=False)
    with pytest.raises(TargetError, match=r"for mode='multilabel' \(got 1 with mode='auto'\)"):
        NICE(Smooth(), FAST).fit([ring], target=1, progress=False)


def test_a_fit_belongs_to_its_label(graphs: list[Data], tmp_path: Path) -> None:
    model = Labels()
    nice = NICE(model, PAPER, mode="multilabel").fit(graphs, target=1, progress=False)
    found = nice.explain(graphs)
    assert any("Label 1 is explained" in note for note in found.status.notes)
    assert torch.equal(nice.explain(graphs, target=1).bond_score, found.bond_score)
    with pytest.raises(NotFittedError, match=r"fitted for, 1 \(got 2\)"):
        nice.explain(graphs, target=2)
    nice.save(tmp_path / "label.nice")
    again = NICE.load(tmp_path / "label.nice", model)
    assert torch.equal(again.explain(graphs).bond_score, found.bond_score)
