"""Studies by name, and the command that runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nicegnn.errors import ConfigError
from nicegnn_lab.bench.run import RunReport
from nicegnn_lab.bench.study import Study
from nicegnn_lab.cli.main import app
from nicegnn_lab.studies import STUDIES, make_study


def test_every_study_is_what_its_name_says() -> None:
    for name in STUDIES:
        study = make_study(name)
        assert isinstance(study, Study)
        assert study.name == name
        assert study.title


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """Returns what the command asks the runner for, by study; nothing runs."""
    found: dict[str, tuple[Any, ...]] = {}

    def run_study(study: Study, *given: Any, out: Path, **_: Any) -> RunReport:
        found[study.name] = (*given, out)
        return RunReport((), (), ())

    monkeypatch.setattr("nicegnn_lab.bench.run.run_study", run_study)
    return found


def test_studies_without_datasets_of_their_own_need_some(
    tmp_path: Path, asked: dict[str, tuple[Any, ...]]
) -> None:
    run, out = CliRunner(), ("--out", str(tmp_path))
    assert run.invoke(app, ["experiment", "wide", *out]).exit_code == 0
    assert asked.pop("wide") == ([], [], (0,), tmp_path / "wide")
    words = ["experiment", "wide", *out, "--seeds", "0", "-s", "1", "-d", "nitrile", "-t", "gine"]
    assert run.invoke(app, words).exit_code == 0
    assert asked.pop("wide") == (["nitrile"], ["gine"], (0, 1), tmp_path / "wide")
    for wrong in (["ablation"], ["ablation", "-d", "nitrile"], ["wide", "-s", "0,x"]):
        assert isinstance(run.invoke(app, ["experiment", *wrong, *out]).exception, ConfigError)
    assert asked == {}
