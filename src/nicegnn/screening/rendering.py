"""Pages from Jinja templates: one base for all of them, all that is told is escaped."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_OWN = "nicegnn.screening"


def render(template: str, **values: Any) -> str:
    """Returns a page of this package; plain text in the values is escaped."""
    return make_environment(_OWN, "page", "page").get_template(template).render(**values)


@cache
def make_environment(package: str, templates: str, assets: str) -> Environment:
    """Returns what renders the templates in a folder of a package, and ``base.html``.

    ``asset(name)`` in a template puts a style sheet or script of the folder `assets` into the page.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, templates), PackageLoader(_OWN, "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["asset"] = lambda name: Markup(
        (files(package) / assets / name).read_text(encoding="utf-8")
    )
    return made
