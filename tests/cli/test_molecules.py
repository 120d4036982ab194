"""Commands for molecules, as a user types them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nicegnn.cli.main import main
from nicegnn.screening import run as screening
from nicegnn_lab.datasets.generator import generate_smiles
from tests.lab.own_names import names_restored
from tests.screening.small_screen import labelled_csv, write_csv

PLUGIN = """
import torch
from nicegnn import register_explainer
from nicegnn.explain.explainer import ScoreExplainer

@register_explainer("Bonds at atoms with few neighbours.", cost="none")
class Lonely(ScoreExplainer):
    name = "lonely-for-test"
    mechanisms = ()

    def _edge_score(self, query, seed):
        sender, receiver = query.case.batch.edge_index
        return 1 / torch.bincount(receiver)[sender]
"""
Call = Callable[..., tuple[int, str, str]]
SMALL = ("--epochs", "3", "--hidden-size", "8", "--featurizer", "elements", "--split", "random")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Types a command in an empty folder; returns its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nicegnn", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int)
        assert "Traceback" not in shown.err
        return code, shown.out, shown.err

    return typed


def test_one_molecule_right_after_installation(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("explain", "CC(=O)Nc1ccc(O)cc1")
    assert code == 0
    assert "Model mutagenicity" in out
    assert re.search(r"prediction: (not )?mutagenic \(\d+%\)", out)
    assert re.search(r"C\d+-\w\d+ +0\.\d+  \w+, \w+", out)
    assert re.search(
        r"trust: In about \d+ of 100 such cases .*the best bond is a true one: (look|do)", out
    )
    assert "picture: explained.svg" in out
    assert (tmp_path / "explained.svg").read_text().startswith("<svg")


def test_each_molecule_has_its_picture_and_rejects_have_code_three(
    call: Call, tmp_path: Path
) -> None:
    code, out, err = call("explain", "c1ccccc1C", "C1C(", "--model", "benzene")
    assert code == 3
    assert "nearest training molecule" in out
    assert [path.name for path in tmp_path.iterdir()] == ["explained-1.svg"]
    assert "RDKit can read" in err
    code, _, _ = call("explain", "C1C(")
    assert code == 1
    code, out, _ = call("explain", "C", "--model", "benzene")
    assert code == 0
    assert "nan" not in out.lower()
    code, _, err = call("explain", "")
    assert (code, err) == (1, "The SMILES is empty. Type one, such as CCO.\n")


def test_file_to_folder_and_summary(call: Call, tmp_path: Path) -> None:
    write_csv(tmp_path / "mols.csv", ["who", "smi"], [["a", "Cc1ccccc1"], ["b", "CCO"]])
    words = ("explain", "mols.csv", "--model", "benzene", "--id-column", "who", "-q")
    code, out, _ = call(*words, "--out", "one", "--substructure", "alcohol", "--gallery", "0")
    assert code == 0
    assert "2 of 2 molecules explained." in out
    assert not (tmp_path / "one" / "gallery.html").exists()
    told = json.loads((tmp_path / "one" / "run.json").read_text())
    assert told["settings"]["output"]["substructure"] == ["alcohol"]
    code, out, _ = call("summary", "one", "--min-molecules", "1")
    assert code == 0
    assert "benzene ring, benzene ring: 1 molecules" in out


def test_train_replaces_no_model(call: Call, tmp_path: Path) -> None:
    labelled_csv(tmp_path, 60)
    assert call("train", "labelled.csv", "-y", "label", "-q", *SMALL)[0] == 0
    again = call("train", "labelled.csv", "-y", "label", "-q", *SMALL)
    assert again[0] == 2
    assert "model.safetensors, which exists). Name another, or delete it." in again[2]


def test_stopped_command_says_how_to_go_on(call, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    write_csv(tmp_path / "mols.csv", ["smiles"], [["CCO"]])
    monkeypatch.setattr(screening, "explain_rows", stop)
    code, _, err = call("explain", "mols.csv", "--model", "benzene", "--out", "out", "-q")
    assert code == 130
    assert "the same command goes on" in err
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["run.json"]


@pytest.mark.parametrize(
    ("words", "package", "told"),
    [
        (("explain", "CCO"), "rdkit", "Error: RDKit is needed.*pip install 'nicegnn.molecules.'"),
        (("serve",), "rdkit", "Error: RDKit is needed.*pip install 'nicegnn.molecules.'"),
        (("serve",), "fastapi", "Install it with `pip install 'nicegnn.page.'`"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    words: tuple[str, ...], package: str, told: str
) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from nicegnn.cli.main import main; main()"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(told, done.stderr)
    assert len(done.stderr.splitlines()) == 1


def test_explainer_of_a_plugin(call: Call, tmp_path: Path) -> None:
    plugin = tmp_path / "own_lonely.py"
    plugin.write_text(PLUGIN)
    words = ("explain", "CCO", "--model", "benzene", "--explainer", "lonely-for-test")
    assert call(*words)[0] == 2
    with names_restored():
        code, out, _ = call(*words, "--plugin", "own_lonely.py")
        assert code == 0
        assert "Explained by lonely-for-test, without a fit." in out
        assert re.search(r"C0-C1 +0\.\d+", out)
        assert call(*words, "--plugin", "own_lonely.py", "--out", "x", "-q")[0] == 0
    plugin.write_text(PLUGIN.replace("1 /", "2 /"))
    screening.load_once.cache_clear()  # as in a new process
    with names_restored():
        code, _, err = call(*words, "--plugin", "own_lonely.py", "--out", "x", "-q")
        assert (code, "another run (other explainer)" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain",), "SMILES in quotes or a file"),
        (("explain", "none.csv", "--out", "x"), "none.csv does not exist"),
        (("explain", "mols.csv"), "`--out` must name a folder"),
        (("explain", "mols.csv", "CCO", "--out", "x"), "must be one file"),
        (("explain", "mols.csv", "--out", "x", "--smiles-column", "y"), "it has 'who', 'smiles'"),
        (("explain", "CCO", "--model", "nope"), "'benzene', 'mutagenicity', 'logp'"),
        (("explain", "CCO", "--explainer", "nope"), "'pgexplainer'"),
        (("explain", "CCO", "--substructure", "nope"), "NAME=SMARTS"),
        (("serve", "--featurizer", "elements"), "`featurizer` must be left out for mutagenicity"),
        (("explain", "CCO", "--device", "tpu"), "`device` must be cpu, or cuda where there is"),
        (("train", "mols.csv", "-y", "who", "--device", "tpu"), "`device` must be cpu"),
        (("explain", "bad.csv.gz", "--out", "x"), "bad.csv.gz cannot be read (Not a gzipped file"),
        (("explain", "twice.csv", "--out", "x"), "twice.csv must have one column 'smiles'"),
        (("explain", "mols.csv", "--out", "x", "--format", "xml"), "'csv', 'parquet'"),
        (("explain", "empty.csv", "--out", "x"), "empty.csv is empty"),
        (("train", "mols.csv"), "`--label` must be one of ('who', 'smiles')"),
        (
            ("train", "mols.csv", "-y", "z"),
            "no column 'z' beside those of SMILES and names; it has 'who'",
        ),
        (("summary",), "`FOLDER` must be one of `nicegnn explain` (got none)"),
        (("summary", "mols.csv"), "(got mols.csv). Try: nicegnn explain"),
        (("train", "mols.csv", "-y", "smiles"), "no column 'smiles' beside those of SMILES"),
        (("models", "nope"), "'benzene', 'mutagenicity', 'logp'"),
    ],
)
def test_wrong_words_are_one_line_with_code_two(  # type: ignore[no-untyped-def]
    call, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    write_csv(tmp_path / "mols.csv", ["who", "smiles"], [["a", "CCO"]])
    write_csv(tmp_path / "twice.csv", ["smiles", "smiles"], [["CCO", "CCC"]])
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bad.csv.gz").write_bytes(b"x")
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert expected in err
    assert not (tmp_path / "x").exists()


def test_labels_share_a_model_and_are_named_after_its_file(call: Call, tmp_path: Path) -> None:
    smiles = generate_smiles(60)
    rows: list[list[object]] = [[s, "O" in s, int("N" in s)] for s in smiles]
    write_csv(tmp_path / "two.csv", ["smiles", "oxygen, all", "is N"], rows)
    code, out, _ = call("train", "two.csv", "-y", "oxygen, all", "-y", "is N", "-q", *SMALL)
    assert code == 0
    assert "model:oxygen, all: oxygen, all of two.csv (accuracy" in out
    assert "--model 'model.safetensors:oxygen, all'" in out
    code, out, _ = call("explain", "CCO", "--model", "model.safetensors:is N")
    assert code == 0
    assert re.search(r"prediction: (not )?is N \(", out)


def test_rows_alone_are_written_and_go_on(call: Call, tmp_path: Path) -> None:
    rows: list[list[object]] = [["a", "CCO"], ["b", "C1CC("], ["c", "CCN"]]
    write_csv(tmp_path / "in.csv", ["id", "smiles"], rows)
    given = ("explain", "in.csv", "--model", "benzene", "--out", "out", "-q", "--format", "rows")
    code, out, err = call(*given)
    assert code == 3
    assert "2 of 3 molecules explained." in out
    assert "rejects.csv says why" in err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"shards", "rejects.csv", "run.json"}
    assert call(*given, "--seed", "1")[0] == 2
    code, out, _ = call(*given[:-2])
    assert code == 3
    assert "(3 by an earlier run)" in out
    code, out, _ = call("summary", "out", "--min-molecules", "1")
    assert code == 0
    assert "alcohol, no benzene ring: " in out
