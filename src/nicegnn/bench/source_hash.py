"""A hash of the code that a result depends on, without comments, docstrings and layout."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "nicegnn"


@cache
def code_hash(module: str) -> str:
    """Returns a hash of the code of a module and of all modules of nicegnn that it imports.

    A changed number changes the hash, a changed comment does not. A module from outside nicegnn may
    be named too.
    """
    digest = hashlib.sha256()
    for name in sorted(imported_modules(module)):
        digest.update(f"{name}\n{plain_code(_source_of(name))}\n".encode())
    return digest.hexdigest()[:24]


def imported_modules(module: str) -> set[str]:
    """Returns a module and all modules of nicegnn that it imports, directly or indirectly.

    Imports inside functions and full names of modules in strings count, imports for type checkers
    do not.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_direct_imports(name))
    return found


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


@cache
def _direct_imports(module: str) -> frozenset[str]:
    tree = ast.parse(_source_of(module))
    return frozenset(name for node in _run_nodes(tree) for name in _named(node))


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes except those that only type checkers read."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _run_nodes(child)


def _named(node: ast.AST) -> Iterator[str]:
    """Yields the modules of nicegnn that one node names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_inner(alias.name))
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""  # nicegnn has no relative imports
        for alias in node.names if base == PACKAGE or _is_inner(base) else ():
            whole = f"{base}.{alias.name}"
            yield whole if _is_inner(whole) else base
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.partition(":")[0]
        if _is_inner(name):
            yield name


@cache
def _is_inner(name: str) -> bool:
    """Returns whether a module of this name is inside nicegnn."""
    if not name.startswith(f"{PACKAGE}."):
        return False
    inside = _root().joinpath(*name.split(".")[1:])
    return inside.with_suffix(".py").is_file() or (inside / "__init__.py").is_file()


def _root() -> Path:
    return _path_of(PACKAGE).parent


def _path_of(module: str) -> Path:
    loaded = getattr(sys.modules.get(module), "__file__", None)  # a script is `__main__`
    if loaded is not None:
        return Path(loaded)
    spec = None if module == "__main__" else find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin else Path()


@cache
def _source_of(module: str) -> str:
    """Returns the source of a module, empty where there is no file, as in a notebook."""
    path = _path_of(module)
    return path.read_text(encoding="utf-8") if path.suffix == ".py" else ""
