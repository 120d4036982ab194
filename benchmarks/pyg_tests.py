"""PyG's own tests of GNNExplainer and CaptumExplainer, with NICE in their place.

    python benchmarks/pyg_tests.py --tests pytorch_geometric/test/explain --out pyg_tests.json

The tests of a checkout of PyG are copied, each of its explainers is replaced by `NICEAlgorithm`,
and lines that look into GNNExplainer are left out. What passed is counted, with masks of edges
alone and with all masks; what did not is named, with the first words of the error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import torch_geometric

from nicegnn.store import write_json

FILES = ("test_gnn_explainer.py", "test_captum_explainer.py")
_OURS = "from nicegnn.explain.pyg_adapter import NICEAlgorithm\n"
_INTERNAL = re.compile(r"^ +assert explainer\.algorithm\.\w+ is None\n", re.MULTILINE)
_THEIRS = re.compile(r"\b(?:GNNExplainer\(epochs=\d+\)|CaptumExplainer\([^()]*\))")


def swapped(text: str, edges: bool) -> str:
    """Returns the text of a test file with NICE in place of PyG's explainer."""
    text = _THEIRS.sub("NICEAlgorithm()", _INTERNAL.sub("", text))
    if edges:
        text = re.sub(r"node_mask_types = \[[^\]]*\]", "node_mask_types = [None]", text)
        text = text.replace(
            "edge_mask_types = [MaskType.object, None]", "edge_mask_types = [MaskType.object]"
        )
    return _OURS + text


def run(tests: Path, edges: bool) -> dict[str, object]:
    """Runs the swapped tests, and returns how many passed and why others did not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(tests / "conftest.py", folder)
        for file in FILES:
            text = (tests / "algorithm" / file).read_text(encoding="utf-8")
            (folder / file).write_text(swapped(text, edges), encoding="utf-8")
        report = folder / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
        subprocess.run([*command, f"--junitxml={report}", "."], cwd=folder, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase")
        counted: dict[str, Counter[str]] = {}
        reasons: Counter[str] = Counter()
        for case in cases:
            problem = next((one for one in case if one.tag in ("failure", "error")), None)
            outcome = "skipped" if case.find("skipped") is not None else "passed"
            if problem is not None:
                outcome = "failed"
                test = str(case.get("name")).partition("[")[0]
                reasons[f"{test}: {(problem.get('message') or '').splitlines()[0][:160]}"] += 1
            counted.setdefault(str(case.get("classname")).split(".")[-1], Counter())[outcome] += 1
    return {"counts": {k: dict(v) for k, v in counted.items()}, "failed": dict(reasons)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=Path, required=True, help="test/explain of a checkout")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = {"edges": run(options.tests, True), "all masks": run(options.tests, False)}
    write_json(options.out, {"pyg": torch_geometric.__version__, **found})


if __name__ == "__main__":
    main()
