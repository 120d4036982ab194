"""NICE as an algorithm of ``torch_geometric.explain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel

from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError, TargetError
from nicegnn.explain.checks import checked_config
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.explain.node_tasks import check_index
from nicegnn.intervention.background import Background
from nicegnn.intervention.intervene import Mechanism
from nicegnn.target.frozen_model import forward_parameters
from nicegnn.target.output import Mode

_MODES: dict[ModelMode, Mode] = {
    ModelMode.binary_classification: "binary",
    ModelMode.multiclass_classification: "multiclass",
    ModelMode.regression: "regression",
}


class NICEAlgorithm(ExplainerAlgorithm):
    """Lets PyG's ``Explainer`` run NICE, and PyG's metrics and drawings read its result.

    The returned ``edge_mask`` lies in [0, 1]: sizes of scores divided by the largest of the graph,
    and 0 for negative scores of classes. The scores are ``edge_score``, the gates ``edge_gate``,
    and the whole result with its quality report is ``nice``.

    ``nice`` can be an explainer of the same model; ``background`` are graphs like those that the
    model was trained on. ``mechanism`` and ``seed`` replace those of ``config``.

    Example:
        >>> from torch_geometric.explain import Explainer
        >>> from nicegnn.target.zoo import GIN
        >>> explainer = Explainer(
        ...     GIN(3, 2), algorithm=NICEAlgorithm(), explanation_type="model",
        ...     edge_mask_type="object", model_config=dict(
        ...         mode="multiclass_classification", task_level="graph", return_type="raw"))
        >>> explainer(torch.eye(3), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).edge_mask.shape
        torch.Size([4])
    """

    def __init__(
        self,
        config: NICEConfig | None = None,
        *,
        nice: NICE | None = None,
        background: Background | Sequence[Any] | None = None,
        mechanism: str | Mechanism | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        config = checked_config(config)
        self.config = nice.config if nice is not None else config
        self._nice = [nice]  # in a list, so that the model does not become a part of this module
        self.mechanism, self.background, self.seed = mechanism, background, seed

    def supports(self) -> bool:
        """Whether the task is an edge mask for predictions of graphs or nodes."""
        has_no_nodes = self.explainer_config.node_mask_type is None
        has_edges = self.explainer_config.edge_mask_type == MaskType.object
        level = self.model_config.task_level
        return has_no_nodes and has_edges and level in (ModelTaskLevel.graph, ModelTaskLevel.node)

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> PyGExplanation:
        """Computes the explanation; called by PyG's ``Explainer``."""
        if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor):
            raise GraphError(
                f"`x` and `edge_index` must be tensors (got {type(x).__name__} and "
                f"{type(edge_index).__name__}). NICE explains homogeneous graphs only."
            )
        batch = batch_of(x, edge_index, kwargs)
        nice = self._explainer(model, kwargs)
        is_regression = self.model_config.mode == ModelMode.regression
        chosen = None if is_regression else target.view(-1)
        if self.model_config.task_level == ModelTaskLevel.node:
            if index is None:
                raise TargetError("`index` must name the node to explain (got None).")
            nodes = check_index(index, x.size(0)).to(x.device)
            classes = None if chosen is None else chosen[nodes]
            out = nice.explain(batch, index=nodes, target=classes, seed=self.seed, trust=False)
            origin, everywhere = out.edge_origin, x.new_zeros(edge_index.size(1))
            assert origin is not None  # explanations of nodes say where their edges are
            score = everywhere.index_add(0, origin, out.edge_score)
            gate = everywhere.scatter_reduce(0, origin, out.gate, "amax")
            mask = _to_mask(score, torch.zeros_like(score, dtype=torch.long), 1)
        else:
            out = nice.explain(batch, target=chosen, seed=self.seed, trust=False)
            score, gate = out.edge_score, out.gate
            if index is not None:
                graphs = check_index(index, out.num_graphs, "graph").to(x.device)
                wanted = torch.isin(out.edge_batch, graphs)
                score, gate = score * wanted, gate * wanted
            mask = _to_mask(score, out.edge_batch, out.num_graphs)
        return PyGExplanation(edge_mask=mask, edge_score=score, edge_gate=gate, nice=_Held(out))

    def _explainer(self, model: nn.Module, kwargs: dict[str, Any]) -> NICE:
        fitted = self._nice[0]
        if fitted is not None:
            if fitted.target.model is not model:
                raise TargetError(
                    "`nice` must be fitted for the model object of Explainer(...) (got another "
                    "model)."
                )
            return fitted
        names = [key for key in kwargs if key not in ("batch", "batch_size")]
        with_batch = "batch" in forward_parameters(model) or "batch" in kwargs

        def call(model: nn.Module, batch: Batch) -> Tensor:
            extra = {key: batch[key] if key in batch else kwargs[key] for key in names}
            if with_batch:
                extra["batch"] = batch.batch
            if "batch_size" in kwargs:
                extra["batch_size"] = batch.num_graphs
            return model(batch.x, batch.edge_index, **extra)

        return NICE(
            model,
            self.config,
            background=self.background,
            mechanism=self.mechanism,
            mode=_MODES[self.model_config.mode],
            return_type=self.model_config.return_type.value,
            inputs=call,
            batched=None if with_batch else False,
        )


class _Held:
    """Carries an explanation through PyG's Data, which would try to copy a bare dataclass."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.explanation, name)


def batch_of(x: Tensor, edge_index: Tensor, extra: dict[str, Any]) -> Batch:
    """Builds a ``Batch`` from the tensors that a model is called with."""
    vector = extra.get("batch")
    vector = edge_index.new_zeros(x.size(0)) if vector is None else vector
    if vector.numel() and bool((vector[1:] < vector[:-1]).any()):
        raise GraphError("`batch` must be sorted (got an unsorted one).")
    num_graphs = int(vector.max()) + 1 if vector.numel() else 1
    out = Batch(x=x, edge_index=edge_index, batch=vector)
    for key, value in extra.items():
        if key not in ("batch", "batch_size") and isinstance(value, Tensor):
            out[key] = value
    sizes = torch.bincount(vector, minlength=num_graphs)
    out.ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    out._num_graphs = num_graphs
    return out


def _to_mask(score: Tensor, edge_batch: Tensor, num_graphs: int) -> Tensor:
    positive = score.clamp(min=0)
    largest = positive.new_zeros(num_graphs).scatter_reduce(0, edge_batch, positive, "amax")
    return positive / largest.clamp(min=1e-30)[edge_batch]
