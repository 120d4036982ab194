r"""Agreement with known true explanations: metrics of each graph, and protocols of comparison.

A protocol chooses graphs, edges or bonds, and the truth. ``paper`` follows the paper's tables:
directed edges, label-1 graphs with a truth, and of several alternatives the one that the selection
covers best. ``strict`` is ours: bonds, the union of the alternatives, and only graphs that the
target classifies correctly.

The paper does not say how it treats alternatives. Random scores have no setting to tune, so the
paper's Random row shows how it counts. We tried 224 readings (edges or bonds, all or minimal
alternatives, four roundings, fourteen ways to treat alternatives) on the four datasets whose
molecules are the paper's, and compared sixteen numbers in units of the sampling error of a test set
of the paper's size. The sum of squares was smallest, 8, for ``paper``. Rounding down (16) or up
(22), or bonds with minimal alternatives (20), fit less well but are not ruled out. The best value
over the alternatives (106) and their union on edges (over 300) are ruled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.errors import MetricError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Bonds
from nicegnn.graph.minibatches import gather_items
from nicegnn_lab.metrics.ranking import (
    check_scores,
    graph_keys,
    graph_sum,
    ground_truth_scores,
    random_ties,
)

if TYPE_CHECKING:
    from nicegnn_lab.datasets import MoleculeDataset

TRUTH_METRICS = ("f1", "recall", "precision", "roc_auc", "average_precision")


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
    def num_edges(self) -> Tensor:
        """Directed edges of each graph, ``[B]``."""
        return torch.bincount(self.edge_batch, minlength=self.num_graphs)

    @property
    def num_true(self) -> Tensor:
        """True directed edges of each graph, ``[B]``."""
        return graph_sum(self.edge_truth.long(), self.edge_batch, self.num_graphs)

    def to(self, device: torch.device | str) -> Truth:
        """Returns the same truth on another device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "num_graphs"}
        return replace(self, **{name: value.to(device) for name, value in tensors.items()})

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
        num_graphs, edge_batch = int(batch.num_graphs), batch.batch[batch.edge_index[0]]
        listed, edge_truth = batch.get("edge_alternatives"), edge_truth.bool()
        if listed is None:  # the true edges of a graph are one alternative
            edge = edge_truth.nonzero().view(-1)
            edge = edge[edge_batch[edge].argsort(stable=True)]
            size = torch.bincount(edge_batch[edge], minlength=num_graphs)
            home = torch.arange(num_graphs, device=edge.device)
            return _from_lists(edge_truth, edge_batch, num_graphs, edge, size, home)
        alternatives = list(chain.from_iterable(listed))
        home = torch.arange(num_graphs).repeat_interleave(torch.tensor([len(g) for g in listed]))
        size = torch.tensor([len(edges) for edges in alternatives], dtype=torch.long)
        local = torch.tensor(list(chain.from_iterable(alternatives)), dtype=torch.long)
        by_graph = edge_batch.argsort(stable=True)  # edge j of graph g is by_graph[start[g] + j]
        number = torch.bincount(edge_batch, minlength=num_graphs)
        device = edge_batch.device
        home, size, local = home.to(device), size.to(device), local.to(device)
        start = (number.cumsum(0) - number)[home].repeat_interleave(size)
        edge = by_graph[start + local]
        return _from_lists(edge_truth, edge_batch, num_graphs, edge, size, home)

    @staticmethod
    def from_dataset(dataset: MoleculeDataset, positions: Tensor | None = None) -> Truth:
        """Returns the truth of ``dataset.batch(positions)`` without making the batch."""
        tensors, task, rows = dataset.flat()
        rows = rows if positions is None else rows[positions]
        bonds, bond_ptr = gather_items(tensors["bond_ptr"], rows)
        lists, list_ptr = gather_items(tensors[f"{task}/first"], rows)
        entries, entry_ptr = gather_items(tensors[f"{task}/list_ptr"], lists)
        home = torch.arange(rows.numel()).repeat_interleave(list_ptr.diff())
        size = entry_ptr.diff()
        bond = tensors[f"{task}/list"][entries].long() + bond_ptr[home].repeat_interleave(size)
        edge = torch.stack([2 * bond, 2 * bond + 1], dim=1).view(-1)
        edge_truth = tensors[f"{task}/bonds"][bonds].repeat_interleave(2)
        edge_batch = torch.arange(rows.numel()).repeat_interleave(2 * bond_ptr.diff())
        return _from_lists(edge_truth, edge_batch, rows.numel(), edge, 2 * size, home)


def _from_lists(
    edge_truth: Tensor, edge_batch: Tensor, num: int, edge: Tensor, size: Tensor, home: Tensor
) -> Truth:
    """Numbers the alternatives that are not empty."""
    home, size = home[size > 0], size[size > 0]
    number = torch.arange(home.numel(), device=home.device)
    return Truth(edge_truth, edge_batch, edge, number.repeat_interleave(size), home, num)


@dataclass(frozen=True)
class Protocol:
    """How scores are compared with the truth.

    ``matched`` compares with the alternative of best recall, the last one listed of several with
    equal recall. ``union`` compares with all alternatives together.
    """

    name: str
    unit: Literal["edge", "bond"]  # ranked and counted items
    alternatives: Literal["matched", "union"]
    only_correct: bool  # whether only correctly classified graphs count


#: All protocols by name.
PROTOCOLS: dict[str, Protocol] = {
    "paper": Protocol("paper", "edge", "matched", only_correct=False),
    "strict": Protocol("strict", "bond", "union", only_correct=True),
}


def get_protocol(protocol: str | Protocol) -> Protocol:
    """Returns a protocol by name."""
    chosen = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if chosen is None:
        raise MetricError(f"`protocol` must be one of {tuple(PROTOCOLS)} (got {protocol!r}).")
    return chosen


def truth_metrics(
    score: Tensor,
    bonds: Bonds,
    truth: Truth,
    *,
    protocol: str | Protocol = "paper",
    top: float = 0.3,
    seed: int = 0,
) -> dict[str, Tensor]:
    r"""Returns each metric of `TRUTH_METRICS` for each graph, ``[B]``; nan where undefined.

    For a graph with alternatives :math:`T_1, \dots, T_A` and selection :math:`S`:

    .. math:: v_{matched} = v(T_{a^*}), \; a^* = \arg\max_a \frac{|S \cap T_a|}{|T_a|}, \qquad
        v_{union} = v(\textstyle\bigcup_a T_a)

    Symbols: :math:`v` -> a metric of `ground_truth_scores`; :math:`T_a` -> entries of ``truth``;
    :math:`S` -> the best share ``top`` of the graph's edges or bonds.

    Scores are per bond ``[M]`` or directed edge ``[E]``. An edge gets the score of its bond; a bond
    gets the mean score of its edges. `seed` orders equal scores at random, in the same way in every
    batch. Graphs without truth are nan in every metric.
    """
    protocol = get_protocol(protocol)
    score, batch, num = _items(score, bonds, truth, protocol.unit)
    tie = random_ties(batch, num, seed, graph_keys(bonds, num))
    if protocol.alternatives == "union":
        is_true = _to_unit(truth.edge_truth, bonds, protocol.unit)
        values = vars(ground_truth_scores(score, is_true, batch, num, top=top, tie=tie))
        has_truth = truth.num_true > 0
        return {name: torch.where(has_truth, values[name], torch.nan) for name in TRUTH_METRICS}
    item, alternative, is_true = _rows_of_alternatives(bonds, truth, protocol.unit)
    num, score, tie = truth.alternative_batch.numel(), score[item], tie[item]
    values = vars(ground_truth_scores(score, is_true, alternative, num, top=top, tie=tie))
    chosen = _last_best(values["recall"], truth)  # [B]; A, one past the end, without alternatives
    missing = values["recall"].new_full((1,), torch.nan)
    return {name: torch.cat([values[name], missing])[chosen] for name in TRUTH_METRICS}


def selected_graphs(
    y: Tensor, predicted: Tensor | None, truth: Truth, protocol: str | Protocol = "paper"
) -> Tensor:
    """Returns the graphs that a protocol averages over, bool ``[B]``.

    These are graphs of label 1 (``y``) with a non-empty truth; for ``strict``, also predicted as 1.
    Other protocols need no predicted classes.
    """
    protocol = get_protocol(protocol)
    selected = (y.view(-1) == 1) & (truth.num_true > 0)
    if not protocol.only_correct:
        return selected
    if predicted is None:
        raise MetricError(f"`predicted` must be given for protocol {protocol.name!r} (got None).")
    return selected & (predicted.view(-1) == y.view(-1))


def _rows_of_alternatives(bonds: Bonds, truth: Truth, unit: str) -> tuple[Tensor, Tensor, Tensor]:
    """Returns items of each alternative's graph, their alternative, and whether they are in it."""
    batch = truth.edge_batch if unit == "edge" else bonds.batch
    by_graph = batch.argsort(stable=True)
    number = torch.bincount(batch, minlength=truth.num_graphs)
    pointer = torch.cat([number.new_zeros(1), number.cumsum(0)])
    position, start = gather_items(pointer, truth.alternative_batch)
    num = truth.alternative_batch.numel()
    alternative = torch.arange(num, device=batch.device).repeat_interleave(start.diff())
    inside = torch.empty_like(by_graph)  # position of each item within its graph
    inside[by_graph] = torch.arange(batch.numel(), device=batch.device) - pointer[batch[by_graph]]
    true_item = truth.entry_edge if unit == "edge" else bonds.edge_bond[truth.entry_edge]
    is_true = torch.zeros_like(alternative, dtype=torch.bool)
    is_true[start[truth.entry_alternative] + inside[true_item]] = True
    return by_graph[position], alternative, is_true


def _items(score: Tensor, bonds: Bonds, truth: Truth, unit: str) -> tuple[Tensor, Tensor, int]:
    """Returns score and graph of each edge or bond, and the number of graphs."""
    num_bonds, num_edges = bonds.batch.numel(), bonds.edge_bond.numel()
    if num_edges != truth.edge_batch.numel():
        raise MetricError(
            f"`truth` must have {num_edges} directed edges, as `bonds` has (got "
            f"{truth.edge_batch.numel()}). Make both from the same batch."
        )
    check_scores(score, "score", num_bonds, num_edges)
    is_per_bond = score.numel() == num_bonds
    if unit == "edge":
        return score[bonds.edge_bond] if is_per_bond else score, truth.edge_batch, truth.num_graphs
    return score if is_per_bond else bonds.mean(score), bonds.batch, truth.num_graphs


def _to_unit(edge_truth: Tensor, bonds: Bonds, unit: str) -> Tensor:
    return edge_truth if unit == "edge" else bonds.sum(edge_truth.long()) > 0


def _best(value: Tensor, truth: Truth) -> Tensor:
    """Returns the largest value over the alternatives of each graph, nan without any, ``[B]``."""
    lowest = value.new_full((truth.num_graphs,), -torch.inf)
    filled = torch.where(torch.isnan(value), -torch.inf, value)
    best = lowest.scatter_reduce(0, truth.alternative_batch, filled, "amax")
    return torch.where(best == -torch.inf, torch.nan, best)


def _last_best(recall: Tensor, truth: Truth) -> Tensor:
    """Returns the last alternative of each graph that has the graph's best recall, ``[B]``."""
    is_best = recall == _best(recall, truth)[truth.alternative_batch]
    number = torch.arange(recall.numel(), device=recall.device)
    chosen = number.new_full((truth.num_graphs,), -1)
    chosen = chosen.scatter_reduce(0, truth.alternative_batch[is_best], number[is_best], "amax")
    return torch.where(chosen < 0, recall.numel(), chosen)
