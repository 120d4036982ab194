"""Many molecules: each has one row, the same bits whatever the shards, and a stop loses nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import disturb, kill_local, shards, start, two_nodes
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.intervention import fused
from nicegnn.pretrained import Pretrained
from nicegnn.screening import compact, many
from nicegnn.screening.compact import explain_compactly
from nicegnn.screening.engines import Block, ProcessEngine
from nicegnn.screening.loading import ModelConfig
from nicegnn.screening.many import ManyConfig, explain_many
from nicegnn.screening.reading import Reader
from nicegnn.screening.shards import read_table, rows_of
from nicegnn_lab.datasets.generator import generate_dataset
from tests.screening.small_screen import write_csv

SMILES = ["c1ccccc1CC(=O)N", "CCCCC", "C1CC(", "", "[Na+]", "Cc1ccncc1", "OCC(N)C1CCCCC1", "CO"]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    rows: list[list[object]] = [[f"m{n}", smiles] for n, smiles in enumerate(SMILES)]
    return Reader(write_csv(tmp_path / "in.csv", ["id", "smiles"], rows), id_column="id")


@pytest.fixture
def config(model_file: Path) -> ManyConfig:
    return ManyConfig(shard_size=2, batch_size=2, model=ModelConfig(model=str(model_file)))


def read(out: Path) -> list[dict[str, Any]]:
    paths = sorted((out / "shards").glob("*.parquet"))
    return [row for path in paths for table in read_table(path) for row in rows_of(table)]


def test_every_record_has_one_row_with_what_the_explainer_says(
    reader: Reader, config: ManyConfig, subject: Pretrained, tmp_path: Path
) -> None:
    found = explain_many(reader, config.with_(atoms=True), tmp_path / "out")
    rows = read(tmp_path / "out")
    assert [row["id"] for row in rows] == [f"m{n}" for n in range(len(SMILES))]
    assert [row["row"] for row in rows if row["reason"] is not None] == [3, 4]
    assert rows[2]["score"] is rows[2]["prediction"] is None
    assert rows[4]["status"] == "no edges"
    assert isinstance(subject.explainer, NICE)
    one = subject.explainer.explain(subject.featurizer(SMILES[0]), seed=0, atoms=True)
    assert rows[0]["score"] == pytest.approx(one.bond_score.tolist(), abs=1e-5)
    assert [rows[0]["atom_a"], rows[0]["atom_b"]] == one.bond_index.tolist()
    assert one.atom_score is not None
    assert rows[0]["atom_score"] == pytest.approx(one.atom_score.tolist(), abs=1e-5)
    best = int(one.prediction[0].argmax())
    assert rows[0]["prediction"] == subject.card.classes[best]
    assert rows[0]["probability"] == pytest.approx(float(one.prediction[0, best].exp()))
    assert (found.num_explained, found.num_rejected, found.num_shards) == (6, 2, 4)
    rejects = [row for t in read_table(tmp_path / "out/rejects.csv") for row in rows_of(t)]
    assert [row["id"] for row in rejects] == ["m2", "m3"]
    assert all(row["reason"] for row in rejects)
    assert sum(found.shares.values()) == pytest.approx(1, abs=1e-3)
    stored = json.loads((tmp_path / "out/result.json").read_text())
    assert stored["num_bytes"] == sum(map(len, shards(tmp_path / "out").values()))


def test_rows_are_the_same_to_the_last_bit_whatever_the_shards(
    reader: Reader, config: ManyConfig, tmp_path: Path
) -> None:
    found = []
    for size in (2, 4, 8):
        explain_many(reader, config.with_(shard_size=size), tmp_path / str(size))
        assert len(shards(tmp_path / str(size))) == 8 // size
        found.append(repr(read(tmp_path / str(size))))  # nan is not equal to itself
    assert found[0] == found[1] == found[2]
    with pytest.raises(ConfigError, match=r"multiple of `batch_size`, 2 .* Try 2\.$"):
        config.with_(shard_size=3)


def test_rows_do_not_depend_on_what_the_process_explained_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels round otherwise than whole graphs, and pay only after many graphs."""
    pytest.importorskip("numba")
    monkeypatch.setattr(fused, "WORTH", {"cpu": 2000})
    monkeypatch.setattr(compact, "WORTH", {"cpu": 2000})
    monkeypatch.setattr(many, "_MANY", 1)
    rows: list[list[object]] = [[graph.smiles] for graph in generate_dataset("benzene", 16)]
    reader = Reader(write_csv(tmp_path / "in.csv", ["smiles"], rows))
    config = ManyConfig(shard_size=2, batch_size=2, model=ModelConfig(model="benzene"))
    explain_many(reader, config, tmp_path / "whole")
    out = tmp_path / "out"
    shutil.copytree(tmp_path / "whole", out)
    for number in (0, 7):
        (out / "shards" / f"{number:06d}.parquet").unlink()
        many._loaded.cache_clear()  # as in a new process, which starts with this shard
        assert explain_many(reader, config, out).resumed == 14
    assert shards(out) == shards(tmp_path / "whole")
    _, memory = many._loaded.__wrapped__(config, (str(rows[0][0]),), True)
    assert memory.target.fusion.packed is not None  # kernels are used from the start


def test_few_molecules_do_not_wait_for_kernels(
    reader: Reader, config: ManyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "WORTH", {"cpu": 1})
    config = config.with_(model__model="benzene")
    subject, memory = many._loaded.__wrapped__(config, tuple(SMILES[:2]), False)
    explain_compactly(next(reader.chunks(8)), subject, batch_size=8, memory=memory)
    assert subject.explainer.target.fusion.packed is None


class NoEngine:
    """Must not be asked for anything."""

    def run(self, blocks: Any, work: Any) -> Any:
        raise AssertionError


def test_only_missing_and_damaged_shards_are_explained_again(
    reader: Reader, config: ManyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explain_many(reader, config, tmp_path / "whole")
    out, firsts = tmp_path / "out", []

    def watched(records: Any, *args: Any, **words: Any) -> Any:
        firsts.append(records[0].row)
        if len(firsts) == 3:
            raise KeyboardInterrupt
        return explain_compactly(records, *args, **words)

    monkeypatch.setattr(many, "explain_compactly", watched)
    with pytest.raises(KeyboardInterrupt):
        explain_many(reader, config, out)
    assert sorted(path.name for path in (out / "shards").iterdir()) == [
        "000000.parquet",
        "000001.parquet",
    ]
    whole = out / "shards" / "000000.parquet"
    whole.write_bytes(whole.read_bytes()[:-9])  # as after a power cut
    (out / "shards" / ".000003.parquet.x.part").write_bytes(b"half")
    found = explain_many(reader, config, out)
    assert firsts[3:] == [1, 5, 7]
    assert found.resumed == 2
    assert shards(out) == shards(tmp_path / "whole")
    assert not list((out / "shards").glob(".*"))
    again = explain_many(reader, config, out, engine=NoEngine())
    assert again.resumed == len(SMILES)
    assert len(firsts) == 6


def test_results_of_other_settings_are_not_mixed(
    reader: Reader, config: ManyConfig, tmp_path: Path
) -> None:
    explain_many(reader, config, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"other seed, shard_size\)"):
        explain_many(reader, config.with_(shard_size=4, model__seed=1), tmp_path / "out")
    explain_many(reader, config.with_(shard_size=4), tmp_path / "out", overwrite=True)
    assert len(shards(tmp_path / "out")) == 2


def test_worker_processes_write_the_same_shards(
    reader: Reader, config: ManyConfig, tmp_path: Path
) -> None:
    explain_many(reader, config, tmp_path / "here")
    found = explain_many(reader, config, tmp_path / "there", engine=ProcessEngine(2))
    assert shards(tmp_path / "there") == shards(tmp_path / "here")
    assert found.num_explained == 6


def test_workers_with_another_model_are_refused(reader: Reader, config: ManyConfig) -> None:
    work = many.ShardWork(config, Path("unused"), (("model", "another"),))
    with pytest.raises(many.StoreError, match="same files"):
        work(Block(0, next(reader.chunks(2))))


def test_what_the_explainer_cannot_do_is_told_before_the_work(
    reader: Reader, config: ManyConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="need the explainer nice"):
        explain_many(
            reader, config.with_(atoms=True, model__explainer="saliency"), tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


def test_student_is_passed_on_only_if_it_is_asked_for() -> None:
    assert ManyConfig().asked == {}
    assert ManyConfig(student="yes", atoms=True).asked == {"student": True, "atoms": True}
    assert ManyConfig(student="auto").asked == {"student": "auto"}


def write_library(path: Path, num: int) -> Path:
    """Writes molecules of which one cannot be read."""
    rows: list[list[object]] = [[graph.smiles] for graph in generate_dataset("benzene", num)]
    rows[77] = ["C1CC("]
    return write_csv(path, ["smiles"], rows)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_library(tmp_path_factory.mktemp("library") / "in.csv", 200)


def words(library: Path, model_file: Path) -> list[str]:
    sizes = ("--batch-size", "4", "--shard-size", "4")
    return [str(library), "--model", str(model_file), "--explainer", "saliency", *sizes]


def undisturbed(library: Path, model_file: Path, out: Path) -> dict[str, bytes]:
    """Returns the shards of a run without kills."""
    model = ModelConfig(model=str(model_file), explainer="saliency")
    explain_many(Reader(library), ManyConfig(shard_size=4, batch_size=4, model=model), out)
    return shards(out)


@pytest.mark.slow
def test_kills_of_workers_and_driver_leave_no_trace(
    library: Path, model_file: Path, tmp_path: Path
) -> None:
    given = [*words(library, model_file), "--workers", "2"]
    hit = disturb(tmp_path / "out", given, kill_local, 3, random.Random(2))
    assert hit.total() > 0
    assert shards(tmp_path / "out") == undisturbed(library, model_file, tmp_path / "whole")
    assert not list((tmp_path / "out" / "shards").glob(".*"))


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_leaves_whole_files(
    library: Path, model_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    driver = start(out, [*words(library, model_file), "--workers", "2"])
    deadline = time.monotonic() + 120
    while not list(out.glob("shards/*.parquet")) and time.monotonic() < deadline:
        assert driver.poll() is None, out.with_suffix(".log").read_text()
        time.sleep(0.005)
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does
    assert driver.wait(60) == 130
    assert "goes on from there" in out.with_suffix(".log").read_text()
    assert not list((out / "shards").glob(".*"))
    assert is_gone(driver.pid)


def is_gone(group: int, patience: float = 20) -> bool:
    """Whether all processes of a group end soon."""
    deadline = time.monotonic() + patience
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.01)
        return False
    return True


@pytest.mark.cluster
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra 'cluster')")
def test_kills_on_a_cluster_of_two_nodes_leave_no_trace(model_file: Path, tmp_path: Path) -> None:
    library, out = write_library(tmp_path / "in.csv", 1000), tmp_path / "out"
    turns = ["task", "driver", "node"]  # a worker, then the driver, then a node with its workers

    class Chosen(random.Random):
        def choice(self, seq: Any) -> Any:
            return turns[0] if turns[0] in seq else super().choice(seq)

    with two_nodes() as (address, kill):

        def in_turn(driver: Any, rng: random.Random) -> str:
            found = kill(driver, Chosen(0))
            if found:
                turns.pop(0)
            return found

        given = [*words(library, model_file), "--engine", "ray", "--address", address]
        hit = disturb(out, given, in_turn, 3, random.Random(0))
    assert hit == {"task": 1, "driver": 1, "node": 1}
    assert shards(out) == undisturbed(library, model_file, tmp_path / "whole")


def test_command_tells_and_ends_as_others_do(
    reader: Reader, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from nicegnn.cli.main import main

    def typed(*given: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nicegnn", "explain-many", *given])
        with pytest.raises(SystemExit) as stop:
            main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        assert isinstance(stop.value.code, int)
        return stop.value.code, shown.out, shown.err

    given = [str(reader.path), "--model", str(model_file), "--out", str(tmp_path / "out")]
    given += ["--id-column", "id", "--workers", "1", "--quiet"]
    code, out, err = typed(*given)
    assert code == 3
    assert "6 of 8 molecules explained." in out
    assert "rejects.csv says why" in err
    code, out, _ = typed(*given, "--json")
    assert code == 3
    assert json.loads(out)["resumed"] == 8
    assert typed(*given, "--seed", "1")[0] == 2
    assert typed(str(reader.path))[0] == 2
    code, _, err = typed(*given, "--shard-size", "3")
    assert code == 2
    assert "multiple of" in err
    saved = tmp_path / "out" / "settings.toml"
    code, out, _ = typed("--settings", str(saved), "--out", str(tmp_path / "out"), "--workers", "1")
    assert code == 3
    assert "(8 by an earlier run)" in out
