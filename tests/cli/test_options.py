"""Words that were typed: lists, places to write to, and one line with code 2 for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nicegnn.cli.main import app, main
from nicegnn.cli.options import takes
from nicegnn.config import Settings
from nicegnn.screening.settings import LearnConfig, ModelConfig, RunConfig


@pytest.fixture
def fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Returns the exit code of a command that fails, and the single line that it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NICEGNN_DATA", str(tmp_path / "none"))  # names are checked before data

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["nicegnn", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        assert shown.out == ""
        assert len(shown.err.splitlines()) == 1, shown.err
        assert "Traceback" not in shown.err
        assert isinstance(stop.value.code, int)
        return stop.value.code, shown.err

    return call


@pytest.mark.parametrize(
    ("words", "kind"), [(("explain", "in.csv"), "folder"), (("train", "in.csv", "-y", "y"), "file")]
)
def test_place_that_cannot_be_written_is_one_line_with_code_two(  # type: ignore[no-untyped-def]
    fail, tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    (tmp_path / "taken").write_text("a file, so nothing can lie below it")
    places = [tmp_path / "taken" / "below" / "out"]
    places.append(tmp_path / "taken" if kind == "folder" else tmp_path)  # the other kind
    for place in places:
        code, line = fail(*words, "--out", str(place))
        assert code == 2
        assert line.startswith(f"Error: `--out` must be a {kind} that can be written (got {place}:")
        assert line.rstrip().endswith("Name another.")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(("name", "kind"), [("explain", RunConfig), ("train", LearnConfig)])
def test_every_setting_is_an_option_that_says_what_it_means(
    name: str, kind: type[Settings]
) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {one.name: one for one in command.params}
    plain = kind().to_dict()
    inner = [key for part in plain.values() if isinstance(part, dict) for key in part]
    fields = [key for key, value in plain.items() if not isinstance(value, dict)] + inner
    assert len(fields) == len({*fields})  # one word for one thing
    for field in fields:
        assert len(str(known[field].help)) > 8, field


def test_what_is_typed_reaches_its_place_and_the_rest_is_as_usual() -> None:
    seen: list[RunConfig] = []

    @takes(RunConfig)
    def command(config: RunConfig) -> None:
        seen.append(config)

    one = typer.Typer()
    one.command()(command)
    words = ["CCO", "--seed", "4", "--classes", "a", "--classes", "b", "--svg", "--no-atoms"]
    assert CliRunner().invoke(one, words).exit_code == 0
    made = RunConfig(("CCO",), atoms=False, model=ModelConfig(classes=("a", "b"), seed=4))
    assert seen == [made.with_(output__svg=True)]
