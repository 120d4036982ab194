"""Griffe extension: what the code says of itself, as Markdown.

Formulas of docstrings are shown as LaTeX source, so that pages need no script; examples become
blocks of code; and the comment behind a field of a class is its description.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_BLOCK = re.compile(r"^\.\. math::[ ]?(.*(?:\n[ ]+\S.*)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:math|class):`([^`]+)`")
_EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n\1\S.*)*", re.MULTILINE)
_COMMENT = re.compile(r"\s#\s+(?!noqa|type:)(\S.*)$")


class DocstringMarkup(Extension):
    """Rewrites docstrings, and makes those of fields from the comments behind them."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _BLOCK.sub(_as_code, obj.docstring.value)
            text = _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", text)
            obj.docstring.value = _ROLE.sub(r"`\1`", text)

    def on_attribute(self, *, attr: Attribute, **_: Any) -> None:
        is_field = attr.parent is not None and attr.parent.is_class and attr.lineno is not None
        if attr.docstring is None and is_field and not attr.name.startswith("_"):
            found = _COMMENT.search(attr.lines_collection[attr.filepath][attr.endlineno - 1])
            if found is not None:
                words = found[1].rstrip(".") + "."
                if words.partition(" ")[0].isalpha():  # a word, not a symbol
                    words = words[0].upper() + words[1:]
                attr.docstring = Docstring(words, lineno=attr.lineno, parent=attr)


def _as_code(found: re.Match[str]) -> str:
    lines = "\n".join(line.strip() for line in found[1].splitlines())
    return f"```latex\n{lines}\n```"
