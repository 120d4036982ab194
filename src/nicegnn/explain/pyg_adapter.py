"""NICE as an algorithm of ``torch_geometric.explain``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import ExplainerAlgorithm, HeteroExplanation
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel
from torch_geometric.utils import scatter

from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.explain.checks import checked_config, explained_nodes, shown
from nicegnn.explain.explanation import Explanation, concatenate
from nicegnn.explain.nice import NICE
from nicegnn.graph.kinds import EdgeType
from nicegnn.target.frozen_model import forward_parameters
from nicegnn.target.output import Mode

_OURS = ("batch", "edge_label_index")  # what the explained rows decide
_MODES: dict[ModelMode, Mode] = {
    ModelMode.binary_classification: "binary",
    ModelMode.multiclass_classification: "multiclass",
    ModelMode.regression: "regression",
}


class NICEAlgorithm(ExplainerAlgorithm):
    """Lets PyG's ``Explainer`` run NICE, and PyG's metrics and drawings read its result.

    The returned ``edge_mask`` and ``node_mask`` (``"object"``, ``"attributes"``) lie in [0, 1]:
    sizes of scores divided by the largest of the graph, and 0 for negative scores of classes. The
    scores are ``edge_score`` and ``node_score``, and the whole result with its quality report is
    ``nice``. Graphs of several kinds give a ``HeteroExplanation``. Without ``index`` all rows of
    the output are explained, and their scores are added.

    ``background`` are graphs like those that the model was trained on.
    """

    def __init__(self, config: NICEConfig | None = None, *, background: Any = None) -> None:
        super().__init__()
        self.config, self.background = checked_config(config), background

    def supports(self) -> bool:
        """Whether masks are of edges, of nodes, or of each attribute of each node."""
        return self.explainer_config.node_mask_type != MaskType.common_attributes

    @torch.no_grad()
    def forward(
        self,
        model: nn.Module,
        x: Tensor | dict[str, Tensor],
        edge_index: Tensor | dict[EdgeType, Tensor],
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> PyGExplanation | HeteroExplanation:
        """Computes the explanation; called by PyG's ``Explainer``.

        Rows of the output are nodes, pairs of ``edge_label_index`` or graphs, whatever there are as
        many of. Rows that are neither are explained one by one, by passes over the whole input.
        """
        graph = graph_of(x, edge_index, kwargs)
        clean = model(x, edge_index, **kwargs)
        if not isinstance(clean, Tensor) or clean.dim() == 0:
            raise TargetError(f"The model must return a tensor of rows (got {shown(clean)}).")
        rows = torch.arange(clean.size(0), device=clean.device)
        if index is not None:
            rows = explained_nodes(index, clean.size(0), "row").to(clean.device)
        labels = None if self.model_config.mode == ModelMode.regression else target.view(-1)
        of_nodes = self.explainer_config.node_mask_type
        atoms: Any = "attributes" if of_nodes == MaskType.attributes else of_nodes is not None
        question = self._question(model, graph, clean, rows, kwargs)
        if question is None:
            parts = []
            for row in rows.tolist():
                one = None if labels is None else labels[row]
                nice = self._explainer(model, kwargs, row)
                parts.append(nice.explain(graph, target=one, atoms=atoms))
            return self._masks(concatenate(parts), graph, rows)
        if labels is not None and "graphs" not in question:  # else all graphs are explained
            labels = labels[rows]
        nice, asked = self._explainer(model, kwargs), {"graphs": graph, **question}
        return self._masks(nice.explain(**asked, target=labels, atoms=atoms), graph, rows)

    def _question(
        self, model: nn.Module, graph: Any, clean: Tensor, rows: Tensor, kwargs: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Returns what `NICE.explain` is asked for these rows, or None if it cannot be asked."""
        number, level = clean.size(0), self.model_config.task_level
        if isinstance(graph, HeteroData):
            fit = [kind for kind in graph.node_types if graph[kind].num_nodes == number]
            return {"index": (fit[0], rows)} if len(fit) == 1 else None
        vector, pairs = kwargs.get("batch"), kwargs.get("edge_label_index")
        if level == ModelTaskLevel.graph:
            if vector is None:
                return {} if number == 1 else None
            home, other = vector[graph.edge_index]
            is_sorted = bool((vector.diff() >= 0).all()) and bool((home.diff() >= 0).all())
            if not torch.equal(home, other) or not is_sorted or number != int(vector.max()) + 1:
                return None
            batch = Batch(batch=vector, **graph.to_dict())  # of graphs that lie side by side
            batch.ptr = torch.nn.functional.pad(torch.bincount(vector).cumsum(0), (1, 0))
            batch._num_graphs = number
            return {"graphs": batch}
        if vector is not None:  # of one graph, if it does not matter
            one_graph = {**kwargs, "batch": torch.zeros_like(vector)}
            alone = model(graph.x, graph.edge_index, **one_graph)
            if alone.shape != clean.shape or not torch.allclose(alone, clean, atol=1e-5):
                return None
        if level == ModelTaskLevel.node:
            return {"index": rows} if number == graph.num_nodes else None
        if not isinstance(pairs, Tensor) or pairs.size(1) != number:
            return None
        return {"pairs": pairs[:, rows]}

    def _masks(self, out: Explanation, graph: Any, rows: Tensor) -> Any:
        """Returns the masks that were asked for, for the whole input."""
        dense, masks = out.to_dense(), dict[str, Tensor]()
        atoms = dense.atom_score if dense.attribute_score is None else dense.attribute_score
        number = torch.arange(out.num_graphs, device=rows.device)
        node_batch = number.repeat_interleave(out.ptr.diff())
        are_parts = out.num_graphs > 1 and int(out.ptr[-1]) == graph.num_nodes
        sides = ("edge", dense.edge_score, out.edge_batch), ("node", atoms, node_batch)
        for side, value, home in sides:
            if value is None:
                continue
            if are_parts:  # graphs side by side
                value = (value.t() * torch.isin(home, rows)).t()
            else:  # the input once for each row
                value = value.view(out.num_graphs, -1, *value.shape[1:]).sum(0)
                home = value.new_zeros(value.size(0), dtype=torch.long)
            masks[f"{side}_score"] = value
            if side == "node" or self.explainer_config.edge_mask_type is not None:
                is_value = self.model_config.mode == ModelMode.regression
                size = value.abs() if is_value else value.nan_to_num(0.0).clamp(min=0)
                peak = size if size.dim() == 1 else size.amax(1)
                largest = scatter(peak, home, reduce="max").clamp(min=1e-30)  # of each graph
                mask = (size.t() / largest[home]).t()
                masks[f"{side}_mask"] = mask.view(mask.size(0), -1) if side == "node" else mask
        if not isinstance(graph, HeteroData):
            return PyGExplanation(**masks, nice=out)
        assert out.kinds is not None  # those of the graph
        found = HeteroExplanation()
        for name, value in masks.items():
            parts = out.kinds.of_each(graph, value, "edges" if name.startswith("edge") else "nodes")
            if value.dim() == 2 and value.size(1) > 1:  # padded to the widest kind
                parts = {kind: part[:, : graph[kind].x.size(1)] for kind, part in parts.items()}
            found.set_value_dict(name, parts)
        found.nice = out
        return found

    def _explainer(self, model: nn.Module, kwargs: dict[str, Any], row: int | None = None) -> NICE:
        """Returns what explains the model, or one row of its output, as the output of one graph."""
        takes_batch = "batch" in forward_parameters(model) or "batch" in kwargs

        def call(model: nn.Module, batch: Any) -> Tensor:
            if isinstance(batch, HeteroData):
                given = {k: batch.collect(k[:-5]) if isinstance(v, dict) else v for k, v in extra}
                out = model(batch.x_dict, batch.edge_index_dict, **given)
            else:
                given = {k: batch.get(k, v) for k, v in extra}
                if row is not None:
                    given |= {"batch": kwargs["batch"]} if "batch" in kwargs else {}
                else:
                    given |= {"batch": batch.batch} if takes_batch else {}
                    given |= {"batch_size": batch.num_graphs} if "batch_size" in given else {}
                out = model(batch.x, batch.edge_index, **given)
            return out if row is None else out[row : row + 1].view(1, -1)

        extra = list(kwargs.items())
        return NICE(
            model,
            self.config,
            background=self.background,
            mode=_MODES[self.model_config.mode],
            return_type=self.model_config.return_type.value,
            inputs=call,
            batched=None if takes_batch and row is None else False,
        )


def graph_of(x: Any, edge_index: Any, extra: dict[str, Any]) -> Data | HeteroData:
    """Returns the graph that a model is called with, with its further tensors."""
    if isinstance(x, dict) and isinstance(edge_index, dict):
        graph = HeteroData()
        for kind, value in x.items():
            graph[kind].x = value
        for ends, index in edge_index.items():
            graph[ends].edge_index = index
        for key, values in extra.items():
            for kind, value in values.items() if isinstance(values, dict) else ():
                graph[kind][key.removesuffix("_dict")] = value
        return graph
    if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor):
        raise GraphError(
            f"`x` and `edge_index` must be tensors, or dicts of them (got {shown(x)} and "
            f"{shown(edge_index)})."
        )
    out, rows = Data(x=x, edge_index=edge_index), (x.size(0), edge_index.size(1))
    for key, value in extra.items():  # others are the same for all parts of the graph
        is_part = isinstance(value, Tensor) and value.dim() > 0 and value.size(0) in rows
        if is_part and key not in _OURS:
            out[key] = value
    return out
