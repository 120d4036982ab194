r"""ADMET-AI: 41 properties of drugs, each predicted and explained by five Chemprop models.

One damaged pass of a member answers for all its endpoints, so all cost as much as one. For each
bond and atom, with the mean over members g and their spread as the error:

.. math:: s = \frac1G \sum_g s_g, \qquad
    s_g = \frac1K \sum_k f_g(G) - f_g(G; \cdot \leftarrow b_k)

Symbols: :math:`f_g` -> log-odds, or value, of member g; :math:`b_k` -> what prototype bonds, or
atoms, of approved drugs say. For log-odds falls and gains are averaged apart, and the side that
outweighs the other counts (`outweighing`). A positive score raises the property.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.attribution.atom_by_atom import outweighing
from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import share_of_odds
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import Background, record_background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.one_part import Damaged, damage_each_bond, replace_each_atom
from nicegnn.intervention.query import Query
from nicegnn.molecule.featurizers import Featurizer
from nicegnn.pretrained.chemprop import read_checkpoint, read_mpnn
from nicegnn.target.chemprop import ChempropModel
from nicegnn.target.frozen_model import Target

ADMET = "admet:"  # stands before names of endpoints where a word names a model
_KINDS = ("classification", "regression")  # folders of ADMET-AI
_PROTOTYPES, _DRUGS = 4, 200  # of each member; drugs whose bonds and atoms they are
_POOR, _UNSURE = 0.3, (0.4, 0.6)  # R² below it; probabilities inside of it
_CLEAR = 0.25  # share of the largest score from which a contradiction is worth a word


@dataclass(frozen=True)
class Endpoint:
    """A property that ADMET-AI predicts."""

    id: str
    name: str
    unit: str  # of a value; "probability" of a class
    is_class: bool
    quality: float  # R² of values, AUROC of classes, on held-out molecules
    column: int  # of the members' output


@dataclass(frozen=True)
class Parts:
    """Scores of bonds or atoms of one molecule for one endpoint, ``[M]`` or ``[V]`` each."""

    score: Tensor  # what the property owes to it: signed share of the odds, or fall of the value
    loss: Tensor  # the same in log-odds, or the value again
    spread: Tensor  # standard deviation of the loss over members
    agreement: Tensor  # share of members with the sign of the mean


@dataclass(frozen=True)
class Finding:
    """What the members say of one molecule and one endpoint."""

    endpoint: Endpoint
    value: float  # probability, or value in the endpoint's unit; mean over members
    spread: float  # standard deviation over members
    percentile: float  # share of approved drugs with a smaller one, in percent
    bond_index: Tensor  # [2, M]
    bonds: Parts
    atoms: Parts | None
    warnings: tuple[str, ...]


Member = tuple[Target, Background]  # a model, and what approved drugs make it say


@cache
def endpoints() -> dict[str, Endpoint]:
    """Returns all endpoints by their id, in the order of ADMET-AI's table."""
    table, found = _table("admet.csv").set_index("id"), {}
    places = {
        name: (kind, column)
        for kind in _KINDS
        for column, name in enumerate(_checkpoint(_paths(kind)[0])["output_columns"])
    }
    for name, row in table.iterrows():
        if name in places:
            kind, column = places[str(name)]
            is_class = kind == "classification"
            unit = "probability" if is_class else str(row["units"])
            quality = float(row["AUROC" if is_class else "R^2"])
            found[str(name)] = Endpoint(str(name), row["name"], unit, is_class, quality, column)
    return found


def named_endpoints(words: str) -> list[Endpoint]:
    """Returns endpoints by ids with commas between them, or by ``all``."""
    known = endpoints()
    if words.strip() == "all":
        return list(known.values())
    by_name = {name.lower(): one for name, one in known.items()}
    chosen = [word.strip() for word in words.split(",") if word.strip()]
    unknown = [word for word in chosen if word.lower() not in by_name]
    if unknown or not chosen:
        raise ConfigError(
            f"`model` must be admet: and 'all' or some of {', '.join(known)} (got "
            f"{(unknown or [words])[0]!r})."
        )
    return [by_name[word] for word in dict.fromkeys(word.lower() for word in chosen)]


class Admet:
    """Predicts and explains some endpoints of ADMET-AI."""

    def __init__(self, chosen: Sequence[Endpoint], device: str | torch.device = "cpu") -> None:
        self.endpoints, self.device = list(chosen), device

    @cached_property
    def members(self) -> dict[str, Sequence[Member]]:
        """The five members of each kind that is needed."""
        kinds = sorted({_KINDS[not one.is_class] for one in self.endpoints})
        return {kind: _members(kind, str(self.device)) for kind in kinds}

    @property
    def featurizer(self) -> Featurizer:
        """Makes the graph of a SMILES."""
        (target, _), *_ = next(iter(self.members.values()))
        model: Any = target.model
        found: Featurizer = model.featurizer
        return found

    @torch.no_grad()
    def explain(self, graphs: Sequence[Data], *, atoms: bool = True) -> list[list[Finding]]:
        """Returns the findings of each molecule, in the order of the endpoints."""
        batch = to_batch(list(graphs)).to(self.device)
        by_kind = {kind: _Answers(some, batch, atoms) for kind, some in self.members.items()}
        findings = []
        for number in range(batch.num_graphs):
            row = []
            for endpoint in self.endpoints:
                answers = by_kind[_KINDS[not endpoint.is_class]]
                row.append(answers.finding(endpoint, number))
            findings.append(row)
        return findings


class _Answers:
    """Predictions and changes of all members of a kind, for a batch."""

    def __init__(self, members: Sequence[Member], batch: Batch, atoms: bool) -> None:
        self.case = make_case(batch)
        outputs, bonds, changes = [], [], []
        for target, background in members:
            exchange = Exchange(background.messages)
            query = Query(target.private(), self.case, exchange, explained=0)
            outputs.append(query.clean)
            graph = self.case.bonds.batch
            parts = damage_each_bond(query, background.messages.num, 0)
            bonds.append(_changes(query, parts, graph))
            if atoms:
                row = torch.arange(_PROTOTYPES, device=graph.device).expand(batch.num_nodes, -1)
                parts = replace_each_atom(query, background.features, row)
                changes.append(_changes(query, parts, batch.batch))
        self.outputs = torch.stack(outputs)  # [G, B, C]
        self.bonds = torch.stack(bonds)  # [G, K, M, C]
        self.atoms = torch.stack(changes) if atoms else None  # [G, K, V, C]

    def finding(self, endpoint: Endpoint, number: int) -> Finding:
        """Returns what members say of a molecule and an endpoint."""
        output = self.outputs[:, number, endpoint.column]
        output = output.sigmoid() if endpoint.is_class else output
        value, spread = float(output.mean()), float(output.std())
        is_own = self.case.bonds.batch == number
        first, last = self.case.batch.ptr[number : number + 2].tolist()
        index = self.case.bonds.index[:, is_own] - first
        bonds = _parts(self.bonds[:, :, is_own, endpoint.column], endpoint.is_class)
        atoms = None
        if self.atoms is not None:
            atoms = _parts(self.atoms[:, :, first:last, endpoint.column], endpoint.is_class)
        warnings = [*_doubts(endpoint, output), *_contradictions(bonds, atoms, index)]
        reference = _reference(endpoint.id)
        below = (reference < value).float().mean() + (reference <= value).float().mean()
        rest = 50 * float(below), index, bonds, atoms, tuple(warnings)
        return Finding(endpoint, value, spread, *rest)


def _changes(query: Query, parts: Any, graph: Tensor) -> Tensor:
    """Returns how far each output falls with each draw and item, ``[K, items, C]``."""
    found: list[Damaged] = list(parts)
    num_draws = max((int(part.draw.max()) + 1 for part in found), default=1)
    out = query.clean.new_zeros(num_draws, graph.numel(), query.clean.size(1))
    for part in found:
        out[part.draw, part.item] = query.clean[graph[part.item]] - part.output
    return out


def _parts(change: Tensor, is_class: bool) -> Parts:
    """Joins the changes of members and draws, ``[G, K, items]``."""
    side: Callable[[Tensor], Tensor] = outweighing if is_class else lambda one: one.mean(0)
    loss = torch.stack([side(one) for one in change])  # [G, items]
    mean = loss.mean(0)
    score = mean.sign() * share_of_odds(mean.abs()) if is_class else mean
    agreement = (loss.sign() == mean.sign()).float().mean(0)
    spread = ((loss - mean).square().sum(0) / (loss.size(0) - 1)).sqrt()  # std() wants an item
    return Parts(score, mean, spread, agreement)


def _doubts(endpoint: Endpoint, output: Tensor) -> list[str]:
    """Returns why a prediction may be wrong."""
    said, value = [], float(output.mean())
    if not endpoint.is_class and endpoint.quality < _POOR:
        said.append(
            f"The models explain {max(0.0, endpoint.quality):.0%} of the variance of held-out "
            "molecules: do not use this value, nor its explanation."
        )
    if endpoint.is_class and _UNSURE[0] < value < _UNSURE[1]:
        said.append(f"The models are unsure: {value:.2f} is near 0.5.")
    if endpoint.is_class and bool(((output > 0.5) != (output[0] > 0.5)).any()):
        said.append(f"Members disagree: from {output.min():.2f} to {output.max():.2f}.")
    elif not endpoint.is_class and float(output.std()) > _reference(endpoint.id).std() / 2:
        said.append(f"Members disagree: from {output.min():.3g} to {output.max():.3g}.")
    return said


def _contradictions(bonds: Parts, atoms: Parts | None, index: Tensor) -> list[str]:
    """Returns whether a bond of the best atom has the opposite sign: the atom is to be believed.

    A group whose bond to the rest is damaged keeps the features of its atoms, and may count as the
    group all the more.
    """
    if atoms is None or not bonds.loss.numel():
        return []
    best = int(atoms.loss.abs().argmax())
    against = (index == best).any(0) & (bonds.loss.sign() == -atoms.loss[best].sign())
    weight = torch.where(against, bonds.loss.abs(), 0.0)
    worst = int(weight.argmax())
    if weight[worst] <= _CLEAR * bonds.loss.abs().max():
        return []
    other = int(index[:, worst].sum()) - best
    return [
        f"Bonds and atoms contradict each other: atom {best} has another sign than its bond to "
        f"atom {other}. Believe the atom: a group that is cut off keeps its features, and may "
        "count all the more."
    ]


@cache
def _members(kind: str, device: str) -> tuple[Member, ...]:
    """Returns the members of a kind, read once in each process."""
    members = []
    for path in _paths(kind):
        model = ChempropModel(read_mpnn(_checkpoint(path), path).to(device))
        target = Target(model, mode="regression")  # logits are read as they are
        drugs = [model.featurizer(smiles) for smiles in _drugs()]
        members.append((target, record_background(target, drugs, _PROTOTYPES)))
    return tuple(members)


@cache
def _reference(name: str) -> Tensor:
    """Returns the predictions of an endpoint for approved drugs."""
    return torch.tensor(_table("drugbank_approved.csv")[name].to_numpy(), dtype=torch.float32)


@cache
def _drugs() -> tuple[str, ...]:
    """Returns approved drugs of one part with some bonds, evenly spaced in ADMET-AI's table."""
    listed = [one for one in _table("drugbank_approved.csv")["smiles"] if "." not in one]
    listed = [one for one in listed if 10 <= len(one) <= 100]
    return tuple(listed[:: max(1, len(listed) // _DRUGS)][:_DRUGS])


@cache
def _table(name: str) -> Any:
    import pandas as pd

    return pd.read_csv(_home() / "data" / name)


@cache
def _checkpoint(path: Path) -> dict[str, Any]:
    return read_checkpoint(path)


def _paths(kind: str) -> list[Path]:
    return sorted((_home() / "models" / f"admet_{kind}").glob("*.pt"))


@cache
def _home() -> Path:
    """Returns the folder of ADMET-AI's models and tables; nothing of it is imported."""
    found = find_spec("admet_ai")
    if found is None or found.origin is None:
        raise ImportError(
            "ADMET-AI is needed for its endpoints. Install it with `pip install 'nicegnn[admet]'`."
        )
    return Path(found.origin).parent / "resources"
