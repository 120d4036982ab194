"""Writes small data files in each layout, for tests that need no download."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

from nicegnn.molecule.smiles import parse_smiles
from nicegnn_lab.datasets.dataset import MoleculeDataset, load_dataset
from nicegnn_lab.datasets.generator import generate_smiles
from nicegnn_lab.datasets.graph_tables import molecule_tables
from nicegnn_lab.datasets.rules import truth_of

#: SMILES, label, true atom sets of the benzene rule.
BENZENE = [
    ("Cc1ccccc1", 1, [[1, 2, 3, 4, 5, 6]]),
    ("C1CCCCC1", 0, []),
    ("c1ccccc1Cc1ccccc1", 1, [[*range(6)], [*range(7, 13)], [*range(6), *range(7, 13)]]),
    ("CCO", 0, []),
]

TOLUENE_BONDS = "0-1:1 1-2:4 2-3:4 3-4:4 4-5:4 5-6:4 6-1:4"
_ATOMS = ["C C C C C C C", "C C C C C C", " ".join(["C"] * 13), "C C O"]
_BONDS = [
    TOLUENE_BONDS,
    "0-1:1 1-2:1 2-3:1 3-4:1 4-5:1 5-0:1",
    "0-1:4 1-2:4 2-3:4 3-4:4 4-5:4 5-6:1 6-7:1 7-8:4 8-9:4 9-10:4 10-11:4 11-12:4 5-0:4 12-7:4",
    "0-1:1 1-2:1",
]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def tidy_benzene_rows() -> list[dict[str, Any]]:
    return [
        {
            "idx": index,
            "mol_id": f"Z{index}",
            "smiles": smiles,
            "label": label,
            "atoms": _ATOMS[index],
            "bonds": _BONDS[index],
            "masks": json.dumps(masks),
        }
        for index, (smiles, label, masks) in enumerate(BENZENE)
    ]


def tidy_benzene(root: Path, copies: int = 1) -> Path:
    rows = [row for _ in range(copies) for row in tidy_benzene_rows()]
    rows = [{**row, "idx": index} for index, row in enumerate(rows)]
    return write_csv(root / "graphxai_benzene.csv.gz", rows)


def tidy_mutagenicity(root: Path) -> Path:
    """The same four graphs as a table."""
    rows = [
        (0, 1, 1, "C N O", "0-1:1 1-2:2", [["nitroso", [1, 2]]]),
        (1, 0, 1, "C H", "0-1:1", []),
        (2, 1, 1, "C C C C C Cl", "0-1:1 0-4:1 0-5:1 1-2:2 2-3:1 3-4:2", [["ring_halide", [5]]]),
        (3, 0, 0, "C N O", "0-1:1 1-2:2", [["nitroso", [1, 2]]]),
    ]
    names = ("tu_index", "label", "kept", "atoms", "bonds", "matches")
    table = [dict(zip(names, (*row[:5], json.dumps(row[5])), strict=True)) for row in rows]
    return write_csv(root / "mutagenicity.csv.gz", table)


#: Indole, cycloheptane, trimethylborane; rings in ring order.
BXAIC = [
    {
        "smiles": "c1ccc2[nH]ccc2c1",
        "atoms": "C C C C N C C C C",
        "bonds": "0-1:4 1-2:4 2-3:4 3-4:4 4-5:4 5-6:4 6-7:4 7-8:4 8-0:4 7-3:4",
        "rings": "0-1-2-3-7-8 3-4-5-6-7",
        "indole": 1,
        "rings-max": 0,
    },
    {
        "smiles": "C1CCCCCC1",
        "atoms": "C C C C C C C",
        "bonds": "0-1:1 1-2:1 2-3:1 3-4:1 4-5:1 5-6:1 6-0:1",
        "rings": "0-1-2-3-4-5-6",
        "indole": 0,
        "rings-max": 1,
    },
    {
        "smiles": "CB(C)C",
        "atoms": "C B C C",
        "bonds": "0-1:1 1-2:1 1-3:1",
        "rings": "",
        "indole": 0,
        "rings-max": 0,
    },
]
BXAIC_PARTS = ("train", "valid", "test")


def tidy_bxaic(root: Path) -> None:
    molecules, graphs = [], []
    for index, item in enumerate(BXAIC):
        is_indole = item["indole"] == 1
        molecules.append(
            {
                "id": index,
                "smiles": item["smiles"],
                "indole": item["indole"],
                "PAINS": 0,
                "rings-count": 0,
                "rings-max": item["rings-max"],
                **{f"split_{k}": BXAIC_PARTS[(index + k) % 3] for k in range(5)},
            }
        )
        graphs.append(
            {
                "id": index,
                **{key: item[key] for key in ("atoms", "bonds", "rings")},
                "indole_atoms": "0 1 2 3 4 5 6 7 8" * is_indole,
                "indole_bonds": "0 1 2 3 4 5 6 7 8 9" * is_indole,
                "pains_atoms": "",
                "pains_bonds": "",
            }
        )
    write_csv(root / "bxaic_like.csv.gz", molecules)
    write_csv(root / "bxaic_like_graphs.csv.gz", graphs)


def load(name: str, root: Path, **settings: Any) -> MoleculeDataset:
    """Loads what lies in a folder, with a cache in it."""
    return load_dataset(name, root=root, cache=root / "cache", **settings)


def bonds_of(edges: list[int]) -> set[int]:
    """Returns the bonds of directed edges, which must come in pairs."""
    assert {edge ^ 1 for edge in edges} == set(edges)
    return {edge // 2 for edge in edges}


def write_molecules(folder: Path, num: int, seed: int = 0) -> None:
    """Writes generated molecules in the form of GraphXAI's benzene set."""
    rows = []
    for number, smiles in enumerate(generate_smiles(num, seed=seed)):
        molecule = parse_smiles(smiles)
        atoms, bonds = molecule_tables(molecule)
        truth = truth_of(molecule, "benzene")
        masks = [
            sorted({atom for bond in ring for atom in bonds[bond][:2]})
            for ring in truth.alternatives
        ]
        rows.append(
            {
                "idx": number,
                "mol_id": f"Z{number}",
                "smiles": smiles,
                "label": truth.label,
                "atoms": " ".join(atoms),
                "bonds": " ".join(f"{u}-{v}:{t}" for u, v, t in bonds),
                "masks": json.dumps(masks),
            }
        )
    write_csv(folder / "graphxai_benzene.csv.gz", rows)
