"""Scale Drift: how strongly a mechanism shrinks the messages of each layer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import TargetError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.message_layers import hooked, message_layers, unwrap


@dataclass(frozen=True)
class ScaleProfile:
    r"""Message scale of each layer, clean and under EM and NC, for each graph of a batch.

    Ratios are perturbed over clean scale: 1 is no drift. "Fixed" holds the inputs of each layer
    clean (Theorem 1); "propagated" lets damaged messages through the layers. With fixed
    inputs the ratio of NC, a mean over draws, has the expectation 1.
    """

    clean: Tensor  # S(G), mean squared message norm, [L, B]
    ratio: Mapping[str, Tensor]  # by mechanism and way, such as ``em_fixed``, [L, B] each


def scale_profile(
    model: nn.Module,
    graphs: Data | Batch | Sequence[Data],
    gate: Tensor,
    *,
    num_draws: int = 16,
    seed: int = 0,
    exchange: Prototypes | None = None,
) -> ScaleProfile:
    r"""Measures the layer-wise message scale, clean and under EM and NC with the same gates.

    .. math:: S^{(l)}(G) = \tfrac1{|E|} \sum_e \|m_e^{(l)}\|_2^2 \qquad \text{(Eq. 2)}

    The gate is one per directed edge, ``[E]``. Exchange with real edges, ``background.sample``, is
    measured beside EM and NC if they are given.
    """
    target = Target(model, mode="regression").private()  # the output itself is not read
    case = make_case(to_batch(graphs).to(target.device))
    rho = gate.to(target.device)
    mechanisms: dict[str, tuple[Mechanism, int]] = {
        "em": (ElementMask(), 1),
        "nc": (NoiseCorruption(seed), num_draws),
    }
    if exchange is not None:
        mechanisms["exchange"] = (Exchange(exchange, each="edge", seed=seed), num_draws)
    with torch.no_grad():
        scale = _scale(target, case, lambda message, gate, site: message, rho, 0, True)
        ratio = {}
        for name, (mechanism, draws) in mechanisms.items():
            for way, propagate in (("fixed", False), ("propagated", True)):
                total = torch.zeros_like(scale)
                for n in range(draws):
                    stream = mix(seed, "scale", n)
                    total += _scale(target, case, mechanism, rho, stream, propagate)
                share = total / draws / scale.clamp(min=1e-30)
                # nan where a layer sends no clean message at all
                ratio[f"{name}_{way}"] = torch.where(scale > 0, share, torch.nan)
    return ScaleProfile(scale, ratio)


@dataclass(frozen=True)
class Distances:
    """Distances of each graph under a mechanism from its clean computation (Appendix G)."""

    representation: Tensor  # D_repr, normalised distance of the graph representation, [B]
    prediction: Tensor  # D_pred, one-sided loss of the target's log-probability, [B]
    confidence: Tensor  # probability of the target class under perturbation, [B]


def perturbation_distances(
    model: nn.Module,
    graphs: Data | Batch | Sequence[Data],
    gate: Tensor,
    mechanism: Mechanism,
    *,
    num_draws: int = 50,
    seed: int = 0,
) -> Distances:
    r"""Measures how far `mechanism` moves representation and prediction of a classifier.

    .. math:: D_{repr} = \frac{\|\tilde h - h(G)\|_2}{\|h(G)\|_2 + \varepsilon}, \qquad
        D_{pred} = [\log p_{y^*}(G) - \log p_{y^*}(\rho, \epsilon)]_+
        \qquad \text{(Eq. 27, 29)}

    Gates ``[E]`` are fixed. Both are averaged over `num_draws` draws; a mechanism without
    randomness needs one.
    """
    target = Target(model).private()
    batch = to_batch(graphs).to(target.device)
    case = make_case(batch)
    rho = gate.to(target.device).unsqueeze(0)
    query = Query(target, case, mechanism)
    with torch.no_grad(), capture_readout(target.model, case.num_graphs) as readout:
        target.call(case.batch)
        clean, draws = readout.value, query.draws(num_draws)
        norm, label = clean.norm(dim=1) + 1e-12, query.explained.view(-1, 1)
        moved, lost, kept = (torch.zeros_like(norm) for _ in range(3))
        for n in range(draws):
            out = query.answers(rho, mix(seed, "distance", n))  # [1, B, C]
            moved += (readout.value - clean).norm(dim=1) / norm
            lost += target.degradation(query.clean, out, query.explained)[0]
            kept += out[0].gather(1, label).squeeze(1).exp()
    return Distances(moved / draws, lost / draws, kept / draws)


def _scale(
    target: Target, case: Case, mechanism: Mechanism, rho: Tensor, stream: int, propagate: bool
) -> Tensor:
    """Returns the mean squared norm of messages after `mechanism`, ``[L, B]``.

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

    with intervene(target.model, record, rho, edge_index=edge_index, slot=case.slot, stream=stream):
        target.call(case.batch)
    total = rho.new_zeros(len(norms), case.num_graphs)
    total = total.index_add(1, case.edge_batch, torch.stack(norms))
    return total / torch.bincount(case.edge_batch, minlength=case.num_graphs).clamp(min=1)


@dataclass
class Readout:
    """Holds the graph representation that the last forward pass of a model read out, ``[B, F]``."""

    num_graphs: int
    candidate: Tensor | None = None

    @property
    def value(self) -> Tensor:
        if self.candidate is None:
            raise TargetError(
                "The model calls no module on one row per graph "
                f"({self.num_graphs}) after its last message-passing layer. Read the graph out "
                "before the head, as the models of nicegnn.target.zoo do."
            )
        return self.candidate


@contextmanager
def capture_readout(model: nn.Module, num_graphs: int) -> Iterator[Readout]:
    """Yields a holder of the graph representation :math:`h(G)` in the model's last forward pass.

    It is the input of the first module that receives one row per graph after the last
    message-passing layer.
    """
    readout = Readout(num_graphs)
    leaves = [module for module in unwrap(model).modules() if not list(module.children())]

    def see(_: nn.Module, args: tuple[Any, ...]) -> None:
        value = args[0] if args and isinstance(args[0], Tensor) else None
        is_right = value is not None and value.dim() == 2 and value.size(0) == num_graphs
        if readout.candidate is None and is_right:
            readout.candidate = value

    def forget(*_: Any) -> None:
        readout.candidate = None

    handles = [leaf.register_forward_pre_hook(see) for leaf in leaves]
    handles += [layer.register_forward_hook(forget) for _, layer in message_layers(model)]
    with hooked(handles):
        yield readout
