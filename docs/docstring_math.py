"""Griffe extension: formulas of docstrings are shown as LaTeX source, without any script."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_BLOCK = re.compile(r"^\.\. math::[ ]?(.*(?:\n[ ]+\S.*)*)", re.MULTILINE)
_ROLE = re.compile(r":math:`([^`]+)`")


class DocstringMath(Extension):
    """Turns ``.. math::`` into a block of code and ``:math:`` into code in a line."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _BLOCK.sub(_as_code, obj.docstring.value)
            obj.docstring.value = _ROLE.sub(r"`\1`", text)


def _as_code(found: re.Match[str]) -> str:
    lines = "\n".join(line.strip() for line in found[1].splitlines())
    return f"```latex\n{lines}\n```"
