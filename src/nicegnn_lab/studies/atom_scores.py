"""Scores of atoms: what replaces an atom, alone and with others, and what rivals say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import GNNExplainer, ModelConfig

from nicegnn.attribution.joint_path import path_nodes
from nicegnn.attribution.one_by_one import lost_of, lost_without, outweighing
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case, rank_within
from nicegnn.graph.minibatches import gather_items
from nicegnn.intervention.background import Background, record_background
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.losses import log_odds
from nicegnn.target.output import Mode

_BACKGROUND = 400  # training graphs
_ORDERS = 8  # of atoms: as many as prototypes
_NODES = 16  # on the path of integrated gradients
_FEW_NODES = 4  # the same, from each prototype
_MOST_COPIES = 20_000  # of graphs in one call of the model


@dataclass(frozen=True)
class Ground:
    """What all scores share: the frozen target, its clean answers, and its background."""

    query: Query
    background: Background
    mean: Tensor  # of the features of the background's atoms, [1, F]
    base: float  # mean of the value, or of the log-odds, over the background
    seed: int

    @property
    def batch(self) -> Batch:
        return self.query.case.batch

    @property
    def clean(self) -> Tensor:
        """Value, or log-odds of the explained class, of each graph, ``[B]``."""
        return self.read(self.query.clean)

    @property
    def rise(self) -> Tensor:
        """How far the prediction of each graph is above the background's mean, ``[B]``."""
        return self.clean - self.base

    @property
    def at_once(self) -> int:
        """Copies of graphs in one call of the model: what the device takes well."""
        size = max(1, self.query.case.num_edges) / self.batch.num_graphs
        return max(1, min(_MOST_COPIES, int(self.query.chunk_edges / size)))

    def read(self, answer: Tensor) -> Tensor:
        """Returns value, or log-odds of class 1, of answers ``[B, C]``, ``[B]``."""
        if self.query.target.mode == "regression":
            return answer[:, 0]
        return log_odds(answer.unsqueeze(0), torch.ones_like(answer[:, 0], dtype=torch.long))[0]

    def lost(self, output: Tensor, graph: Tensor) -> Tensor:
        """Returns what raw output ``[K, C]`` has lost against the clean one of `graph`, ``[K]``."""
        return lost_of(self.query, output, graph)

    def without_each(
        self,
        run: Callable[[Batch, Tensor, Tensor, Tensor], Tensor],
        lost: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Returns what is lost in a changed copy of its graph for each atom, ``[V]``.

        ``run`` gets the copies, the atoms they are for, the atom behind each node of a copy and
        its copy, and returns raw output, or what ``lost`` takes in place of `Ground.lost`.
        """
        batch, found = self.batch, []
        every = torch.arange(int(batch.num_nodes), device=batch.x.device)
        for atom in torch.split(every, self.at_once):
            graph = batch.batch[atom]
            node, ptr = gather_items(batch.ptr, graph)
            home = torch.arange(atom.numel(), device=atom.device).repeat_interleave(ptr.diff())
            out = run(self.query.stack.take(graph), atom, node, home)
            found.append((lost or self.lost)(out, graph))
        return torch.cat(found)

    def joined(self, share: Tensor) -> Tensor:
        """Returns one score of the losses of all draws, ``[K, V]`` to ``[V]``, as NICE does."""
        return share.mean(0) if self.query.target.mode == "regression" else outweighing(share)

    def answer(self, x: Tensor) -> Tensor:
        """Returns value or log-odds of the graphs with other features ``[V, F]``, ``[B]``."""
        batch = self.batch.clone()
        batch.x = x
        return self.asked(batch)

    def asked(self, batch: Batch) -> Tensor:
        """Returns what the target says of other graphs, value or log-odds, ``[B]``."""
        return self.read(self.query.target.read(self.query.target.call(batch)))

    def slope(self, x: Tensor) -> Tensor:
        """Returns the slope of each graph's prediction in the features, ``[V, F]``."""
        given = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(self.answer(given).sum(), given)
        return slope


@torch.no_grad()
def lay_ground(
    model: nn.Module, mode: Mode, graphs: Sequence[Data], train: Sequence[Data], seed: int
) -> Ground:
    """Returns what all scores of some graphs share; of classes, class 1 is explained."""
    target = Target(model.eval(), mode=mode)
    explained = 0 if mode == "regression" else 1
    known = train[:_BACKGROUND]
    query, usual = (
        Query(
            target,
            make_case(to_batch(some).to(target.device)),
            ElementMask(),
            explained=explained,
            degradation="signed-margin",
        )
        for some in (graphs, known)
    )
    mean = usual.case.batch.x.mean(0, keepdim=True)
    background = record_background(target, known)
    base = float(Ground(usual, background, mean, 0.0, seed).clean.mean())
    return Ground(query, background, mean, base, seed)


def _become(ground: Ground, kinds: Tensor) -> Tensor:
    """Returns the losses when every atom becomes each of some kinds of atoms, ``[K, V]``."""
    row = torch.arange(kinds.size(0), device=kinds.device).expand(int(ground.batch.num_nodes), -1)
    return lost_without(ground.query, {"x": kinds}, row)


@torch.no_grad()
def _occlusion(ground: Ground) -> Tensor:
    """The atom is taken out of its molecule, with its bonds."""

    def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
        left = only(copies, node != atom[home], home)
        left._num_graphs = atom.numel()
        return ground.query.target.call(left)

    return ground.without_each(run)


def only(copies: Batch, kept: Tensor, home: Tensor) -> Batch:
    """Returns copies with only some of their atoms, bool ``[V]``, and the bonds between these."""
    number, bond = kept.long().cumsum(0) - 1, kept[copies.edge_index].all(0)
    left = Batch(x=copies.x[kept], batch=home[kept])
    left.edge_index = number[copies.edge_index[:, bond]]
    left.edge_attr = None if copies.get("edge_attr") is None else copies.edge_attr[bond]
    return left


@torch.no_grad()
def _shapley(ground: Ground, donors: Tensor) -> Tensor:
    r"""Shapley values by permutations: in each, atoms become one donor, one after the other.

    .. math:: s_v = \frac1K \sum_k f(G; P_{kv} \leftarrow b_k) - f(G; P_{kv}, v \leftarrow b_k)

    Symbols: :math:`P_{kv}` -> the atoms before v in permutation k; :math:`b_k` -> ``donors``,
    ``[K, F]``.
    """

    def lost(k: int, rank: Tensor) -> Tensor:
        def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
            is_gone = (rank[node] <= rank[atom[home]]).unsqueeze(1)
            copies.x = torch.where(is_gone, donors[k], copies.x)
            return ground.query.target.call(copies)

        return ground.without_each(run)

    return _over_orders(ground, lost, donors.size(0))


@torch.no_grad()
def _myerson(ground: Ground) -> Tensor:
    r"""Myerson values by permutations: parts of the molecule count apart, and add up.

    .. math:: s_v = \frac1K \sum_k u(P_{kv} \cup v) - u(P_{kv}), \qquad
        u(S) = \sum_{C \in S / E} f(C)

    Symbols: :math:`S / E` -> connected parts of the atoms S; :math:`f` -> value or log-odds of such
    a part alone. Atoms that are not in S are taken out. Permutations are run backwards: what is
    lost as atoms leave, one after the other.
    """
    total = ground.clean

    def lost(k: int, rank: Tensor) -> Tensor:
        def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
            kept = rank[node] > rank[atom[home]]
            left = only(copies, kept, home)
            ends, size = left.edge_index.cpu().numpy(), int(left.num_nodes)
            links = coo_matrix((np.ones(ends.shape[1]), (ends[0], ends[1])), (size, size))
            number, part = connected_components(links, directed=False)
            found = total.new_zeros(atom.numel())
            if number == 0:
                return found
            of = left.batch.new_zeros(number)
            part = torch.from_numpy(part).to(left.batch)
            of[part] = left.batch
            order = part.argsort(stable=True)  # PyG's pooling wants sorted graphs
            place = torch.empty_like(order)
            place[order] = torch.arange(size, device=order.device)
            left.x, left.batch = left.x[order], part[order]
            left.edge_index, left._num_graphs = place[left.edge_index], number
            return found.index_add(0, of, ground.asked(left))

        return ground.without_each(run, lambda out, graph: total[graph] - out)

    return _over_orders(ground, lost, _ORDERS)


def _over_orders(ground: Ground, lost: Callable[[int, Tensor], Tensor], num: int) -> Tensor:
    """Returns the mean step of losses over random orders, ``[V]``.

    ``lost`` gets the number of an order and each atom's rank in it, and returns what is lost when
    the atom and all before it are gone, ``[V]``.
    """
    batch, score = ground.batch, ground.clean.new_zeros(int(ground.batch.num_nodes))
    generator = torch.Generator().manual_seed(mix(ground.seed, "orders"))
    for k in range(num):
        luck = torch.rand(score.numel(), generator=generator).to(score.device)
        rank = rank_within(luck, batch.batch, batch.num_graphs)
        after = lost(k, rank)
        order = (batch.ptr[:-1][batch.batch] + rank).argsort()  # atoms, graph by graph
        before = torch.cat([after.new_zeros(1), after[order][:-1]])
        before[rank[order] == 0] = 0.0
        score[order] += (after[order] - before) / num
    return score


def _gnnexplainer(ground: Ground) -> Tensor:
    """PyG's GNNExplainer with a mask of atoms, at its defaults, all molecules in one batch."""
    is_value = ground.query.target.mode == "regression"
    told = ModelConfig(
        mode="regression" if is_value else "multiclass_classification",
        task_level="graph",
        return_type="raw",
    )
    explain = PyGExplainer(
        ground.query.target.model,
        GNNExplainer(epochs=100),
        explanation_type="model",
        node_mask_type="object",
        model_config=told,
    )
    batch = ground.batch
    device = batch.x.device
    others = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=others):  # first masks come from the global generator
        torch.manual_seed(mix(ground.seed, "gnnexplainer"))
        found = explain(
            batch.x, batch.edge_index, edge_attr=batch.get("edge_attr"), batch=batch.batch
        )
    ground.query.target.model.zero_grad()
    mask: Tensor = found.node_mask
    return mask.view(-1)


def _integrated(ground: Ground, base: Tensor, num: int = _NODES) -> Tensor:
    """Integrated gradients of the features, from a base to the molecule."""
    x: Tensor = ground.batch.x
    total = torch.zeros_like(x)
    for t, w in zip(*(part.tolist() for part in path_nodes("gauss-linear", num)), strict=True):
        total += w * ground.slope(base + t * (x - base))
    return (total * (x - base)).sum(1)


def _from_prototypes(ground: Ground) -> Tensor:
    """The mean over prototypes of integrated gradients that begin there."""
    kinds = ground.background.features["x"]
    return torch.stack([_integrated(ground, kind, _FEW_NODES) for kind in kinds]).mean(0)


def _random(ground: Ground) -> Tensor:
    generator = torch.Generator().manual_seed(mix(ground.seed, "random"))
    return torch.randn(int(ground.batch.num_nodes), generator=generator)


def brought_alone(query: Query, kinds: Tensor) -> Tensor:
    r"""Returns what an atom brings back where all atoms became one prototype, ``[K, V]``.

    .. math:: f(G; \bar v \leftarrow b_k) - f(G; \text{all} \leftarrow b_k)

    Symbols: :math:`\bar v` -> all atoms but v; :math:`b_k` -> ``kinds``, ``[K, F]``. It is minus
    what is lost when, in the graph of prototypes, the atom becomes what it was.
    """
    found = []
    for kind in kinds:
        bare = copy.copy(query.case.batch)
        bare.x = kind.expand_as(bare.x)
        start = Query(
            query.target,
            replace(query.case, batch=bare),
            ElementMask(),  # no message is damaged
            explained=query.explained,
            degradation=query.degradation_kind,
        )
        own = torch.arange(bare.x.size(0), device=bare.x.device).unsqueeze(1)  # [V, 1]
        found.append(-lost_without(start, {"x": query.case.batch.x}, own)[0])
    return torch.stack(found)


#: Scores by prototype atoms.
EXCHANGES = ("exchange", "exchange, mean", "exchange, alone", "exchange, both")


def _exchanges(ground: Ground) -> dict[str, Tensor]:
    """Scores by prototype atoms: each is made of what is lost without an atom, or brought alone."""
    kinds = ground.background.features["x"]
    lost, brought = _become(ground, kinds), brought_alone(ground.query, kinds)
    mean, alone = lost.mean(0), brought.mean(0)
    found = ground.joined(lost), mean, alone, (mean + alone) / 2
    return dict(zip(EXCHANGES, found, strict=True))


#: Other scores by their name in rows.
OTHERS: Mapping[str, Callable[[Ground], Tensor]] = {
    "zero": lambda ground: _become(ground, torch.zeros_like(ground.mean))[0],
    "mean": lambda ground: _become(ground, ground.mean)[0],
    "occlusion": _occlusion,
    "Shapley": lambda ground: _shapley(ground, torch.zeros_like(ground.mean).expand(_ORDERS, -1)),
    "Myerson": _myerson,
    "GNNExplainer": _gnnexplainer,
    "saliency": lambda ground: ground.slope(ground.batch.x).norm(dim=1),
    "input x gradient": lambda ground: (ground.batch.x * ground.slope(ground.batch.x)).sum(1),
    "integrated gradients": lambda ground: _integrated(ground, torch.zeros_like(ground.mean)),
    "integrated gradients, mean": lambda ground: _integrated(ground, ground.mean),
    "integrated gradients, prototypes": _from_prototypes,
    "random": _random,
}


#: Scores that are never negative.
NO_SIGN = ("GNNExplainer", "saliency")


def all_scores(ground: Ground) -> dict[str, Tensor]:
    """Returns every score by its name, ``[V]`` each."""
    found = _exchanges(ground) | {name: of(ground) for name, of in OTHERS.items()}
    return {name: score.detach().cpu() for name, score in found.items()}
