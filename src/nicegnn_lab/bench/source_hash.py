"""A hash of a plugin's code, without comments, docstrings and layout."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("nicegnn", "nicegnn_lab")


@cache
def own_hash(module: str) -> str:
    """Returns a hash of the code of a plugin: of its file, or of all files of its package.

    It is empty for a module of ours: versions of the runner, studies and defaults stand for its
    code in keys.
    """
    package = module.partition(".")[0]
    return "" if package in PACKAGES else _hash_of(_files_of(package) or _files_of(module))


def plain_code(source: str) -> str:
    """Returns code without comments, docstrings and layout.

    Example:
        >>> plain_code("x = 1  # one") == plain_code("x  =  1")
        True
    """
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def _hash_of(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\n{plain_code(path.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()[:24]


def _files_of(module: str) -> list[Path]:
    """Returns the file of a module, or all of a package; none in a notebook."""
    place = getattr(sys.modules.get(module), "__file__", None)  # a script is `__main__`
    if place is None and module != "__main__":
        spec = find_spec(module)
        place = None if spec is None else spec.origin
    if place is None or not place.endswith(".py"):
        return []
    path = Path(place)
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
