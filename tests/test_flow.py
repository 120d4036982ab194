"""The two houses: the product never names the laboratory, and in both all goes forward."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nicegnn
import nicegnn_lab

PRODUCT, LABORATORY = (Path(one.__path__[0]) for one in (nicegnn, nicegnn_lab))
#: Files of the root of the product, which all share.
SHARED = (*("errors", "config", "seeding", "progress", "store", "optimisation"),)
#: Packages in their order: each imports from those before it alone.
FLOW = {
    "nicegnn": (
        *("molecule", "graph", "target", "kernels", "intervention", "boundary", "attribution"),
        *("student", "explain", "pretrained", "screening", "page", "cli"),
    ),
    "nicegnn_lab": (
        *("datasets", "metrics", "rivals", "bench", "studies", "paper", "tables", "figures"),
        "cli",
    ),
}
NAME = re.compile(r"(nicegnn|nicegnn_lab)\b(?:\.(\w+))?")
CODE = re.compile(r"(?:^|[\n;])\s*(?:from|import) +([\w.]+)")  # imports in the text of a program


def named(path: Path) -> set[tuple[str, str]]:
    """Returns house and package of each import of a file, also inside functions and in text."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports without the name of its house"
            names = [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # a module that is named to be imported later, or a program that imports it
            names = CODE.findall(node.value) if " " in node.value else [node.value]
        else:
            continue
        found |= {(match[1], match[2] or "") for name in names if (match := NAME.match(name))}
    return found


@pytest.mark.parametrize("root", [PRODUCT, LABORATORY], ids=["product", "laboratory"])
def test_every_package_imports_only_from_those_before_it(root: Path) -> None:
    order = (*SHARED, *FLOW[root.name])
    place = {name: number for number, name in enumerate(order)}
    backward = [
        f"{path.relative_to(root)} imports {root.name}.{package}"
        for path in sorted(root.rglob("*.py"))
        if path.parent != root or path.stem in SHARED
        for house, package in named(path)
        if house == root.name
        and place.get(package, -1) > place[path.relative_to(root).parts[0].removesuffix(".py")]
    ]
    assert not backward


def test_the_product_never_names_the_laboratory() -> None:
    through = [path for path in PRODUCT.rglob("*.py") if "nicegnn_lab" in dict(named(path))]
    files = [path for kind in ("toml", "html", "js", "css") for path in PRODUCT.rglob(f"*.{kind}")]
    listed = [path for path in files if "nicegnn_lab" in path.read_text(encoding="utf-8")]
    assert [*through, *listed] == []


def test_every_file_belongs_to_a_stage() -> None:
    for root in (PRODUCT, LABORATORY):
        packages = {path.name for path in root.iterdir() if (path / "__init__.py").is_file()}
        assert packages == set(FLOW[root.name])
    assert {path.stem for path in PRODUCT.glob("*.py")} == {*SHARED, "__init__"}
    assert {path.stem for path in LABORATORY.glob("*.py")} == {"__init__"}


@pytest.mark.parametrize(
    "line",
    [
        "import nicegnn_lab",
        "from nicegnn_lab.bench.rows import pack",
        "def f():\n    from nicegnn_lab import bench",
        "where = 'nicegnn_lab.rivals.refine:ReFine'",
        "where = f'nicegnn_lab.rivals.{name}'",
        "run('-c', 'import torch; import nicegnn_lab')",
    ],
)
def test_imports_and_names_in_text_are_noticed(line: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(line)
    assert "nicegnn_lab" in dict(named(tmp_path / "file.py"))


def test_relative_imports_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("from .. import bench")
    with pytest.raises(AssertionError, match="without the name of its house"):
        named(tmp_path / "file.py")
