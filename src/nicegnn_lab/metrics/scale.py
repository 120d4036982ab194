"""Scale Drift: how strongly a mechanism shrinks the messages of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import InterventionError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import InterventionReport, Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.mixing import find_mixing
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Inputs, Mode, ReturnType, Target
from nicegnn_lab.metrics.readout import capture_readout


@dataclass(frozen=True)
class ScaleProfile:
    r"""Message scale of each layer, clean and under EM and NC, for each graph of a batch.

    Ratios are perturbed over clean scale: 1 is no drift. "Fixed" holds the inputs of each layer
    clean (Theorem 1); "propagated" lets damaged messages through the layers. With fixed
    inputs the ratio of EM is :math:`1 - \sum_e (1 - \rho_e^2) \eta_e`, and that of NC, a mean over
    draws, has the expectation 1.
    """

    layers: list[str]  # names of the layers in call order, L of them
    clean: Tensor  # S(G), mean squared message norm, [L, B]
    share: Tensor  # eta, share of a layer's scale carried by an edge, [L, E]
    em_fixed: Tensor  # [L, B]
    em_propagated: Tensor  # [L, B]
    nc_fixed: Tensor  # [L, B]
    nc_propagated: Tensor  # [L, B]
    drift_bound: Tensor  # lower bound of the Corollary on the EM drift with fixed inputs, [B]
    clean_loops: dict[str, int]  # self-loops that a layer added; they are left out of every scale
    exchange_fixed: Tensor | None = None  # None without `exchange`, [L, B]
    exchange_propagated: Tensor | None = None  # [L, B]

    def log_drift(self, which: str = "em_propagated") -> Tensor:
        r"""Returns the cumulative log-drift :math:`-\sum_{k \le l} \log S_\Psi / S`, ``[L, B]``."""
        ratio: Tensor = getattr(self, which)
        return -ratio.clamp(min=1e-30).log().cumsum(0)


def scale_profile(
    model: nn.Module,
    graphs: Data | Batch | Sequence[Data],
    gate: Tensor | float = 0.5,
    *,
    num_draws: int = 16,
    seed: int = 0,
    exchange: Prototypes | None = None,
    inputs: Inputs = None,
) -> ScaleProfile:
    r"""Measures the layer-wise message scale, clean and under EM and NC with the same gates.

    .. math:: S^{(l)}(G) = \tfrac1{|E|} \sum_e \|m_e^{(l)}\|_2^2, \qquad
        \eta_e^{(l)} = \|m_e^{(l)}\|_2^2 \Big/ \sum_a \|m_a^{(l)}\|_2^2
        \qquad \text{(Eq. 2, 5)}

    Args:
        gate: one gate per directed edge, or one for all.
        exchange: real edges, ``background.sample``, to measure exchange with beside EM and NC.

    Example:
        >>> from nicegnn.target.zoo import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> scale_profile(GIN(3, 2).eval(), graph, 0.5).em_fixed[:, 0].tolist()  # rho squared
        [0.25, 0.25, 0.25]
    """
    # the output itself is not read
    target = Target(model, inputs=inputs, mode="regression").private()
    case = make_case(to_batch(graphs).to(target.device))
    rho = edge_gates(gate, case)
    mechanisms: dict[str, tuple[Mechanism, int]] = {
        "em": (ElementMask(), 1),
        "nc": (NoiseCorruption(seed), num_draws),
    }
    if exchange is not None:
        mechanisms["exchange"] = (Exchange(exchange, each="edge", seed=seed), num_draws)
    measured: dict[str, Tensor] = {}
    with torch.no_grad():
        clean, report = _norms(target, case, lambda message, gate, site: message, rho, 0, True)
        for name, (mechanism, draws) in mechanisms.items():
            for way, propagate in (("fixed", False), ("propagated", True)):
                total = torch.zeros_like(clean)
                for n in range(draws):
                    stream = mix(seed, "scale", n)
                    total += _norms(target, case, mechanism, rho, stream, propagate)[0]
                measured[f"{name}_{way}"] = _mean(total / draws, case)
    scale = _mean(clean, case)  # [L, B]
    number = torch.bincount(case.edge_batch, minlength=case.num_graphs)
    share = clean / (scale * number)[:, case.edge_batch].clamp(min=1e-30)  # [L, E]
    return ScaleProfile(
        layers=report.layers,
        clean=scale,
        share=share,
        drift_bound=drift_lower_bound(share, rho, case.edge_batch, case.num_graphs),
        clean_loops=report.clean_loops,
        **{  # nan where a layer sends no clean message at all
            name: torch.where(scale > 0, value / scale.clamp(min=1e-30), torch.nan)
            for name, value in measured.items()
        },
    )


def drift_lower_bound(share: Tensor, gate: Tensor, edge_batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the best lower bound of the Corollary on the cumulative EM drift, ``[B]``.

    .. math:: -\sum_l \log \frac{S_{EM}^{(l)}}{S^{(l)}}
        \ge -L \log[1 - (1 - \rho_e^2)\, \underline\eta_e],
        \qquad \underline\eta_e = \min_l \eta_e^{(l)}  \qquad \text{(Eq. 7)}

    The bound holds for every edge; we return the largest of a graph.
    """
    lowest = share.min(0).values  # [E]
    inner = 1 - (1 - gate.square()) * lowest
    bound = -share.size(0) * inner.clamp(min=1e-30).log()
    out = share.new_zeros(num_graphs)
    return out.scatter_reduce(0, edge_batch, bound, "amax", include_self=True)


@dataclass(frozen=True)
class Distances:
    """Distances of each graph under a mechanism from its clean computation (Appendix G)."""

    representation: Tensor  # D_repr, normalised distance of the graph representation, [B]
    prediction: Tensor  # D_pred, one-sided loss of the target's log-probability, [B]
    confidence: Tensor  # probability of the target class under perturbation, [B]


def perturbation_distances(
    model: nn.Module,
    graphs: Data | Batch | Sequence[Data],
    gate: Tensor | float,
    mechanism: Mechanism,
    *,
    num_draws: int = 50,
    seed: int = 0,
    representation: str | None = None,
    mode: Mode = "auto",
    return_type: ReturnType = "auto",
    inputs: Inputs = None,
) -> Distances:
    r"""Measures how far `mechanism` moves representation and prediction with fixed gates.

    .. math:: D_{repr} = \frac{\|\tilde h - h(G)\|_2}{\|h(G)\|_2 + \varepsilon}, \qquad
        D_{pred} = [\log p_{y^*}(G) - \log p_{y^*}(\rho, \epsilon)]_+
        \qquad \text{(Eq. 27, 29)}

    Both are averaged over `num_draws` draws; a mechanism without randomness needs one.
    """
    target = Target(model, inputs=inputs, mode=mode, return_type=return_type).private()
    batch = to_batch(graphs).to(target.device)
    find_mixing(target, batch)
    whole = make_case(batch)
    rho = edge_gates(gate, whole)
    parts = [(whole, rho)]
    if not target.is_batched and whole.num_graphs > 1:
        parts = [
            (make_case(to_batch(graph)), rho[whole.edge_batch == number])
            for number, graph in enumerate(batch.to_data_list())
        ]
    with torch.no_grad():
        found = [
            _distances(Query(target, case, mechanism), own, num_draws, seed, representation)
            for case, own in parts
        ]
    return Distances(*(torch.cat(values) for values in zip(*found, strict=True)))


def _distances(
    query: Query, rho: Tensor, num_draws: int, seed: int, representation: str | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the three values of `Distances` for graphs that the model takes in one call."""
    target, case, draws = query.target, query.case, query.draws(num_draws)
    with capture_readout(target.model, case.num_graphs, representation) as readout:
        target.call(case.batch)
        clean = readout.value
        norm = clean.norm(dim=1) + 1e-12
        moved, lost, kept = (torch.zeros_like(norm) for _ in range(3))
        for n in range(draws):
            out = query.answers(rho.unsqueeze(0), mix(seed, "distance", n))  # [1, B, C]
            moved += (readout.value - clean).norm(dim=1) / norm
            lost += target.degradation(query.clean, out, query.explained)[0]
            if target.mode == "regression":
                kept += torch.nan
            else:
                kept += out[0].gather(1, query.explained.view(-1, 1)).squeeze(1).exp()
    return moved / draws, lost / draws, kept / draws


def edge_gates(gate: Tensor | float, case: Case) -> Tensor:
    """Returns one gate per directed edge, ``[E]``; a single number counts for all."""
    device = case.edge_batch.device
    rho = torch.as_tensor(gate, dtype=torch.get_default_dtype(), device=device)
    if rho.dim() == 0:
        rho = rho.expand(case.num_edges)
    if rho.numel() != case.num_edges:
        raise InterventionError(
            f"`gate` must be one number or one per directed edge, {case.num_edges} "
            f"(got {rho.numel()})."
        )
    return rho.contiguous()


def _norms(
    target: Target, case: Case, mechanism: Mechanism, rho: Tensor, stream: int, propagate: bool
) -> tuple[Tensor, InterventionReport]:
    """Returns the squared norm of each edge's message after `mechanism`, ``[L, E]``.

    The next layer receives the changed messages if `propagate`, else the clean ones.
    """
    norms: list[Tensor] = []
    edge_index = case.batch.edge_index
    is_no_loop = edge_index[0] != edge_index[1]

    def record(message: Tensor, gate: Tensor, site: Site) -> Tensor:
        out = mechanism(message, gate, site)
        norm = out.square().sum(1)
        if norm.numel() != case.num_edges:  # the layer replaced the graph's loops by its own
            norm = norm.new_zeros(case.num_edges).masked_scatter(is_no_loop, norm)
        norms.append(norm)
        return out if propagate else message

    with intervene(
        target.model, record, rho, edge_index=edge_index, slot=case.slot, stream=stream
    ) as report:
        target.call(case.batch)
    return torch.stack(norms), report


def _mean(edge_value: Tensor, case: Case) -> Tensor:
    total = edge_value.new_zeros(edge_value.size(0), case.num_graphs)
    total = total.index_add(1, case.edge_batch, edge_value)
    number = torch.bincount(case.edge_batch, minlength=case.num_graphs).clamp(min=1)
    return total / number
