"""Scores of graphs, stored by their identity, and the rows that are measured from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.config import Count, check_choice, check_number
from nicegnn.errors import MetricError, StoreError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.trust import Flag
from nicegnn.graph.case import Bonds, find_bonds
from nicegnn.intervention.background import Background
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import code_hash, content_hash, without_defaults
from nicegnn_lab.datasets import MoleculeDataset
from nicegnn_lab.metrics import (
    ALL_REMOVALS,
    PROTOCOLS,
    RATIOS,
    REMOVALS,
    Measured,
    Truth,
    fidelity_curve,
    get_metric,
    get_protocol,
    own_metrics,
    selected_graphs,
    truth_metrics,
)

SCORES_KIND = "bench-scores"
#: Further results of some explainers, per bond and per graph.
EXTRAS = ("bond_loss", "bond_gate", "risk_boundary", "restored")
GALLERY_SIZE = 12  # molecules of a dataset whose single bonds have rows
GALLERY_SEED = 0  # only cells of this seed have rows of single bonds
#: Metrics of single bonds and molecules, for pictures; their level is the bond's number.
GALLERY_METRICS = ("bond_score", "bond_gate", "bond_big", "molecule")


@dataclass(frozen=True)
class Scores:
    """Explanations of graphs."""

    positions: Tensor  # of the graphs in their part of the dataset, [B]
    bond_ptr: Tensor  # first bond of each graph, and one past the last, [B + 1]
    bond_score: Tensor  # what ranks the bonds, [M]
    explained: Tensor  # explained class of each graph, [B]
    prediction: Tensor  # log-probabilities on the whole graph, [B, C]
    flags: Tensor  # warnings about each graph, see `Flag`, [B]
    extras: Mapping[str, Tensor]  # those of `EXTRAS` that the explainer has
    facts: Mapping[str, Any]  # part, seconds of fit and explanation, status, notes, last losses

    @property
    def num_graphs(self) -> int:
        return int(self.positions.numel())

    @property
    def fit_seconds(self) -> float:
        """Seconds of the fit, 0 without one, nan if it was resumed."""
        seconds = self.facts["fit_seconds"]
        return float("nan") if seconds is None else float(seconds)

    @property
    def parts(self) -> dict[str, Tensor]:
        """Gates and integrated attributions of methods with a boundary, ``[M]`` each."""
        if "bond_gate" not in self.extras:
            return {}
        return {"gate": self.extras["bond_gate"], "big": self.extras["bond_loss"]}

    @property
    def explain_seconds_per_graph(self) -> float:
        return float(self.facts["explain_seconds"]) / self.num_graphs


def scores_of(parts: Sequence[Explanation], positions: Tensor, facts: Mapping[str, Any]) -> Scores:
    """Joins the explanations of consecutive batches; `positions` are of all graphs, ``[B]``.

    Bonds are ranked by what `Explanation.ranking` says: losses, not shares of odds close to 1.
    """

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name).cpu() for part in parts])

    sizes = [torch.bincount(part.bonds.batch, minlength=part.num_graphs).cpu() for part in parts]
    ends = torch.cat(sizes).cumsum(0)
    extras = {name: joined(name) for name in EXTRAS}
    return Scores(
        positions=positions,
        bond_ptr=torch.cat([ends.new_zeros(1), ends]),
        bond_score=joined("ranking"),
        explained=joined("target"),
        prediction=joined("prediction"),
        flags=torch.tensor([int(flag) for part in parts for flag in part.status.flags]),
        extras={name: value for name, value in extras.items() if not bool(value.isnan().all())},
        facts={
            **facts,
            "boundary": parts[0].status.boundary,
            "notes": list(dict.fromkeys(note for part in parts for note in part.status.notes)),
        },
    )


def save_scores(path: Path, identity: Mapping[str, Any], scores: Scores) -> None:
    """Writes scores with their identity and facts."""
    own = {name: value for name, value in vars(scores).items() if isinstance(value, Tensor)}
    tensors = own | dict(scores.extras)
    description = {
        "kind": SCORES_KIND,
        "key": content_hash(identity),
        "identity": dict(identity),
        "facts": dict(scores.facts),
        "extras": list(scores.extras),
    }
    save_tensors(path, tensors, description)


def load_scores(path: Path, identity: Mapping[str, Any] | None = None) -> Scores:
    """Reads scores; raises `StoreError` if they are damaged or have another identity."""
    tensors, about = load_tensors(path, SCORES_KIND)
    if identity is not None and about.get("key") != content_hash(identity):
        raise StoreError(f"{path} holds the scores of another cell ({about.get('key')}).")
    extras = {name: tensors[name] for name in about["extras"]}
    own = {one.name: tensors[one.name] for one in fields(Scores) if one.name in tensors}
    return Scores(**own, extras=extras, facts=about["facts"])


#: Numbers of draws and shares that keys leave out, so that new settings change no key.
_UNKEYED = {"protocols": ["paper", "strict"], "removals": [*REMOVALS], "num_draws": 16, "own": {}}


@dataclass(frozen=True)
class MetricConfig:
    """The metrics of scores; a change needs no new explanations."""

    protocols: tuple[str, ...] = ("paper", "strict")  # agreement with the truth, see `PROTOCOLS`
    removals: tuple[str, ...] = REMOVALS  # how bonds are removed for fidelity; () for no fidelity
    num_draws: int = 4  # draws of the removals "nc" and "exchange"
    own: tuple[str, ...] = ()  # metrics of one's own, see `register_metric`

    def __post_init__(self) -> None:
        known = {"protocols": PROTOCOLS, "removals": ALL_REMOVALS, "own": sorted(own_metrics())}
        for name, choices in known.items():
            given = getattr(self, name)
            for one in given:
                check_choice(name, one, choices)
            in_order = tuple(choice for choice in choices if choice in given)  # equal keys
            object.__setattr__(self, name, in_order)
        check_number("num_draws", self.num_draws, Count)

    def identity(self) -> dict[str, Any]:
        """Returns the settings that change numbers, as plain values."""
        measures = {name: get_metric(name).measure for name in self.own}
        plain = {
            "protocols": list(self.protocols),
            "removals": list(self.removals),
            "num_draws": self.num_draws if {"nc", "exchange"} & {*self.removals} else 0,
            "own": {name: code_hash(measure.__module__) for name, measure in measures.items()},
        }
        return without_defaults(plain, _UNKEYED)


def measure_molecules(
    scores: Scores,
    part: MoleculeDataset,
    model: nn.Module,
    metrics: MetricConfig,
    seed: int,
    background: Callable[[nn.Module], Background],
) -> Iterator[Block]:
    """Yields agreement with the truth and fidelity of each graph of the explained part.

    The seed orders equal scores and draws the noise of fidelity; ``background`` records what
    removed bonds say under exchange. Fidelity is nan where the explained class is not the predicted
    one.
    """
    batch = part.batch(scores.positions)
    bonds, truth = _bonds_of(scores, batch), Truth.from_dataset(part, scores.positions)
    label, predicted = part.y[scores.positions], scores.prediction.argmax(1)
    own = _own_values(scores, batch, bonds, truth, model, metrics.own)
    for name in metrics.protocols:
        protocol = get_protocol(name)
        chosen = selected_graphs(label, predicted, truth, protocol)
        values = truth_metrics(scores.bond_score, bonds, truth, protocol=protocol, seed=seed)
        for metric, value in {**values, **own}.items():
            yield Block(metric, value[chosen], name, scores.positions[chosen])
    target, is_predicted = Target(model), scores.explained == predicted  # [B]
    for removal in metrics.removals:
        curve = fidelity_curve(
            target,
            batch,
            bonds,
            scores.bond_score,
            removal=removal,
            num_draws=metrics.num_draws,
            seed=seed,
            explained=scores.explained,
            sample=background(model).sample if removal == "exchange" else None,
        )
        for metric, found in curve.metrics().items():
            is_area = found.dim() == 1
            levels = (None,) if is_area else RATIOS
            for level, row in zip(levels, [found] if is_area else found, strict=True):  # [B]
                value = torch.where(is_predicted, row.cpu(), torch.nan)
                yield Block(metric, value, removal, scores.positions, level=level)


def _own_values(
    scores: Scores,
    graphs: Batch,
    bonds: Bonds,
    truth: Truth,
    model: nn.Module,
    names: Sequence[str],
) -> dict[str, Tensor]:
    """Returns metrics of one's own by name, ``[B]`` each."""
    shown = (scores.bond_score, bonds, truth, graphs, model, scores.explained, scores.prediction)
    found = {}
    for name in names:
        measure: Any = get_metric(name).measure
        with torch.no_grad():
            value = torch.as_tensor(measure(Measured(*shown))).detach().cpu().double()
        is_one_each = value.shape == (scores.num_graphs,)
        if not is_one_each or bool((value.abs() > 1).any()):
            got = f"{value.abs().max():g}" if is_one_each else f"shape {list(value.shape)}"
            raise MetricError(
                f"Metric {name!r} must return a share per graph, [{scores.num_graphs}], nan where "
                f"there is none (got {got}). Correct its function."
            )
        found[name] = value
    return found


def _bonds_of(scores: Scores, batch: Batch) -> Bonds:
    bonds = find_bonds(batch.edge_index, batch.batch[batch.edge_index[0]])
    number = torch.bincount(bonds.batch, minlength=scores.num_graphs)
    if not torch.equal(number, scores.bond_ptr.diff()):
        raise StoreError(
            "The stored scores belong to other graphs: the numbers of bonds differ. Delete the "
            "scores to explain the graphs again."
        )
    return bonds


def measure_boundary(scores: Scores, part: MoleculeDataset, seed: int) -> Iterator[Block]:
    """Yields agreement of gate and attribution with the truth, and results of the boundary.

    Explainers without gates have none of it. ``not_restored`` is 1 where the risk of the boundary
    is above the target.
    """
    if not scores.parts:
        return
    bonds = _bonds_of(scores, part.batch(scores.positions))
    truth = Truth.from_dataset(part, scores.positions)
    chosen = selected_graphs(part.y[scores.positions], None, truth, "paper")
    for name, value in scores.parts.items():
        area = truth_metrics(value, bonds, truth, protocol="paper", seed=seed)["roc_auc"]
        yield Block(f"{name}_roc_auc", area[chosen], "paper", scores.positions[chosen])
    for name in ("restored", "risk_boundary"):
        if name in scores.extras:
            yield Block(name, scores.extras[name], graph=scores.positions)
    left = (scores.flags & int(Flag.NOT_RESTORED)) > 0
    yield Block("not_restored", left.double(), graph=scores.positions)


def measure_gallery(scores: Scores, part: MoleculeDataset, chosen: Tensor) -> Iterator[Block]:
    """Yields chosen molecules and the values of their bonds, so that pictures need no data.

    The note of metric ``molecule`` is the molecule as JSON, see `describe_molecule`. Other rows are
    about one bond each; its number is the level.
    """
    values = {"score": scores.bond_score, **scores.parts}
    for row in chosen.tolist():
        position = scores.positions[row : row + 1]
        about = describe_molecule(part, int(position))
        about["explained"] = int(scores.explained[row])
        about["probability"] = float(scores.prediction[row, int(scores.explained[row])].exp())
        note = json.dumps(about, separators=(",", ":"))
        yield Block("molecule", 1.0, graph=position, note=note)
        first, last = int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1])
        level = torch.arange(last - first)
        for name, value in values.items():
            graph = position.expand(last - first)
            yield Block(f"bond_{name}", value[first:last], graph=graph, level=level)


def describe_molecule(part: MoleculeDataset, position: int) -> dict[str, Any]:
    """Returns a molecule as plain values.

    ``smiles`` is empty for Mutagenicity, ``bonds`` are two ends and a column of `BOND_TYPES`,
    ``true`` are numbers of bonds.
    """
    data = part[position]
    bonds = find_bonds(data.edge_index, torch.zeros_like(data.edge_index[0]))
    kind = bonds.mean(data.edge_attr.t()).argmax(0)  # [M]
    true = bonds.sum(data.edge_truth.float()) > 0
    ends = zip(*bonds.index.tolist(), kind.tolist(), strict=True)
    return {
        "smiles": data.smiles,
        "atoms": [part.vocabulary[column] for column in data.x.argmax(1).tolist()],
        "bonds": [list(bond) for bond in ends],
        "true": true.nonzero().view(-1).tolist(),
        "label": int(data.y),
    }
