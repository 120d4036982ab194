"""The code of a plugin: what it computes counts, how it is explained does not."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nicegnn_lab.bench.source_hash import own_hash, plain_code

SOURCE = '''"""An explainer from outside."""

class Twice:
    """Twice the number of the edge."""

    def _edge_score(self, query, seed):
        """Returns scores."""
        return 2.0 * query.number  # twice
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    own_hash.cache_clear()


def hash_of(module: str) -> str:
    own_hash.cache_clear()
    importlib.invalidate_caches()
    return own_hash(module)


def test_words_do_not_count_and_numbers_do(outside: Path) -> None:
    path = outside / "twice_explainer.py"
    path.write_text(SOURCE)
    before = hash_of("twice_explainer")
    assert before
    for words in (
        SOURCE.replace("Twice the number", "Double the number").replace("  # twice", ""),
        SOURCE.replace('        """Returns scores."""\n', ""),
        SOURCE.replace("2.0 * query.number", "2.0  *  (query.number)"),
    ):
        path.write_text(words)
        assert hash_of("twice_explainer") == before
    path.write_text(SOURCE.replace("2.0", "3.0"))
    assert hash_of("twice_explainer") != before
    assert "twice_explainer" not in sys.modules  # it is read, not imported


def test_all_files_of_a_plugins_package_count_and_ours_do_not(outside: Path) -> None:
    package = outside / "own_package"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text("a = 1\n")
    (package / "deep" / "second.py").write_text("b = 2\n")
    before = hash_of("own_package.first")
    (package / "deep" / "second.py").write_text("b = 3\n")
    assert hash_of("own_package.first") != before
    assert hash_of("nicegnn.explain.opinions.saliency") == hash_of("nicegnn_lab.rivals") == ""


def test_docstrings_of_all_kinds_are_left_out() -> None:
    code = 'class A:\n    "a"\n    async def f(self):\n        "f"\n        return "kept"\n'
    bare = 'class A:\n    async def f(self):\n        return "kept"\n'
    assert plain_code(code) == plain_code(bare)
    assert plain_code(bare) != plain_code(bare.replace("kept", "other"))
