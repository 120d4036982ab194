"""Runs: nothing twice, failures recorded, damage named, rows equal to plain calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from nicegnn.errors import StoreError
from nicegnn.explain.explanation import concatenate
from nicegnn.explain.opinions import Saliency
from nicegnn.target.frozen_model import Target
from nicegnn_lab.bench.rows import COLUMNS, Folder, finished_cells, read_rows
from nicegnn_lab.bench.targets import load_target, target_path
from nicegnn_lab.cli.main import app
from nicegnn_lab.metrics.agreement import Truth, selected_graphs, truth_metrics
from nicegnn_lab.metrics.fidelity import fidelity_curve
from nicegnn_lab.rivals import EXPLAINERS, Entry, get_explainer
from tests.lab.bench.small_bench import (
    World,
    run_bench,
    use_world,
    without_clocks,
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def test_second_run_computes_nothing_and_more_seeds_only_what_is_new(
    world: World, tmp_path: Path
) -> None:
    config = world.config(tmp_path, "random", "saliency", "nice", "pgexplainer", seeds=(0, 1))
    lines: list[str] = []
    first = run_bench(config, say=lines.append)
    assert (len(first.cells), first.num_measured) == (8, 8)
    assert len(lines) == 8
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("rows/*")}
    rows = read_rows(tmp_path)
    second = run_bench(config, say=lines.append)
    assert second.num_measured == 0
    assert str(second) == "Nothing to compute: all 8 cells are finished."
    assert len(lines) == 8
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("rows/*")} == before
    assert rows.equals(read_rows(tmp_path))
    more = run_bench(world.config(tmp_path, "random", "occlusion", seeds=(0, 2)))
    assert (len(more.finished), more.num_measured) == (1, 3)


def test_rows_equal_metrics_computed_by_hand(world: World, tmp_path: Path) -> None:
    settings = {"occlusion": {"batch_size": 4}}
    run_bench(world.config(tmp_path, "occlusion", seeds=(3,), settings=settings))
    rows = read_rows(tmp_path)
    assert tuple(rows.columns) == COLUMNS
    facts = rows[["explainer", "mechanism", "seed"]].drop_duplicates().values.tolist()
    assert facts == [["occlusion", "em", 3]]

    test = world.dataset().test
    model = load_target(target_path(world.targets, "benzene", "gin")).model
    chosen = [i for i, g in enumerate(test) if int(g.y) == 1 and bool(g.edge_truth.any())]
    graphs = [test[i] for i in chosen]
    explainer = get_explainer("occlusion", model, seed=3)
    found = concatenate([explainer.explain(graph) for graph in graphs])  # one by one
    truth = Truth.from_graphs(graphs)
    label = torch.ones(len(graphs), dtype=torch.long)
    for protocol in ("paper", "strict"):
        values = truth_metrics(found.bond_score, found.bonds, truth, protocol=protocol, seed=3)
        kept = selected_graphs(label, found.prediction.argmax(1), truth, protocol)
        for metric, value in values.items():
            part = rows[(rows["protocol"] == protocol) & (rows["metric"] == metric)]
            assert part["graph"].tolist() == [g for g, k in zip(chosen, kept, strict=True) if k]
            expected = value[kept].float()
            assert torch.allclose(
                torch.tensor(part["value"].to_numpy()), expected, atol=1e-6, equal_nan=True
            )
    batch = test.batch(torch.tensor(chosen))
    found = explainer.explain(batch, target=1, seed=3)
    given = {"explained": found.target, "seed": 3}
    curve = fidelity_curve(Target(model), batch, found.bonds, found.bond_score, **given)  # type: ignore[arg-type]
    is_right = found.prediction.argmax(1) == 1
    part = rows[rows["protocol"] == "em"]
    area = torch.tensor(part[part["metric"] == "kept_area"]["value"].to_numpy())
    expected = torch.where(is_right, curve.area, torch.nan).float()
    assert torch.allclose(area, expected, atol=1e-6, equal_nan=True)
    means = part[part["graph"] == -1].set_index(["metric", "level"])["value"]
    assert means["kept", 0.3] == pytest.approx(float(curve.kept[2, is_right].mean()))
    whole = rows[(rows["graph"] == -1) & (rows["protocol"] == "")].set_index("metric")["value"]
    assert set(whole.index) == {"fit_seconds", "explain_seconds_per_graph"}
    assert whole["fit_seconds"] == 0 < whole["explain_seconds_per_graph"]


def test_failure_is_recorded_stops_no_other_and_is_tried_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path, "saliency", "random", seeds=(0, 1))
    plain = Saliency._edge_score

    def breaks(self: Saliency, query: object, seed: int) -> torch.Tensor:
        if self.config.seed == 1:
            raise RuntimeError("no such luck\nsecond line")
        return plain(self, query, seed)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Saliency, "_edge_score", breaks)
        report = run_bench(config)
    (failed,) = report.failed
    assert (failed.variant.explainer, failed.seed, report.num_measured) == ("saliency", 1, 3)
    record = json.loads((tmp_path / "failed" / f"{failed.key}.json").read_text())
    assert (record["error"], record["message"]) == ("RuntimeError", "no such luck\nsecond line")
    assert "breaks" in record["traceback"]
    repaired = run_bench(config)
    assert (repaired.num_measured, repaired.failed) == (1, ())
    assert not list((tmp_path / "failed").iterdir())


def harm(path: Path, damage: str) -> None:
    """Cuts, empties or changes a byte of a file, one of its rows and not of its description."""
    content = bytearray(path.read_bytes())
    end_of_rows = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[end_of_rows * 2 // 3] ^= 0xFF
    kept = {"cut": content[: len(content) // 2], "empty": b"", "flip": content}
    path.write_bytes(kept[damage])


@pytest.mark.parametrize("damage", ["cut", "empty", "flip"])
def test_damaged_rows_are_named_and_computed_again_when_they_are_gone(
    world: World, tmp_path: Path, damage: str
) -> None:
    config = world.config(tmp_path, "random", "saliency")
    run_bench(config)
    before = without_clocks(read_rows(tmp_path))
    (cell, _) = config.cells()
    rows = Folder(config.out).file("rows", cell.key)
    harm(rows, damage)
    with pytest.raises(StoreError, match=rf"{rows.name} is damaged .* Delete it and run"):
        read_rows(tmp_path)
    rows.unlink()
    assert run_bench(config).num_measured == 1
    assert before.equals(without_clocks(read_rows(tmp_path)))


OUTSIDE = '''"""An explainer that no list of nicegnn names."""
import torch
from torch import Tensor
from nicegnn.explain.explainer import ScoreExplainer

class ByDegree(ScoreExplainer):
    """Edges of busy nodes first."""
    name = "by-degree"
    mechanisms = ()

    def _edge_score(self, query, seed):
        index = query.case.batch.edge_index
        return 1.0 * torch.bincount(index[0], minlength=int(index.max()) + 1)[index[0]]
'''


def test_an_explainer_from_outside_runs_and_its_code_is_in_its_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by_degree_explainer.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("by-degree", "by_degree_explainer:ByDegree", "Busy nodes first.", "none", "-")
    monkeypatch.setitem(EXPLAINERS, entry.name, entry)
    config = world.config(tmp_path / "out", "by-degree", "random")
    assert run_bench(config).failed == ()
    own, other = finished_cells(config.out).values()
    assert own.description["identity"]["scores"]["code"]
    assert "code" not in other.description["identity"]["scores"]
    assert set(read_rows(config.out)["explainer"]) == {"by-degree", "random"}


def arguments(world: World, out: Path, *explainers: str) -> list[str]:
    names = [part for name in explainers for part in ("--explainer", name)]
    return [
        *("bench", "--dataset", "benzene", *names, "--out", str(out), "--device", "cpu"),
        *("--targets-folder", str(world.targets), "--fidelity", "em"),
    ]


def test_command_takes_lists_and_tells_what_it_did(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    given = [*arguments(world, out, "random,saliency", "ground-truth"), "--seed", "0,1"]
    given += ["--seed", "2", "--max-graphs", "3"]
    first = CliRunner().invoke(app, given, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    assert "[9/9]" in first.stdout
    assert "benzene gin saliency+em seed 1: 3 graphs" in first.stdout
    assert "9 cells: 9 measured" in first.stdout
    second = CliRunner().invoke(app, given, catch_exceptions=False)
    assert "Nothing to compute: all 9 cells are finished." in second.stdout
    assert sorted(set(read_rows(out)["seed"])) == [0, 1, 2]
