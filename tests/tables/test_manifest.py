"""Manifests: what is written down, what survives, and what a digest tells apart."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from nicegnn.bench.study_rows import write_part
from nicegnn.report.artefacts import Artefact, Sources
from nicegnn.tables.manifest import MANIFEST, digest, record


def write(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("text", encoding="utf-8")
    return path


def test_entries_are_kept_and_those_of_lost_files_go(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.md"), write(tmp_path, "b.md")
    record([first], "quality", "nicegnn table quality", {"bench": "1"})
    record([second], "ranks", "nicegnn table ranks", {"bench": "2"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert found["a.md"]["command"] == "nicegnn table quality"
    assert found["b.md"]["sources"] == {"bench": "2"}
    first.unlink()
    record([second], "ranks", "nicegnn table ranks", {"bench": "3"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert set(found) == {"b.md"}
    assert found["b.md"]["sources"] == {"bench": "3"}


def test_damaged_manifest_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{", encoding="utf-8")
    record([write(tmp_path, "a.md")], "quality", "nicegnn table quality", {})
    assert set(json.loads((tmp_path / MANIFEST).read_text())) == {"a.md"}


def test_digest_follows_contents_and_names_not_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        write(folder, "rows.parquet")
        write(folder, f"{folder.name}.txt")  # no rows
    same = digest(one)
    assert digest(other) == same
    assert digest(one / "rows.parquet") == digest(other / "rows.parquet")
    (other / "rows.parquet").write_text("changed", encoding="utf-8")
    assert digest(other) != same
    (one / "rows.parquet").rename(one / "more.parquet")
    assert digest(one) != same


def test_artefacts_name_what_they_read(tmp_path: Path) -> None:
    write(tmp_path / "bench", "packed.parquet")
    sources = Sources(tmp_path / "bench", tmp_path / "experiments")
    found = Artefact("", lambda _: [], ("bench", "ablation", "speed")).digests(sources)
    assert set(found) == {"bench", "ablation"}  # no times were given
    assert found["bench"] == digest(tmp_path / "bench")


def test_parts_hold_the_code_that_computed_them(tmp_path: Path) -> None:
    row = {"dataset": "benzene", "target": "gin", "setting": "", "level": 0.0, "seed": 0}
    path = write_part(tmp_path, "some", "key", [row | {"metric": "m", "value": 1.0}])
    note = json.loads(pq.read_schema(path).metadata[b"nicegnn"])
    assert set(note) == {"nicegnn", "torch", "code"}
