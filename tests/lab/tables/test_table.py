"""A table as text: Markdown and LaTeX, alignment, bold cells, and files of several tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn_lab.tables.table import Table, save_tables

TABLE = Table(
    name="numbers",
    title="Some numbers",
    columns=["method", "50% ± 1", "last"],
    rows=[["a_b", "1.0 ± 0.1", "2"], ["c", "3", "4"]],
    best=frozenset({(0, 1)}),
    notes=["What they are.", "And why."],
)


def test_markdown_by_hand() -> None:
    assert TABLE.to_markdown() == (
        "**Some numbers**\n\n"
        "| method | 50% ± 1 | last |\n"
        "| --- | ---: | ---: |\n"
        "| a_b | **1.0 ± 0.1** | 2 |\n"
        "| c | 3 | 4 |\n"
        "\nWhat they are.\n\nAnd why.\n"
    )


def test_words_are_aligned_to_the_left_and_a_title_may_be_missing() -> None:
    plain = Table("list", "", ["name", "what", "number"], [["a", "b", "1"]], num_left=2)
    assert plain.to_markdown() == "| name | what | number |\n| --- | --- | ---: |\n| a | b | 1 |\n"
    assert r"\begin{tabular}{llr}" in plain.to_latex()


def test_latex_escapes_what_it_must() -> None:
    text = TABLE.to_latex()
    assert r"a\_b & \textbf{1.0 $\pm$ 0.1} & 2 \\" in text
    assert r"method & 50\% $\pm$ 1 & last \\" in text
    assert r"\caption{Some numbers What they are. And why.}" in text


def test_tables_of_one_name_share_a_file_and_latex_is_written_when_asked(tmp_path: Path) -> None:
    other = Table("other", "Other", ["x"], [["1"]])
    again = Table("numbers", "More", ["x"], [["1"]])
    written = save_tables([TABLE, other, again], tmp_path)
    assert {path.name: [table.title for table in tables] for path, tables in written.items()} == {
        "numbers.md": ["Some numbers", "More"],
        "other.md": ["Other"],
    }
    text = (tmp_path / "numbers.md").read_text()
    assert text == f"{TABLE.to_markdown()}\n{again.to_markdown()}"
    assert not list(tmp_path.glob("*.tex"))
    save_tables([TABLE], tmp_path, latex=True)
    assert (tmp_path / "numbers.tex").read_text() == TABLE.to_latex()


def test_rows_must_be_as_long_as_the_heading() -> None:
    with pytest.raises(ValueError, match=r"Row 1 of table 'x' must have 1 cells \(got 2\)"):
        Table("x", "", ["a"], [["1"], ["1", "2"]])
