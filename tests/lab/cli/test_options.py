"""Words that were typed: places to write to, and one line with code 2 for wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.cli.main import main
from nicegnn.errors import ConfigError
from nicegnn_lab.cli import options

BENCH = ("lab", "bench", "-d", "benzene", "-e", "random")


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
    ("words", "flag", "expected"),
    [
        ((*BENCH, "-t", "nosuch"), "`--target`", "gin-mean"),
        (("lab", "bench", "-d", "nosuch", "-e", "random"), "`--dataset`", "benzene"),
        (
            ("lab", "bench", "-d", "benzene", "-e", "random,nosuch+nc"),
            "`--explainer`",
            "pgexplainer",
        ),
        (("lab", "tune", "-d", "benzene", "-e", "nosuch"), "`--explainer`", "pgexplainer"),
        (("lab", "train-targets", "-d", "benzene", "-t", "nosuch"), "`--target`", "gin-mean"),
        (("lab", "experiment", "nosuch"), "`name`", "ablation"),
        (("lab", "experiment", "ablation", "-d", "nosuch"), "`--dataset`", "benzene"),
        (("lab", "table", "nosuch"), "`name`", "quality"),
        (("lab", "figure", "nosuch"), "`name`", "sensitivity"),
        (("lab", "data", "show", "nosuch"), "`name`", "benzene"),
    ],
)
def test_unknown_name_is_one_line_with_code_two(  # type: ignore[no-untyped-def]
    fail, words: tuple[str, ...], flag: str, expected: str
) -> None:
    code, line = fail(*words)
    assert code == 2
    assert line.startswith(f"Error: {flag} must be one of")
    assert expected in line
    assert "(got 'nosuch')" in line
    assert line.rstrip().endswith(("hoose one of these.", "says more."))


@pytest.mark.parametrize(
    "words",
    [
        BENCH,
        ("lab", "tune", "-d", "benzene"),
        ("lab", "train-targets"),
        ("lab", "experiment", "wide"),
        ("lab", "table", "all"),
        ("lab", "figure", "all"),
    ],
)
def test_place_that_cannot_be_written_is_one_line_with_code_two(  # type: ignore[no-untyped-def]
    fail, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "taken").write_text("a file, so nothing can lie below it")
    for place in (tmp_path / "taken" / "below" / "out", tmp_path / "taken"):
        code, line = fail(*words, "--out", str(place))
        assert code == 2
        assert line.startswith(f"Error: `--out` must be a folder that can be written (got {place}:")
        assert line.rstrip().endswith("Name another.")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_seeds_are_split_as_words_are() -> None:
    assert options.split_seeds(["0,1", "2"]) == (0, 1, 2)
    assert options.split_seeds(None) == (0,)
    with pytest.raises(ConfigError, match="`--seed` must be whole numbers, such as 0,1"):
        options.split_seeds(["1.5"])
