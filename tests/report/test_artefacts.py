"""Every table and figure has a name; what cannot be built says which command is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nicegnn.bench import run_bench
from nicegnn.cli.main import app
from nicegnn.errors import ConfigError, StoreError
from nicegnn.report.artefacts import EXPERIMENTS, FIGURES, TABLES, Sources, find
from tests.studies.small_runs import make_world
from tests.tables.synthetic_rows import bench_rows, joined


def test_names_are_found_in_both_spellings():
    assert find("scale_study", EXPERIMENTS, "name") == ["scale-study"]
    assert find("all", TABLES, "name") == list(TABLES)
    with pytest.raises(ConfigError, match="quality"):
        find("qualty", TABLES, "name")


@pytest.mark.parametrize("artefact", [*TABLES.items(), *FIGURES.items()], ids=lambda item: item[0])
def test_missing_rows_name_the_command_that_computes_them(artefact, tmp_path: Path):
    with pytest.raises(StoreError) as caught:
        artefact[1].make(Sources(tmp_path / "bench", tmp_path / "experiments"))
    command = re.search(r"`nicegnn (bench|experiment (\w+))", str(caught.value))
    assert command, caught.value
    if command[2]:
        find(command[2], EXPERIMENTS, "name")


@pytest.mark.parametrize("name", ["quality", "comparison", "criterion", "rivals-em-nc"])
def test_every_target_has_its_tables(name, tmp_path: Path, monkeypatch):
    values = {
        ("benzene", method, 0): [0.1 * turn, 0.5, 0.3]
        for turn, method in enumerate(("nice+both", "saliency", "occlusion+em", "occlusion+nc"))
    }
    parts = []
    for target in ("gin", "gcn"):
        parts.append(bench_rows(values, target=target))
        parts += [
            bench_rows(values, metric="kept_area", protocol=judge, target=target)
            for judge in ("em", "nc", "delete")
        ]
    monkeypatch.setattr(Sources, "bench", lambda self: joined(*parts))
    made = TABLES[name].make(Sources(tmp_path, tmp_path))
    names = {table.name for table in made}
    by_target = {
        target: {one.removesuffix(f"-{target}") for one in names if one.endswith(f"-{target}")}
        for target in ("gin", "gcn")
    }
    assert by_target["gin"] == by_target["gcn"] != set()


def test_commands_write_what_the_rows_hold_and_say_what_they_lack(tmp_path: Path, monkeypatch):
    world = make_world()
    for key, value in world.environment.items():
        monkeypatch.setenv(key, value)
    run_bench(world.config(tmp_path / "bench", "random", "saliency", "occlusion+nc", "occlusion"))
    words = ["--rows", str(tmp_path / "bench"), "--experiments", str(tmp_path / "none")]
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["table", "all", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "ablation: left out" in done.output
    assert (out / "quality-f1-paper-gin.md").is_file()
    assert (out / "quality-f1-paper-gin.tex").is_file()
    done = CliRunner().invoke(app, ["figure", "cost", *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert (out / "cost.png").stat().st_size > 1000
    assert (out / "cost.pdf").is_file()
