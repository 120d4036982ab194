"""Trains the models that come with nicegnn.

Run ``python scripts/shipped_models.py FOLDER``. Each model is made from a table of
SMILES and labels, by one call of what ``nicegnn train`` calls. The same data and versions give the
same models.
"""

from __future__ import annotations

import csv
import gzip
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nicegnn.molecule.smiles import parse_smiles, require_rdkit
from nicegnn.pretrained import NAMES
from nicegnn.screening.learning import learn
from nicegnn.screening.reading import Reader
from nicegnn.screening.settings import LearnConfig
from nicegnn_lab.datasets.data_files import MissingDataError, data_folder

#: What differs between the models; `make_table` writes the column ``label``.
CONFIGS = {
    "benzene": LearnConfig(
        question="Is there a benzene ring?",
        classes=("no benzene ring", "benzene ring"),
        data="Benzene of GraphXAI: ZINC12 molecules",
        featurizer="elements",
        note="A textbook question: the model should look at the ring, and a reader can see it.",
    ),
    "mutagenicity": LearnConfig(
        question="Is it mutagenic in the Ames test?",
        classes=("not mutagenic", "mutagenic"),
        data="TUDataset Mutagenicity (Kazius et al. 2005), SMILES rebuilt from its graphs",
        note="A model for showing explanations, not for safety decisions. Graphs without some of "
        "their hydrogens were left out.",
    ),
    "logp": LearnConfig(
        question="How large is logP, by Crippen's atom contributions?",
        unit="log units",
        data="20,000 molecules of ChEMBL, values computed by RDKit",
        note="The true value is a sum over atoms, so it is known which atoms count.",
        featurizer="elements",
        epochs=60,
    ),
}
_NUM_LOGP = 20_000
_VALENCE = {"N": 3, "O": 2, "S": 2, "P": 3}  # in neutral atoms


def rebuild(
    folder: str | Path, names: Sequence[str] = NAMES, *, root: str | Path | None = None
) -> None:
    """Trains models from the data folder and writes them with cards and backgrounds."""
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            table = Path(place) / f"{name}.csv"
            with table.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["smiles", "label"])
                writer.writerows(_MAKERS[name](data_folder(root)))
            config = CONFIGS[name].with_(label=("label",))
            path = Path(folder) / f"{name}.safetensors"
            learn(Reader(table), path, config, progress=True)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.is_file():
        raise MissingDataError(f"There is no {path}. Name the data folder by NICEGNN_DATA.")
    csv.field_size_limit(1 << 30)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _benzene(root: Path) -> Iterator[tuple[str, Any]]:
    for row in _rows(root / "graphxai_benzene.csv.gz"):
        yield row["smiles"], row["label"]


def _logp(root: Path) -> Iterator[tuple[str, Any]]:
    crippen = require_rdkit("rdkit.Chem.Crippen")
    smiles = [row["smiles"] for row in _rows(root / "chembl_pool.csv.gz")]
    for one in smiles[:: max(1, len(smiles) // _NUM_LOGP)][:_NUM_LOGP]:  # sorted by SMILES
        yield one, f"{crippen.MolLogP(parse_smiles(one)):.4f}"


def _mutagenicity(root: Path) -> Iterator[tuple[str, Any]]:
    for row in _rows(root / "mutagenicity.csv.gz"):
        bonds = [
            tuple(int(n) for n in b.replace("-", ":").split(":")) for b in row["bonds"].split()
        ]
        smiles = rebuilt_smiles(row["atoms"].split(), bonds)
        if smiles is not None:
            yield smiles, 1 - int(row["label"])  # the file's class 0 is mutagenic


def rebuilt_smiles(atoms: Sequence[str], bonds: Sequence[tuple[int, ...]]) -> str | None:
    """Returns the SMILES of a graph of elements and single, double or triple bonds.

    Hydrogens are atoms of the graph; charges are not, and follow from valences. Returns None for a
    graph whose hydrogens are incomplete.

    >>> rebuilt_smiles(["C", "N", "O", "O", "H", "H", "H"], [
    ...     (0, 1, 1), (1, 2, 2), (1, 3, 1), (0, 4, 1), (0, 5, 1), (0, 6, 1)])
    'C[N+](=O)[O-]'
    """
    chem = require_rdkit()
    orders = chem.BondType.SINGLE, chem.BondType.DOUBLE, chem.BondType.TRIPLE
    mol, valence = chem.RWMol(), [0] * len(atoms)
    for u, v, order in bonds:
        valence[u] += order
        valence[v] += order
    for symbol, bound in zip(atoms, valence, strict=True):
        atom = chem.Atom(symbol)
        atom.SetNoImplicit(True)
        excess = bound - _VALENCE.get(symbol, bound)
        if abs(excess) == 1:  # a sulphur or phosphorus with more has no charge
            atom.SetFormalCharge(excess)
        mol.AddAtom(atom)
    for u, v, order in bonds:
        mol.AddBond(u, v, orders[order - 1])
    with require_rdkit("rdkit.rdBase").BlockLogs():
        chem.SanitizeMol(mol)
        smiles = str(chem.MolToSmiles(chem.RemoveHs(mol)))
    has_gaps = any(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())
    return None if has_gaps else smiles


_MAKERS = {"benzene": _benzene, "mutagenicity": _mutagenicity, "logp": _logp}

if __name__ == "__main__":
    rebuild(sys.argv[1], sys.argv[2:] or NAMES)
