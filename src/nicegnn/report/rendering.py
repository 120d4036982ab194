"""Pages from Jinja templates: one base for the report and the demo, all that is told is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nicegnn.store import write_text
from nicegnn.tables.table import Table

#: A number, and what may follow it: a spread, the paper's value, the other end of an interval.
_NUMBER = re.compile(
    r"[<>≤≥~]?\s*[+\-−–]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*(%.*|±.*|\(.*|to .*|)"
)
_MISSING = re.compile(r"\s*([-–](\s|$)|nan\b|$)")


def render(template: str, **values: Any) -> str:
    """Returns a page; plain text in the values is escaped, `Markup` is taken as it is."""
    return _environment().get_template(template).render(**values)


def write_page(path: str | Path, html: str) -> Path:
    """Writes a page, whole or not at all, and returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
    return path


def is_number(text: str) -> bool:
    """Returns whether the text of a cell is a number.

    Example:
        >>> is_number("94.9 ± 0.2 (86.6)"), is_number("16 passes")
        (True, False)
    """
    return _NUMBER.fullmatch(text) is not None


def numeric_columns(table: Table) -> list[bool]:
    """Returns for each column whether most of its cells, missing ones apart, are numbers."""
    return [_is_numeric([row[c] for row in table.rows]) for c in range(len(table.columns))]


def _is_numeric(texts: Sequence[str]) -> bool:
    known = [text for text in texts if not _MISSING.match(text)]
    return bool(known) and sum(map(is_number, known)) > len(known) / 2


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("nicegnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": False,
        "allow_nan": False,
    }
    made.globals |= {"asset": _asset, "numeric_columns": numeric_columns, "is_number": is_number}
    return made


def _asset(name: str) -> Markup:
    """Returns a style sheet or script, to stand inside a page."""
    return Markup((files("nicegnn.report") / "assets" / name).read_text(encoding="utf-8"))
