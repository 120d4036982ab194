"""Pages from Jinja templates: all that is told is escaped."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> str:
    """Returns a page of the folder ``page``; ``asset(name)`` in it stands for a style or script."""
    folder = files("nicegnn.screening") / "page"
    made = Environment(
        loader=PackageLoader("nicegnn.screening", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["asset"] = lambda name: Markup((folder / name).read_text(encoding="utf-8"))
    return made.get_template(template).render(**values)
