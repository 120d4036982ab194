"""The ranking of substructures by hand numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nicegnn.errors import StoreError
from nicegnn.screening.summary import summarise, write_summary
from nicegnn.screening.tables import ROW, Row, write_table
from nicegnn.store import write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two alcohols and one amine whose scores are written by hand; a fourth one does not count."""
    told = [("a", "CCO", [0.2, 0.8]), ("b", "OCC", [1.0, 0.4]), ("c", "CCN", [0.5, 0.1])]
    told.append(("d", "CCO", [9.0, 9.0]))
    same: Row = dict.fromkeys(ROW, 0.0) | {"prediction": "x", "reason": None}
    same |= {"verdict": "", "applicability": "ok", "unit": "odds", "atom_a": [0, 1]}
    same["atom_b"] = [1, 2]
    rows = []
    for number, (name, smiles, scores) in enumerate(told, start=1):
        row = same | {"row": number, "id": name, "smiles": smiles}
        row |= dict.fromkeys(("bond_score", "bond_loss", "bond_stderr"), scores)
        row["bond_rank"] = [1 + (score < max(scores)) for score in scores]
        rows.append(row | {"status": "no edges" if name == "d" else "ok"})
    write_table(tmp_path / "shards" / "000000.parquet", rows, ROW)
    write_json(tmp_path / "run.json", {"molecules": "", "shards": 1})
    return tmp_path


def test_substructures_rank_by_their_lift(folder: Path) -> None:
    lines = summarise(folder, min_molecules=1)
    groups = {line.substructure: line for line in lines}
    alcohol, amine = groups["alcohol"], groups["aliphatic amine"]
    assert (alcohol.molecules, alcohol.bonds, alcohol.prediction) == (2, 2, "x")
    assert alcohol.score == pytest.approx(0.9)  # 0.8 and 1.0
    assert alcohol.spread == pytest.approx(0.1)
    assert alcohol.lift == pytest.approx(0.3)  # 0.8 - 0.5 and 1.0 - 0.7
    assert alcohol.holds_best == 1.0
    assert alcohol.examples == "b, a"
    assert amine.lift == pytest.approx(-0.2)
    assert [line.lift for line in lines] == sorted((line.lift for line in lines), reverse=True)
    assert {line.substructure for line in summarise(folder, min_molecules=2)} == {
        *("alcohol", "carbon chain")
    }


def test_summary_is_a_table_and_a_page(folder: Path) -> None:
    lines = summarise(folder, min_molecules=1)
    table, page = write_summary(folder, lines, "a <title>")
    assert len(table.read_text().splitlines()) == 1 + len(lines)
    text = page.read_text(encoding="utf-8")
    assert "a &lt;title&gt;" in text
    rows = json.loads(re.search(r"const ROWS = (.*);", text)[1])  # type: ignore[index]
    assert [row["substructure"] for row in rows] == [line.substructure for line in lines]
    with pytest.raises(StoreError, match="nicegnn explain"):
        summarise(folder / "none")
