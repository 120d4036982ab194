"""Tables of results: built once, written as Markdown, or as LaTeX where asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nicegnn.store import write_text

_LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "^": r"\^{}", "~": r"\~{}"}
)


@dataclass(frozen=True)
class Table:
    """Rows of text with a title and notes.

    Attributes:
        name: file name without ending; tables of one name share a file.
        title: one line; empty for a table that a page has introduced.
        columns: headings.
        rows: cells, as many in each row as there are columns.
        best: cells to set in bold, as (row, column).
        notes: what a reader must know, a sentence or two each.
        num_left: columns of words, aligned to the left; the others are numbers.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = field(default=())
    num_left: int = 1

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {number} of table {self.name!r} must have {len(self.columns)} cells "
                    f"(got {len(row)})."
                )

    def to_markdown(self) -> str:
        """Returns the table as Markdown, with its title and notes."""
        lines = [f"**{self.title}**", ""] if self.title else []
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + " --- |" * self.num_left + self._num_right * " ---: |")
        for r, row in enumerate(self.rows):
            cells = [f"**{cell}**" if (r, c) in self.best else cell for c, cell in enumerate(row)]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def to_latex(self) -> str:
        """Returns the table as a LaTeX ``table`` with booktabs rules."""
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{' '.join([self.title, *self.notes]).translate(_LATEX)}}}",
            r"\begin{tabular}{" + "l" * self.num_left + "r" * self._num_right + "}",
            r"\toprule",
            " & ".join(cell.translate(_LATEX) for cell in self.columns) + r" \\",
            r"\midrule",
        ]
        for r, row in enumerate(self.rows):
            cells = [cell.translate(_LATEX) for cell in row]
            cells = [rf"\textbf{{{x}}}" if (r, c) in self.best else x for c, x in enumerate(cells)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"

    @property
    def _num_right(self) -> int:
        return len(self.columns) - self.num_left


def save_tables(
    tables: Iterable[Table], folder: str | Path, *, latex: bool = False
) -> dict[Path, list[Table]]:
    """Writes ``name.md``, and ``name.tex`` if asked for; tables of one name go into one file.

    Returns:
        The files with the tables that each holds.
    """
    folder = Path(folder)
    by_name: dict[str, list[Table]] = {}
    for table in tables:
        by_name.setdefault(table.name, []).append(table)
    written = {}
    for name, some in by_name.items():
        texts = {"md": [table.to_markdown() for table in some]}
        if latex:
            texts["tex"] = [table.to_latex() for table in some]
        for ending, parts in texts.items():
            path = folder / f"{name}.{ending}"
            write_text(path, "\n".join(parts))
            written[path] = some
    return written
