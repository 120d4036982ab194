"""A page of explained molecules that needs nothing from outside.

The page holds coordinates, not pictures: about half a kilobyte per molecule. It draws those that
are on the screen, so thousands of molecules stay quick to sort and filter.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import torch
from markupsafe import Markup
from torch import Tensor

from nicegnn.explain.words import advice_for
from nicegnn.molecule.drawing import draw_graph
from nicegnn.molecule.picture import Picture
from nicegnn.molecule.smiles import matched_molecule, require_rdkit
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.fragments import named_groups
from nicegnn.screening.rendering import render
from nicegnn.store import write_whole

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Row = Mapping[str, Any]
_UNIT = 20  # pixels per ångström of RDKit's coordinates
_SHOWN = 3  # bonds that are named beside a picture


def bond_levels(num_bonds: int, bonds: Sequence[Row]) -> list[float]:
    """Returns how strongly each bond is coloured: 0 up to the mean score, 1 for the best.

    >>> bond_levels(3, [{"bond": 0, "score": 1.0}, {"bond": 1, "score": 0.0}])
    [1.0, 0.0, 0.0]
    """
    scores = [float(bond["score"]) for bond in bonds]
    mean, best = math.fsum(scores) / max(len(scores), 1), max(scores, default=0.0)
    levels = [0.0] * num_bonds
    for bond, score in zip(bonds, scores, strict=True):
        if best > mean:
            levels[bond["bond"]] = max(0.0, (score - mean) / (best - mean))
    return levels


def molecule_of(molecule: Row, bonds: Sequence[Row]) -> Mol:
    """Returns the molecule whose atoms and bonds the tables name; hydrogens may be among them."""
    return matched_molecule(molecule["smiles"], _ends(bonds))


def _ends(bonds: Sequence[Row]) -> Tensor:
    ends = [(int(bond["atom_a"]), int(bond["atom_b"])) for bond in bonds]
    return torch.tensor(ends, dtype=torch.long).view(-1, 2).t()  # [2, M]


def picture(molecule: Row, bonds: Sequence[Row], size: tuple[int, int] = (460, 380)) -> Picture:
    """Returns the picture of an explained molecule, its bonds coloured as in the gallery."""
    scores = [float(bond["score"]) for bond in bonds]
    mean = math.fsum(scores) / max(len(scores), 1)
    return draw_graph(
        _ends(bonds),
        [score - mean for score in scores],
        smiles=molecule["smiles"],
        signed=False,
        title=f"{_name(molecule)}{prediction_words(molecule)}{_care(molecule)}",
        size=size,
        names=("bond score above the mean of the molecule", "", ""),
    )


def prediction_words(molecule: Row) -> str:
    """Returns the prediction with its probability, if it has one."""
    probability = float(molecule["probability"])
    known = "" if math.isnan(probability) else f" ({probability:.0%})"
    return f"{molecule['prediction']}{known}"


def _name(molecule: Row) -> str:
    """Returns the id of a molecule, nothing where it is only the number of its row."""
    return "" if str(molecule["id"]) == str(molecule["row"]) else f"{molecule['id']}: "


def _care(molecule: Row) -> str:
    return "" if molecule["status"] == "ok" else f" ({molecule['status']})"


class Gallery:
    """Writes ``gallery.html`` molecule by molecule; the file appears when all is written."""

    def __init__(self, path: Path, card: ModelCard, most: int) -> None:
        self.path, self.card, self.most = path, card, most
        self.num_shown = self.num_all = 0
        self._groups: dict[str, int] = {}  # numbers of substructures, those asked for first
        self._asked: list[str] = []
        self._classes: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._lines: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lines:
            if kind is None and self.most:
                write_whole(self.path, self._write)

    @property
    def is_full(self) -> bool:
        """Whether no more molecules are taken."""
        return self.num_shown >= self.most

    def add(self, molecule: Row, bonds: Sequence[Row]) -> None:
        """Adds a molecule, unless the gallery is full."""
        self.num_all += 1
        if self.is_full:
            return
        self.num_shown += 1
        has = {n.removeprefix("has "): int(v) for n, v in molecule.items() if n.startswith("has ")}
        self._asked = [*has]
        found = {name for bond in bonds for name in str(bond["groups"]).split(", ")}
        has |= dict.fromkeys(sorted(found & named_groups().keys() - has.keys()), 1)
        numbers = {name: self._groups.setdefault(name, len(self._groups)) for name in has}
        status = str(molecule["status"])
        self._statuses.update(status.split(", "))
        if self.card.task != "regression":
            self._classes[str(molecule["prediction"])] += 1
        probability = float(molecule["probability"])
        told = [float(molecule[name]) for name in ("share", "kept", "kept_random")]
        best = sorted(bonds, key=lambda bond: int(bond["rank"]))[:_SHOWN]
        mol = molecule_of(molecule, bonds)
        item = {
            "r": molecule["row"],
            "i": molecule["id"],
            "s": molecule["smiles"],
            "p": molecule["prediction"],
            "q": None if math.isnan(probability) else round(probability, 4),
            "f": status,
            "k": [] if math.isnan(told[1]) else [round(100 * one) for one in told],
            "h": [number for name, number in numbers.items() if has[name]],
            "t": [f"{bond['name']}: {bond['groups']}, {bond['score']:.3g}" for bond in best],
            **coordinates(mol, bond_levels(mol.GetNumBonds(), bonds)),
        }
        text = json.dumps(item, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        self._lines.write(f"{',' if self.num_shown > 1 else ''}\n{text}")

    def _choices(self) -> list[tuple[int, str]]:
        """Returns the substructures to filter by: those asked for, then all others by name."""
        numbered = [(number, name) for name, number in self._groups.items()]
        asked = len(self._asked)
        return numbered[:asked] + sorted(numbered[asked:], key=lambda one: one[1])

    def _write(self, path: Path) -> None:
        card = self.card
        page = render(
            "gallery.html",
            card=card,
            is_regression=card.task == "regression",
            classes=[*self._classes],
            statuses=[*self._statuses],
            advice={one: advice_for(one) for one in self._statuses},
            asked=self._asked,
            choices=self._choices(),
            num_shown=self.num_shown,
            num_all=self.num_all,
            is_full=self.is_full,
            data=Markup("@@molecules@@"),
        )
        head, _, tail = page.partition("@@molecules@@")
        self._lines.seek(0)
        with path.open("w", encoding="utf-8") as file:
            file.write(head)
            file.writelines(self._lines)
            file.write(tail)


def coordinates(mol: Mol, levels: Sequence[float]) -> dict[str, Any]:
    """Returns atoms as ``[x, y]`` with labels, and bonds as ``[u, v, order, wedge, level]``."""
    drawn = require_rdkit("rdkit.Chem.Draw.rdMolDraw2D").PrepareMolForDrawing(
        mol, addChiralHs=False
    )
    place = drawn.GetConformer()
    spots = [place.GetAtomPosition(atom) for atom in range(drawn.GetNumAtoms())]
    wedges = {"BEGINWEDGE": 1, "BEGINDASH": 2}
    return {
        "x": [value for p in spots for value in (round(_UNIT * p.x), round(-_UNIT * p.y))],
        "a": [_label(atom) for atom in drawn.GetAtoms()],
        "b": [
            [
                *(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()),
                max(1, round(bond.GetBondTypeAsDouble())),
                wedges.get(str(bond.GetBondDir()), 0),
                round(100 * levels[bond.GetIdx()]),
            ]
            for bond in drawn.GetBonds()
        ],
    }


def _label(atom: Any) -> Any:
    """Returns nothing for a plain carbon, else element, hydrogens, charge and isotope."""
    symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
    plain = symbol == "C" and not charge and not atom.GetIsotope() and atom.GetDegree() > 0
    if plain and not atom.GetNumRadicalElectrons():
        return 0
    sign = "" if not charge else ("+" if charge > 0 else "−")
    count = str(abs(charge)) if abs(charge) > 1 else ""
    return [symbol, atom.GetTotalNumHs(), count + sign, atom.GetIsotope()]
