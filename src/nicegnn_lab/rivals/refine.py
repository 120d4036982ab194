"""ReFine: a mask network per class with a contrast between classes, fine-tuned per graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from nicegnn.config import Whole
from nicegnn.errors import GraphError, TargetError
from nicegnn.explain.explainer import Count, NotNegative, Positive
from nicegnn.graph.case import Case, edge_slots, rank_within
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn_lab.metrics.scale import capture_readout
from nicegnn_lab.rivals import masks
from nicegnn_lab.rivals.learned import LearnedConfig, LearnedRival, Survey

_MOMENTUM, _EPS = 0.1, 1e-5  # of the normalisation, as in torch
Share = Annotated[float, "lie in (0, 1]", lambda v: 0 < v <= 1]


@dataclass(frozen=True)
class ReFineConfig(LearnedConfig):
    learning_rate: Positive = 5e-3  # Adam, of the global stage
    hidden_size: Count = 50  # width of the mask networks
    size: NotNegative = 1e-4  # weight of the mean of a graph's mask
    entropy: NotNegative = 1e-2  # weight of the mean entropy of a graph's mask
    contrast: NotNegative = 0.02  # weight of the contrast between classes
    contrast_temperature: Positive = 0.1  # low values weight the best graphs more
    ratio: Share = 0.4  # share of bonds in the subgraph of contrast and fine-tuning
    fine_tune_steps: Whole = 20  # steps of each graph's own copy; 0 for the global stage alone
    fine_tune_rate: Positive = 2e-4  # Adam, of the fine-tuning


class ReFine(LearnedRival):
    r"""Has a mask network per class; each graph tunes a copy (Wang et al., NeurIPS 2021).

    Global stage, with one network :math:`g_c` for each explained class :math:`c`:

    .. math:: \min_\theta \frac1{|B|} \sum_{G \in B} \Big[ -p_{\hat y}(G \odot m)
        + \frac{a}{|E|} \sum_e m_e + \frac{b}{|E|} \sum_e H(m_e) \Big] + \gamma L_{con}

    .. math:: L_{con} = -\log \frac1{|B|} \sum_{G \in B} e^{q_G / \tau}, \qquad
        q_G = \frac{\sum_{G' \ne G,\; \hat y' = \hat y} s(G, G')}{\sum_{G' \ne G} s(G, G')}

    Local stage: a copy of :math:`g_{\hat y}` for each graph takes ``fine_tune_steps`` down the same
    loss on the subgraph of its best bonds, without samples and without contrast.

    Symbols: :math:`m` -> ``mask``, ``[E]``, a relaxed sample of temperature 1 around the network's
    ``logit``, ``[E]``, which is also the score; :math:`s` -> cosine of the target's representations
    of the two best subgraphs, cut at 0, ``[B, B]``; :math:`a, b, \gamma, \tau` -> ``size``,
    ``entropy``, ``contrast``, ``contrast_temperature``. The best subgraph keeps the share ``ratio``
    of a graph's bonds.

    Log-probabilities replace the representation of a target without a readout of one row per graph.
    """

    name = "refine"
    mechanisms = ("em", "nc", "exchange")
    config_type = ReFineConfig
    config: ReFineConfig

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        x, edge_attr = features_of(self._query(survey.target, survey.example))
        seen = torch.bincount(survey.explained, minlength=survey.num_classes)
        edge_size = 0 if edge_attr is None else edge_attr.size(1)
        return {"node_size": x.size(1), "edge_size": edge_size, "seen": seen.tolist()}

    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        sizes = len(shape["seen"]), shape["node_size"], shape["edge_size"]
        return MaskNetworks(*sizes, self.config.hidden_size)

    def _losses(self, net: MaskNetworks, query: Query, step: int, seed: int) -> list[Tensor]:
        logit = self._global_logit(net, query, query.explained)
        mask = masks.share_bonds(query.case, masks.relax(logit, 1.0, mix(seed, "relax")).sigmoid())
        loss = self._graph_loss(query, mask, mask, mix(seed, "noise")).mean()
        if self.config.contrast > 0 and query.case.num_graphs > 1:
            gate = mask * best_bonds(query.case, mask, self.config.ratio)
            rep = self._representation(query, gate, mix(seed, "contrast"))
            pull = contrast_loss(rep, query.explained, self.config.contrast_temperature)
            loss = loss + self.config.contrast * pull
        return [loss]

    def _edge_score(self, query: Query, seed: int) -> Tensor:
        net: MaskNetworks = self._fitted()
        label = query.explained  # [B]
        seen = torch.tensor(self._shape["seen"], device=label.device)
        label = torch.where(seen[label] > 0, label, seen.argmax())
        config = self.config
        if config.fine_tune_steps == 0:
            with torch.no_grad():
                return self._global_logit(net, query, label)
        each = torch.arange(label.numel(), device=label.device)
        copies = {k: v.detach()[label].requires_grad_() for k, v in net.stacked.items()}
        # slopes below eps are rounding errors, which differ by batch: they must not become steps
        optimiser = torch.optim.Adam(copies.values(), lr=config.fine_tune_rate, eps=1e-6)
        for step in range(config.fine_tune_steps):
            mask = masks.share_bonds(query.case, net(query, each, label, copies).sigmoid())
            gate = mask * best_bonds(query.case, mask, config.ratio)
            loss = self._graph_loss(query, mask, gate, mix(seed, "tune", step))
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss.sum(), inputs=list(copies.values()))
            optimiser.step()
        with torch.no_grad():
            return net(query, each, label, copies)

    def _global_logit(self, net: MaskNetworks, query: Query, label: Tensor) -> Tensor:
        classes = torch.arange(net.num_classes, device=label.device)
        return net(query, label, classes, net.stacked)

    def _graph_loss(self, query: Query, mask: Tensor, gate: Tensor, stream: int) -> Tensor:
        """Returns each graph's loss without contrast, ``[B]``."""
        case, counted = query.case, masks.reached_edges(query.case)
        kept = masks.mean_log_prob(query, gate, self.num_draws, stream).exp()
        size = self.config.size * masks.graph_mean(case, mask, counted)
        entropy = masks.graph_mean(case, masks.binary_entropy(mask), counted)
        return size + self.config.entropy * entropy - kept

    def _representation(self, query: Query, gate: Tensor, stream: int) -> Tensor:
        """Returns the target's readout of each graph under gates ``[E]``, ``[B, F]``."""
        draws, num = self.num_draws, query.case.num_graphs
        with capture_readout(query.target.model, draws * num) as readout:
            out = query.answers(gate.expand(draws, -1), stream)  # [N, B, C]
            try:
                return readout.value.view(draws, num, -1).mean(0)
            except TargetError:
                return out.mean(0)

    def _notes(self, query: Query) -> Sequence[str]:
        seen = self._shape["seen"]
        new = sorted({c for c in query.explained.tolist() if seen[c] == 0})
        instead = f"the network of class {seen.index(max(seen))} was used in its place."
        return [f"No training graph was predicted as class {c}: {instead}" for c in new]


def best_bonds(case: Case, mask: Tensor, ratio: float) -> Tensor:
    """Returns which directed edges belong to the best bonds of their graph, ``[E]``."""
    bonds = case.bonds
    score = bonds.mean(mask.detach()).mul(1e4).round()  # symmetric bonds tie, in any batch
    rank = rank_within(score.masked_fill(~case.reached, -1.0), bonds.batch, case.num_graphs)
    number = torch.bincount(bonds.batch[case.reached], minlength=case.num_graphs)
    return (rank < (number * ratio).ceil()[bonds.batch])[bonds.edge_bond]


def contrast_loss(representation: Tensor, label: Tensor, temperature: float) -> Tensor:
    r"""Returns :math:`L_{con}` of representations, ``[B, F]``; no slope if all are of one class."""
    unit = nn.functional.normalize(representation, dim=1)
    similarity = (unit @ unit.t()).relu()
    is_other = ~torch.eye(label.numel(), dtype=torch.bool, device=label.device)
    same = (similarity * (is_other & (label.view(-1, 1) == label))).sum(1)
    share = same / (similarity * is_other).sum(1).clamp(min=1e-8)  # [B]
    return math.log(label.numel()) - (share / temperature).logsumexp(0)


class GroupedRows:
    """Rows in groups, ``[R]``, and linear maps with weights of each group's own."""

    def __init__(self, group: Tensor, num_groups: int) -> None:
        self.group = group
        self.slot = edge_slots(group, num_groups)
        self.width = int(self.slot.max()) + 1 if group.numel() else 0

    def linear(self, value: Tensor, weight: Tensor) -> Tensor:
        """Maps rows ``[R, I]`` by their group's weight, ``[K, I, O]``, to ``[R, O]``."""
        padded = value.new_zeros(weight.size(0), self.width, value.size(1))
        padded = padded.index_put((self.group, self.slot), value)
        return torch.bmm(padded, weight)[self.group, self.slot]


def features_of(query: Query) -> tuple[Tensor, Tensor | None]:
    """Returns node features ``[V, F]`` and, where graphs have them, edge features ``[E, D]``."""
    batch = query.case.batch
    x, edge_attr = batch.get("x"), batch.get("edge_attr")
    x = x if isinstance(x, Tensor) else query.states[0]  # of the target's first layer
    x = x.float().reshape(batch.num_nodes, -1)
    if isinstance(edge_attr, Tensor):
        return x, edge_attr.float().reshape(query.case.num_edges, -1)
    return x, None


class MaskNetworks(nn.Module):
    r"""One mask network per class; gives each directed edge the logit of its mask.

    .. math:: h^0 = \mathrm{ReLU}(x W_0), \qquad
        h^l = \mathrm{Norm}\big(\mathrm{ReLU}(\hat A h^{l-1} W_l + h^{l-1} V_l)\big), \quad l = 1, 2

    .. math:: e = [h_u \| h_v] \;\text{ or }\; [(h_u \| h_v) W_e \,\|\, a_{uv} W_a], \qquad
        \omega = \tanh(e W_3) w_4

    Symbols: :math:`x` -> node features, ``[V, F]``; :math:`a` -> edge features, ``[E, D]``, the
    second form where there are any; :math:`\hat A` -> adjacency divided by the square roots of both
    degrees. All maps have biases. The layer is PyG's ``ARMAConv`` with one stack.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, num_classes: int, node_size: int, edge_size: int, hidden_size: int) -> None:
        super().__init__()
        self.num_classes, self.node_size, self.edge_size = num_classes, node_size, edge_size
        width = hidden_size
        sizes = {"enter": (node_size, width)}
        sizes |= dict.fromkeys(("spread0", "root0", "spread1", "root1"), (width, width))
        if edge_size:
            sizes |= {"ends": (2 * width, width), "edge": (edge_size, width)}
        sizes |= {"hidden": (2 * width, width), "out": (width, 1)}
        self.stacked = nn.ParameterDict()  # by name, each with one row per class
        for name, (rows, columns) in sizes.items():
            weight = torch.empty(num_classes, rows, columns)
            for one in weight:
                nn.init.xavier_uniform_(one)
            self.stacked[name] = nn.Parameter(weight)
            if not name.startswith("spread"):
                self.stacked[f"{name}_bias"] = nn.Parameter(torch.zeros(num_classes, columns))
        for layer in range(2):
            self.stacked[f"scale{layer}"] = nn.Parameter(torch.ones(num_classes, width))
            self.stacked[f"shift{layer}"] = nn.Parameter(torch.zeros(num_classes, width))
        self.register_buffer("mean", torch.zeros(2, num_classes, width))
        self.register_buffer("var", torch.ones(2, num_classes, width))

    def forward(self, query: Query, group: Tensor, label: Tensor, weights: Any) -> Tensor:
        """Returns the mask's logit of each directed edge, ``[E]``.

        The graphs of a ``group``, ``[B]``, share a row of the weights and its ``label``, ``[K]``.
        """
        case = query.case
        (x, edge_attr), num_groups = features_of(query), label.numel()
        if self.edge_size == 0:
            edge_attr = None
        sizes = (x.size(1), 0 if edge_attr is None else edge_attr.size(1))
        if sizes != (self.node_size, self.edge_size):
            raise GraphError(
                f"Graphs must have {self.node_size} node and {self.edge_size} edge features, as in "
                f"the fit (got {sizes[0]} and {sizes[1]}). Explain graphs with these features."
            )
        nodes = GroupedRows(group[case.batch.batch], num_groups)
        edges = GroupedRows(group[case.edge_batch], num_groups)

        def linear(name: str, rows: GroupedRows, value: Tensor) -> Tensor:
            return rows.linear(value, weights[name]) + weights[f"{name}_bias"][rows.group]

        u, v = case.batch.edge_index
        _, norm = gcn_norm(case.batch.edge_index, None, x.size(0), add_self_loops=False)
        h = linear("enter", nodes, x).relu()  # [V, H]
        for layer in range(2):
            sent = nodes.linear(h, weights[f"spread{layer}"])
            spread = torch.zeros_like(sent).index_add(0, v, norm.unsqueeze(1) * sent[u])
            h = (spread + linear(f"root{layer}", nodes, h)).relu()
            h = self._normalise(layer, h, label[nodes.group])
            h = h * weights[f"scale{layer}"][nodes.group] + weights[f"shift{layer}"][nodes.group]
        e = torch.cat([h[u], h[v]], dim=1)
        if edge_attr is not None:
            e = torch.cat([linear("ends", edges, e), linear("edge", edges, edge_attr)], 1)
        return linear("out", edges, linear("hidden", edges, e).tanh()).squeeze(1)

    def _normalise(self, layer: int, h: Tensor, label: Tensor) -> Tensor:
        """Standardises rows by the statistics of their class: the batch's while training."""
        mean, var = self.mean[layer], self.var[layer]  # [C, H]
        if self.training:
            number = torch.bincount(label, minlength=mean.size(0)).unsqueeze(1)
            many = number > 1  # one row has no spread
            total = torch.zeros_like(mean).index_add(0, label, h)
            here = total / number.clamp(min=1)
            square = torch.zeros_like(mean).index_add(0, label, (h - here[label]).square())
            with torch.no_grad():
                unbiased = square / (number - 1).clamp(min=1)
                mean.copy_(torch.where(many, mean.lerp(here, _MOMENTUM), mean))
                var.copy_(torch.where(many, var.lerp(unbiased, _MOMENTUM), var))
            mean = torch.where(many, here, mean.clone())
            var = torch.where(many, square / number.clamp(min=1), var.clone())
        return (h - mean[label]) * (var[label] + _EPS).rsqrt()
