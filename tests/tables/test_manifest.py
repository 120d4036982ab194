"""Manifests: what is written down, what survives, and what a digest tells apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from nicegnn.tables.manifest import MANIFEST, digest, record
from nicegnn.tables.registry import TABLES, Sources
from tests.tables.synthetic_rows import write_study

RESULTS = Path(__file__).parents[2] / "results"


def write(folder: Path, name: str, text: str = "text") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_entries_are_kept_and_those_of_lost_files_go(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.md"), write(tmp_path, "b.md")
    record([first], "quality", "nicegnn table quality", {"bench": "1"})
    record([second], "ranks", "nicegnn table ranks", {"bench": "2"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert found["a.md"]["command"] == "nicegnn table quality"
    assert found["b.md"]["sources"] == {"bench": "2"}
    assert set(found) == {"a.md", "b.md"}  # nothing about itself
    first.unlink()
    record([second], "ranks", "nicegnn table ranks", {"bench": "3"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert set(found) == {"b.md"}
    assert found["b.md"]["sources"] == {"bench": "3"}


def test_damaged_manifest_is_begun_anew(tmp_path: Path) -> None:
    write(tmp_path, MANIFEST, "{")
    record([write(tmp_path, "a.md")], "quality", "nicegnn table quality", {})
    assert set(json.loads((tmp_path / MANIFEST).read_text())) == {"a.md"}


def test_digest_of_a_packed_family_is_that_of_its_file(tmp_path: Path) -> None:
    packed = write(tmp_path, "packed.parquet", "rows")
    found = hashlib.sha256(b"rows").hexdigest()[:24]
    assert digest(tmp_path) == digest(packed) == found
    write(tmp_path, "scores/some.safetensors")  # no rows
    write(tmp_path, MANIFEST)
    assert digest(tmp_path) == found
    more = write(tmp_path, "rows/more.parquet")  # rows that are not packed yet
    changed = digest(tmp_path)
    assert changed != found
    more.rename(more.with_name("other.parquet"))
    assert digest(tmp_path) not in (found, changed)


def test_sources_name_what_is_read(tmp_path: Path) -> None:
    write(tmp_path / "bench", "packed.parquet")
    write_study(tmp_path / "studies", "ablation", [])
    sources = Sources(tmp_path / "bench", tmp_path / "studies")
    found = sources.digests(("bench", "ablation", "speed"))
    assert set(found) == {"bench", "ablation"}  # no times were given
    assert found["bench"] == digest(tmp_path / "bench")


@pytest.mark.skipif(not (RESULTS / "tables" / MANIFEST).is_file(), reason="no results here")
def test_committed_tables_are_made_from_the_committed_rows() -> None:
    entries = json.loads((RESULTS / "tables" / MANIFEST).read_text(encoding="utf-8"))
    sources = Sources(RESULTS / "bench", RESULTS / "studies")
    for name, entry in entries.items():
        assert (RESULTS / "tables" / name).is_file()
        assert entry["sources"] == sources.digests(TABLES[entry["artefact"]].reads), name
