"""Explanations as tables: bonds, atoms and graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.explain.explanation import Explanation, Kind
from nicegnn.explain.words import flag_names, is_classification, molecules
from nicegnn.graph.case import edge_slots, shared_rank

if TYPE_CHECKING:
    import pandas as pd
    from rdkit.Chem import Mol


def make_frame(out: Explanation, kind: Kind) -> pd.DataFrame:
    """Returns the table of bonds, atoms or graphs; see `Explanation.to_frame`."""
    check_choice("kind", kind, get_args(Kind))
    try:
        import pandas as pd
    except ImportError as error:
        raise NicegnnError(
            "Tables need pandas; install it with pip install 'nicegnn[tables]'."
        ) from error
    make = {"bonds": _bond_columns, "atoms": _atom_columns, "graphs": _graph_columns}[kind]
    return pd.DataFrame(make(out))


def _bond_columns(out: Explanation) -> dict[str, Any]:
    batch = out.bonds.batch
    ends = (out.bond_index - out.ptr[batch]).cpu()  # numbers within the graph, [2, M]
    score = out.ranking.masked_fill(~out.bond_reached, -torch.inf)
    columns = _about_graphs(out, batch)
    columns["bond"] = _plain(edge_slots(batch, out.num_graphs))
    columns["atom_a"], columns["atom_b"] = _plain(ends[0]), _plain(ends[1])
    if out.edge_kind is not None:  # relations by number, kinds by name
        kind = torch.zeros_like(out.bonds.batch).index_copy(0, out.bonds.edge_bond, out.edge_kind)
        names = None if out.kinds is None else [" ".join(ends) for ends in out.kinds.edges]
        columns["kind"] = [names[k] if names else k for k in kind.tolist()]
    if out.smiles is not None:
        pairs = zip(batch.tolist(), *ends.tolist(), strict=True)
        columns |= _bond_chemistry(molecules(out), pairs)
    return columns | {
        "score": _plain(out.bond_score),
        "rank": _plain(shared_rank(score, batch, out.num_graphs)),
        "loss": _plain(out.bond_loss),
        "stderr": _plain(out.bond_stderr),
        "gate": _plain(out.bond_gate),
        "reached": _plain(out.bond_reached),
    }


def _bond_chemistry(
    mols: Sequence[Mol | None], pairs: Iterable[tuple[int, int, int]]
) -> dict[str, list[str | None]]:
    """Returns elements and type of each bond, none where the molecule is not known."""
    names: dict[str, list[str | None]] = {"element_a": [], "element_b": [], "bond_type": []}
    for graph, u, v in pairs:
        mol = mols[graph]
        kind = None if mol is None else str(mol.GetBondBetweenAtoms(u, v).GetBondType()).lower()
        for name, text in zip(names, (_symbol(mol, u), _symbol(mol, v), kind), strict=True):
            names[name].append(text)
    return names


def _symbol(mol: Mol | None, atom: int) -> str | None:
    return None if mol is None else str(mol.GetAtomWithIdx(atom).GetSymbol())


def _atom_columns(out: Explanation) -> dict[str, Any]:
    if out.atom_score is None:
        raise ConfigError(
            "This explanation has no scores of atoms (`atom_score` is None). Ask the explainer for "
            "them, or take `to_frame('bonds')`."
        )
    sizes = out.ptr.diff()
    batch = torch.arange(out.num_graphs, device=sizes.device).repeat_interleave(sizes)
    atoms = edge_slots(batch, out.num_graphs)
    columns = _about_graphs(out, batch)
    columns["atom"] = _plain(atoms)
    if out.smiles is not None:
        mols = molecules(out)
        places = zip(batch.tolist(), atoms.tolist(), strict=True)
        columns["element"] = [_symbol(mols[graph], atom) for graph, atom in places]
    columns["score"] = _plain(out.atom_score)
    columns["rank"] = _plain(shared_rank(out.atom_score.abs(), batch, out.num_graphs))
    unknown = torch.full_like(out.atom_score, torch.nan)
    for name, value in (("loss", out.atom_loss), ("stderr", out.atom_stderr)):
        columns[name] = _plain(unknown if value is None else value)
    return columns


def _graph_columns(out: Explanation) -> dict[str, Any]:
    each = torch.arange(out.num_graphs)
    columns = _about_graphs(out, each)
    chosen = out.prediction.gather(1, out.target.clamp(min=0).view(-1, 1)).view(-1)
    chosen = torch.where(out.target < 0, torch.nan, chosen)  # all values are explained together
    columns["explained"] = _plain(out.target)
    if is_classification(out):
        columns["predicted"] = _plain(out.prediction.argmax(1))
        columns["probability"] = _plain(chosen.exp())  # of the explained class
    else:
        columns["prediction"] = _plain(chosen)
    for name in ("restored", "risk_corrupted", "risk_boundary", "completeness_gap"):
        columns[name] = _plain(getattr(out, name))
    if out.trust is not None:
        columns |= {name: _plain(value) for name, value in out.trust.columns().items()}
        columns["verdict"] = list(out.trust.verdicts)
    columns["flags"] = [flag_names(flag) for flag in out.status.flags]
    return columns


def _about_graphs(out: Explanation, batch: Tensor) -> dict[str, Any]:
    """Returns the first columns of every table: graph, its SMILES, its explained node."""
    batch = batch.cpu()
    columns: dict[str, Any] = {"graph": _plain(batch)}
    if out.smiles is not None:
        columns["smiles"] = [out.smiles[graph] for graph in batch.tolist()]
    if out.index is not None:
        names = ("node",) if out.index.dim() == 1 else ("node", "other_node")
        for name, node in zip(names, out.index.view(out.num_graphs, -1).t(), strict=True):
            columns[name] = _plain(node.cpu()[batch])
    return columns


def _plain(value: Tensor) -> Any:
    return value.detach().cpu().numpy()
