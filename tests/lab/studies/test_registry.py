"""Studies by name, and the command that runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nicegnn.errors import ConfigError
from nicegnn_lab import bench
from nicegnn_lab.bench import RunReport, Study
from nicegnn_lab.cli.main import app
from nicegnn_lab.studies import STUDIES, find_studies, make_study


def test_every_study_is_what_its_name_says() -> None:
    for name in STUDIES:
        study = make_study(name)
        assert isinstance(study, Study)
        assert study.name == name
        assert study.title


def test_unknown_names_are_told() -> None:
    assert find_studies("all") == list(STUDIES)
    with pytest.raises(ConfigError, match="ablation"):
        find_studies("ablatoin")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Returns what the command asks the runner for; nothing runs."""
    found: list[tuple[Any, ...]] = []

    def run_study(study: Study, *given: Any, **_: Any) -> RunReport:
        found.append((study, *given))
        return RunReport((), (), ())

    monkeypatch.setattr(bench, "run_study", run_study)
    return found


def test_command_makes_its_own_graphs_and_others_need_datasets(
    tmp_path: Path, asked: list[tuple[Any, ...]]
) -> None:
    run = CliRunner()
    words = ["experiment", "motifs", "--out", str(tmp_path)]
    assert run.invoke(app, words).exit_code == 0
    chosen = ["-e", "nice,random", "--seeds", "0", "--seeds", "1", "-d", "ba-shapes"]
    assert run.invoke(app, [*words, *chosen, "--max-graphs", "20"]).exit_code == 0
    (first, *plain), (second, *given) = asked
    assert (first.name, plain) == ("motifs", [[], [], (0,), tmp_path, None, None])
    assert second.explainers == ("nice", "random")
    assert given == [["ba-shapes"], [], (0, 1), tmp_path, None, 20]
    assert isinstance(run.invoke(app, [*words, "-s", "0,x"]).exception, ConfigError)
    failed = run.invoke(app, ["experiment", "ablation", "--out", str(tmp_path)])
    assert isinstance(failed.exception, ConfigError)
    failed = run.invoke(app, ["experiment", "ablation", "-d", "benzene", "-e", "nice"])
    assert isinstance(failed.exception, ConfigError)


def test_among_all_studies_those_of_motifs_keep_their_own_tasks(
    tmp_path: Path, asked: list[tuple[Any, ...]]
) -> None:
    words = ["experiment", "all", "-d", "benzene", "-t", "gat", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code == 0
    by_name = {study.name: given[:2] for study, *given in asked}
    assert set(by_name) == set(STUDIES)
    assert by_name["ablation"] == [["benzene"], ["gat"]]
    assert by_name["motifs"] == by_name["wide"] == [None, None]
