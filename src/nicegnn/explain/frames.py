"""Explanations as tables: bonds, atoms and graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from nicegnn.config import check_choice
from nicegnn.errors import ConfigError
from nicegnn.explain.explanation import Explanation, Kind
from nicegnn.explain.words import flag_names, is_classification, molecules
from nicegnn.graph.case import edge_slots, shared_rank
from nicegnn.molecule.smiles import require

if TYPE_CHECKING:
    import pandas as pd
    from rdkit.Chem import Mol


def make_frame(out: Explanation, kind: Kind) -> pd.DataFrame:
    """Returns the table of bonds, atoms or graphs; see `Explanation.to_frame`."""
    check_choice("kind", kind, get_args(Kind))
    make = {"bonds": _bond_columns, "atoms": _atom_columns, "graphs": _graph_columns}[kind]
    columns = {
        name: value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        for name, value in make(out).items()
    }
    return require("pandas", "tables").DataFrame(columns)


def _bond_columns(out: Explanation) -> dict[str, Any]:
    batch = out.bonds.batch
    a, b = out.bond_index - out.ptr[batch]  # numbers within the graph
    score = out.ranking.masked_fill(~out.bond_reached, -torch.inf)
    columns = _about_graphs(out, batch)
    columns |= {"bond": edge_slots(batch, out.num_graphs), "atom_a": a, "atom_b": b}
    if out.edge_kind is not None:  # relations by number, kinds by name
        kind = torch.zeros_like(out.bonds.batch).index_copy(0, out.bonds.edge_bond, out.edge_kind)
        names = None if out.kinds is None else [" ".join(ends) for ends in out.kinds.edges]
        columns["kind"] = [names[k] if names else k for k in kind.tolist()]
    if out.smiles is not None:  # nothing where the molecule is not known
        mols, places = molecules(out), [*zip(batch.tolist(), a.tolist(), b.tolist(), strict=True)]
        columns["element_a"] = [_symbol(mols[graph], u) for graph, u, _ in places]
        columns["element_b"] = [_symbol(mols[graph], v) for graph, _, v in places]
        columns["bond_type"] = [
            None if mol is None else str(mol.GetBondBetweenAtoms(u, v).GetBondType()).lower()
            for mol, u, v in ((mols[graph], u, v) for graph, u, v in places)
        ]
    return columns | {
        "score": out.bond_score,
        "rank": shared_rank(score, batch, out.num_graphs),
        "loss": out.bond_loss,
        "stderr": out.bond_stderr,
        "gate": out.bond_gate,
        "reached": out.bond_reached,
    }


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
    columns = _about_graphs(out, batch) | {"atom": atoms}
    if out.smiles is not None:
        mols, places = molecules(out), zip(batch.tolist(), atoms.tolist(), strict=True)
        columns["element"] = [_symbol(mols[graph], atom) for graph, atom in places]
    unknown = torch.full_like(out.atom_score, torch.nan)
    return columns | {
        "score": out.atom_score,
        "rank": shared_rank(out.atom_score.abs(), batch, out.num_graphs),
        "loss": unknown if out.atom_loss is None else out.atom_loss,
        "stderr": unknown if out.atom_stderr is None else out.atom_stderr,
    }


def _graph_columns(out: Explanation) -> dict[str, Any]:
    columns = _about_graphs(out, torch.arange(out.num_graphs))
    chosen = out.prediction.gather(1, out.target.clamp(min=0).view(-1, 1)).view(-1)
    chosen = torch.where(out.target < 0, torch.nan, chosen)  # all values are explained together
    columns["explained"] = out.target
    if is_classification(out):
        columns["predicted"] = out.prediction.argmax(1)
        columns["probability"] = chosen.exp()  # of the explained class
    else:
        columns["prediction"] = chosen
    for name in ("restored", "risk_corrupted", "risk_boundary", "completeness_gap"):
        columns[name] = getattr(out, name)
    if out.trust is not None:
        columns |= vars(out.trust) | {"verdict": list(out.trust.verdicts)}
    columns["flags"] = [flag_names(flag) for flag in out.status.flags]
    return columns


def _about_graphs(out: Explanation, batch: Tensor) -> dict[str, Any]:
    """Returns the first columns of every table: graph, its SMILES, its explained node."""
    batch = batch.cpu()
    columns: dict[str, Any] = {"graph": batch}
    if out.smiles is not None:
        columns["smiles"] = [out.smiles[graph] for graph in batch.tolist()]
    if out.index is not None:
        names = ("node",) if out.index.dim() == 1 else ("node", "other_node")
        for name, node in zip(names, out.index.view(out.num_graphs, -1).t(), strict=True):
            columns[name] = node.cpu()[batch]
    return columns
