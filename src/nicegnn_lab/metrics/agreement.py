r"""Agreement with known true explanations: metrics of each graph, and protocols of comparison.

A protocol chooses graphs, edges or bonds, and the truth. ``paper`` follows the paper's tables:
directed edges, label-1 graphs with a truth, and of several alternatives the one that the selection
covers best. ``strict`` is ours: bonds, the union of the alternatives, and only graphs that the
target classifies correctly. ``docs/readings.md`` tells how we know what the paper does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.config import check_choice
from nicegnn.errors import MetricError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Bonds, edge_slots
from nicegnn.graph.minibatches import gather_items
from nicegnn_lab.metrics.ranking import check_scores, graph_sum, ground_truth_scores, random_ties

TRUTH_METRICS = ("f1", "recall", "precision", "roc_auc", "average_precision")
PROTOCOLS = ("paper", "strict")


@dataclass(frozen=True)
class Truth:
    """True explanations of the graphs of a batch.

    An alternative is a set of edges that explains the label by itself. It is stored as entries,
    one per edge; alternatives keep the order of the dataset.
    """

    edge_truth: Tensor  # directed edges in any alternative, bool [E]
    edge_batch: Tensor  # graph of each directed edge, [E]
    entry_edge: Tensor  # directed edge of each entry, [P]
    entry_alternative: Tensor  # alternative of each entry, [P]
    alternative_batch: Tensor  # graph of each alternative, [A]
    num_graphs: int  # graphs of the batch, B

    @property
    def num_edges(self) -> Tensor:  # directed edges of each graph, [B]
        return torch.bincount(self.edge_batch, minlength=self.num_graphs)

    @property
    def num_true(self) -> Tensor:  # those in the truth, [B]
        return graph_sum(self.edge_truth.long(), self.edge_batch, self.num_graphs)

    @staticmethod
    def from_graphs(graphs: Data | Batch | Sequence[Data]) -> Truth:
        """Reads ``edge_truth`` (bool ``[E]``) and, where present, ``edge_alternatives``.

        Alternatives are lists of edge numbers, counted within their graph; see `MoleculeDataset`.
        Without them, the true edges of a graph are its only alternative.
        """
        batch = to_batch(graphs)
        edge_truth = batch.get("edge_truth")
        if not isinstance(edge_truth, Tensor) or edge_truth.numel() != batch.num_edges:
            raise MetricError(
                f"All graphs must have `edge_truth`, one bool per directed edge (got "
                f"{sorted(batch.keys())}). Use a dataset whose true explanations are known."
            )
        num, edge_batch = int(batch.num_graphs), batch.batch[batch.edge_index[0]]
        number = torch.bincount(edge_batch, minlength=num)
        by_graph = edge_batch.argsort(stable=True)
        listed, edge_truth = batch.get("edge_alternatives"), edge_truth.bool()
        if listed is None:  # the true edges of a graph are one alternative
            parts = torch.split(edge_truth[by_graph], number.tolist())
            listed = [[part.nonzero().view(-1).tolist()] for part in parts]
        lists = [(graph, edges) for graph, own in enumerate(listed) for edges in own if edges]
        kind: Any = {"dtype": torch.long, "device": edge_batch.device}
        home = torch.tensor([graph for graph, _ in lists], **kind)  # [A]
        size = torch.tensor([len(edges) for _, edges in lists], **kind)
        local = torch.tensor([edge for _, edges in lists for edge in edges], **kind)  # [P]
        edge = by_graph[(number.cumsum(0) - number)[home].repeat_interleave(size) + local]
        alternative = torch.arange(home.numel(), device=home.device).repeat_interleave(size)
        return Truth(edge_truth, edge_batch, edge, alternative, home, num)


def truth_metrics(
    score: Tensor,
    bonds: Bonds,
    truth: Truth,
    *,
    protocol: str = "paper",
    top: float = 0.3,
    seed: int = 0,
) -> dict[str, Tensor]:
    r"""Returns each metric of `TRUTH_METRICS` for each graph, ``[B]``; nan where undefined.

    For a graph with alternatives :math:`T_1, \dots, T_A` and selection :math:`S`:

    .. math:: v_{paper} = v(T_{a^*}), \; a^* = \arg\max_a \frac{|S \cap T_a|}{|T_a|}, \qquad
        v_{strict} = v(\textstyle\bigcup_a T_a)

    Symbols: :math:`v` -> a metric of `ground_truth_scores`; :math:`T_a` -> entries of ``truth``;
    :math:`S` -> the best share ``top`` of the graph's edges (paper) or bonds (strict). Of several
    alternatives with equal recall the last one counts.

    Scores are per bond ``[M]`` or directed edge ``[E]``. An edge gets the score of its bond; a bond
    gets the mean score of its edges. `seed` orders equal scores at random, in the same way in every
    batch. Graphs without truth are nan in every metric.
    """
    check_choice("protocol", protocol, PROTOCOLS)
    is_strict = protocol == "strict"
    score, batch = _items(score, bonds, truth, is_strict)
    num = truth.num_graphs
    tie = random_ties(bonds, batch, num, seed)
    if is_strict:
        is_true = bonds.sum(truth.edge_truth.long()) > 0
        values = ground_truth_scores(score, is_true, batch, num, top, tie)
        has_truth = truth.num_true > 0
        return {name: torch.where(has_truth, values[name], torch.nan) for name in TRUTH_METRICS}
    edge, alternative, is_true = _rows_of_alternatives(truth)
    num, score, tie = truth.alternative_batch.numel(), score[edge], tie[edge]
    values = ground_truth_scores(score, is_true, alternative, num, top, tie)
    chosen = _last_best(values["recall"], truth)  # [B]; A, one past the end, without alternatives
    missing = values["recall"].new_full((1,), torch.nan)
    return {name: torch.cat([values[name], missing])[chosen] for name in TRUTH_METRICS}


def selected_graphs(
    y: Tensor, predicted: Tensor | None, truth: Truth, protocol: str = "paper"
) -> Tensor:
    """Returns the graphs that a protocol averages over, bool ``[B]``.

    These are graphs of label 1 (``y``) with a non-empty truth; for ``strict``, also predicted as 1.
    """
    selected = (y.view(-1) == 1) & (truth.num_true > 0)
    check_choice("protocol", protocol, PROTOCOLS)
    if protocol == "paper":
        return selected
    if predicted is None:
        raise MetricError(f"`predicted` must be given for protocol {protocol!r} (got None).")
    return selected & (predicted.view(-1) == y.view(-1))


def _rows_of_alternatives(truth: Truth) -> tuple[Tensor, Tensor, Tensor]:
    """Returns edges of each alternative's graph, their alternative, and whether they are in it."""
    batch, number = truth.edge_batch, truth.num_edges
    pointer = torch.cat([number.new_zeros(1), number.cumsum(0)])
    position, start = gather_items(pointer, truth.alternative_batch)
    num = truth.alternative_batch.numel()
    alternative = torch.arange(num, device=batch.device).repeat_interleave(start.diff())
    inside = edge_slots(batch, truth.num_graphs)  # position of each edge within its graph
    is_true = torch.zeros_like(alternative, dtype=torch.bool)
    is_true[start[truth.entry_alternative] + inside[truth.entry_edge]] = True
    return batch.argsort(stable=True)[position], alternative, is_true


def _items(score: Tensor, bonds: Bonds, truth: Truth, is_strict: bool) -> tuple[Tensor, Tensor]:
    """Returns score and graph of each bond, or of each edge."""
    num_bonds, num_edges = bonds.batch.numel(), bonds.edge_bond.numel()
    if num_edges != truth.edge_batch.numel():
        raise MetricError(
            f"`truth` must have {num_edges} directed edges, as `bonds` has (got "
            f"{truth.edge_batch.numel()}). Make both from the same batch."
        )
    check_scores(score, "score", num_bonds, num_edges)
    is_per_bond = score.numel() == num_bonds
    if is_strict:
        return score if is_per_bond else bonds.mean(score), bonds.batch
    return score[bonds.edge_bond] if is_per_bond else score, truth.edge_batch


def _last_best(recall: Tensor, truth: Truth) -> Tensor:
    """Returns the last alternative of each graph that has the graph's best recall, ``[B]``."""
    home, num = truth.alternative_batch, truth.num_graphs
    best = recall.new_full((num,), -torch.inf).scatter_reduce(0, home, recall, "amax")
    number = torch.arange(recall.numel(), device=recall.device)
    is_best = recall == best[home]
    chosen = number.new_full((num,), -1)
    chosen = chosen.scatter_reduce(0, home[is_best], number[is_best], "amax")
    return torch.where(chosen < 0, recall.numel(), chosen)
