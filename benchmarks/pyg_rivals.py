"""Explainers of PyTorch Geometric, called as its documentation calls them: graph by graph."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer, PGExplainer

GNN_EPOCHS = 200  # of its tutorial
PG_EPOCHS = 30  # of its docstring
MODEL = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


class PyGRival:
    """One of PyG's explainers on a copy of the model, on which it may leave masks behind.

    The word ``algorithm`` is ``gnnexplainer``, ``pgexplainer`` or ``captum-ig``.
    """

    def __init__(self, model: nn.Module, algorithm: str) -> None:
        self.model = copy.deepcopy(model)
        self.device = next(model.parameters()).device
        make = {
            "gnnexplainer": lambda: GNNExplainer(epochs=GNN_EPOCHS),
            "pgexplainer": lambda: PGExplainer(epochs=PG_EPOCHS).to(self.device),
            "captum-ig": lambda: CaptumExplainer("IntegratedGradients"),
        }
        learns = algorithm == "pgexplainer"
        self.explainer = Explainer(
            self.model,
            algorithm=make[algorithm](),
            explanation_type="phenomenon" if learns else "model",
            node_mask_type="attributes" if algorithm == "gnnexplainer" else None,
            edge_mask_type="object",
            model_config=MODEL,
        )
        self.learns = learns

    def fit_epoch(self, graphs: Sequence[Data], epoch: int) -> None:
        """Trains PGExplainer on some graphs, one step for each."""
        for graph in graphs:
            call = self._call(graph.to(self.device))
            x, edge_index = call.pop("x"), call.pop("edge_index")
            self.explainer.algorithm.train(epoch, self.model, x, edge_index, **call)

    def skip_fit(self, graph: Data) -> None:
        """Declares PGExplainer trained, which does not change what an explanation costs."""
        self.fit_epoch([graph], PG_EPOCHS - 1)

    def explain(self, graph: Data) -> Any:
        """Returns PyG's explanation of one graph."""
        call = self._call(graph)
        x, edge_index = call.pop("x"), call.pop("edge_index")
        if not self.learns:
            call.pop("target")  # PyG takes the prediction itself
        return self.explainer(x, edge_index, **call)

    def _call(self, graph: Data) -> dict[str, Any]:
        """Returns the graph's tensors and its predicted class."""
        batch = torch.zeros(int(graph.num_nodes), dtype=torch.long, device=self.device)
        with torch.no_grad():
            target = self.model(graph.x, graph.edge_index, batch).argmax(1)
        return {"x": graph.x, "edge_index": graph.edge_index, "batch": batch, "target": target}
