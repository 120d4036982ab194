"""Molecules through ADMET-AI: tables with a line per endpoint, and endpoints side by side.

A folder gets ``predictions``, ``bonds`` and ``atoms``, ``rejects.csv``, and ``gallery.html``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nicegnn.errors import NicegnnError
from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.picture import Picture
from nicegnn.molecule.smiles import matched_molecule
from nicegnn.pretrained.admet import ADMET, Admet, Finding, Parts, named_endpoints
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import graph_of
from nicegnn.screening.fragments import bond_groups
from nicegnn.screening.reading import Record, TypedSmiles
from nicegnn.screening.rendering import render
from nicegnn.screening.settings import RunConfig
from nicegnn.screening.tables import Row, table_writer
from nicegnn.store import write_text

_BATCH = 16  # molecules that are explained together
_COLUMNS, _SIZE = 4, (300, 240)  # of pictures
_WHO: dict[str, type] = {"row": int, "id": str, "endpoint": str}
_SCORED: dict[str, type] = {
    "score": float,  # what the property owes to it: share of the odds, or fall of the value
    "loss": float,  # the same in log-odds
    "spread": float,  # standard deviation of the loss over members
    "agreement": float,  # share of members with this sign
}
SCHEMAS: dict[str, dict[str, type]] = {
    "predictions": {
        **_WHO,
        "smiles": str,
        "name": str,
        "prediction": float,  # probability, or value
        "spread": float,  # standard deviation over members
        "unit": str,
        "percentile": float,  # share of approved drugs with a smaller one
        "warning": str,
    },
    "bonds": {
        **_WHO,
        **dict.fromkeys(("bond", "atom_a", "atom_b"), int),
        "groups": str,
        **_SCORED,
    },
    "atoms": {**_WHO, "atom": int, "element": str, **_SCORED},
    "rejects": {"row": int, "id": str, "smiles": str, "reason": str},
}

Explained = tuple[Record, list[Finding] | str]  # findings by endpoint, or why there are none


def explain_endpoints(
    molecules: TypedSmiles, config: RunConfig, *, progress: bool = False
) -> Iterator[Explained]:
    """Yields the findings of each molecule, in order; ``config.model.model`` names endpoints."""
    admet = Admet(named_endpoints(config.model.model.removeprefix(ADMET)), config.model.device)
    with progress_bar("Explaining", molecules.count(), shown=progress) as advance:
        for records in molecules.chunks(_BATCH):
            graphs, reasons = [], {}
            for record in records:
                try:
                    graphs.append(graph_of(record, admet.featurizer, config.max_atoms))
                except NicegnnError as error:
                    reasons[record.row] = str(error)
            found = iter(admet.explain(graphs, atoms=config.atoms) if graphs else ())
            for record in records:
                yield record, reasons.get(record.row) or next(found)
            advance(records[-1].row, "molecules")


def write_endpoints(explained: Iterator[Explained], config: RunConfig, out: Path) -> dict[str, int]:
    """Writes tables and the gallery into a folder; returns how many were explained and rejected."""
    counts, cards = {"explained": 0, "rejected": 0}, list[dict[str, Any]]()
    ending = "parquet" if config.output.format == "parquet" else "csv"
    with ExitStack() as stack:
        write = {
            name: stack.enter_context(
                table_writer(out / f"{name}.{'csv' if name == 'rejects' else ending}", schema)
            )
            for name, schema in SCHEMAS.items()
        }
        for record, found in explained:
            if isinstance(found, str):
                counts["rejected"] += 1
                write["rejects"]([{**vars(record), "reason": found}])
                continue
            counts["explained"] += 1
            for name, rows in tables_of(record, found).items():
                write[name](rows)
            if len(cards) < config.output.gallery:
                drawing = Markup(picture(record, found).svg)
                cards.append({"record": record, "findings": found, "drawing": drawing})
    write_text(out / "settings.toml", config.to_toml())
    if config.output.gallery:
        page = render("admet.html", cards=cards, words=prediction_words, counts=counts)
        write_text(out / "gallery.html", page)
    return counts


def tables_of(record: Record, found: list[Finding]) -> dict[str, list[Row]]:
    """Returns the rows of a molecule in all tables."""
    mol = matched_molecule(record.smiles, found[0].bond_index)
    groups = bond_groups(mol)
    tables: dict[str, list[Row]] = {"predictions": [], "bonds": [], "atoms": []}
    for one in found:
        who = {"row": record.row, "id": record.id, "endpoint": one.endpoint.id}
        told = {"smiles": record.smiles, "name": one.endpoint.name, "prediction": one.value}
        told |= {"spread": one.spread, "unit": one.endpoint.unit, "percentile": one.percentile}
        tables["predictions"].append(who | told | {"warning": " ".join(one.warnings)})
        for place, (a, b) in enumerate(one.bond_index.t().tolist()):
            number = mol.GetBondBetweenAtoms(a, b).GetIdx()
            cells = {"bond": number, "atom_a": a, "atom_b": b, "groups": groups[number]}
            tables["bonds"].append(who | cells | _numbers(one.bonds, place))
        for atom in mol.GetAtoms() if one.atoms is not None else ():
            cells = {"atom": atom.GetIdx(), "element": atom.GetSymbol()}
            tables["atoms"].append(who | cells | _numbers(one.atoms, atom.GetIdx()))
    return tables


def _numbers(parts: Parts | None, place: int) -> dict[str, float]:
    """Returns the scores of one bond or atom."""
    return {name: float(getattr(parts, name)[place]) for name in _SCORED}


def picture(record: Record, found: list[Finding]) -> Picture:
    """Draws a molecule once for each endpoint, side by side, with a full colour for each.

    Log-odds and values in several units have no common scale, so the best bond or atom of every
    picture has the full colour.
    """
    panels = []
    for one in found:
        parts = [one.bonds.loss] + ([] if one.atoms is None else [one.atoms.loss])
        most = max([float(part.abs().max()) for part in parts if part.numel()] or [0.0]) or 1.0
        bonds, atoms = one.bonds.loss / most, None if one.atoms is None else one.atoms.loss / most
        title = f"{one.endpoint.id}: {prediction_words(one)}{', take care' if one.warnings else ''}"
        panels.append(
            Panel(one.bond_index, bonds, atoms, smiles=record.smiles, title=title, numbered=True)
        )
    legend = "share of the best bond or atom (−: lowers the property)"
    return draw_panels(panels, size=_SIZE, columns=_COLUMNS, legend=legend, signed=True, limit=1.0)


def prediction_words(one: Finding) -> str:
    """Returns a prediction with the spread over members and its unit."""
    if one.endpoint.is_class:
        return f"{one.value:.2f} ± {one.spread:.2f}"
    unit = "" if one.endpoint.unit in ("-", "nan") else f" {one.endpoint.unit}"
    return f"{one.value:.3g} ± {one.spread:.2g}{unit}"


def in_words(record: Record, found: list[Finding], most: int = 3) -> str:
    """Returns what a terminal tells of a molecule."""
    mol = matched_molecule(record.smiles, found[0].bond_index)
    names = [f"{atom.GetSymbol()}{atom.GetIdx()}" for atom in mol.GetAtoms()]
    lines = [f"\n{record.smiles}"]
    for one in found:
        percent = f"above {one.percentile:.0f} % of approved drugs"
        lines.append(
            f"  {one.endpoint.id} ({one.endpoint.name}): {prediction_words(one)}, {percent}"
        )
        bonds = ["-".join(names[end] for end in pair) for pair in one.bond_index.t().tolist()]
        for what, labels, parts in (("bonds", bonds, one.bonds), ("atoms", names, one.atoms)):
            if parts is None or not labels:
                continue
            best = parts.loss.abs().argsort(descending=True, stable=True)[:most].tolist()
            shown = (
                f"{labels[k]} {parts.loss[k]:+.2f} ± {parts.spread[k]:.2f}"
                f" ({parts.agreement[k]:.0%} agree)"
                for k in best
            )
            lines.append(f"    {what}: {', '.join(shown)}")
        lines += [f"    take care: {warning}" for warning in one.warnings]
    return "\n".join(lines)
