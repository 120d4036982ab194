"""How near a molecule is to those that a model was trained on, and which of its atoms are new."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nicegnn.errors import StoreError
from nicegnn.molecule.smiles import parse_smiles, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

INSIDE, UNKNOWN = "ok", "not known"
_BITS = 1024  # of a fingerprint
_MOST = 2048  # fingerprints that are kept
_JUDGED = 500  # molecules that tell which similarity is usual
_UNUSUAL = 0.05  # share of training molecules with a smaller similarity to the nearest other one
_NAMED = 2  # atoms that are named
_BONDS = {1.0: "-", 2.0: "=", 3.0: "#", 1.5: ":"}


@dataclass(frozen=True)
class Nearness:
    """How near a molecule is to the training molecules."""

    similarity: float = math.nan  # Tanimoto, to the nearest one; nan if they are not known
    words: str = UNKNOWN  # "ok", "not known", or what is far or new about it

    @property
    def is_far(self) -> bool:
        """Whether a reader must be warned."""
        return self.words not in (INSIDE, UNKNOWN)


@dataclass(frozen=True)
class Domain:
    """The training molecules of a model, as much of them as is needed to compare others."""

    fingerprints: Tensor  # Morgan, radius 2, uint8 [N, 128]
    atoms: tuple[str, ...]  # kinds of atoms, see `_surroundings`
    usual: float  # 19 of 20 training molecules are nearer to another one

    @classmethod
    def of(cls, smiles: Sequence[str]) -> Domain:
        mols = [parse_smiles(one) for one in smiles]
        atoms = sorted({kind for mol in mols for kind in _surroundings(mol)})
        chosen = random.Random(0).sample(mols, min(len(mols), _MOST))
        vectors = [_fingerprint(mol) for mol in chosen]
        nearest = sorted(
            _nearest(one, vectors[:place] + vectors[place + 1 :])
            for place, one in enumerate(vectors[:_JUDGED])
        )
        text = b"".join(map(require_rdkit("rdkit.DataStructs").BitVectToBinaryText, vectors))
        packed = torch.frombuffer(bytearray(text), dtype=torch.uint8).view(-1, _BITS // 8)
        return cls(packed, tuple(atoms), round(nearest[int(_UNUSUAL * len(nearest))], 3))

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Domain:
        prints = tensors["fingerprints"]
        if prints.shape[1:] != (_BITS // 8,) or prints.dtype != torch.uint8:
            raise StoreError(f"`fingerprints` must be of {_BITS} bits (got {tuple(prints.shape)}).")
        return cls(prints, tuple(map(str, facts["atoms"])), float(facts["usual"]))

    def tensors(self) -> dict[str, Tensor]:
        return {"fingerprints": self.fingerprints}

    def facts(self) -> dict[str, Any]:
        return {"atoms": list(self.atoms), "usual": self.usual}

    def nearness(self, mol: Mol) -> Nearness:
        """Returns how near a molecule is: its similarity, and new elements or atoms by name."""
        similarity = _nearest(_fingerprint(mol), self._vectors)
        kinds, said = {*self.atoms}, list[str]()
        known = {kind.partition("(")[0].rstrip("+-") for kind in kinds}
        new = sorted({atom.GetSymbol() for atom in mol.GetAtoms()} - known)
        own = _surroundings(mol).items()
        odd = [kind.replace("(", f"{atom}(", 1) for kind, atom in own if kind not in kinds]
        if new:
            said.append(f"no training molecule holds {', '.join(new)}")
        elif odd:
            more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
            named = ", ".join(odd[:_NAMED])
            said.append(f"no training molecule has atoms such as {named}{more}")
        if similarity < self.usual:
            said.append(
                f"its nearest training molecule is far (similarity {similarity:.2f}; usual is "
                f"{self.usual:.2f} or more)"
            )
        return Nearness(round(similarity, 3), "; ".join(said) or INSIDE)

    @cached_property
    def _vectors(self) -> list[Any]:
        rows, read = self.fingerprints.numpy(), require_rdkit("rdkit.DataStructs")
        return [read.CreateFromBinaryText(row.tobytes()) for row in rows]


def _fingerprint(mol: Mol) -> Any:
    made = require_rdkit("rdkit.Chem.rdFingerprintGenerator")
    return made.GetMorganGenerator(radius=2, fpSize=_BITS).GetFingerprint(mol)


def _nearest(one: Any, others: list[Any]) -> float:
    compare = require_rdkit("rdkit.DataStructs").BulkTanimotoSimilarity
    return float(max(compare(one, others), default=0.0))


def _surroundings(mol: Mol) -> dict[str, int]:
    """Returns the last atom of each kind: element and charge, with its bonds to neighbours.

    >>> list(_surroundings(parse_smiles("C[N+](=O)[O-]")))
    ['C(-N)', 'N+(-C-O=O)', 'O(=N)', 'O-(-N)']
    """
    atom_of = {}
    for atom in mol.GetAtoms():
        joined = (
            f"{_BONDS.get(bond.GetBondTypeAsDouble(), '~')}{bond.GetOtherAtom(atom).GetSymbol()}"
            for bond in atom.GetBonds()
        )
        charge = atom.GetFormalCharge()
        signs = ("+" if charge > 0 else "-") * abs(charge)
        atom_of[f"{atom.GetSymbol()}{signs}({''.join(sorted(joined))})"] = atom.GetIdx()
    return atom_of
