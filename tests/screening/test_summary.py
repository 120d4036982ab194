"""Parts of molecules by name, and their ranking by hand numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nicegnn.errors import ConfigError, StoreError
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.screening.explaining import SCHEMAS, TRUST
from nicegnn.screening.fragments import bond_groups, find_patterns, fragments_of, ring_systems
from nicegnn.screening.shards import write_table
from nicegnn.screening.summary import summarise, write_summary


def parts(smiles: str) -> dict[tuple[str, str], set[frozenset[int]]]:
    found: dict[tuple[str, str], set[frozenset[int]]] = {}
    for one in fragments_of(parse_smiles(smiles)):
        found.setdefault((one.kind, one.name), set()).add(one.bonds)
    return found


def test_paracetamol_has_its_groups_rings_and_pieces() -> None:
    found = parts("CC(=O)Nc1ccc(O)cc1")
    assert found["group", "amide"] == {frozenset({0, 1, 2})}
    assert found["group", "phenol"] == {frozenset({7})}
    assert found["ring system", "c1ccccc1"] == {frozenset({4, 5, 6, 8, 9, 10})}
    assert ("BRICS", "CC=O") in found
    assert bond_groups(parse_smiles("CC(=O)Nc1ccc(O)cc1"))[0] == "amide"


def test_rings_that_share_atoms_are_one_system() -> None:
    spiro, biphenyl = "C1CCC2(C1)CC2", "c1ccccc1-c1ccccc1"
    assert [len(system) for system in ring_systems(parse_smiles(spiro))] == [7]
    assert [len(system) for system in ring_systems(parse_smiles(biphenyl))] == [6, 6]
    assert bond_groups(parse_smiles(biphenyl))[5] == "link between rings"


def test_patterns_are_names_or_smarts() -> None:
    assert set(find_patterns(("amide", "halogen=[F,Cl]"))) == {"amide", "halogen"}
    for word in ("nope", "x=[C"):
        with pytest.raises(ConfigError, match="substructure"):
            find_patterns((word,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two alcohols and one amine whose scores are written by hand."""
    molecules = [(1, "a", "CCO", "x", "ok"), (2, "b", "OCC", "x", "ok"), (3, "c", "CCN", "x", "ok")]
    molecules.append((4, "d", "CCO", "x", "not restored"))
    bonds = {1: (0.2, 0.8), 2: (1.0, 0.4), 3: (0.5, 0.1), 4: (9.0, 9.0)}
    write_table(
        tmp_path / "molecules.csv",
        [
            {
                **{k: [m[i] for m in molecules] for i, k in enumerate(("row", "id", "smiles"))},
                "prediction": [m[3] for m in molecules],
                "status": [m[4] for m in molecules],
                "probability": [0.9] * 4,
                **{k: [0] * 4 for k in (*TRUST, "num_atoms", "num_bonds")},
            }
        ],
        SCHEMAS["molecules"],
    )
    rows = [(row, bond, score) for row, pair in bonds.items() for bond, score in enumerate(pair)]
    filler = {
        key: [0 if kind is not str else "" for _ in rows] for key, kind in SCHEMAS["bonds"].items()
    }
    table = {
        **filler,
        "row": [row for row, _, _ in rows],
        "bond": [bond for _, bond, _ in rows],
        "atom_a": [bond for _, bond, _ in rows],
        "atom_b": [bond + 1 for _, bond, _ in rows],
        "score": [score for _, _, score in rows],
    }
    write_table(tmp_path / "bonds.csv", [table], SCHEMAS["bonds"])
    return tmp_path


def test_substructures_rank_by_their_lift(folder: Path) -> None:
    lines = summarise(folder, min_molecules=1)
    groups = {line.fragment: line for line in lines if line.kind == "group"}
    alcohol, amine = groups["alcohol"], groups["aliphatic amine"]
    assert (alcohol.molecules, alcohol.matches, alcohol.prediction) == (2, 2, "x")
    assert alcohol.score == pytest.approx(0.9)  # 0.8 and 1.0
    assert alcohol.spread == pytest.approx(0.1)
    assert alcohol.lift == pytest.approx(0.3)  # 0.8 - 0.5 and 1.0 - 0.7
    assert alcohol.holds_best == 1.0
    assert alcohol.examples == "b, a"
    assert amine.lift == pytest.approx(-0.2)
    assert [line.lift for line in lines] == sorted((line.lift for line in lines), reverse=True)
    assert {line.fragment for line in summarise(folder, min_molecules=2)} == {"alcohol"}


def test_summary_is_a_table_and_a_page(folder: Path) -> None:
    lines = summarise(folder, min_molecules=1)
    files = write_summary(folder, lines, "a <title>")
    assert len(Path(files["table"]).read_text().splitlines()) == 1 + len(lines)
    text = Path(files["page"]).read_text(encoding="utf-8")
    assert "a &lt;title&gt;" in text
    rows = json.loads(re.search(r"const ROWS = (.*);", text)[1])  # type: ignore[index]
    assert [row["fragment"] for row in rows] == [line.fragment for line in lines]
    with pytest.raises(StoreError, match="nicegnn explain"):
        summarise(folder / "none")
