"""The flow of the house: every package imports only from those before it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nicegnn

ROOT = Path(nicegnn.__file__).parent
SHARED = (
    "errors",
    "plugins",
    "config",
    "seeding",
    "progress",
    "store",
    "optimisation",
    "cluster",
)  # files of the root
FLOW = (
    *(
        "molecule",
        "graph",
        "target",
        "kernels",
        "intervention",
        "boundary",
        "attribution",
        "student",
        "explain",
        "rivals",
    ),
    *("datasets", "metrics", "pretrained", "screening", "page"),
    *("bench", "studies", "paper", "tables", "figures", "report", "cli"),
)
NAME = re.compile(r"nicegnn\.(\w+)")


def used(path: Path) -> set[str]:
    """Returns the packages that a file names: imports anywhere in it, and dotted names in text."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (
                [node.module]
                if node.module != "nicegnn"
                else [f"nicegnn.{a.name}" for a in node.names]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value
        ):
            names = [node.value]  # a module that is named to be imported later
        else:
            continue
        found |= {match[1] for name in names if (match := NAME.match(name))}
    return found & {*SHARED, *FLOW}


def test_every_package_imports_only_from_those_before_it() -> None:
    place = {name: number for number, name in enumerate((*SHARED, *FLOW))}
    backward = [
        f"{path.relative_to(ROOT)} imports nicegnn.{name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.parent != ROOT or path.stem in SHARED
        for name in used(path)
        if place[name] > place[path.relative_to(ROOT).parts[0].removesuffix(".py")]
    ]
    assert not backward


def test_every_file_belongs_to_a_stage() -> None:
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    files = {path.stem for path in ROOT.glob("*.py")}
    assert packages == set(FLOW)
    assert files == {*SHARED, "__init__"}
