"""A run: one row per molecule, the same bits whatever the shards, and a stop loses nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import shards
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE
from nicegnn.pretrained import Pretrained, load
from nicegnn.screening import run as module
from nicegnn.screening.engines import Block
from nicegnn.screening.explaining import explain_rows
from nicegnn.screening.gallery import trust_of
from nicegnn.screening.reading import Reader, Record, TypedSmiles
from nicegnn.screening.run import run
from nicegnn.screening.settings import ModelConfig, RunConfig
from nicegnn.screening.tables import read_table
from tests.screening.small_screen import write_csv

SMILES = ["c1ccccc1CC(=O)N", "CCCCC", "C1CC(", "", "[Na+]", "Cc1ccncc1", "OCC(N)C1CCCCC1", "CO"]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    rows: list[list[object]] = [[f"m{n}", smiles, f"{n} mg"] for n, smiles in enumerate(SMILES)]
    return Reader(write_csv(tmp_path / "in.csv", ["id", "smiles", "dose"], rows))


@pytest.fixture
def config(model_file: Path) -> RunConfig:
    return RunConfig(shard_size=2, model=ModelConfig(model=str(model_file)))


def read(out: Path) -> list[dict[str, Any]]:
    paths = sorted((out / "shards").glob("*.parquet"))
    return [row for path in paths for row in read_table(path)]


def test_every_record_has_one_row_with_what_the_explainer_says(
    reader: Reader, config: RunConfig, subject: Pretrained, tmp_path: Path
) -> None:
    found = run(reader, config, tmp_path / "out")
    rows = read(tmp_path / "out")
    assert [row["id"] for row in rows] == [f"m{n}" for n in range(len(SMILES))]
    assert [row["dose"] for row in rows] == [f"{n} mg" for n in range(len(SMILES))]
    assert [row["row"] for row in rows if row["reason"] is not None] == [3, 4]
    assert rows[2]["bond_score"] is rows[2]["prediction"] is None
    assert rows[4]["status"] == "no edges"
    assert isinstance(subject.explainer, NICE)
    one = subject.explainer.explain(subject.featurizer(SMILES[0]), seed=0)
    assert one.atom_score is not None
    assert one.trust is not None
    assert rows[0]["bond_score"] == pytest.approx(one.bond_score.tolist(), abs=1e-5)
    assert rows[0]["atom_score"] == pytest.approx(one.atom_score.tolist(), abs=1e-5)
    assert [rows[0]["atom_a"], rows[0]["atom_b"]] == one.bond_index.tolist()
    assert rows[0]["verdict"] == one.trust.verdicts[0]
    assert rows[0]["chance"] == pytest.approx(float(one.trust.chance), abs=1e-4)
    best = int(one.prediction[0].argmax())
    assert rows[0]["prediction"] == subject.card.classes[best]
    assert rows[0]["probability"] == pytest.approx(float(one.prediction[0, best].exp()))
    assert (found.num_explained, found.num_rejected, len(shards(tmp_path / "out"))) == (6, 2, 4)
    text = (tmp_path / "out/rejects.csv").read_text().splitlines()
    assert text[0] == "row,id,smiles,reason,dose"
    assert [line.split(",")[1] for line in text[1:]] == ["m2", "m3"]


def test_each_row_says_how_near_it_is_to_the_training_molecules(subject: Pretrained) -> None:
    assert subject.domain is not None
    records = [Record(n, str(n), s, {}) for n, s in enumerate(("N[Pt](N)(Cl)Cl", "Cc1ccccc1"))]
    far, near = explain_rows(records, subject, RunConfig())
    assert "no training molecule holds Pt" in far["applicability"]
    assert far["similarity"] < subject.domain.usual <= near["similarity"]
    subject = Pretrained(subject.model, subject.explainer, subject.featurizer, subject.card)
    for row in explain_rows(records, subject, RunConfig()):
        assert row["applicability"] == "not known"
        assert math.isnan(row["similarity"])


def test_a_molecule_that_the_explainer_refuses_does_not_stop_the_others(
    subject: Pretrained, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = subject.explainer.explain

    def refuse(graphs: Any, **words: Any) -> Any:
        if any(graph.smiles == "CCCCC" for graph in graphs):
            raise RuntimeError("too long")
        return whole(graphs, **words)

    monkeypatch.setattr(subject.explainer, "explain", refuse)
    records = [Record(n, str(n), smiles, {}) for n, smiles in enumerate(SMILES[:2])]
    fine, bad = explain_rows(records, subject, RunConfig())
    assert fine["reason"] is None
    assert "RuntimeError: too long" in bad["reason"]


def test_only_missing_and_damaged_shards_are_explained_again(
    reader: Reader, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(reader, config, tmp_path / "whole")
    out, firsts = tmp_path / "out", []

    def watched(records: Any, *args: Any, **words: Any) -> Any:
        firsts.append(records[0].row)
        if len(firsts) == 3:
            raise KeyboardInterrupt
        return explain_rows(records, *args, **words)

    monkeypatch.setattr(module, "explain_rows", watched)
    with pytest.raises(KeyboardInterrupt):
        run(reader, config, out)
    names = sorted(path.name for path in (out / "shards").iterdir())
    assert names == ["000000.parquet", "000001.parquet"]
    whole = out / "shards" / "000000.parquet"
    whole.write_bytes(whole.read_bytes()[:-9])  # as after a power cut
    (out / "shards" / ".000003.parquet.x.part").write_bytes(b"half")
    found = run(reader, config, out)
    assert firsts[3:] == [1, 5, 7]
    assert found.resumed == 2
    assert shards(out) == shards(tmp_path / "whole")
    assert not list((out / "shards").glob(".*"))
    monkeypatch.setattr(module, "do_all", None)  # nothing is left to do
    assert run(reader, config, out).resumed == len(SMILES)


def test_two_processes_may_write_the_same_run(
    reader: Reader, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(reader, config, tmp_path / "whole")
    out = tmp_path / "out"

    def overtaken(records: Any, *args: Any, **words: Any) -> Any:
        if records[0].row == 5:  # another process begins now, and ends first
            monkeypatch.setattr(module, "explain_rows", explain_rows)
            assert run(reader, config, out).num_explained == 6
        return explain_rows(records, *args, **words)

    monkeypatch.setattr(module, "explain_rows", overtaken)
    assert run(reader, config, out).num_explained == 6
    assert shards(out) == shards(tmp_path / "whole")


def test_results_of_another_run_are_not_mixed_in(
    reader: Reader, config: RunConfig, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(reader, config, out)
    with pytest.raises(ConfigError, match=r"other seed, shards, shard_size\).*delete this folder"):
        run(reader, config.with_(shard_size=4, model__seed=1), out)
    with pytest.raises(ConfigError, match=r"another run .*molecules"):
        run(TypedSmiles(["CCO"]), config, out)
    assert len(shards(out)) == 4


def test_worker_processes_write_the_same_shards(
    reader: Reader, config: RunConfig, tmp_path: Path
) -> None:
    run(reader, config, tmp_path / "here")
    found = run(reader, config.with_(engine__workers=2), tmp_path / "there")
    assert shards(tmp_path / "there") == shards(tmp_path / "here")
    assert found.num_explained == 6
    work = module.ShardWork(config, Path("unused"), {"model": "another"}, Path())
    with pytest.raises(StoreError, match="same files"):
        work(Block(0, next(reader.chunks(2))))


def test_what_cannot_be_done_is_told_before_the_work(
    reader: Reader, config: RunConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="needs the explainer nice"):
        run(reader, config.with_(student="yes", model__explainer="saliency"), tmp_path / "out")
    empty = Reader(write_csv(tmp_path / "empty.csv", ["smiles"], []))
    with pytest.raises(ConfigError, match="no molecules"):
        run(empty, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_verdict_relies_on_a_weak_model_or_on_an_unknown_molecule() -> None:
    weak, strong = load("mutagenicity"), load("benzene")
    assert weak.card.test["balanced_accuracy"] < 0.9 <= strong.card.test["balanced_accuracy"]
    records = [Record(1, "1", "CN(N=O)Cc1ccccc1", {}), Record(2, "2", "N[Pt](N)(Cl)Cl", {})]
    known, unknown = explain_rows(records, weak, RunConfig())
    assert float(known["chance"]) > 0.9
    assert known["verdict"] == unknown["verdict"] == "look twice"
    assert "such cases with models that are right on nine of ten" in trust_of(known, weak.card)
    assert "that the model knows and with models that" in trust_of(unknown, weak.card)
    (row,) = explain_rows([Record(1, "1", "CCc1ccccc1", {})], strong, RunConfig())
    assert row["verdict"] == "rely on it"
    assert "such cases the best bond" in trust_of(row, strong.card)
