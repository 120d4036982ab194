"""A hash of the code that a result depends on, without comments, docstrings and layout."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("nicegnn", "nicegnn_lab")


@cache
def code_hash(module: str) -> str:
    """Returns a hash of the code of a module and of all modules of ours that it imports.

    A changed number changes the hash, a changed comment does not. A module from outside may be
    named too.
    """
    return _hash_of(imported_modules(module))


@cache
def own_hash(module: str) -> str:
    """Returns a hash of the code of a plugin and of modules of its own package that it imports.

    It is empty for a module of ours: versions of the runner, studies and defaults stand for its
    code in keys.
    """
    package = module.partition(".")[0]
    return "" if package in PACKAGES else _hash_of(imported_modules(module, (package,)))


def _hash_of(modules: set[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(f"{name}\n{plain_code(_source_of(name))}\n".encode())
    return digest.hexdigest()[:24]


def imported_modules(module: str, packages: tuple[str, ...] = PACKAGES) -> set[str]:
    """Returns a module and all modules of some packages that it imports, directly or indirectly.

    Imports inside functions and full names of modules in strings count, imports for type checkers
    do not.
    """
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_direct_imports(name, packages))
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
def _direct_imports(module: str, packages: tuple[str, ...]) -> frozenset[str]:
    tree = ast.parse(_source_of(module))
    return frozenset(n for node in _run_nodes(tree) for n in _named(node, module, packages))


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes except those that only type checkers read."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _run_nodes(child)


def _named(node: ast.AST, module: str, packages: tuple[str, ...]) -> Iterator[str]:
    """Yields the modules of some packages that one node of a module names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _is_inner(alias.name, packages))
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, module)
        for alias in node.names if base in packages or _is_inner(base, packages) else ():
            whole = f"{base}.{alias.name}"
            yield whole if _is_inner(whole, packages) else base
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value.partition(":")[0]
        if _is_inner(name, packages):
            yield name


def _absolute(node: ast.ImportFrom, module: str) -> str:
    """Returns the whole name of what a module imports from, such as ``..other``."""
    if not node.level:
        return node.module or ""
    steps = node.level - (_path_of(module).name == "__init__.py")
    above = module.split(".")[: -steps or None]
    return ".".join([*above, *filter(None, [node.module])])


@cache
def _is_inner(name: str, packages: tuple[str, ...]) -> bool:
    """Returns whether a module of this name is inside one of some packages."""
    package = name.partition(".")[0]
    if package not in packages or package == name:
        return False
    inside = _path_of(package).parent.joinpath(*name.split(".")[1:])
    return inside.with_suffix(".py").is_file() or (inside / "__init__.py").is_file()


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
