"""Masks over directed edges: networks that predict them, relaxed samples, penalties per graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from nicegnn.errors import GraphError, TargetError
from nicegnn.explain.explainer import Count, NotNegative, ScoreConfig
from nicegnn.graph.case import Case
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.losses import log_odds
from nicegnn_lab.rivals.learned import LearnedConfig, LearnedRival, Survey

Layers = Literal["all", "last"]


@dataclass(frozen=True)
class MaskConfig(LearnedConfig):
    size: NotNegative = 0.005  # weight of the sum of a graph's mask
    entropy: NotNegative = 1.0  # weight of the mean entropy of a graph's mask
    hidden_size: Count = 64  # width of the mask network
    layers: Layers = "last"  # node states that it reads: of the ``last`` layer, or of ``all``


class MaskPredictor(LearnedRival):
    r"""A rival whose network gives each directed edge the logit of its mask, from node states.

    .. math:: \omega_e = \mathrm{MLP}_\theta([z_u \| z_v]), \qquad
        m_e = \sigma\big((\log \epsilon - \log(1 - \epsilon) + \omega_e) / T\big)

    Symbols: :math:`z` -> `edge_states`; :math:`\omega` -> ``logit``, ``[E]``, which is also the
    score, so that large masks do not tie; :math:`m` -> ``mask``, ``[E]``, a relaxed sample;
    :math:`T` -> temperature, from 5 at the first step to 1.
    """

    config_type: ClassVar[type[ScoreConfig]] = MaskConfig
    config: MaskConfig

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        sizes = survey.state_sizes[-1:] if self.config.layers == "last" else survey.state_sizes
        return {"in_size": 2 * sum(sizes)}  # width of `edge_states`

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        return EdgeMLP(shape["in_size"], self.config.hidden_size)

    def _mask_network(self, net: Any) -> nn.Module:
        return net  # the part that predicts masks

    def _logit(self, net: Any, query: Query) -> Tensor:
        return self._mask_network(net)(edge_states(query, self.config.layers))

    def _penalised(self, loss: Tensor, query: Query, mask: Tensor, margin: float = 0.0) -> Tensor:
        weights = self.config.size, self.config.entropy, margin
        return add_penalties(loss, query.case, mask, reached_edges(query.case), *weights)

    def _sample(self, logit: Tensor, step: int, seed: int) -> Tensor:
        r"""Returns a relaxed sample before its sigmoid, at :math:`T = 5 (1 / 5)^{s / S}`."""
        return relax(logit, 5 * (1 / 5) ** (step / self.config.steps), mix(seed, "relax"))

    @torch.no_grad()
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        return self._logit(self._fitted(), query)


def edge_states(query: Query, layers: Layers) -> Tensor:
    r"""Returns the inputs of a mask network for each directed edge, ``[E, D]``.

    .. math:: [z_u \,\|\, z_v]

    Symbols: :math:`z` -> node states that the last or all message-passing layers of the target
    return, ``[V, F]``.
    """
    case = query.case
    states = query.states[-1:] if layers == "last" else query.states
    for state in states:
        if state.size(0) != case.batch.num_nodes:
            raise TargetError(
                f"Every message-passing layer must return one row per node, "
                f"{case.batch.num_nodes} (got {state.size(0)}). For a model that pools nodes, use "
                "an explainer without node states, such as gnnexplainer."
            )
    z = torch.cat(states, dim=1).float()
    u, v = case.batch.edge_index
    return torch.cat([z[u], z[v]], dim=1)


class EdgeMLP(nn.Module):
    r"""A small network that gives each directed edge a number.

    .. math:: \omega_e = w_2^\top \mathrm{ReLU}(W_1 [z_u \| z_v] + b_1) + b_2
    """

    def __init__(self, in_size: int, hidden_size: int) -> None:
        super().__init__()
        self.in_size = in_size
        first, last = nn.Linear(in_size, hidden_size), nn.Linear(hidden_size, 1)
        self.layers = nn.Sequential(first, nn.ReLU(), last)

    def forward(self, z: Tensor) -> Tensor:
        """Returns one number per row of `z`, ``[E]``."""
        if z.size(1) != self.in_size:
            raise GraphError(
                f"Edges must have {self.in_size} input numbers, as in the fit (got {z.size(1)}). "
                "Explain graphs with the same features as those of fit()."
            )
        return self.layers(z).squeeze(1)


def uniform_noise(like: Tensor, seed: int) -> Tensor:
    """Returns one uniform number per entry, the same on every device."""
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


def normal_noise(like: Tensor, seed: int) -> Tensor:
    """Returns one normal number per entry, the same on every device."""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


def relax(logit: Tensor, temperature: float, seed: int) -> Tensor:
    r"""Returns a sample of the concrete distribution before its sigmoid, ``[E]``.

    .. math:: (\log \epsilon - \log(1 - \epsilon) + \omega) / T, \qquad
        \epsilon \sim U(0.01, 0.99)

    Symbols: :math:`\omega` -> ``logit``; :math:`T` -> ``temperature``.
    """
    eps = 0.01 + (1 - 2 * 0.01) * uniform_noise(logit, seed)
    return (eps.log() - (1 - eps).log() + logit) / temperature


def share_bonds(case: Case, edge_value: Tensor) -> Tensor:
    """Gives all directed edges of a bond their mean, ``[E]``."""
    return case.bonds.mean(edge_value)[case.bonds.edge_bond]


def binary_entropy(mask: Tensor) -> Tensor:
    """Returns the entropy of each mask value in nats; its slope is finite at 0 and 1."""
    return -mask * (mask + 1e-15).log() - (1 - mask) * (1 - mask + 1e-15).log()


def reached_edges(case: Case) -> Tensor:
    """Returns which directed edges belong to bonds that can influence the output, ``[E]``."""
    return case.reached[case.bonds.edge_bond]


def graph_sum(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Adds up the values of each graph's counted edges, ``[B]``."""
    zeros = edge_value.new_zeros(case.num_graphs)
    return zeros.index_add(0, case.edge_batch, edge_value * counted)


def graph_mean(case: Case, edge_value: Tensor, counted: Tensor) -> Tensor:
    """Averages the values of each graph's counted edges, ``[B]``; 0 without any."""
    number = graph_sum(case, torch.ones_like(edge_value), counted)
    return graph_sum(case, edge_value, counted) / number.clamp(min=1)


def add_penalties(
    loss: Tensor,
    case: Case,
    mask: Tensor,
    counted: Tensor,
    size: float,
    entropy: float,
    margin: float = 0.0,
) -> Tensor:
    r"""Adds the penalties of each graph's mask to its loss, ``[B]``.

    .. math:: L_G + a \sum_e m_e + \frac{b}{|E|} \sum_e H\big((1 - 2 \delta)\, m_e + \delta\big)

    Symbols: :math:`L_G` -> ``loss``, ``[B]``; :math:`m` -> ``mask``, ``[E]``; :math:`a, b` ->
    ``size``, ``entropy``; :math:`\delta` -> ``margin``; sums and :math:`|E|` -> edges that are
    ``counted``, bool ``[E]``.
    """
    loss = loss + size * graph_sum(case, mask, counted)
    bits = binary_entropy((1 - 2 * margin) * mask + margin)
    return loss + entropy * graph_mean(case, bits, counted)


def mean_log_prob(query: Query, edge_gate: Tensor, num_draws: int, stream: int) -> Tensor:
    """Returns the mean log-probability of the explained class over draws, ``[B]``."""
    gate = edge_gate.expand(num_draws, -1)  # [N, E]
    return class_log_prob(query, query.answers(gate, stream)).mean(0)


def class_log_prob(query: Query, answer: Tensor) -> Tensor:
    """Returns the log-probability of the explained class, ``[N, B, C]`` to ``[N, B]``."""
    if query.target.mode == "regression":  # without classes: minus the squared change
        return -query.target.degradation(query.clean, answer, query.explained)
    # slopes stay exact on confident graphs
    return nn.functional.logsigmoid(log_odds(answer, query.explained))
