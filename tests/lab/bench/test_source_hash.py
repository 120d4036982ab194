"""The code behind a score: what it computes counts, how it is explained does not."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nicegnn
from nicegnn_lab.bench import source_hash
from nicegnn_lab.bench.source_hash import code_hash, imported_modules, own_hash, plain_code

SOURCE = '''"""An explainer from outside."""

from nicegnn.explain.score_explainer import ScoreExplainer  # what all rivals share


class Twice(ScoreExplainer):
    """Twice the number of the edge."""

    def _edge_score(self, query, seed):
        """Returns scores."""
        return 2.0 * query.number
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module `twice_explainer` that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "twice_explainer.py"
    sys.modules.pop("twice_explainer", None)
    forget()


def forget() -> None:
    for cached in (code_hash, own_hash, source_hash._source_of, source_hash._direct_imports):
        cached.cache_clear()
    source_hash._is_inner.cache_clear()
    importlib.invalidate_caches()


def hash_of(path: Path, source: str) -> str:
    path.write_text(source)
    forget()
    return code_hash(path.stem)


def test_words_do_not_count_and_numbers_do(outside: Path) -> None:
    before = hash_of(outside, SOURCE)
    words = SOURCE.replace("Twice the number", "Double the number").replace("  # what all", "  # W")
    assert hash_of(outside, words) == before
    assert hash_of(outside, SOURCE.replace('        """Returns scores."""\n', "")) == before
    assert (
        hash_of(outside, SOURCE.replace("2.0 * query.number", "2.0  *  (query.number)")) == before
    )
    assert hash_of(outside, SOURCE.replace("2.0", "3.0")) != before
    assert hash_of(outside, SOURCE.replace("query.number", "query.slot")) != before
    assert hash_of(outside, SOURCE) == before


def test_an_explainer_from_outside_counts_with_its_own_source(outside: Path) -> None:
    outside.write_text(SOURCE)
    forget()
    found = imported_modules("twice_explainer")
    assert {
        "twice_explainer",
        "nicegnn.explain.score_explainer",
        "nicegnn.intervention.query",
    } <= found
    assert not any(name.startswith(("nicegnn_lab.bench", "nicegnn_lab.report")) for name in found)
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nicegnn.page.app\n"
    outside.write_text(SOURCE + typed)
    forget()
    assert imported_modules("twice_explainer") == found  # what only type checkers read
    short = SOURCE.replace(
        "from nicegnn.explain.score_explainer import", "from nicegnn import NICE as"
    )
    outside.write_text(short)
    forget()
    assert "nicegnn.explain.nice" in imported_modules("twice_explainer")


def test_a_plugin_counts_with_its_own_package_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "own_package"
    (package / "deep").mkdir(parents=True)
    files = {
        "__init__.py": "from .first import c\n",
        "first.py": "from . import second\nfrom .deep.third import c\nfrom nicegnn import NICE\n",
        "second.py": "b = 2\n",
        "deep/__init__.py": "",
        "deep/third.py": "from ..fourth import d\nc = 3\n",
        "fourth.py": "d = 4\n",
        "unused.py": "e = 5\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        forget()
        found = imported_modules("own_package.first", "own_package")
        names = ("first", "second", "deep.third", "fourth")
        assert found == {f"own_package.{name}" for name in names}
        before = own_hash("own_package.first")
        (package / "unused.py").write_text("e = 6\n")
        forget()
        assert own_hash("own_package.first") == before
        (package / "fourth.py").write_text("d = 5\n")
        forget()
        assert own_hash("own_package.first") != before
    finally:
        forget()
    assert own_hash("nicegnn.explain.opinions.saliency") == ""


def copied_package(tmp_path: Path) -> Path:
    """A copy of the package that can be changed."""
    root = Path(nicegnn.__file__).parent
    shutil.copytree(root, tmp_path / "nicegnn", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "nicegnn"


def test_a_rival_counts_with_what_it_imports_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy: a docstring changes no hash, a number those that depend on it."""
    root = copied_package(tmp_path)
    path_of = source_hash._path_of
    monkeypatch.setattr(
        source_hash,
        "_path_of",
        lambda name: path_in(root, name) if name.startswith("nicegnn.") else path_of(name),
    )
    names = (
        "nicegnn.explain.opinions.saliency",
        "nicegnn.explain.nice",
        "nicegnn_lab.bench.row_tables",
    )
    try:
        forget()
        before = [code_hash(name) for name in names]
        gates = root / "boundary" / "gate_network.py"
        gates.write_text('"""Other words."""\n' + gates.read_text().split('"""', 2)[2])
        forget()
        assert [code_hash(name) for name in names] == before
        gates.write_text(gates.read_text() + "\nSHARPNESS = 3\n")
        forget()
        after = [code_hash(name) for name in names]
        assert [one == other for one, other in zip(before, after, strict=True)] == [
            True,
            False,
            True,
        ]
    finally:
        forget()


def path_in(root: Path, name: str) -> Path:
    inside = root.joinpath(*name.split(".")[1:])
    package = inside / "__init__.py"
    return package if package.is_file() else inside.with_suffix(".py")


def test_docstrings_of_all_kinds_are_left_out() -> None:
    code = 'class A:\n    "a"\n    async def f(self):\n        "f"\n        return "kept"\n'
    bare = 'class A:\n    async def f(self):\n        return "kept"\n'
    assert plain_code(code) == plain_code(bare)
    assert plain_code(bare) != plain_code(bare.replace("kept", "other"))
    assert plain_code('def f():\n    "alone"\n') == plain_code('def f():\n    "other"\n')
