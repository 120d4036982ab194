"""Records of molecules in, rows of scores out: the pure part of a screening.

A row holds all that is told of one molecule, scores as lists: bond ``k`` joins atoms ``atom_a[k]``
and ``atom_b[k]`` of its SMILES and has ``bond_score[k]``. A molecule that cannot be explained has a
``reason`` and no scores, so every record of the input has exactly one row. `tables_of` makes tables
of molecules, bonds, atoms and rejects from rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nicegnn.errors import NicegnnError
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.explain.words import careful, flag_words
from nicegnn.graph.case import shared_rank
from nicegnn.molecule.domain import Nearness
from nicegnn.molecule.featurizers import FEATURIZERS, Featurizer
from nicegnn.molecule.smiles import MOST_LETTERS, check_letters, matched_molecule, parse_smiles
from nicegnn.pretrained import Pretrained
from nicegnn.pretrained.ensemble import Ensemble, Finding
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.fragments import bond_groups
from nicegnn.screening.reading import Record
from nicegnn.screening.settings import MOST_ATOMS, RunConfig
from nicegnn.screening.shards import Table

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Row = dict[str, Any]
_EXPLAIN, _DRAW = 1.5, 1.3  # seconds for so many atoms, on one core
TRUST = ("largest", "share", "chance")  # numbers of `Trust`; nan for methods without one
_WHO: dict[str, type] = {"row": int, "id": str}
_PREDICTED: dict[str, type] = {
    "smiles": str,
    "prediction": str,  # name of the predicted class, or the value
    "probability": float,  # of the predicted class; nan for a value
    "status": str,  # "ok", or observations about the explanation, see `Flag`
    "verdict": str,  # what to do with the explanation
    **dict.fromkeys(TRUST, float),
    "similarity": float,  # to the nearest training molecule of the model; nan if none are known
    "applicability": str,  # "ok", "not known", or why the model may not fit, see `Nearness`
}
#: Columns of the rows of a run; the user's own columns follow.
ROW: dict[str, type] = {
    **_WHO,
    **_PREDICTED,
    "reason": str,  # why there is no explanation; else nothing
    "unit": str,  # of the scores: odds, value, or own
    **dict.fromkeys(("atom_a", "atom_b"), list[int]),  # atoms of each bond
    **dict.fromkeys(("bond_score", "bond_loss", "bond_stderr"), list[float]),
    "bond_rank": list[int],
}
ATOMS: dict[str, type] = dict.fromkeys(("atom_score", "atom_loss", "atom_stderr"), list[float])
#: Of several models together, see `Ensemble`: which output, and how many agree on each sign.
ENSEMBLE: dict[str, type] = {
    "endpoint": str,
    **dict.fromkeys(("bond_agreement", "atom_agreement"), list[float]),
}
_SCORED: dict[str, type] = {
    "score": float,  # share of the odds that is lost without it; or in units of the value
    "rank": int,  # 1 for the best one of the molecule; equal ones share a rank
    "loss": float,  # the same in log-odds
    "stderr": float,  # standard error of the loss
}
#: Columns of tables; ``molecules`` also has the user's own, and one for each substructure that was
#: asked for; ``rejects`` has the user's own.
SCHEMAS: dict[str, dict[str, type]] = {
    "molecules": {**_WHO, **_PREDICTED, "num_atoms": int, "num_bonds": int},
    "bonds": {
        **_WHO,
        "bond": int,  # number in the SMILES
        "atom_a": int,
        "atom_b": int,
        "name": str,  # elements and numbers of its atoms
        "type": str,
        "groups": str,  # what a chemist calls the place
        **_SCORED,
    },
    "atoms": {**_WHO, "atom": int, "element": str, **_SCORED},
    "rejects": {**_WHO, "smiles": str, "reason": str},
}


def explain_rows(records: Sequence[Record], subject: Pretrained, config: RunConfig) -> Table:
    """Returns a table with the row of each record, in their order.

    An ensemble gives each record a row for each of its outputs, one below the other.
    """
    own = own_names(records[0].values if records else ())
    names = [*ROW, *ATOMS, *own.values()]
    if isinstance(subject.explainer, Ensemble):
        names += [*ENSEMBLE, *subject.explainer.columns]
    rows: list[Row] = []
    readable: list[tuple[list[Row], Data]] = []
    for record in records:
        row = dict.fromkeys(names)
        row |= {"row": record.row, "id": record.id, "smiles": record.smiles[:MOST_LETTERS]}
        row |= {own[name]: value for name, value in record.values.items()}
        graph = graph_of(record, subject.featurizer, config.max_atoms)
        row["reason"] = graph if isinstance(graph, str) else None
        copies = [dict(row) for _ in range(num_outputs(subject))]
        rows += copies
        if not isinstance(graph, str):
            readable.append((copies, graph))
    # kernels begin after many graphs and round otherwise: nothing may depend on earlier calls
    subject.explainer.target.facts.fusion = None
    words = {"seed": config.model.seed, **asked_words(subject, config)}
    for batch, found in _explained(readable, subject, words):
        for place, out in enumerate(found):
            some = [copies[place] for copies in batch]
            if isinstance(out, str):
                some[0]["reason"] = out
            elif isinstance(out, Explanation):
                _fill(some, out, subject)
            else:
                _fill_ensemble(some, out, subject, place)
    return {name: [row[name] for row in rows] for name in names}


def own_names(columns: Iterable[str]) -> dict[str, str]:
    """Returns what the user's columns are called in outputs: their names, unless we use them."""
    ours = {*ROW, *ATOMS, *ENSEMBLE, *(name for schema in SCHEMAS.values() for name in schema)}
    return {name: f"own {name}" if name.lower() in ours else name for name in columns}


def graph_of(record: Record, featurizer: Featurizer, max_atoms: int = MOST_ATOMS) -> Data | str:
    """Returns the graph of a record, or why there is none.

    Only graphs whose nodes are the atoms of the SMILES are taken, so that a score belongs to the
    atom it is told of.
    """
    if record.problem:
        return record.problem
    try:
        check_letters(record.smiles)
        graph = featurizer(record.smiles)
        if featurizer is not FEATURIZERS.get(featurizer.name):  # ours keep the order of atoms
            matched_molecule(record.smiles, graph.edge_index, graph.num_nodes)
    except NicegnnError as error:
        return str(error)
    except ImportError:
        raise
    except Exception as error:  # the user's own featuriser
        return f"The featuriser raised {type(error).__name__}: {error}"
    if graph.num_nodes > max_atoms:
        times = graph.num_nodes / MOST_ATOMS
        return (
            f"A molecule must have at most {max_atoms:,} atoms (got {graph.num_nodes:,}). It takes "
            f"about {_EXPLAIN * times:.0f} s to explain and {_DRAW * times**3:,.0f} s to draw. "
            "Raise --max-atoms, or explain a part of the molecule."
        )
    return graph


def num_outputs(subject: Pretrained) -> int:
    """Returns how many rows a molecule has."""
    return len(subject.explainer.outputs) if isinstance(subject.explainer, Ensemble) else 1


def _explained(
    readable: Sequence[tuple[list[Row], Data]], subject: Pretrained, words: Mapping[str, Any]
) -> Iterator[tuple[list[list[Row]], Sequence[Explanation | Finding | str]]]:
    """Yields rows with what is said of each output: of all, or if that fails, one after the other.

    Rows that fail alone come with the reason.
    """
    if not readable:
        return
    graphs = [graph for _, graph in readable]
    out: Sequence[Explanation | Finding | str]
    try:
        if isinstance(subject.explainer, Ensemble):
            out = subject.explainer.findings(graphs, atoms=words["atoms"])
        else:
            out = [subject.explainer.explain(graphs, **words)]
    except (NicegnnError, RuntimeError) as error:
        if len(readable) > 1:  # find those that are at fault
            for one in readable:
                yield from _explained([one], subject, words)
            return
        out = [f"The explainer raised {type(error).__name__}: {error}"] * num_outputs(subject)
    yield [row for row, _ in readable], out


def row_of(record: Record, out: Explanation, subject: Pretrained) -> dict[str, Any]:
    """Returns the row of one record from its explanation."""
    own = {name: record.values[key] for key, name in own_names(record.values).items()}
    row = dict.fromkeys({**ROW, **ATOMS}) | own
    row |= {"row": record.row, "id": record.id, "smiles": record.smiles}
    _fill([row], out, subject)
    return row


def _fill(rows: Sequence[dict[str, Any]], out: Explanation, subject: Pretrained) -> None:
    """Puts the explanations of a batch into its rows."""
    bonds, num = out.bonds, out.num_graphs
    order = bonds.batch.argsort(stable=True)  # by graph
    sizes = torch.bincount(bonds.batch, minlength=num).tolist()
    ends = (bonds.index - out.ptr[bonds.batch])[:, order]  # [2, M], counted in each molecule
    ranked = out.ranking.masked_fill(~out.bond_reached, -torch.inf)
    columns: dict[str, Sequence[Any]] = {
        "atom_a": _cut(ends[0], sizes),
        "atom_b": _cut(ends[1], sizes),
        "bond_rank": _cut(shared_rank(ranked, bonds.batch, num)[order], sizes),
        "status": [flag_words(flag) for flag in out.status.flags],
        "unit": [out.unit] * num,
    }
    for name in ("bond_score", "bond_loss", "bond_stderr"):
        columns[name] = _cut(getattr(out, name)[order], sizes)
    for name in ATOMS:
        if getattr(out, name) is not None:
            columns[name] = _cut(getattr(out, name), out.ptr.diff().tolist())
    cells = [prediction_cells(subject.card, values) for values in out.prediction.tolist()]
    columns["prediction"], columns["probability"] = map(list, zip(*cells, strict=True))
    trust = out.trust
    near = [nearness_of(subject, row["smiles"]) for row in rows]
    verdicts = ["not checked"] * num if trust is None else trust.verdicts
    pairs = zip(verdicts, near, strict=True)
    columns["verdict"] = [
        careful(one) if where.is_far or subject.card.is_often_wrong else one for one, where in pairs
    ]
    columns["similarity"] = [one.similarity for one in near]
    columns["applicability"] = [one.words for one in near]
    for name in TRUST:
        columns[name] = [math.nan] * num if trust is None else getattr(trust, name).tolist()
    for name, values in columns.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value


def _fill_ensemble(rows: Sequence[Row], found: Finding, subject: Pretrained, place: int) -> None:
    """Puts what an ensemble says of one of its outputs into rows."""
    explainer, out = subject.explainer, found.explanation
    assert isinstance(explainer, Ensemble)
    card = subject.cards[place] if subject.cards else subject.card
    _fill(rows, out, replace(subject, card=card))
    sizes = torch.bincount(out.bonds.batch, minlength=out.num_graphs).tolist()
    bonds = _cut(found.bond_agreement[out.bonds.batch.argsort(stable=True)], sizes)
    for number, row in enumerate(rows):
        row |= {"endpoint": found.output.name, "bond_agreement": bonds[number]}
        row |= explainer.cells(found, number)
    if found.atom_agreement is not None:
        atoms = _cut(found.atom_agreement, out.ptr.diff().tolist())
        for row, agreement in zip(rows, atoms, strict=True):
            row["atom_agreement"] = agreement


def nearness_of(subject: Pretrained, smiles: str) -> Nearness:
    """Returns how near a molecule is to those that the model was trained on, as far as known."""
    if subject.domain is None:
        return Nearness()
    return subject.domain.nearness(parse_smiles(smiles))


def _cut(values: Tensor, sizes: list[int]) -> list[Any]:
    """Returns the values of each graph as an array."""
    plain = values.detach().cpu()
    plain = plain.float() if plain.is_floating_point() else plain.int()
    return [part.numpy() for part in torch.split(plain, sizes)]


def prediction_cells(card: ModelCard, out: Sequence[float]) -> tuple[str, float]:
    """Returns the predicted class and its probability, or the value and nan; ``out`` is ``[C]``."""
    if card.task == "regression":
        return f"{out[0]:.4g}", math.nan
    best = out.index(max(out))
    return card.class_name(best), math.exp(out[best])


def asked_words(subject: Pretrained, config: RunConfig) -> dict[str, Any]:
    """Returns the words of `explain`; methods other than NICE know none of them."""
    if isinstance(subject.explainer, Ensemble):
        return {"atoms": config.atoms}
    if not isinstance(subject.explainer, NICE):
        return {}
    return {"atoms": config.atoms, "student": config.student == "yes"}


def schemas_for(substructures: Iterable[str], row: Iterable[str]) -> dict[str, dict[str, type]]:
    """Returns `SCHEMAS` for rows with these columns, and 1 for each substructure that one has."""
    row = [*row]
    flags, kept = (
        {f"has {name}": int for name in substructures},
        dict.fromkeys(own_columns(row), str),
    )
    schemas = {
        **SCHEMAS,
        "molecules": {**SCHEMAS["molecules"], **flags, **kept},
        "rejects": {**SCHEMAS["rejects"], **kept},
    }
    if "endpoint" in row:
        for name in ("molecules", "bonds", "atoms"):
            schemas[name] = {**_WHO, "endpoint": str, **schemas[name]}
        for name in ("bonds", "atoms"):
            schemas[name]["agreement"] = float  # share of models with this sign
    return schemas


def own_columns(row: Iterable[str]) -> list[str]:
    """Returns the names in a row, or in a table of rows, that are the user's."""
    return [name for name in row if name not in {*ROW, *ATOMS, *ENSEMBLE}]


def tables_of(
    rows: Iterable[Mapping[str, Any]], substructures: Mapping[str, Any] | None = None
) -> dict[str, Table]:
    """Returns the tables of `schemas_for` some rows."""
    patterns, rows = substructures or {}, list(rows)
    schemas = schemas_for(patterns, rows[0] if rows else ())
    tables: dict[str, Table] = {
        name: {column: [] for column in schema} for name, schema in schemas.items()
    }
    for row in rows:
        if row["reason"] is not None:
            _add(tables["rejects"], row)
            continue
        mol = molecule_of(row)
        flags = {f"has {name}": int(mol.HasSubstructMatch(p)) for name, p in patterns.items()}
        sizes = {"num_atoms": mol.GetNumAtoms(), "num_bonds": mol.GetNumBonds()}
        _add(tables["molecules"], {**row, **sizes, **flags})
        for bond in bonds_in(row, mol):
            _add(tables["bonds"], bond)
        for atom in atoms_in(row, mol):
            _add(tables["atoms"], atom)
    return tables


def _add(table: Table, cells: Mapping[str, Any]) -> None:
    for name, column in table.items():
        column.append(cells[name])


def molecule_of(row: Mapping[str, Any]) -> Mol:
    """Returns the molecule whose atoms and bonds a row numbers; hydrogens may be among them."""
    return matched_molecule(row["smiles"], ends_in(row))


def ends_in(row: Mapping[str, Any]) -> Tensor:
    """Returns the two atoms of each bond of a row, ``[2, M]``."""
    return torch.stack([torch.as_tensor(row[name]).long() for name in ("atom_a", "atom_b")])


def bonds_in(row: Mapping[str, Any], mol: Mol) -> list[dict[str, Any]]:
    """Returns the bonds of a row as rows of their own, in the order of the row."""
    groups, bonds = bond_groups(mol), []
    numbers = zip(*(row[f"bond_{name}"] for name in _SCORED), strict=True)
    for k, (a, b, scored) in enumerate(zip(row["atom_a"], row["atom_b"], numbers, strict=True)):
        bond = mol.GetBondBetweenAtoms(int(a), int(b))
        bonds.append(
            {
                "row": row["row"],
                "id": row["id"],
                "bond": bond.GetIdx(),
                "atom_a": int(a),
                "atom_b": int(b),
                "name": "-".join(f"{_element(mol, atom)}{atom}" for atom in (a, b)),
                "type": str(bond.GetBondType()).lower(),
                "groups": groups[bond.GetIdx()],
                **_scored(scored),
                **_of_endpoint(row, "bond_agreement", k),
            }
        )
    return bonds


def atoms_in(row: Mapping[str, Any], mol: Mol) -> list[dict[str, Any]]:
    """Returns the atoms of a row as rows of their own; methods that score bonds alone have none."""
    if row.get("atom_score") is None:
        return []
    size = torch.as_tensor(row["atom_score"]).abs()
    rank = shared_rank(size, torch.zeros(size.numel(), dtype=torch.long), 1).tolist()
    numbers = zip(row["atom_score"], rank, row["atom_loss"], row["atom_stderr"], strict=True)
    return [
        {
            "row": row["row"],
            "id": row["id"],
            "atom": atom,
            "element": _element(mol, atom),
            **_scored(scored),
            **_of_endpoint(row, "atom_agreement", atom),
        }
        for atom, scored in enumerate(numbers)
    ]


def _scored(numbers: Sequence[Any]) -> dict[str, Any]:
    """Returns the cells of `_SCORED`, as plain numbers."""
    pairs = zip(_SCORED.items(), numbers, strict=True)
    return {name: kind(value) for (name, kind), value in pairs}


def _of_endpoint(row: Mapping[str, Any], name: str, place: int) -> dict[str, Any]:
    """Returns the cells of a bond or atom that only ensembles have."""
    if row.get("endpoint") is None:
        return {}
    return {"endpoint": row["endpoint"], "agreement": float(row[name][place])}


def _element(mol: Mol, atom: int) -> str:
    return str(mol.GetAtomWithIdx(int(atom)).GetSymbol())
