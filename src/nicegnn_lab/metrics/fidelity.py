"""Fidelity: predictions of the target with only the best bonds."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch_geometric.data import Batch

from nicegnn.config import check_choice
from nicegnn.errors import MetricError
from nicegnn.graph.case import Bonds, make_case
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target
from nicegnn_lab.metrics.ranking import check_scores, is_selected, random_rank, random_ties

REMOVALS = ("em", "nc", "delete")
RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class FidelityCurve:
    """Predictions for each graph at each share of bonds that is left; nan without bonds."""

    ratios: Tensor  # shares of bonds, [Q]
    kept: Tensor  # chance that the explained class is predicted, [Q, B]
    prob_kept: Tensor  # its probability, [Q, B]

    @property
    def area(self) -> Tensor:
        r"""Mean height of the curve of `kept` by the trapezoidal rule, ``[B]``.

        .. math:: \frac{1}{q_Q - q_1} \int_{q_1}^{q_Q} kept(q)\, dq
        """
        area = torch.trapezoid(self.kept, self.ratios, dim=0)
        return area / (self.ratios[-1] - self.ratios[0])


def fidelity_curve(
    target: Target,
    batch: Batch,
    bonds: Bonds,
    bond_score: Tensor,
    *,
    removal: str = "em",
    ratios: Sequence[float] = RATIOS,
    num_draws: int = 16,
    seed: int = 0,
    explained: Tensor | None = None,
    chunk_edges: int = 400_000,
) -> FidelityCurve:
    r"""Returns predictions with only the best bonds, for each share of bonds.

    With :math:`S_q` the best share :math:`q` of a graph's bonds (rounded, at least one):

    .. math:: kept_q = [\arg\max f(S_q) = y]

    Symbols: :math:`q` -> ``ratios``, ``[Q]``; :math:`y` -> ``explained``, ``[B]``; :math:`f` ->
    ``target``. Removed bonds are missing in every layer: their messages are multiplied by zero
    (``em``), turned into random directions of the same norm (``nc``, averaged over draws), or the
    bonds are deleted from ``edge_index`` with their attributes (``delete``). Atoms always stay. A
    graph's result does not depend on its batch. The model is left as it was.

    The `seed` orders equal scores at random and draws ``nc``, the same for every share. By default
    the predicted class of each graph is explained. One call of the model has at most
    ``chunk_edges`` directed edges, times copies; a batch is not cut.
    """
    check_choice("removal", removal, REMOVALS)
    target = target.private()
    if bonds.edge_bond.numel() != batch.num_edges:
        raise MetricError(
            f"`bonds` must have {batch.num_edges} directed edges, as `batch` has (got "
            f"{bonds.edge_bond.numel()}). Make them with find_bonds()."
        )
    device = target.device
    if batch.edge_index.device != device:
        batch = copy.copy(batch).to(device)
    bonds = Bonds(*(getattr(bonds, field.name).to(device) for field in fields(bonds)))
    check_scores(bond_score, "bond_score", bonds.batch.numel())
    graph, num_graphs = bonds.batch, int(batch.num_graphs)
    tie = random_ties(bonds, graph, num_graphs, seed)
    rank = random_rank(bond_score.to(device), graph, num_graphs, tie)
    best = torch.stack([is_selected(rank, graph, num_graphs, ratio) for ratio in ratios])  # [Q, M]
    mechanism = NoiseCorruption(mix(seed, "fidelity")) if removal == "nc" else ElementMask()
    with torch.no_grad():
        query = Query(target, make_case(batch), mechanism, explained=explained)
        answers = _ask(query, best[:, bonds.edge_bond], removal, num_draws, chunk_edges)
    is_empty = torch.bincount(graph, minlength=num_graphs) == 0
    kept, prob = (value.masked_fill(is_empty, torch.nan) for value in answers)
    return FidelityCurve(torch.tensor(ratios, dtype=torch.double, device=device), kept, prob)


def _ask(
    query: Query, kept: Tensor, removal: str, num_draws: int, chunk_edges: int
) -> tuple[Tensor, Tensor]:
    """Returns how often the explained class is predicted and its mean probability, ``[R, B]`` each.

    The target is called for each row of kept edges, bool ``[R, E]``.
    """

    def tally(rows: Tensor, first: int = 0) -> Tensor:  # [N, E] to [2, N, B]
        if removal == "delete":
            batch, target = query.case.batch, query.target
            graphs = torch.arange(query.case.num_graphs, device=rows.device)
            left = query.copies(graphs.repeat(rows.size(0))).edge_subgraph(rows.reshape(-1))
            answers = target.read(target.call(left)).view(rows.size(0), int(batch.num_graphs), -1)
        else:
            answers = query.answers(rows.to(query.clean.dtype), first=first)  # [N, B, C]
        index = query.explained.view(1, -1, 1).expand(answers.size(0), -1, 1)
        prob = answers.gather(2, index).squeeze(2).exp().double()
        return torch.stack([(answers.argmax(2) == query.explained).double(), prob])

    copies = max(1, chunk_edges // max(1, kept.size(1)))
    if removal != "nc":
        same, prob = torch.cat([tally(rows) for rows in torch.split(kept, copies)], dim=1)
        return same, prob
    means = []
    for row in kept:  # draws side by side, the same ones for every row
        starts = range(0, num_draws, copies)
        drawn = [tally(row.expand(min(copies, num_draws - n), -1), n) for n in starts]
        means.append(torch.cat(drawn, dim=1).mean(1))
    same, prob = torch.stack(means, dim=1)
    return same, prob
