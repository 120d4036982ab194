"""Records of molecules in, tables of scores out: the pure part of a screening."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.explain.words import flag_words
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.molecule.smiles import matched_molecule
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.fragments import bond_groups
from nicegnn.screening.reading import Record
from nicegnn.screening.shards import Schema, Table

if TYPE_CHECKING:
    from rdkit.Chem import Mol

#: Numbers of `Trust` that tables have; nan for methods that do not tell.
TRUST = ("overlap", "share", "kept", "needed", "kept_random", "random_better")
_WHO: Schema = {"row": int, "id": str}
#: Columns of every table; ``molecules`` also has one for each substructure that was asked for.
SCHEMAS: dict[str, Schema] = {
    "molecules": {
        **_WHO,
        "smiles": str,
        "prediction": str,  # name of the predicted class, or the value
        "probability": float,  # of the predicted class; nan for a value
        "status": str,  # "ok", or observations about the explanation, see `Flag`
        **dict.fromkeys(TRUST, float),
        "num_atoms": int,
        "num_bonds": int,
    },
    "bonds": {
        **_WHO,
        "bond": int,  # number in the SMILES
        "atom_a": int,
        "atom_b": int,
        "name": str,  # elements and numbers of its atoms
        "type": str,
        "groups": str,  # what a chemist calls the place
        "score": float,
        "rank": int,  # 1 for the best bond of the molecule
        "attribution": float,
        "stderr": float,
        "gate": float,
    },
    "atoms": {
        **_WHO,
        "atom": int,
        "element": str,
        "score": float,
        "rank": int,
        "loss": float,  # what the prediction loses without the atom, signed
        "stderr": float,  # its standard error over noise draws
    },
    "rejects": {**_WHO, "smiles": str, "reason": str},
}


def schemas_for(substructures: Iterable[str]) -> dict[str, Schema]:
    """Returns `SCHEMAS` with a column for each substructure, 1 where a molecule has it."""
    flags = {f"has {name}": int for name in substructures}
    return {**SCHEMAS, "molecules": {**SCHEMAS["molecules"], **flags}}


def explain_records(
    records: Sequence[Record],
    subject: Pretrained,
    *,
    substructures: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Table]:
    """Returns the tables of `SCHEMAS` for some molecules; those that fail are in ``rejects``.

    A record's rows do not depend on the other records, but for rounding. Only graphs whose nodes
    are the atoms of the SMILES are taken, so that a score belongs to the atom it is told of.
    """
    patterns = substructures or {}
    tables = empty_tables(patterns)
    readable: list[tuple[Record, Data]] = []
    for record in records:
        graph, reason = graph_of(record, subject.featurizer)
        if graph is None:
            _add(tables["rejects"], record, smiles=record.smiles, reason=reason)
        else:
            readable.append((record, graph))
    for record, found in _explained(readable, subject, seed):
        if isinstance(found, str):
            _add(tables["rejects"], record, smiles=record.smiles, reason=found)
            continue
        add_explained(tables, record, found, subject, patterns)
    return tables


def empty_tables(substructures: Iterable[str] = ()) -> dict[str, Table]:
    """Returns the tables of `schemas_for` without rows."""
    schemas = schemas_for(substructures).items()
    return {name: {column: [] for column in schema} for name, schema in schemas}


def add_explained(
    tables: dict[str, Table],
    record: Record,
    found: Explanation,
    subject: Pretrained,
    substructures: Mapping[str, Any] | None = None,
) -> None:
    """Adds the explanation of one record to the tables of molecules, bonds and atoms."""
    mol = matched_molecule(record.smiles, found.bond_index, int(found.ptr[-1]))
    _add_molecule(tables["molecules"], record, found, mol, subject, substructures or {})
    _add_bonds(tables["bonds"], record, found, mol)
    _add_atoms(tables["atoms"], record, found, mol)


def graph_of(record: Record, featurizer: Featurizer) -> tuple[Data | None, str]:
    """Returns the graph of a record, or why there is none."""
    if record.problem:
        return None, record.problem
    try:
        graph = featurizer(record.smiles)
        if featurizer is not FEATURIZERS.get(featurizer.name):  # ours keep the order of atoms
            matched_molecule(record.smiles, graph.edge_index, graph.num_nodes)
        return graph, ""
    except NicegnnError as error:
        return None, str(error)
    except ImportError:
        raise
    except Exception as error:  # the user's own featuriser
        return None, f"The featuriser raised {type(error).__name__}: {error}"


def _explained(
    readable: Sequence[tuple[Record, Data]], subject: Pretrained, seed: int
) -> Iterator[tuple[Record, Explanation | str]]:
    """Yields the explanation of each graph, or why there is none."""
    asked = {"atoms": True} if isinstance(subject.explainer, NICE) else {}
    for records, found in explained_batches(readable, subject, seed, asked):
        parts = [found] if isinstance(found, str) else found.split()
        yield from zip(records, parts, strict=True)


def explained_batches(
    readable: Sequence[tuple[Record, Data]],
    subject: Pretrained,
    seed: int,
    asked: Mapping[str, Any],
) -> Iterator[tuple[Sequence[Record], Explanation | str]]:
    """Yields records with their explanation: all of them, or if that fails, one after the other.

    A record that fails alone comes with the reason. ``asked`` are further words of `explain`.
    """
    if not readable:
        return
    records = [record for record, _ in readable]
    try:
        found: Explanation | str = subject.explainer.explain(
            [graph for _, graph in readable], seed=seed, **asked
        )
    except (NicegnnError, RuntimeError) as error:
        if len(readable) > 1:  # find those that are at fault
            for one in readable:
                yield from explained_batches([one], subject, seed, asked)
            return
        found = f"The explainer raised {type(error).__name__}: {error}"
    yield records, found


def _add(table: Table, record: Record, **cells: Any) -> None:
    for name, value in {"row": record.row, "id": record.id, **cells}.items():
        table[name].append(value)


def _add_molecule(
    table: Table,
    record: Record,
    found: Explanation,
    mol: Mol,
    subject: Pretrained,
    patterns: Mapping[str, Any],
) -> None:
    shown, probability = prediction_cells(subject.card, found.prediction[0].tolist())
    _add(
        table,
        record,
        smiles=record.smiles,
        prediction=shown,
        probability=probability,
        status=flag_words(found.status.flags[0]),
        **{name: _of_trust(found, name) for name in TRUST},
        num_atoms=mol.GetNumAtoms(),
        num_bonds=mol.GetNumBonds(),
        **{f"has {k}": int(mol.HasSubstructMatch(p)) for k, p in patterns.items()},
    )


def prediction_cells(card: ModelCard, out: Sequence[float]) -> tuple[str, float]:
    """Returns the predicted class and its probability, or the value and nan; ``out`` is ``[C]``."""
    if card.task == "regression":
        return f"{out[0]:.4g}", math.nan
    best = out.index(max(out))
    return card.class_name(best), math.exp(out[best])


def _of_trust(found: Explanation, name: str) -> float:
    return math.nan if found.trust is None else float(found.trust.columns()[name])


def _add_bonds(table: Table, record: Record, found: Explanation, mol: Mol) -> None:
    groups = bond_groups(mol)
    columns = [found.bond_score, found.bond_big, found.bond_stderr, found.bond_gate]
    score, attribution, stderr, gate = (column.double().tolist() for column in columns)
    rank = _ranks(found.bond_score)
    for place, (a, b) in enumerate(found.bond_index.t().tolist()):
        bond = mol.GetBondBetweenAtoms(a, b)
        _add(
            table,
            record,
            bond=bond.GetIdx(),
            atom_a=a,
            atom_b=b,
            name=f"{_element(mol, a)}{a}-{_element(mol, b)}{b}",
            type=str(bond.GetBondType()).lower(),
            groups=groups[bond.GetIdx()],
            score=score[place],
            rank=rank[place],
            attribution=attribution[place],
            stderr=stderr[place],
            gate=gate[place],
        )


def _add_atoms(table: Table, record: Record, found: Explanation, mol: Mol) -> None:
    """Adds the atoms of a molecule; methods that score bonds alone have none."""
    if found.atom_score is None or found.atom_loss is None or found.atom_stderr is None:
        return
    rank = _ranks(found.atom_score)
    score, loss, stderr = (
        value.double().tolist() for value in (found.atom_score, found.atom_loss, found.atom_stderr)
    )
    for atom in range(len(score)):
        _add(
            table,
            record,
            atom=atom,
            element=_element(mol, atom),
            score=score[atom],
            rank=rank[atom],
            loss=loss[atom],
            stderr=stderr[atom],
        )


def _element(mol: Mol, atom: int) -> str:
    return str(mol.GetAtomWithIdx(atom).GetSymbol())


def _ranks(score: torch.Tensor) -> list[int]:
    """Returns the rank of each item, 1 for the highest; equal ones keep their order."""
    order = score.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(1, order.numel() + 1, device=order.device)
    return [int(value) for value in rank.tolist()]
