"""Scores of atoms: what replaces an atom, alone and with others, and what rivals say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.attribution.atom_by_atom import outweighing
from nicegnn.attribution.bond_by_bond import fall_of
from nicegnn.attribution.joint_path import path_nodes
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case, rank_within
from nicegnn.graph.minibatches import gather_items
from nicegnn.intervention.background import Background, record_background
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.one_part import replace_each_atom
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.losses import log_odds
from nicegnn.target.output import Mode

_BACKGROUND = 400  # training graphs
_DRAWS = 8  # of noise: as many as prototypes
_KINDS = 24  # of atoms, commonest first
_NODES = 16  # on the path of integrated gradients
_FEW_NODES = 4  # the same, from each prototype
_AT_ONCE = 400  # copies of graphs in one call of the model


@dataclass(frozen=True)
class Ground:
    """What all scores share: the frozen target, its clean answers, and its background."""

    query: Query
    background: Background
    mean: Tensor  # of the features of the background's atoms, [1, F]
    kinds: Tensor  # the commonest rows of features among them, [K, F]
    weight: Tensor  # share of each, [K]
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

    def read(self, answer: Tensor) -> Tensor:
        """Returns value or log-odds of answers ``[B, C]``, ``[B]``."""
        if self.query.target.mode == "regression":
            return answer[:, 0]
        return log_odds(answer.unsqueeze(0), self.query.explained)[0]

    def lost(self, output: Tensor, graph: Tensor) -> Tensor:
        """Returns what raw output ``[K, C]`` has lost against the clean one of `graph`, ``[K]``."""
        if self.query.target.mode == "regression":
            return fall_of(self.query, output, graph)
        return self.query.loss_of(output, graph)

    def without_each(self, run: Callable[[Batch, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Returns what is lost in a changed copy of its graph for each atom, ``[V]``.

        ``run`` gets the copies, the atoms they are for, the atom behind each node of a copy and
        its copy, and returns raw output.
        """
        batch, found = self.batch, []
        for atom in torch.split(torch.arange(int(batch.num_nodes)), _AT_ONCE):
            graph = batch.batch[atom]
            node, ptr = gather_items(batch.ptr, graph)
            home = torch.arange(atom.numel()).repeat_interleave(ptr.diff())
            out = run(self.query.stack.take(graph), atom, node, home)
            found.append(self.lost(out, graph))
        return torch.cat(found)

    def replaced(self, kinds: Tensor, row: Tensor) -> Tensor:
        """Returns the losses when atoms get rows of ``kinds``, ``[K, V]``; ``row`` is [V, K]."""
        share = self.query.clean.new_zeros(*row.t().shape)
        for some in replace_each_atom(self.query, {"x": kinds}, row):
            share[some.draw, some.item] = self.lost(some.output, self.batch.batch[some.item])
        return share

    def joined(self, share: Tensor) -> Tensor:
        """Returns one score of the losses of all draws, ``[K, V]`` to ``[V]``, as NICE does."""
        return share.mean(0) if self.query.target.mode == "regression" else outweighing(share)

    def answer(self, x: Tensor) -> Tensor:
        """Returns value or log-odds of the graphs with other features ``[V, F]``, ``[B]``."""
        batch = self.batch.clone()
        batch.x = x
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
            make_case(to_batch(some)),
            ElementMask(),
            explained=explained,
            degradation="signed-margin",
        )
        for some in (graphs, known)
    )
    x = usual.case.batch.x
    kinds, count = torch.unique(x, dim=0, return_counts=True)
    best = count.argsort(descending=True, stable=True)[:_KINDS]
    shared = x.mean(0, keepdim=True), kinds[best], count[best] / count[best].sum()
    background = record_background(target, known)
    base = float(Ground(usual, background, *shared, 0.0, seed).clean.mean())
    return Ground(query, background, *shared, base, seed)


def _nice(ground: Ground, *, atoms: bool) -> Explanation:
    target = ground.query.target
    nice = NICE(target.model, background=ground.background, mode=target.mode)
    explained = int(ground.query.explained[0])
    return nice.explain(ground.batch, target=explained, atoms=atoms)


def _exchange(ground: Ground) -> Tensor:
    loss = _nice(ground, atoms=True).atom_loss
    assert loss is not None  # it was asked for
    return loss


def _become(ground: Ground, kinds: Tensor) -> Tensor:
    """Returns the losses when every atom becomes each of some kinds of atoms, ``[K, V]``."""
    row = torch.arange(kinds.size(0)).expand(int(ground.batch.num_nodes), -1)
    return ground.replaced(kinds, row)


def _noise(ground: Ground) -> Tensor:
    """Features become Gaussian noise of the same length."""
    x = ground.batch.x
    generator = torch.Generator().manual_seed(mix(ground.seed, "noise"))
    noise = torch.randn(_DRAWS, *x.shape, generator=generator)
    noise *= x.norm(dim=1, keepdim=True) / noise.norm(dim=2, keepdim=True).clamp(min=1e-12)
    row = torch.arange(_DRAWS * x.size(0)).view(_DRAWS, -1).t()
    return ground.joined(ground.replaced(noise.flatten(0, 1), row))


@torch.no_grad()
def _sent(ground: Ground) -> Tensor:
    """The messages that the atom sends are zero in all layers."""
    query, sender = ground.query, ground.batch.edge_index[0]

    def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
        edge, of = query.stack.edges_of(ground.batch.batch[atom])
        gate = (sender[edge] != atom[of]).to(query.clean.dtype)
        return query.damaged(copies, edge, gate, torch.zeros_like(edge), 0)

    return ground.without_each(run)


def _half_bonds(ground: Ground) -> Tensor:
    """Half the sum over the atom's bonds, whose messages are exchanged."""
    out = _nice(ground, atoms=False)
    half = torch.zeros(int(ground.batch.num_nodes), dtype=out.bond_change.dtype)
    for end in out.bond_index:
        half.index_add_(0, end, out.bond_change / 2)
    return half


@torch.no_grad()
def _occlusion(ground: Ground) -> Tensor:
    """The atom is taken out of its molecule, with its bonds."""

    def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
        kept = node != atom[home]
        number, bond = kept.long().cumsum(0) - 1, kept[copies.edge_index].all(0)
        left = Batch(x=copies.x[kept], batch=copies.batch[kept])
        left.edge_index = number[copies.edge_index[:, bond]]
        left.edge_attr = None if copies.get("edge_attr") is None else copies.edge_attr[bond]
        left._num_graphs = atom.numel()
        return ground.query.target.call(left)

    return ground.without_each(run)


@torch.no_grad()
def _again(ground: Ground) -> Tensor:
    r"""The larger of the loss and of that while the best atom is exchanged already.

    .. math:: \max\Big( s_v, \tfrac1K \sum_k f(G; v^* \leftarrow b_k) -
        f(G; v^*, v \leftarrow b_k) \Big)

    Symbols: :math:`v^*` -> the atom with the largest loss. Where a group is there twice, neither
    copy is missed alone.
    """
    once, kinds, batch = _exchange(ground), ground.background.features["x"], ground.batch
    best = rank_within(once, batch.batch, batch.num_graphs) == 0
    star = best.nonzero().view(-1)  # [B]
    share = torch.zeros(kinds.size(0), once.numel())
    for k in range(kinds.size(0)):
        lost = _with(ground, k, lambda node, atom: best[node] | (node == atom))
        share[k] = lost - lost[star][batch.batch]
    return torch.where(best, once, torch.maximum(once, ground.joined(share)))


@torch.no_grad()
def _shapley(ground: Ground) -> Tensor:
    r"""Shapley values by permutations: in each, atoms become one prototype, one after the other.

    .. math:: s_v = \frac1K \sum_k f(G; P_{kv} \leftarrow b_k) - f(G; P_{kv}, v \leftarrow b_k)

    Symbols: :math:`P_{kv}` -> the atoms before v in permutation k.
    """
    batch, num = ground.batch, ground.background.features["x"].size(0)
    size, score = int(batch.num_nodes), torch.zeros(int(batch.num_nodes))
    generator = torch.Generator().manual_seed(mix(ground.seed, "shapley"))
    for k in range(num):
        rank = rank_within(torch.rand(size, generator=generator), batch.batch, batch.num_graphs)
        lost = _with(ground, k, partial(_is_before, rank))
        order = (batch.ptr[:-1][batch.batch] + rank).argsort()  # atoms, graph by graph
        before = torch.cat([lost.new_zeros(1), lost[order][:-1]])
        before[rank[order] == 0] = 0.0
        score[order] += (lost[order] - before) / num
    return score


def _is_before(rank: Tensor, node: Tensor, atom: Tensor) -> Tensor:
    return rank[node] <= rank[atom]


@torch.no_grad()
def _alone(ground: Ground) -> Tensor:
    r"""What the atom brings back where all atoms of its molecule are one prototype.

    .. math:: s_v = \frac1K \sum_k f(G; \bar v \leftarrow b_k) - f(G; \text{all} \leftarrow b_k)

    Symbols: :math:`\bar v` -> all atoms but v.
    """
    kinds, batch = ground.background.features["x"], ground.batch
    score = torch.zeros(int(batch.num_nodes))
    for k in range(kinds.size(0)):
        nothing = ground.answer(kinds[k].expand_as(batch.x))
        left = ground.clean[batch.batch] - _with(ground, k, torch.ne)
        score += (left - nothing[batch.batch]) / kinds.size(0)
    return score


@torch.no_grad()
def _contexts(ground: Ground) -> Tensor:
    r"""What the atom brings while other atoms are exchanged too, from few of them to nearly all.

    .. math:: s_v = \frac1K \sum_k f(C_k; v \leftarrow x_v) - f(C_k; v \leftarrow b_k)

    Symbols: :math:`C_k` -> the molecule with each atom kept with probability
    :math:`(k - \tfrac12) / K`, and else prototype k. One pass gives the answer of each context, one
    more for each atom that of the context with this atom changed.
    """
    kinds, batch = ground.background.features["x"], ground.batch
    generator = torch.Generator().manual_seed(mix(ground.seed, "contexts"))
    score = torch.zeros(int(batch.num_nodes))
    for k, donor in enumerate(kinds):
        luck = torch.rand(score.numel(), generator=generator)
        kept = luck < (k + 0.5) / kinds.size(0)
        context = torch.where(kept.unsqueeze(1), batch.x, donor)
        other = torch.where(kept.unsqueeze(1), donor, batch.x)

        def run(
            copies: Batch,
            atom: Tensor,
            node: Tensor,
            home: Tensor,
            context: Tensor = context,
            other: Tensor = other,
        ) -> Tensor:
            is_it = (node == atom[home]).unsqueeze(1)
            copies.x = torch.where(is_it, other[node], context[node])
            return ground.query.target.call(copies)

        changed = ground.clean[batch.batch] - ground.without_each(run)
        brought = ground.answer(context)[batch.batch] - changed
        score += torch.where(kept, brought, -brought) / kinds.size(0)
    return score


def _with(ground: Ground, k: int, is_changed: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Returns what is lost when some atoms become prototype k, for each atom, ``[V]``."""
    donor = ground.background.features["x"][k]

    def run(copies: Batch, atom: Tensor, node: Tensor, home: Tensor) -> Tensor:
        copies.x = torch.where(is_changed(node, atom[home]).unsqueeze(1), donor, copies.x)
        return ground.query.target.call(copies)

    return ground.without_each(run)


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


#: The mean of what is lost without the atom and of what it brings back alone.
BOTH = "exchange, both"
#: Scores by their name in rows.
SCORES: Mapping[str, Callable[[Ground], Tensor]] = {
    "exchange": _exchange,
    "exchange, mean": lambda ground: _become(ground, ground.background.features["x"]).mean(0),
    "exchange, weighted": lambda ground: ground.weight @ _become(ground, ground.kinds),
    "exchange, again": _again,
    "exchange, alone": _alone,
    "exchange, contexts": _contexts,
    "exchange, Shapley": _shapley,
    "zero": lambda ground: _become(ground, torch.zeros_like(ground.mean))[0],
    "mean": lambda ground: _become(ground, ground.mean)[0],
    "noise": _noise,
    "sent": _sent,
    "half the bonds": _half_bonds,
    "occlusion": _occlusion,
    "saliency": lambda ground: ground.slope(ground.batch.x).norm(dim=1),
    "input x gradient": lambda ground: (ground.batch.x * ground.slope(ground.batch.x)).sum(1),
    "integrated gradients": lambda ground: _integrated(ground, torch.zeros_like(ground.mean)),
    "integrated gradients, mean": lambda ground: _integrated(ground, ground.mean),
    "integrated gradients, prototypes": _from_prototypes,
    "random": _random,
}
