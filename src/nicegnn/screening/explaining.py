"""Records of molecules in, rows of scores out: the pure part of a screening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.explain.words import careful, flag_words
from nicegnn.graph.case import shared_rank
from nicegnn.molecule.domain import Domain, Nearness
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.molecule.smiles import MOST_LETTERS, MoleculeError, matched_molecule, parse_smiles
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.ensemble import Ensemble, Finding
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import MOST_ATOMS, RunConfig
from nicegnn.screening.tables import ATOMS, ENSEMBLE, NOTES, OUTPUTS, ROW, TRUST, Row, own_names

Read = tuple[list[Row], Data]  # rows to fill, one for each output, and the graph of the molecule


class TooLarge(MoleculeError):
    """A molecule has more atoms than are allowed."""


def explain_rows(records: Sequence[Record], subject: Pretrained, config: RunConfig) -> list[Row]:
    """Returns the row of each record in their order, of an ensemble one for each output."""
    own, explainer = own_names(records[0].values if records else ()), subject.explainer
    more, number = list[str](), 1
    if isinstance(explainer, Ensemble):
        more, number = [*ENSEMBLE, *explainer.columns], len(explainer.outputs)
    rows, read = list[Row](), list[Read]()
    for record in records:
        row: Row = dict.fromkeys([*ROW, *ATOMS, *more])
        row |= {"row": record.row, "id": record.id, "smiles": record.smiles[:MOST_LETTERS]}
        row |= {own[name]: value for name, value in record.values.items()}
        copies = [dict(row) for _ in range(number)]
        rows += copies
        try:
            read.append((copies, graph_of(record, subject.featurizer, config.max_atoms)))
        except NicegnnError as error:
            for one in copies:
                one["reason"] = str(error)
    if read:
        _explain(read, subject, config)
    return rows


def graph_of(record: Record, featurizer: Featurizer, max_atoms: int = MOST_ATOMS) -> Data:
    """Returns the graph of a record, or raises `MoleculeError`; its nodes must be the atoms."""
    if record.problem:
        raise MoleculeError(record.problem)
    try:
        graph = featurizer(record.smiles)
        if featurizer is not FEATURIZERS.get(featurizer.name):  # ours keep the order of atoms
            matched_molecule(record.smiles, graph.edge_index, graph.num_nodes)
    except (NicegnnError, ImportError):
        raise
    except Exception as error:  # the user's own featuriser
        raise MoleculeError(f"The featuriser raised {type(error).__name__}: {error}") from error
    if graph.num_nodes > max_atoms:
        raise TooLarge(
            f"A molecule must have at most {max_atoms:,} atoms (got {graph.num_nodes:,}). Explain "
            "a part of it, or use `nicegnn explain --max-atoms`, which may take long."
        )
    return graph


def _explain(read: Sequence[Read], subject: Pretrained, config: RunConfig) -> None:
    """Fills rows: all together, or if that fails, one after the other to find who is at fault."""
    try:
        found = answers(subject, [graph for _, graph in read], config)
    except (NicegnnError, RuntimeError) as error:
        for one in read if len(read) > 1 else ():
            _explain([one], subject, config)
        for row in read[0][0] if len(read) == 1 else ():
            row["reason"] = f"The explainer raised {type(error).__name__}: {error}"
        return
    for place, (card, out, several) in enumerate(found):
        for number, ((rows, _), part) in enumerate(zip(read, out.split(), strict=True)):
            rows[place] |= _cells(part, rows[place]["smiles"], card, subject.domain)
            rows[place] |= {} if several is None else _of_several(several, number)


def answers(
    subject: Pretrained, graphs: Sequence[Data], config: RunConfig
) -> list[tuple[ModelCard, Explanation, Finding | None]]:
    """Returns card and explanation of each output, and what else an ensemble found."""
    explainer = subject.explainer
    if isinstance(explainer, Ensemble):
        return [
            (subject.cards.get(one.output.name, subject.card), one.explanation, one)
            for one in explainer.findings(graphs, atoms=config.atoms)
        ]
    words: dict[str, Any] = {}  # methods other than NICE know none of them
    if isinstance(explainer, NICE):
        words = {"atoms": config.atoms, "student": config.student == "yes"}
    out = explainer.explain(graphs, seed=config.model.seed, **words)
    return [(subject.card, out, None)]


def _of_several(found: Finding, number: int) -> Row:
    """Returns what a row tells of several models that explain one of their outputs together."""
    out, atoms = found.explanation, found.atom_agreement
    of_atoms = None if atoms is None else atoms[out.ptr[number] : out.ptr[number + 1]].tolist()
    return found.cells(number) | {
        "endpoint": found.output.name,
        "bond_agreement": found.bond_agreement[out.bonds.batch == number].tolist(),
        "atom_agreement": of_atoms,
        NOTES: found.notes(number),
    }


def _cells(out: Explanation, smiles: str, card: ModelCard, domain: Domain | None) -> Row:
    """Returns what a row tells of a molecule; `OUTPUTS` are probabilities, or the value."""
    trust, is_value = out.trust, card.task == "regression"
    near = Nearness() if domain is None else domain.nearness(parse_smiles(smiles))
    verdict = "not checked" if trust is None else trust.verdicts[0]
    ranked = out.ranking.masked_fill(~out.bond_reached, -torch.inf)
    row: Row = {}
    for name in ("bond_score", "bond_loss", "bond_stderr", *ATOMS):
        values = getattr(out, name)
        if values is None and out.atom_score is not None:  # a method that tells no more of atoms
            values = torch.full_like(out.atom_score, torch.nan)
        row[name] = None if values is None else values.float().tolist()
    row |= {n: math.nan if trust is None else float(getattr(trust, n)) for n in TRUST}
    outputs = out.prediction[0] if is_value else out.prediction[0].exp()
    best = int(outputs.argmax())
    return row | {
        "prediction": f"{float(outputs[0]):.4g}" if is_value else card.class_name(best),
        "probability": math.nan if is_value else float(outputs[best]),
        "status": flag_words(out.status.flags[0]),
        "verdict": careful(verdict) if near.is_far or card.is_often_wrong else verdict,
        "similarity": near.similarity,
        "applicability": near.words,
        "unit": out.unit,
        "atom_a": out.bond_index[0].tolist(),
        "atom_b": out.bond_index[1].tolist(),
        "bond_rank": shared_rank(ranked, out.bonds.batch, 1).tolist(),
        OUTPUTS: outputs.tolist(),
        NOTES: list(out.status.notes),
    }
