"""Every table and figure has a name; what cannot be built says which command is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nicegnn.bench import run_bench
from nicegnn.cli.main import app
from nicegnn.errors import ConfigError, StoreError
from nicegnn.figures.registry import FIGURES
from nicegnn.studies import find_studies
from nicegnn.tables.registry import TABLES, Sources, find_artefacts
from tests.bench.small_bench import make_world, use_world
from tests.tables.synthetic_rows import bench_rows, joined


def test_names_are_found_in_both_spellings() -> None:
    assert find_artefacts("rivals_em_nc", TABLES) == ["rivals-em-nc"]
    with pytest.raises(ConfigError, match="quality"):
        find_artefacts("qualty", TABLES)


def test_all_leaves_out_what_is_made_on_request() -> None:
    assert find_artefacts("all", TABLES) == [name for name in TABLES if name != "motifs-seconds"]
    assert find_artefacts("motifs-seconds", TABLES) == ["motifs-seconds"]


@pytest.mark.parametrize("artefact", [*TABLES.items(), *FIGURES.items()], ids=lambda item: item[0])
def test_missing_rows_name_the_command_that_computes_them(artefact, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        artefact[1].make(Sources(tmp_path / "bench", tmp_path / "studies"))
    command = re.search(r"`nicegnn (bench|experiment ([\w-]+))", str(caught.value))
    assert command, caught.value
    if command[2]:
        assert find_studies(command[2])[0] in artefact[1].reads


@pytest.mark.parametrize("name", ["quality", "comparison", "criterion", "rivals-em-nc"])
def test_every_target_has_its_tables(name, tmp_path: Path, monkeypatch) -> None:
    values = {
        ("benzene", method, 0): [0.1 * turn, 0.5, 0.3]
        for turn, method in enumerate(("nice+both", "saliency+em", "occlusion+em", "occlusion+nc"))
    }
    parts = []
    for target in ("gin", "gcn"):
        parts.append(bench_rows(values, target=target))
        parts += [
            bench_rows(values, metric="kept_area", protocol=judge, target=target)
            for judge in ("em", "nc", "delete")
        ]
    monkeypatch.setattr(Sources, "bench", lambda self, metrics=None: joined(*parts))
    made = TABLES[name].make(Sources(tmp_path, tmp_path))
    titles = {
        target: {
            table.title.removesuffix(f"target {target}")
            for table in made
            if table.name.endswith(f"-{target}")
        }
        for target in ("gin", "gcn")
    }
    assert titles["gin"] == titles["gcn"] != set()
    if name == "quality":  # a file each for the paper's target, one file for another
        files = {table.name for table in made if table.name.endswith("-gcn")}
        assert files == {"quality-gcn"}


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
    assert not list(out.glob("*.tex"))
    done = CliRunner().invoke(app, ["table", "quality", *words, "--out", str(out), "--latex"])
    assert done.exit_code == 0, done.output
    assert (out / "quality-f1-paper-gin.tex").is_file()
    assert "saliency" in done.output  # a single table is printed
    done = CliRunner().invoke(app, ["figure", "cost", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert (out / "cost.png").stat().st_size > 1000
    assert not list(out.glob("*.pdf"))
    failed = CliRunner().invoke(app, ["table", "ablation", *words, "--out", str(out)])
    assert isinstance(failed.exception, StoreError)
