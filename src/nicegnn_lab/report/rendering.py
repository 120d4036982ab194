"""Pages from Jinja templates: one base for the report and the demo, all that is told is escaped."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment

from nicegnn.screening.rendering import make_environment
from nicegnn_lab.paper.claims import Numbers
from nicegnn_lab.tables.table import Table

#: A number, and what may follow it: a spread, the paper's value, the other end of an interval.
_NUMBER = re.compile(
    r"[<>≤≥~]?\s*[+\-−–]?(\d[\d,]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*(%.*|±.*|\(.*|to .*|)"
)
_MISSING = re.compile(r"\s*([-–](\s|$)|nan\b|$)")


def render(template: str, **values: Any) -> str:
    """Returns a page; plain text in the values is escaped, `Markup` is taken as it is."""
    return _environment().get_template(template).render(**values)


def is_number(text: str) -> bool:
    """Returns whether the text of a cell is a number.

    Example:
        >>> is_number("94.9 ± 0.2 (86.6)"), is_number("16 passes")
        (True, False)
    """
    return _NUMBER.fullmatch(text) is not None


def numeric_columns(table: Table | Numbers) -> list[bool]:
    """Returns for each column whether most of its cells, missing ones apart, are numbers."""
    found = []
    for column in range(len(table.columns)):
        known = [row[column] for row in table.rows if not _MISSING.match(row[column])]
        found.append(sum(map(is_number, known)) > len(known) / 2)  # false of none
    return found


@cache
def _environment() -> Environment:
    made = make_environment("nicegnn_lab.report", "templates", "assets")
    made.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": False,
        "allow_nan": False,
    }
    made.globals |= {"numeric_columns": numeric_columns, "is_number": is_number}
    return made
