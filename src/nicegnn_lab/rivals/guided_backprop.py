"""Guided backpropagation: saliency that lets only positive gradients pass a ReLU."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nicegnn.explain.explainer import ScoreConfig, ScoreExplainer
from nicegnn.explain.opinions import slope_in
from nicegnn.intervention.query import Query
from nicegnn.target.message_layers import hooked, unwrap


@dataclass(frozen=True)
class GuidedBackpropConfig(ScoreConfig):
    absolute: bool = False  # size of the slope; else the slope with its sign


class GuidedBackprop(ScoreExplainer):
    r"""Scores an edge by the slope of the explained logit; ReLUs drop negative gradients.

    .. math:: s_e = \frac{\partial^+ f_c}{\partial m_e}\Big|_{m = 1}, \qquad
        \text{where } \frac{\partial^+}{\partial a} = [a > 0] \,
        \Big[\frac{\partial^+}{\partial z}\Big]_+ \text{ at every } z = \mathrm{ReLU}(a)

    Symbols: :math:`m_e` -> ``gate``, ``[1, E]``, one weight per directed edge in all layers;
    :math:`f_c` -> `Query.evidence`, ``[1, B]``; :math:`s_e` -> the returned score, ``[E]``, signed.
    """

    name = "guided-backprop"
    config_type = GuidedBackpropConfig
    config: GuidedBackpropConfig

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        def guide(_: nn.Module, __: Any, output: Tensor) -> None:
            if output.grad_fn is not None:  # its own backward gives 0 where a <= 0
                output.grad_fn.register_prehook(lambda grads: tuple(grad.relu() for grad in grads))

        gate = query.clean.new_ones(1, query.case.num_edges).requires_grad_()
        handles = [one.register_forward_hook(guide) for one in _relu_modules(query.target.model)]
        with torch.enable_grad(), hooked(handles):
            value = query.evidence(gate)
        slope = slope_in(value, gate)[0].detach()  # [E]
        return slope.abs() if self.config.absolute else slope

    def _notes(self, query: Query) -> Sequence[str]:
        has_relus = _relu_modules(query.target.model) or not query.case.num_edges
        note = "The model has no nn.ReLU module: scores are plain slopes. Use nn.ReLU modules."
        return () if has_relus else (note,)


def _relu_modules(model: nn.Module) -> list[nn.Module]:
    return [module for module in unwrap(model).modules() if isinstance(module, nn.ReLU)]
