"""Names of tables and figures, what cannot be built, and what a manifest says of their source."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nicegnn.errors import StoreError
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.cli.main import app
from nicegnn_lab.figures.panels import save_figure
from nicegnn_lab.figures.registry import FIGURES
from nicegnn_lab.rivals import EXPLAINERS
from nicegnn_lab.studies import STUDIES
from nicegnn_lab.tables.registry import TABLES, make_tables
from nicegnn_lab.tables.sources import MANIFEST, Sources, digest, older_rows, record
from nicegnn_lab.tables.table import save_tables
from tests.lab.bench.small_bench import make_world, run_bench, use_world
from tests.lab.tables.synthetic_rows import write_study

RESULTS = Path(__file__).parents[3] / "results"


@pytest.mark.parametrize("artefact", [*TABLES.items(), *FIGURES.items()], ids=lambda item: item[0])
def test_missing_rows_name_the_command_that_computes_them(artefact, tmp_path: Path) -> None:
    sources = Sources(tmp_path / "bench", tmp_path / "studies")
    with pytest.raises(StoreError) as caught:
        artefact[1].make(sources)
    command = re.search(r"`nicegnn lab (bench|experiment ([\w-]+))", str(caught.value))
    assert command, caught.value
    if command[2]:
        assert command[2] in STUDIES
        assert command[2] in artefact[1].reads


def test_commands_write_what_the_rows_hold_and_say_what_they_lack(
    tmp_path: Path, monkeypatch
) -> None:
    use_world(monkeypatch)
    names = ("random", "saliency", "occlusion+nc", "occlusion")
    run_bench(make_world().config(tmp_path / "bench", *names))
    words = ["--rows", str(tmp_path / "bench"), "--experiments", str(tmp_path / "none")]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["table", "all", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "ablation: left out" in done.output
    assert (out / "quality-f1-paper-gin.md").is_file()
    done = CliRunner().invoke(app, ["table", "quality", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "saliency" in done.output  # a single table is printed
    assert "older version" not in done.output
    failed = CliRunner().invoke(app, ["table", "ablation", *words, "--out", str(out)])
    assert isinstance(failed.exception, StoreError)


def write(folder: Path, name: str, text: str = "text") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_entries_are_kept_and_those_of_lost_files_go(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.md"), write(tmp_path, "b.md")
    record([first], "quality", "nicegnn lab table quality", {"bench": "1"})
    record([second], "ranks", "nicegnn lab table ranks", {"bench": "2"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert found["a.md"]["command"] == "nicegnn lab table quality"
    assert found["b.md"]["sources"] == {"bench": "2"}
    assert set(found) == {"a.md", "b.md"}  # nothing about itself
    first.unlink()
    record([second], "ranks", "nicegnn lab table ranks", {"bench": "3"})
    found = json.loads((tmp_path / MANIFEST).read_text())
    assert set(found) == {"b.md"}
    assert found["b.md"]["sources"] == {"bench": "3"}


def test_digest_of_a_packed_family_is_that_of_its_file(tmp_path: Path) -> None:
    packed = write(tmp_path, "packed.parquet", "rows")
    found = hashlib.sha256(b"rows").hexdigest()[:24]
    assert digest(tmp_path) == found
    assert packed.is_file()
    write(tmp_path, "scores/some.safetensors")  # no rows
    write(tmp_path, MANIFEST)
    assert digest(tmp_path) == found
    more = write(tmp_path, "rows/more.parquet")  # rows that are not packed yet
    changed = digest(tmp_path)
    assert changed != found
    more.rename(more.with_name("other.parquet"))
    assert digest(tmp_path) not in (found, changed)


def test_rows_of_an_older_version_are_named_below_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_world(monkeypatch)
    out = tmp_path / "bench"
    run_bench(make_world().config(out, "random", "saliency", "nice"))
    sources = Sources(out, tmp_path / "studies")
    assert (older_rows(out), sources.older(["bench"])) == ({}, [])
    newer = replace(EXPLAINERS["nice"], defaults_version=77)
    monkeypatch.setitem(EXPLAINERS, "nice", newer)
    then = EXPLAINERS["nice-student"].defaults_version
    said = f"Measured by an older version: nice ({then}; now 77)."
    tables = make_tables("quality", sources)
    assert [table.notes[-1] for table in tables] == [said] * len(tables)
    write_study(tmp_path / "studies", "scale", [Block("ratio", 1.0, setting="em", level=1.0)])
    assert older_rows(tmp_path / "studies" / "scale") == {"scale": {1}}


@pytest.mark.parametrize("folder", ["tables", "figures"])
def test_committed_files_are_made_from_the_committed_rows(folder: str) -> None:
    """Digests of all; and every table is made again, byte for byte."""
    entries = json.loads((RESULTS / folder / MANIFEST).read_text(encoding="utf-8"))
    sources = Sources(RESULTS / "bench", RESULTS / "studies")
    known: Any = TABLES if folder == "tables" else FIGURES
    there = {path.name for path in (RESULTS / folder).iterdir()} - {MANIFEST}
    assert there == set(entries)
    for name, entry in entries.items():
        assert entry["sources"] == sources.digests(known[entry["artefact"]].reads), name


@pytest.mark.slow
def test_every_committed_table_comes_out_again_byte_for_byte(tmp_path: Path) -> None:
    sources = Sources(RESULTS / "bench", RESULTS / "studies")
    entries = json.loads((RESULTS / "tables" / MANIFEST).read_text(encoding="utf-8"))
    for artefact in dict.fromkeys(entry["artefact"] for entry in entries.values()):
        for path in save_tables(make_tables(artefact, sources), tmp_path):
            assert path.read_bytes() == (RESULTS / "tables" / path.name).read_bytes(), path.name
    assert {path.name for path in tmp_path.iterdir()} == set(entries)


@pytest.mark.slow
def test_a_committed_figure_comes_out_again_byte_for_byte(tmp_path: Path) -> None:
    """Of sensitivity, whose rows are few; pixels depend on the version of matplotlib."""
    sources = Sources(RESULTS / "bench", RESULTS / "studies")
    (figure,) = FIGURES["sensitivity"].make(sources).values()
    save_figure(figure, tmp_path / "sensitivity.png")
    expected = (RESULTS / "figures" / "sensitivity.png").read_bytes()
    assert (tmp_path / "sensitivity.png").read_bytes() == expected
