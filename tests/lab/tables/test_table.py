"""A table as text: alignment, bold cells, and files of several tables."""

from __future__ import annotations

from pathlib import Path

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


def test_tables_of_one_name_share_a_file(tmp_path: Path) -> None:
    other = Table("other", "Other", ["x"], [["1"]])
    again = Table("numbers", "More", ["x"], [["1"]])
    written = save_tables([TABLE, other, again], tmp_path)
    assert [path.name for path in written] == ["numbers.md", "other.md"]
    text = (tmp_path / "numbers.md").read_text()
    assert text == f"{TABLE.to_markdown()}\n{again.to_markdown()}"
