r"""Several models that learned the same outputs: what they say together, and their spread as error.

One damaged pass of a member answers for all its outputs, so all cost as much as one. For each bond
and atom, with the mean over members g and their standard deviation as the error:

.. math:: s = \frac1G \sum_g s_g, \qquad
    s_g = \frac1K \sum_k f_g(G) - f_g(G; \cdot \leftarrow b_k)

Symbols: :math:`f_g` -> log-odds of the explained class, or value, of member g; :math:`b_k` -> what
prototype bonds, or atoms, of the background say. For log-odds falls and gains are averaged apart,
and the side that outweighs the other counts (`outweighing`), so bonds are signed as atoms are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nicegnn.attribution.one_by_one import atom_prototypes, outweighing
from nicegnn.config import NICEConfig
from nicegnn.explain.call import Work, read_graphs
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation, Unit, scores_of, scores_only
from nicegnn.graph.batch import graph_list, to_batch
from nicegnn.graph.case import Case, make_case, merge_equal
from nicegnn.intervention.background import Background, atom_kinds, record_background
from nicegnn.intervention.exchange import NUM, Exchange
from nicegnn.intervention.one_part import Damaged, damage_each_bond, replace_each_atom
from nicegnn.intervention.query import Query
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.target.frozen_model import Target, fingerprint
from nicegnn.target.losses import log_odds, of_target
from nicegnn.target.output import Mode, OutputReader

_UNSURE = 0.4, 0.6  # probabilities inside are near 0.5

Member = tuple[Target, Background | None]  # a model whose raw output is read, and its background


@dataclass(frozen=True)
class Output:
    """One output that all members of a group have."""

    mode: Mode  # binary, multiclass or regression
    card: ModelCard
    column: int = 0  # of the raw output; classes of one task take all columns
    explained: int | None = None  # class that is explained and told of; None: the predicted one
    group: str = ""  # members that have it
    name: str = ""
    drugs: Tensor | None = None  # what is predicted for approved drugs, to compare with

    def read(self, raw: Tensor) -> Tensor:
        """Returns log-probabilities or values of raw output, ``[..., C]``."""
        raw = raw if self.mode == "multiclass" else raw[..., self.column : self.column + 1]
        read = OutputReader(self.mode, "raw", None).read(raw.flatten(0, -2))
        return read.view(*raw.shape[:-1], read.size(1))


@dataclass(frozen=True)
class Finding:
    """What members say of molecules and one output."""

    output: Output
    explanation: Explanation  # means; ``bond_stderr`` and ``atom_stderr`` are spreads over members
    told: Tensor  # probability of the explained class, or value, by each member, [G, B]
    bond_agreement: Tensor  # share of members whose loss has the sign of the mean, [M]
    atom_agreement: Tensor | None  # [V]

    def cells(self, number: int) -> dict[str, str]:
        """Returns what is told of a molecule beside its scores, by the name of the column."""
        told, of, cells = self.told[:, number], self.output, dict[str, str]()
        value, drugs, said = float(told.mean()), of.drugs, [of.card.doubt]
        if drugs is not None:  # the share of them with a smaller prediction
            below = (drugs < value).float().mean() + (drugs <= value).float().mean()
            cells |= {"prediction unit": of.card.unit, "percentile": f"{50 * float(below):.1f}"}
        if of.mode == "binary" and _UNSURE[0] < value < _UNSURE[1]:
            said.append(f"The models are unsure: {value:.2f} is near 0.5.")
        if of.mode == "binary" and bool(((told > 0.5) != (told[0] > 0.5)).any()):
            said.append(f"Members disagree: from {told.min():.2f} to {told.max():.2f}.")
        if of.mode == "regression" and drugs is not None and told.std() > drugs.std() / 2:
            said.append(f"Members disagree: from {told.min():.3g} to {told.max():.3g}.")
        warning = " ".join(filter(None, said))
        return cells | {"spread": f"{float(told.std()):.3g}", "warning": warning}

    def notes(self, number: int) -> list[str]:
        """Returns what `cells` tells in words."""
        cells = self.cells(number)
        said = [f"Over models, the prediction has a spread of {cells['spread']}."]
        if "percentile" in cells:
            said.append(f"It is above {cells['percentile']} % of approved drugs.")
        return said + ([cells["warning"]] if cells["warning"] else [])


class Ensemble(Explainer):
    """Explains outputs of several models by their members' mean."""

    name = "ensemble"

    def __init__(self, groups: Mapping[str, Sequence[Member]], outputs: Sequence[Output]) -> None:
        self.groups, self.outputs = dict(groups), tuple(outputs)
        (first, self.background), *_ = self.groups[outputs[0].group]
        super().__init__(first.model, NICEConfig(), mode="regression")

    @property
    def weights(self) -> str:
        """A short hash of all members' weights."""
        models = [target.model for group in self.groups.values() for target, _ in group]
        return hashlib.sha256("".join(map(fingerprint, models)).encode()).hexdigest()[:16]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what `Finding.cells` tells."""
        more = ("prediction unit", "percentile") if self.outputs[0].drugs is not None else ()
        return (*more, "spread", "warning")

    def having(self, graphs: Any) -> Ensemble:
        """Returns the same ensemble with a background of these graphs."""
        listed = graph_list(read_graphs(graphs, self.target)[0])
        groups = dict(self.groups)
        for name, members in groups.items():
            groups[name] = [(target, record_background(target, listed)) for target, _ in members]
        return Ensemble(groups, self.outputs)

    def findings(self, graphs: Any, *, atoms: bool = True) -> list[Finding]:
        """Returns what members say of graphs, or of SMILES, for each output."""
        read, _ = read_graphs(graphs, self.target)
        return self._findings(make_case(to_batch(read).to(self.target.device)), atoms)

    def _explain_batch(self, work: Work) -> Explanation:
        found = self._findings(make_case(work.batch), True, work.explained)[0]
        out, notes = found.explanation, found.notes(0)
        return out if out.num_graphs > 1 else replace(out, status=out.status.noting(notes))

    @torch.no_grad()
    def _findings(self, case: Case, atoms: bool, asked: Tensor | None = None) -> list[Finding]:
        groups = {one.group for one in self.outputs}
        answers = {group: _Answers(self.groups[group], case, atoms) for group in groups}
        return [answers[one.group].finding(one, asked) for one in self.outputs]


class _Answers:
    """Raw outputs of all members of a group: clean, and with each bond and atom exchanged."""

    def __init__(self, members: Sequence[Member], case: Case, atoms: bool) -> None:
        clean, bonds, changed = [], [], []
        for target, background in members:
            exchange = Exchange(None if background is None else background.messages)
            query = Query(target.private(), case, exchange, explained=0)
            clean.append(query.clean)
            num, home = query.draws(NUM), case.bonds.batch
            bonds.append(_outputs(query, damage_each_bond(query, num, 0), home, num))
            if not atoms:
                continue
            features, home = atom_kinds(query.target, case.batch), case.batch.batch
            kinds, row = atom_prototypes(query, features, background, NUM)
            parts = replace_each_atom(query, kinds, row)
            changed.append(_outputs(query, parts, home, row.size(1)))
        self.case, self.clean = case, torch.stack(clean)  # [G, B, C]
        self.bonds = torch.stack(bonds)  # [G, K, M, C]
        self.atoms = torch.stack(changed) if atoms else None  # [G, K, V, C]

    def finding(self, output: Output, asked: Tensor | None) -> Finding:
        case, clean, is_value = self.case, output.read(self.clean), output.mode == "regression"
        prediction = clean.mean(0) if is_value else clean.exp().mean(0)
        wanted = asked if asked is not None or is_value else output.explained
        explained = OutputReader(output.mode, "raw", None).choose(prediction, wanted)  # [B]
        told = of_target(clean if is_value else clean.exp(), explained)
        if not is_value:  # a class by its name, or how probable it is
            is_named = output.explained is None
            prediction = prediction.log() if is_named else told.mean(0).unsqueeze(1)
        unit: Unit = "value" if is_value else "odds"

        def judged(raw: Tensor, home: Tensor) -> tuple[Tensor, ...]:
            """Returns score, loss, spread and agreement of bonds or atoms."""
            of = of_target if is_value else log_odds
            damaged, chosen = output.read(raw), explained[home]
            before = of(clean[:, home], chosen).unsqueeze(1)
            fall = before - of(damaged.flatten(0, 1), chosen).view(damaged.shape[:-1])  # [G, K, M]
            own = torch.stack([one.mean(0) if is_value else outweighing(one) for one in fall])
            size = clean.abs().amax((0, 2))
            loss = merge_equal(own.mean(0), home, size)
            agreement = (own.sign() == own.mean(0).sign()).float().mean(0)
            return scores_of(loss, unit), loss, merge_equal(own.std(0), home, size), agreement

        score, loss, spread, bond_agreement = judged(self.bonds, case.bonds.batch)
        out = scores_only(case, score, explained, prediction)
        out = replace(out, bond_loss=loss, bond_change=loss, bond_stderr=spread, unit=unit)
        atom_agreement = None
        if self.atoms is not None:
            score, loss, spread, atom_agreement = judged(self.atoms, case.batch.batch)
            out = replace(out, atom_score=score, atom_loss=loss, atom_stderr=spread)
        return Finding(output, out, told, bond_agreement, atom_agreement)


def _outputs(query: Query, parts: Iterable[Damaged], home: Tensor, num: int) -> Tensor:
    """Returns the raw output with each draw and item damaged, ``[K, items, C]``."""
    out = query.clean[home].repeat(num, 1, 1)
    for part in parts:
        out[part.draw, part.item] = part.output
    return out
