"""Views (mechanisms with their gates), the comparison of noise with masking, joined scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_mean_pool

from nicegnn.attribution.bond_by_bond import bond_wise_gradient
from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import corrupted_risk, optimise_logits
from nicegnn.config import NICEConfig
from nicegnn.graph.case import Case, make_case, rank_within
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import batch_of_step
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target

CLEAR_GAIN = 0.03  # noise is dropped if masking keeps this much more probability
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_READ_GRAPHS, _JUDGED_GRAPHS = 512, 48  # graphs that are read; graphs of each class to compare on
_FEWEST_GRAPHS, _MOST_PAIRS = 8, 5e7  # fewer graphs are compared if they have many pairs of edges
_DRAWS = 8


@dataclass
class View:
    """A mechanism, and the gates that were fitted under it, if any."""

    mechanism: Mechanism  # for attribution
    boundary_mechanism: Mechanism  # for gates and boundary
    gates: GateNetwork | None = None

    def knows(self, query: Query) -> Tensor:
        """Returns whether the gates were fitted for each graph's class, ``[B]``."""
        if self.gates is None:
            return torch.zeros_like(query.explained, dtype=torch.bool)
        return self.gates.is_trained_for(query.explained.clamp(min=0))

    def order(
        self, query: Query, config: NICEConfig, seed: int, reference: Tensor | None = None
    ) -> Tensor:
        """Returns the logit of each bond, ``[M]``: of the gates, or optimised graph by graph.

        The query must use `boundary_mechanism`; ``reference`` is the risk at full corruption,
        ``[B]``, computed if needed.
        """
        known = self.knows(query)
        if self.gates is not None:
            with torch.no_grad():
                learned = gate_logits(self.gates, query, config)
            if bool(known.all()):
                return learned
        if reference is None:
            reference = corrupted_risk(query, config.boundary, seed)
        found = optimise_logits(query, reference, config.boundary, seed)
        if self.gates is None:
            return found
        return torch.where(known[query.case.bonds.batch], learned, found)


def make_views(config: NICEConfig) -> list[View]:
    """Returns the views of a configuration, noise first."""
    names = ("nc", "em") if config.mechanism == "both" else (config.mechanism,)
    views = []
    for name in names:
        own, other = (
            get_mechanism(name, antithetic=config.attribution.antithetic, anchor=part.anchor)
            for part in (config.attribution, config.boundary)
        )
        is_same = config.attribution.anchor == config.boundary.anchor
        views.append(View(own, own if is_same else other))  # to share one table of noise
    return views


def combine(case: Case, *values: Tensor) -> Tensor:
    r"""Joins several scores of the same bonds into one in (0, 1), ``[M]``.

    .. math:: s_e = \sigma\Big(\sum_k \frac{v_{ke} - \bar v_k}{\mathrm{std}(v_k)}\Big)

    Symbols: :math:`v_k` -> ``values``, ``[M]`` each, with mean and spread over the reached bonds of
    a graph. All parts have equal weight; an average bond has 1/2. The boundary ranks bonds that
    suffice for the prediction high, the attribution bonds that the prediction needs.
    """
    return torch.stack([standardise(case, value) for value in values]).sum(0).sigmoid()


def combine_atoms(batch: Batch, *values: Tensor) -> Tensor:
    """Joins several scores of the same atoms as `combine` joins those of bonds, ``[V]``."""
    total = torch.zeros_like(values[0])
    for value in values:
        centred = value - global_mean_pool(value, batch.batch, batch.num_graphs)[batch.batch]
        spread = global_mean_pool(centred.square(), batch.batch, batch.num_graphs).sqrt()
        spread = spread[batch.batch]
        is_even = spread <= 1e-12  # not so for nan, which stays
        total += torch.where(is_even, 0.0, centred / spread.clamp(min=1e-12))
    return total.sigmoid()


def standardise(case: Case, value: Tensor) -> Tensor:
    """Gives the reached bonds of each graph mean 0 and spread 1, or 0 where all are equal.

    Values are ``[..., M]``.
    """
    centred = value - case.per_graph_mean(value)[..., case.bonds.batch]
    spread = case.per_graph_mean(centred.square()).sqrt()[..., case.bonds.batch]
    return torch.where(spread > 1e-12, centred / spread.clamp(min=1e-12), 0.0)


@dataclass(frozen=True)
class Comparison:
    """How well noise and masking rank the bonds of one class."""

    fall: float  # mean fall of the log-odds of the class when noise replaces every message
    nc: float  # probability kept by the bonds that noise ranks best, mean over graphs
    em: float  # the same for masking
    error: float  # standard error of their difference
    num_graphs: int  # graphs they were compared on

    @property
    def favours_masking(self) -> bool:
        """Whether noise raises the class probability and masking ranks bonds clearly better."""
        return self.fall < 0 and self.em - self.nc > max(2 * self.error, CLEAR_GAIN)

    @property
    def favours_noise(self) -> bool:
        """Whether noise ranks the bonds of the class significantly better."""
        return self.nc - self.em > 2 * self.error


def noise_fails(found: Mapping[int, Comparison]) -> bool:
    """Returns whether masking ranks the bonds of some class better, and noise those of none."""
    masking = any(one.favours_masking for one in found.values())
    return masking and not any(one.favours_noise for one in found.values())


@torch.no_grad()
def compare_mechanisms(
    target: Target, graphs: Sequence[Data], config: NICEConfig, seed: int
) -> dict[int, Comparison]:
    r"""Ranks bonds one by one under noise and under masking, and compares both rankings.

    .. math:: K(s) = \frac1{2|Q|} \sum_{q \in Q} \sum_{\Psi \in \{EM, NC\}}
        \frac{p_{\hat y}(S_q(s); \Psi)}{p_{\hat y}(G)}

    Symbols: :math:`S_q(s)` -> the best share :math:`q` of a graph's bonds by score :math:`s`, all
    others fully damaged by :math:`\Psi`; ratios over 1 count as 1. Both mechanisms judge both
    rankings.

    Noise has the norm of a message but not its direction. A normalisation can amplify directions
    that clean messages never take. Noise on any bond then raises the probability of a class (GCN
    with BatchNorm), and its change says little about the bond. Each predicted class has its own
    comparison; regression has none.
    """
    stack = GraphStack(graphs, target.device)
    read = batch_of_step(len(stack), _READ_GRAPHS, mix(seed, "mechanism"), 0)
    query = _query(target, stack, read, "em", config)
    if target.mode == "regression":
        return {}
    wanted = stack.num_edges[read.to(target.device)] > 0
    if config.boundary.classes:
        wanted &= torch.isin(query.explained, query.explained.new_tensor(config.boundary.classes))
    found = {}
    for label in torch.unique(query.explained[wanted]).tolist():
        members = (wanted & (query.explained == label)).nonzero().view(-1).cpu()
        members = members[:_JUDGED_GRAPHS]
        pairs = stack.num_edges[read[members].to(target.device)].double().square().cumsum(0)
        number = max(_FEWEST_GRAPHS, int((pairs <= _MOST_PAIRS).sum()))
        found[int(label)] = _compare(target, stack, read[members[:number]], config, seed)
    return found


def _compare(
    target: Target, stack: GraphStack, chosen: Tensor, config: NICEConfig, seed: int
) -> Comparison:
    noise, masking = (_query(target, stack, chosen, name, config) for name in ("nc", "em"))
    settings = replace(config.attribution, path="bond", num_draws=_DRAWS)
    kept = []
    for ranking in (noise, masking):
        score = bond_wise_gradient(ranking, settings, seed).score
        judged = [kept_probability(query, score, _DRAWS, seed) for query in (noise, masking)]
        kept.append(torch.stack(judged).mean(0))
    nothing = torch.zeros_like(score)
    fall = noise.losing("signed-margin").sample(nothing, _DRAWS, mix(seed, "nothing"))
    gain = kept[1] - kept[0]
    return Comparison(
        fall=float(fall.mean()),
        nc=float(kept[0].mean()),
        em=float(kept[1].mean()),
        error=float(gain.std(correction=0)) / gain.numel() ** 0.5,
        num_graphs=gain.numel(),
    )


@torch.no_grad()
def kept_probability(query: Query, score: Tensor, num_draws: int, seed: int) -> Tensor:
    """Returns the share of the explained probability that the best bonds keep, ``[B]``.

    The query's mechanism damages all other bonds. Unlike `fidelity_curve`, this also covers nodes.
    """
    case = query.case
    score = torch.where(case.reached, score, -torch.inf)
    rank = rank_within(score, case.bonds.batch, case.num_graphs)
    size = torch.bincount(case.bonds.batch[case.reached], minlength=case.num_graphs)
    total = query.clean.new_zeros(case.num_graphs)
    for share in _SHARES:
        number = (share * size).round().clamp(min=1)[case.bonds.batch]
        gate = (rank < number).to(query.clean.dtype)
        lost = query.losing("log-prob").sample(gate, num_draws, mix(seed, "kept"))  # [N, B]
        total += (-lost).exp().mean(0)
    return total / len(_SHARES)


def _query(
    target: Target, stack: GraphStack, chosen: Tensor, mechanism: str, config: NICEConfig
) -> Query:
    case = make_case(stack.take(chosen), undirected=config.undirected)
    how = get_mechanism(mechanism, antithetic=config.attribution.antithetic)
    return Query(target, case, how, chunk_edges=config.chunk_edges)
