"""A screening: tables as the explainer says, rejects with reasons, going on after a stop."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.pretrained import Pretrained
from nicegnn.screening import run
from nicegnn.screening.explaining import TRUST, explain_records
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.reading import Reader, Record, TypedSmiles
from nicegnn.screening.run import ScreenConfig, screen
from nicegnn.screening.shards import read_table, rows_of
from tests.screening.small_screen import write_csv

SMILES = ["c1ccccc1CC(=O)N", "CCCCC", "C1CC(", "", "[Na+]", "Cc1ccncc1", "OCC(N)C1CCCCC1"]
CONFIG = ScreenConfig(shard_size=2, substructures=("amide", "ring=[R]"))


def read(path: Path) -> list[dict[str, Any]]:
    return [row for table in read_table(path) for row in rows_of(table)]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    rows: list[list[object]] = [[f"m{n}", smiles] for n, smiles in enumerate(SMILES)]
    return Reader(write_csv(tmp_path / "in.csv", ["id", "smiles"], rows), id_column="id")


def test_tables_hold_what_the_explainer_says(subject: Pretrained) -> None:
    records = [Record(n, f"m{n}", smiles, {}) for n, smiles in enumerate(SMILES, start=1)]
    tables = explain_records(records, subject, substructures=find_patterns(("amide",)), seed=3)
    graphs = [subject.featurizer(SMILES[n]) for n in (0, 1)]
    assert isinstance(subject.explainer, NICE)
    parts = subject.explainer.explain(graphs, seed=3, atoms=True).split()
    bonds = [row for row in rows_of(tables["bonds"]) if row["row"] == 1]
    assert [row["score"] for row in bonds] == pytest.approx(parts[0].bond_score.tolist(), abs=1e-5)
    assert [[r["atom_a"], r["atom_b"]] for r in bonds] == parts[0].bond_index.t().tolist()
    assert sorted(row["rank"] for row in bonds) == list(range(1, len(bonds) + 1))
    molecule = next(rows_of(tables["molecules"]))
    best = int(parts[0].prediction[0].argmax())
    assert molecule["prediction"] == subject.card.classes[best]
    assert molecule["probability"] == pytest.approx(float(parts[0].prediction[0, best].exp()))
    assert molecule["has amide"] == 1
    trust = parts[0].trust
    assert trust is not None
    for name in TRUST:
        assert molecule[name] == pytest.approx(float(getattr(trust, name)), abs=1e-3)
    assert parts[0].atom_score is not None
    assert parts[0].atom_loss is not None
    atoms = [row for row in rows_of(tables["atoms"]) if row["row"] == 1]
    assert [a["score"] for a in atoms] == pytest.approx(parts[0].atom_score.tolist(), abs=1e-5)
    assert [a["loss"] for a in atoms] == pytest.approx(parts[0].atom_loss.tolist(), abs=1e-4)
    rejects = {row["row"]: row["reason"] for row in rows_of(tables["rejects"])}
    assert set(rejects) == {3, 4}
    assert "position" in rejects[3] or "syntax" in rejects[3]
    sodium = [row for row in rows_of(tables["molecules"]) if row["row"] == 5]
    assert sodium[0]["status"] == "no edges"


def test_a_molecule_that_the_explainer_refuses_does_not_stop_the_others(
    subject: Pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = subject.explainer.explain

    def refuse(graphs: Any, **words: Any) -> Any:
        if any(graph.smiles == "CCCCC" for graph in graphs):
            raise RuntimeError("too long")
        return whole(graphs, **words)

    monkeypatch.setattr(subject.explainer, "explain", refuse)
    records = [Record(n, str(n), smiles, {}) for n, smiles in enumerate(SMILES[:2])]
    tables = explain_records(records, subject)
    assert tables["molecules"]["smiles"] == [SMILES[0]]
    assert "too long" in tables["rejects"]["reason"][0]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_screening_leaves_tables_gallery_and_rejects(
    reader: Reader, subject: Pretrained, tmp_path: Path, format: Any
) -> None:
    out = tmp_path / "out"
    config = CONFIG.with_(format=format, svg=True)
    found = screen(reader, subject, out, config)
    assert (found.num_molecules, found.num_explained, found.num_rejected) == (7, 5, 2)
    assert [row["id"] for row in read(out / "rejects.csv")] == ["m2", "m3"]
    molecules = read(out / f"molecules.{format}")
    assert [row["id"] for row in molecules] == ["m0", "m1", "m4", "m5", "m6"]
    assert [int(row["has ring"]) for row in molecules] == [1, 0, 0, 1, 1]
    assert not (out / "shards").exists()
    assert len(list((out / "svg").glob("*.svg"))) == 5
    text = (out / "gallery.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r"const MOLECULES = (\[.*?\n\]);", text, re.DOTALL)[1])  # type: ignore[index]
    assert [item["i"] for item in data] == ["m0", "m1", "m4", "m5", "m6"]
    assert max(bond[4] for bond in data[0]["b"]) == 100
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']https?:", text)


def test_stopped_run_goes_on_and_ends_the_same(
    reader: Reader, subject: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen(reader, subject, tmp_path / "whole", CONFIG)
    calls: list[int] = []
    explain = explain_records

    def count(records: Any, *args: Any, **words: Any) -> Any:
        calls.append(records[0].row)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return explain(records, *args, **words)

    monkeypatch.setattr(run, "explain_records", count)
    with pytest.raises(KeyboardInterrupt):
        screen(reader, subject, tmp_path / "out", CONFIG)
    left = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert not any(name.endswith(".part") for name in left)
    assert "molecules.csv" in left  # of shards alone
    assert not (tmp_path / "out" / "molecules.csv").exists()
    found = screen(reader, subject, tmp_path / "out", CONFIG)
    assert calls == [1, 3, 5, 5, 7]
    assert found.resumed == 4
    for name in ("molecules.csv", "bonds.csv", "atoms.csv", "rejects.csv", "gallery.html"):
        one, other = (tmp_path / folder / name for folder in ("whole", "out"))
        assert one.read_bytes() == other.read_bytes()


def test_two_processes_may_write_the_same_run(
    reader: Reader, subject: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen(reader, subject, tmp_path / "whole", CONFIG)
    out, explain = tmp_path / "out", explain_records

    def overtaken(records: Any, *args: Any, **words: Any) -> Any:
        if records[0].row == 5:  # another process begins now, and ends first
            monkeypatch.setattr(run, "explain_records", explain)
            assert screen(reader, subject, out, CONFIG).num_explained == 5
        return explain(records, *args, **words)

    monkeypatch.setattr(run, "explain_records", overtaken)
    assert screen(reader, subject, out, CONFIG).num_explained == 5
    assert not (out / "shards").exists()
    for name in ("molecules.csv", "bonds.csv", "atoms.csv", "rejects.csv", "gallery.html"):
        assert (tmp_path / "whole" / name).read_bytes() == (out / name).read_bytes()


def test_finished_run_is_not_repeated_and_another_is_not_mixed_in(
    reader: Reader, subject: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    screen(reader, subject, out, CONFIG)
    other = TypedSmiles(["CCO"])
    with pytest.raises(ConfigError, match=r"another run .*molecules.*--overwrite"):
        screen(other, subject, out, CONFIG)
    (out / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(run, "explain_records", lambda *_, **__: pytest.fail("explained again"))
        again = screen(reader, subject, out, CONFIG.with_(svg=True))
    assert again.resumed == 7
    assert len(list((out / "svg").iterdir())) == 5  # pictures may be asked for later
    assert screen(other, subject, out, CONFIG, overwrite=True).num_molecules == 1
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "svg").exists()


def test_gallery_takes_the_first_molecules_and_names_cannot_break_it(
    subject: Pretrained, tmp_path: Path
) -> None:
    rows: list[list[object]] = [["</script><b>", "CCO"], ["../up", "CCN"], ["c", "CCC"]]
    path = write_csv(tmp_path / "in.csv", ["id", "smiles"], rows)
    config = ScreenConfig(gallery=2, svg=True)
    screen(Reader(path, id_column="id"), subject, tmp_path / "out", config)
    text = (tmp_path / "out" / "gallery.html").read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    assert "\\u003c/script>" in text
    assert '"CCC"' not in text
    assert "The first 2 molecules" in text
    files = [file.name for file in (tmp_path / "out" / "svg").iterdir()]
    assert sorted(files) == ["000001-__script__b_.svg", "000002-.._up.svg", "000003-c.svg"]
    assert len(read(tmp_path / "out" / "molecules.csv")) == 3


def test_file_without_rows_leaves_no_folder(subject: Pretrained, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "in.csv", ["smiles"], [])
    with pytest.raises(ConfigError, match="no molecules"):
        screen(Reader(path), subject, tmp_path / "out")
    assert not (tmp_path / "out").exists()
