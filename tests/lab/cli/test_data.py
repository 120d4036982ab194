"""``nicegnn lab data``: what each command prints and how it ends."""

import sys

import pytest
from typer.testing import CliRunner

from nicegnn.cli.main import main
from nicegnn.errors import NicegnnError
from nicegnn_lab.cli.data import data_app
from nicegnn_lab.datasets.registry import DATASETS
from tests.lab.datasets.small_files import tidy_benzene, tidy_bxaic, tidy_mutagenicity


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path))
    monkeypatch.setenv("NICEGNN_CACHE", str(tmp_path / "cache"))

    def call(*arguments: str):
        return CliRunner().invoke(data_app, list(arguments))

    return call


def test_ls_says_what_is_there(run, tmp_path):
    tidy_benzene(tmp_path)
    tidy_bxaic(tmp_path)
    lines = run("ls").stdout.splitlines()
    state = {name: line for line in lines for name in DATASETS if f" {name} " in line}
    assert "there" in state["benzene"]
    assert "missing" in state["mutagenicity"]
    assert "stand-in for B-XAIC" in state["indole"]


def test_show_tells_the_counts(run, tmp_path):
    tidy_mutagenicity(tmp_path)
    shown = run("show", "mutagenicity").stdout
    assert "4 rows read, 3 graphs kept, 0 twins" in shown
    assert "nonmutagens" in shown
    assert "all: 3 graphs, 2 positives, " in shown


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("show", "benzene"), "graphxai_benzene.csv.gz", 1),
        (("show", "nothing"), "`name` must be one of", 2),
    ],
)
def test_errors_are_one_message_and_a_code(arguments, message, code, run, monkeypatch, capsys):
    assert isinstance(run(*arguments).exception, NicegnnError)
    monkeypatch.setattr(sys, "argv", ["nicegnn", "lab", "data", *arguments])
    with pytest.raises(SystemExit, match=str(code)):
        main()
    shown = capsys.readouterr().err
    assert message in " ".join(shown.split())
    assert "Traceback" not in shown
