"""SDF entries with numbers of atoms and bonds, which RDKit reads back as properties of these.

A list of an atom property is a data field such as ``atom.dprop.score``, one of bonds
``bond.dprop.score``: a number per atom or bond, in the order of the entry, ``n/a`` where there is
none. `SDMolSupplier` gives each atom its number: ``mol.GetAtomWithIdx(0).GetDoubleProp("score")``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nicegnn.molecule.smiles import MoleculeError, require_rdkit

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Numbers = Mapping[str, Sequence[float | None]]  # columns by name, an entry per atom or bond
_WIDTH = 190  # most letters of a line; readers of the format must take 200


def sdf_entry(
    mol: Mol,
    name: str = "",
    properties: Mapping[str, object] | None = None,
    atoms: Numbers | None = None,
    bonds: Numbers | None = None,
) -> str:
    r"""Returns one entry of an SDF file, with 2D coordinates, that ends with ``$$$$``.

    Args:
        properties: fields of the whole molecule; line breaks in them become spaces.
        atoms: numbers in the order of the atoms of ``mol``; None or nan is no number.
        bonds: the same for bonds.

    >>> from nicegnn.molecule.smiles import parse_smiles
    >>> entry = sdf_entry(parse_smiles("CO"), "methanol", bonds={"score": [0.5]})
    >>> entry.splitlines()[-5:]
    ['M  END', '>  <bond.dprop.score>', '0.5', '', '$$$$']
    """
    chem = require_rdkit()
    flat = chem.Mol(mol)
    for key in flat.GetPropNames():
        flat.ClearProp(key)
    flat.SetProp("_Name", _line(name))
    require_rdkit("rdkit.Chem.rdDepictor").Compute2DCoords(flat)
    fields = {key: _line(value) for key, value in (properties or {}).items()}
    for kind, numbers, size in (
        ("atom", atoms or {}, mol.GetNumAtoms()),
        ("bond", bonds or {}, mol.GetNumBonds()),
    ):
        for key, values in numbers.items():
            if len(values) != size:
                raise MoleculeError(
                    f"`{kind}s[{key!r}]` must have a number per {kind}, {size} in all (got "
                    f"{len(values)}). Pass those of this molecule."
                )
            fields[f"{kind}.dprop.{key}"] = _wrapped([_word(value) for value in values])
    written = "".join(f">  <{_key(key)}>\n{text}\n\n" for key, text in fields.items())
    return f"{chem.MolToMolBlock(flat)}{written}$$$$\n"


def _word(value: float | None) -> str:
    return "n/a" if value is None or not math.isfinite(value) else f"{value:.6g}"


def _wrapped(words: Sequence[str]) -> str:
    """Returns words with spaces between them, in lines that are short enough."""
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > _WIDTH:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _line(value: object) -> str:
    """Returns words on one line, which must not begin as the end of an entry does."""
    text = " ".join(str(value).split())
    return f" {text}" if text.startswith("$$$$") else text


def _key(name: str) -> str:
    return _line(name).replace("<", "(").replace(">", ")")
