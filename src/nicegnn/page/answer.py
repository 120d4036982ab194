"""What the page tells of one molecule: explanation, effect of keeping few bonds, other methods."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.explain.registry import EXPLAINERS, get_explainer
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.molecule.drawing import draw_graph
from nicegnn.molecule.picture import Picture
from nicegnn.page.asking import Limits, graph_within
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.model_file import MODES, ModelCard
from nicegnn.screening.explaining import add_explained, empty_tables
from nicegnn.screening.reading import Record
from nicegnn.screening.shards import Table, rows_of
from nicegnn.seeding import mix

SHARES = tuple(number / 20 for number in range(21))  # of bonds that are kept
DRAWS = 16  # of noise
_NAMES = ("bond score above the mean", "atom score above the mean", "bonds kept")


@dataclass(frozen=True)
class Kept:
    """The prediction with only the best bonds, at each of `SHARES`: a probability, or a value."""

    number: tuple[int, ...]  # bonds that are kept
    masked: tuple[float, ...]  # messages of the others are zero
    noised: tuple[float, ...]  # messages of the others are noise, mean over draws
    clean: float  # with all bonds


@dataclass(frozen=True)
class Answer:
    """All that the page tells of one molecule."""

    record: Record
    model: str  # name of the model on the shelf
    card: ModelCard
    graph: Data
    found: Explanation
    kept: Kept
    tables: dict[str, Table]  # as `explain_records` returns them
    others: Mapping[str, Explanation | str]  # of other methods, or why there is none

    @property
    def molecule(self) -> dict[str, Any]:
        """The molecule's row of its table."""
        return next(rows_of(self.tables["molecules"]))

    @property
    def bonds(self) -> list[dict[str, Any]]:
        """Rows of the bonds, the best first."""
        return sorted(rows_of(self.tables["bonds"]), key=lambda row: int(row["rank"]))

    def draw(self, kept: int = 0, size: tuple[int, int] = (640, 440)) -> Picture:
        """Returns the picture, with an outline around so many of the best bonds."""
        return draw_answer(self.found, self.record.smiles, kept, size)


def answer(
    record: Record, model: str, subject: Pretrained, limits: Limits, *, seed: int = 0
) -> Answer:
    """Explains one molecule; raises `PageError` if it cannot be read or is too large."""
    graph = graph_within(record, subject, limits)
    explainer = subject.explainer
    if isinstance(explainer, NICE):
        found = explainer.explain(graph, seed=seed, atoms=True)
    else:
        found = explainer.explain(graph, seed=seed)
    tables = empty_tables()
    add_explained(tables, record, found, subject)
    kept = keep_best(subject, graph, found, seed)
    return Answer(record, model, subject.card, graph, found, kept, tables, {})


@torch.no_grad()
def keep_best(subject: Pretrained, graph: Data, found: Explanation, seed: int = 0) -> Kept:
    """Returns the prediction with only the best bonds, for all shares at once.

    Unlike `fidelity_curve` it also takes regressions, and no bond at all may be kept. Bonds of
    equal scores keep their order, as in `Explanation.top`.
    """
    target = subject.explainer.target.private()
    case = make_case(to_batch(graph).to(target.device))
    num_bonds = found.bond_score.numel()
    number = tuple(round(share * num_bonds) for share in SHARES)
    best = torch.stack([_best(found, one) for one in number])  # [Q, M]
    gate = best[:, found.bonds.edge_bond].to(target.device)  # [Q, E]
    query = Query(target, case, ElementMask(), explained=found.target)
    gate = gate.to(query.clean.dtype)

    def shown(answers: Tensor) -> Tensor:  # [N, 1, C] to [N]
        value = answers[:, 0, int(found.target)].double()
        return value if subject.card.task == "regression" else value.exp()

    noise = query.under(NoiseCorruption(mix(seed, "fidelity")))
    masked = [float(shown(query.answers(row.unsqueeze(0)))) for row in gate]
    noised = [float(shown(noise.answers(row.expand(DRAWS, -1))).mean()) for row in gate]
    return Kept(number, tuple(masked), tuple(noised), float(shown(query.clean.unsqueeze(0))))


def _best(found: Explanation, number: int) -> Tensor:
    """Returns a mask of so many of the best bonds, ``[M]``."""
    return found.top(number) if number else torch.zeros_like(found.bond_reached)


def other_methods() -> tuple[str, ...]:
    """Returns the explainers that need neither a fit nor true explanations.

    >>> {"occlusion", "saliency", "gnnexplainer"} <= set(other_methods())
    True
    """
    groups = ("ours", "variant", "rival")
    return tuple(n for n, one in EXPLAINERS.items() if one.group in groups and not one.learns)


def beside(
    given: Answer, subject: Pretrained, names: Sequence[str], limits: Limits, *, seed: int = 0
) -> Answer:
    """Returns the answer with explanations of other methods; those it has are kept."""
    others, ends = dict(given.others), time.monotonic() + limits.seconds
    for name in names:
        if isinstance(others.get(name), Explanation) or name not in other_methods():
            continue
        if time.monotonic() > ends:
            others[name] = f"The time of {limits.seconds} s was over."
            continue
        try:
            method = get_explainer(name, subject.model, mode=MODES[given.card.task])
            others[name] = method.explain(given.graph, target=given.found.target, seed=seed)
        except (NicegnnError, RuntimeError) as error:
            others[name] = str(error)
    return replace(given, others=others)


def draw_answer(
    found: Explanation, smiles: str, kept: int = 0, size: tuple[int, int] = (320, 260)
) -> Picture:
    """Returns a picture whose colours begin at the mean score of the molecule."""
    atoms = found.atom_score
    return draw_graph(
        found.bond_index,
        found.bond_score - found.bond_score.mean(),
        smiles=smiles,
        num_nodes=int(found.ptr[-1]),
        atom_score=None if atoms is None else atoms - atoms.mean(),
        bond_top=_best(found, kept),
        signed=False,
        atom_signed=False,
        size=size,
        names=_NAMES,
    )
