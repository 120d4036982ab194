"""``nicegnn serve``: words that cannot be used, and missing packages."""

from __future__ import annotations

import subprocess
import sys


def serve(*words: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    code = f"import sys; {before}; from nicegnn.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "serve", *words], capture_output=True, text=True, check=False
    )


def test_missing_fastapi_is_one_line_with_the_command_that_installs_it() -> None:
    done = serve(before="sys.modules['fastapi'] = None")
    assert done.returncode == 1
    assert "pip install 'nicegnn[page]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_rdkit_is_told_before_the_page_is_there() -> None:
    done = serve(before="sys.modules['rdkit'] = None")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("pip install 'nicegnn[molecules]'") == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_model_that_comes_along_keeps_its_featuriser() -> None:
    done = serve("--featurizer", "pyg")
    assert done.returncode == 2
    assert "`featurizer` must be left out for mutagenicity" in done.stderr
