"""Scale diagnostics: how strongly a mechanism shrinks the messages that propagate (Scale Drift)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import InterventionError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.intervene import InterventionReport, Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Mode, ReturnType, Target
from nicegnn.target.inner_states import capture_readout


@dataclass(frozen=True)
class ScaleProfile:
    r"""Message scale of each layer, clean and under EM and NC, for each graph of a batch.

    Ratios are perturbed over clean scale: 1 is no drift. "Fixed" holds the inputs of each layer
    clean (Theorem 1); "propagated" lets the perturbation run through the layers.

    Attributes:
        layers: names of the layers in call order, L of them.
        clean: :math:`S^{(l)}(G)`, mean squared message norm, ``[L, B]``.
        share: :math:`\eta_e^{(l)}`, share of a layer's scale carried by an edge, ``[L, E]``.
        em_fixed: EM ratio with fixed inputs, :math:`1 - \sum_e (1 - \rho_e^2) \eta_e`, ``[L, B]``.
        em_propagated: EM ratio of the whole perturbed computation, ``[L, B]``.
        nc_fixed: NC ratio with fixed inputs, mean over draws (expectation 1), ``[L, B]``.
        nc_propagated: NC ratio of the whole perturbed computation, mean over draws, ``[L, B]``.
        drift_bound: lower bound of the Corollary on the EM drift with fixed inputs, ``[B]``.
        clean_loops: self-loops per layer that the layer added itself; they stay clean and are left
            out of every scale.
    """

    layers: list[str]
    clean: Tensor
    share: Tensor
    em_fixed: Tensor
    em_propagated: Tensor
    nc_fixed: Tensor
    nc_propagated: Tensor
    drift_bound: Tensor
    clean_loops: dict[str, int]

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
    inputs: Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None = None,
) -> ScaleProfile:
    r"""Measures the layer-wise message scale, clean and under EM and NC with the same gates.

    .. math:: S^{(l)}(G) = \tfrac1{|E|} \sum_e \|m_e^{(l)}\|_2^2, \qquad
        \eta_e^{(l)} = \|m_e^{(l)}\|_2^2 \Big/ \sum_a \|m_a^{(l)}\|_2^2
        \qquad \text{(Eq. 2, 5)}

    Args:
        gate: one gate per directed edge, or one for all.
        num_draws: noise draws for NC.

    Example:
        >>> from nicegnn.target.zoo import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> scale_profile(GIN(3, 2).eval(), graph, 0.5).em_fixed[:, 0].tolist()  # rho squared
        [0.25, 0.25, 0.25]
    """
    target = Target(model, inputs=inputs, mode="regression")  # the output itself is not read
    batch = to_batch(graphs).to(target.device)
    case = make_case(batch)
    rho = edge_gates(gate, case)
    with target.frozen(), torch.no_grad():
        clean, report = _norms(target, case, _keep, torch.ones_like(rho), 0, propagate=True)
        measured: dict[str, Tensor] = {}
        for name, mechanism, draws in (
            ("em", ElementMask(), 1),
            ("nc", NoiseCorruption(seed), num_draws),
        ):
            for way, propagate in (("fixed", False), ("propagated", True)):
                total = torch.zeros_like(clean)
                for n in range(draws):
                    stream = mix(seed, "scale", n)
                    total += _norms(target, case, mechanism, rho, stream, propagate=propagate)[0]
                measured[f"{name}_{way}"] = _mean(total / draws, case)
    scale = _mean(clean, case)  # [L, B]
    number = torch.bincount(case.edge_batch, minlength=case.num_graphs)
    share = clean / (scale * number)[:, case.edge_batch].clamp(min=1e-30)  # [L, E]
    ratio = {key: _ratio(value, scale) for key, value in measured.items()}
    return ScaleProfile(
        layers=report.layers,
        clean=scale,
        share=share,
        em_fixed=ratio["em_fixed"],
        em_propagated=ratio["em_propagated"],
        nc_fixed=ratio["nc_fixed"],
        nc_propagated=ratio["nc_propagated"],
        drift_bound=drift_lower_bound(share, rho, case.edge_batch, case.num_graphs),
        clean_loops=report.clean_loops,
    )


def em_contraction(share: Tensor, gate: Tensor, edge_batch: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the scale that EM retains when the layer's inputs are held fixed, ``[L, B]``.

    .. math:: S_{EM}^{(l)} / S^{(l)} = 1 - \sum_e (1 - \rho_e^2)\, \eta_e^{(l)}
        \qquad \text{(Theorem 1; with fixed inputs it holds with equality)}

    Symbols: :math:`\eta` -> ``share``, ``[L, E]``; :math:`\rho` -> ``gate``, ``[E]``.
    """
    lost = share.new_zeros(share.size(0), num_graphs)
    return 1 - lost.index_add(1, edge_batch, (1 - gate.square()) * share)


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
    """How far a mechanism moves each graph from its clean computation (Appendix G).

    Attributes:
        representation: D_repr, normalised distance of the graph representation, ``[B]``.
        prediction: D_pred, one-sided loss of the target's log-probability, ``[B]``.
        confidence: probability of the target class under perturbation, ``[B]``.
    """

    representation: Tensor
    prediction: Tensor
    confidence: Tensor


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
    inputs: Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None = None,
) -> Distances:
    r"""Measures how far `mechanism` with fixed gates moves representation and prediction.

    .. math:: D_{repr} = \frac{\|\tilde h - h(G)\|_2}{\|h(G)\|_2 + \varepsilon}, \qquad
        D_{pred} = [\log p_{y^*}(G) - \log p_{y^*}(\rho, \epsilon)]_+
        \qquad \text{(Eq. 27, 29)}

    Both are averaged over `num_draws` draws; a mechanism without randomness needs one.
    """
    target = Target(model, inputs=inputs, mode=mode, return_type=return_type)
    batch = to_batch(graphs).to(target.device)
    case = make_case(batch)
    rho = edge_gates(gate, case)
    if not target.is_batched and case.num_graphs > 1:
        parts = [
            perturbation_distances(
                model,
                graph,
                rho[case.edge_batch == number],
                mechanism,
                num_draws=num_draws,
                seed=seed,
                representation=representation,
                mode=mode,
                return_type=return_type,
                inputs=inputs,
            )
            for number, graph in enumerate(batch.to_data_list())
        ]
        return Distances(
            torch.cat([part.representation for part in parts]),
            torch.cat([part.prediction for part in parts]),
            torch.cat([part.confidence for part in parts]),
        )
    draws = num_draws if getattr(mechanism, "is_random", True) else 1
    with target.frozen(), torch.no_grad():
        query = Query(target, case, mechanism)
        edges = torch.arange(case.num_edges, device=rho.device)
        with capture_readout(model, case.num_graphs, representation) as readout:
            target.call(batch)
            clean = readout.value
            norm = clean.norm(dim=1) + 1e-12
            moved, lost, kept = (
                torch.zeros_like(norm),
                torch.zeros_like(norm),
                torch.zeros_like(norm),
            )
            for n in range(draws):
                with intervene(
                    model,
                    mechanism,
                    rho,
                    edge_index=batch.edge_index,
                    slot=case.slot,
                    stream=mix(seed, "distance", n),
                    **query.anchored(edges),
                ):
                    out = target.read(target.call(batch))
                moved += (readout.value - clean).norm(dim=1) / norm
                lost += target.degradation(query.clean, out.unsqueeze(0), query.explained)[0]
                if target.mode != "regression":
                    kept += out.gather(1, query.explained.view(-1, 1)).squeeze(1).exp()
    confidence = kept / draws if target.mode != "regression" else torch.full_like(kept, torch.nan)
    return Distances(moved / draws, lost / draws, confidence)


def edge_gates(gate: Tensor | float, case: Case) -> Tensor:
    """Returns one gate per directed edge from one per edge, or one for all, ``[E]``."""
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


class _Recorder:
    """Records the squared norm of each message after a mechanism; may leave the message alone."""

    def __init__(self, mechanism: Mechanism, *, propagate: bool) -> None:
        self.mechanism = mechanism
        self.propagate = propagate
        self.norms: list[Tensor] = []

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        out = self.mechanism(message, gate, site)
        self.norms.append(out.square().sum(1))
        return out if self.propagate else message


def _keep(message: Tensor, gate: Tensor, site: Site) -> Tensor:
    return message


def _norms(
    target: Target, case: Case, mechanism: Mechanism, rho: Tensor, stream: int, *, propagate: bool
) -> tuple[Tensor, InterventionReport]:
    """Returns the squared norm of each edge's message after `mechanism`, ``[L, E]``."""
    recorder = _Recorder(mechanism, propagate=propagate)
    with intervene(
        target.model,
        recorder,
        rho,
        edge_index=case.batch.edge_index,
        slot=case.slot,
        stream=stream,
    ) as report:
        target.call(case.batch)
    norms = [
        norm if norm.numel() == case.num_edges else _without_loops(norm, case)
        for norm in recorder.norms
    ]
    return torch.stack(norms), report


def _without_loops(norm: Tensor, case: Case) -> Tensor:
    """Puts norms of non-loop edges in place; the graph's own loops were taken over by the layer."""
    sender, receiver = case.batch.edge_index
    out = norm.new_zeros(case.num_edges)
    out[sender != receiver] = norm
    return out


def _mean(edge_value: Tensor, case: Case) -> Tensor:
    total = edge_value.new_zeros(edge_value.size(0), case.num_graphs)
    total = total.index_add(1, case.edge_batch, edge_value)
    number = torch.bincount(case.edge_batch, minlength=case.num_graphs).clamp(min=1)
    return total / number


def _ratio(value: Tensor, scale: Tensor) -> Tensor:
    """Perturbed over clean scale; nan where a layer sends no clean message at all."""
    return torch.where(scale > 0, value / scale.clamp(min=1e-30), torch.nan)
