"""What visitors may ask for: kind errors for what cannot be read or is too large."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from nicegnn.errors import ConfigError
from nicegnn.page.asking import (
    Limits,
    PageError,
    Sent,
    Shelf,
    explain_sent,
    find_record,
    graph_within,
    read_sent,
    typed_record,
)
from nicegnn.pretrained import NAMES
from nicegnn.screening.loading import ModelConfig
from nicegnn.screening.reading import Record

pytest.importorskip("rdkit", reason="needs RDKit")


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


@pytest.mark.parametrize(
    ("text", "words"), [("", "Type a SMILES"), ("  \n ", "Type a SMILES"), ("C\nCC", "got 2 lines")]
)
def test_typed_text_must_be_one_smiles(text: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        typed_record(text)


@pytest.mark.parametrize(
    ("smiles", "words"),
    [
        ("c1ccccc", "unclosed ring"),
        ("C" * 30, r"at most 20 atoms \(got 30\)"),
        ("C" * 90, r"at most 80 letters \(got 90\)"),
    ],
)
def test_molecule_must_be_readable_and_small(shelf: Shelf, smiles: str, words: str) -> None:
    with pytest.raises(PageError, match=words):
        graph_within(typed_record(smiles), shelf["benzene"], Limits(atoms=20, letters=80))


def test_limits_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="`atoms` must be at least 1"):
        Limits(atoms=0)


@pytest.mark.parametrize(
    ("name", "content", "column", "words"),
    [
        ("a.csv", "", "", "a.csv is empty"),
        ("a.csv", "smiles\n", "", "at least one molecule"),
        ("a.csv", "name,mass\na,1\n", "", r"column of SMILES.*'name', 'mass'.*in the box above"),
        ("a.csv", "smiles,mass\nC,1\n", "weight", r"no column 'weight'; it has 'smiles', 'mass'"),
        ("a.pkl", "x", "", r"must end in .csv, .tsv, .smi, .sdf \(got 'a.pkl'\)"),
        ("a.csv.gz", "x", "", "must end in"),
        ("a.smi", "C" * (2**20 + 1), "", "at most 1 MB"),
    ],
)
def test_file_that_cannot_be_taken_is_told_kindly(
    tmp_path: Path, name: str, content: str, column: str, words: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(PageError, match=words) as caught:
        read_sent(path, column, Limits(megabytes=1))
    assert str(tmp_path) not in str(caught.value)  # a visitor knows the file by its name


def test_only_so_many_molecules_are_taken_and_names_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Name,smiles\nmethane,C\nethane,CC\npropane,CCC\n")
    sent = read_sent(path, "", Limits(molecules=2))
    assert [record.id for record in sent.records] == ["methane", "ethane"]
    assert sent.note == "Only the first 2 molecules were taken."
    assert find_record(sent.records, 2).smiles == "CC"
    with pytest.raises(PageError, match="row 3"):
        find_record(sent.records, 3)


def test_molecules_beyond_the_limits_are_rejected_with_the_reason(shelf: Shelf) -> None:
    records = [Record(n, str(n), s, {}) for n, s in enumerate(("CCO", "xx", "C" * 30), start=1)]
    seen: list[tuple[int, int]] = []
    tables = explain_sent(
        Sent("a.csv", tuple(records)),
        shelf["benzene"],
        Limits(atoms=20),
        tell=lambda done, total: seen.append((done, total)),
    )
    assert tables["molecules"]["id"] == ["1"]
    assert tables["rejects"]["id"] == ["2", "3"]
    assert "at most 20 atoms" in tables["rejects"]["reason"][1]
    assert seen[-1][1] == 3


def test_file_ends_when_its_time_is_over(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 99.0])  # start, first part, second part
    monkeypatch.setattr("nicegnn.page.asking.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("nicegnn.page.asking._TOGETHER", 1)
    records = tuple(Record(n, str(n), "CCO", {}) for n in (1, 2))
    tables = explain_sent(Sent("a.csv", records), shelf["benzene"], Limits(seconds=10))
    assert tables["molecules"]["row"] == [1]
    assert tables["rejects"]["reason"] == ["The time of 10 s was over. Use `nicegnn explain`."]


def test_model_is_loaded_once_for_all_threads() -> None:
    shelf = Shelf()
    with ThreadPoolExecutor(4) as pool:
        found = {id(one) for one in pool.map(lambda _: shelf["benzene"], range(8))}
    assert len(found) == 1
    with pytest.raises(ConfigError, match="model"):
        shelf["nosuch"]


def test_model_of_the_command_line_comes_first() -> None:
    shelf = Shelf(ModelConfig(model="logp", explainer="occlusion"))
    assert shelf.first == "logp"
    assert shelf.names == NAMES
    assert shelf["logp"].explainer.name == "occlusion"
    assert shelf.card("logp").task == "regression"


def test_model_of_a_file_stands_beside_one_of_the_same_name() -> None:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        shelf = Shelf(ModelConfig(model=str(path)))
    assert shelf.names == ("benzene.safetensors", *NAMES)
    assert shelf.first == "benzene.safetensors"
    assert shelf[shelf.first] is not shelf["benzene"]
