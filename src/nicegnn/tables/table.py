"""Tables of results: built once, written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
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
        name: file name without ending.
        title: one line.
        columns: headings.
        rows: cells, as many in each row as there are columns.
        best: cells to set in bold, as (row, column).
        notes: what a reader must know, a sentence or two each.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    notes: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {number} of table {self.name!r} must have {len(self.columns)} cells "
                    f"(got {len(row)})."
                )

    def to_markdown(self) -> str:
        """Returns the table as Markdown, with its title and notes."""
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + " --- |" + " ---: |" * (len(self.columns) - 1))
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
            r"\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}",
            r"\toprule",
            " & ".join(cell.translate(_LATEX) for cell in self.columns) + r" \\",
            r"\midrule",
        ]
        for r, row in enumerate(self.rows):
            cells = [cell.translate(_LATEX) for cell in row]
            cells = [rf"\textbf{{{x}}}" if (r, c) in self.best else x for c, x in enumerate(cells)]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"

    def to_html(self) -> str:
        """Returns the table as an HTML ``table`` that a script may sort by its columns."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.columns)
        body = []
        for r, row in enumerate(self.rows):
            cells = "".join(
                f'<td class="best">{html.escape(cell)}</td>'
                if (r, c) in self.best
                else f"<td>{html.escape(cell)}</td>"
                for c, cell in enumerate(row)
            )
            body.append(f"<tr>{cells}</tr>")
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (
            f'<figure><figcaption>{html.escape(self.title)}</figcaption><table class="sortable">'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{notes}</figure>"
        )

    def save(self, folder: str | Path) -> list[Path]:
        """Writes ``name.md`` and ``name.tex`` and returns both paths."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.md", folder / f"{self.name}.tex"]
        for path, text in zip(paths, (self.to_markdown(), self.to_latex()), strict=True):
            write_text(path, text)
        return paths
