"""Runs: nothing twice, failures recorded, damage repaired, metrics apart from explanations."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.explain.explanation import concatenate
from nicegnn.explain.opinions.random_scores import Random
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GraphClassifier
from nicegnn_lab.bench import COLUMNS, Cell, Folder, Job, MetricConfig, read_rows, run_bench
from nicegnn_lab.bench.measure import Scores, load_scores
from nicegnn_lab.bench.rows import finished_cells
from nicegnn_lab.bench.run import Work
from nicegnn_lab.bench.source_hash import code_hash
from nicegnn_lab.bench.study import content_hash
from nicegnn_lab.bench.targets import load_target, target_path
from nicegnn_lab.metrics import Truth, fidelity_curve, selected_graphs, truth_metrics
from nicegnn_lab.rivals import EXPLAINERS, Entry, get_explainer
from tests.lab.bench.small_bench import QUICK, World, use_world, without_clocks


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return use_world(monkeypatch)


def scores_path(out: Path, cell: Cell) -> Path:
    """Where the scores of a cell lie."""
    return Folder(out).scores(content_hash(cell.identity["scores"]))


def scores_in(out: Path, cell: Cell) -> Scores:
    return load_scores(scores_path(out, cell), cell.identity["scores"])


def stamps(out: Path) -> dict[str, int]:
    """When each file of results was written."""
    files = [*out.glob("scores/*"), *out.glob("rows/*")]
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_second_run_computes_nothing_and_says_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path, "random", "saliency", "nice", seeds=(0, 1))
    lines: list[str] = []
    first = run_bench(config, say=lines.append)
    assert (len(first.cells), first.num_explained, first.num_measured) == (6, 6, 6)
    assert len(lines) == 6
    assert len(list(tmp_path.glob("fits/*.safetensors"))) == 2  # of nice, one per seed
    assert not list(tmp_path.glob("fits/*.part"))  # checkpoints of fits are gone
    before, rows = stamps(tmp_path), read_rows(tmp_path)
    assert len(before) == 12

    def no_work(self: Work, cell: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr(Work, "__call__", no_work)
    second = run_bench(config, say=lines.append)
    assert second.outcomes == ()
    assert len(second.found) == 6
    assert str(second) == "Nothing to compute: all 6 cells are finished."
    assert len(lines) == 6
    assert stamps(tmp_path) == before
    assert rows.equals(read_rows(tmp_path))


def test_more_seeds_or_explainers_run_only_what_is_new(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "random"))
    report = run_bench(world.config(tmp_path, "random", "saliency", seeds=(0, 1)))
    assert len(report.found) == 1
    assert report.num_explained == 3
    names = read_rows(tmp_path)[["explainer", "seed"]].drop_duplicates()
    assert len(names) == 4


def test_rows_equal_metrics_computed_by_hand(world: World, tmp_path: Path) -> None:
    config = world.config(
        tmp_path, "occlusion", seeds=(3,), settings={"occlusion": {"batch_size": 4}}
    )
    run_bench(config)
    rows = read_rows(tmp_path)
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["explainer"]) == {"occlusion"}
    assert set(rows["mechanism"]) == {"em"}
    assert set(rows["seed"]) == {3}

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
    for number, graph in enumerate(graphs[:3]):
        one = concatenate([explainer.explain(graph)])
        batch = test.batch(torch.tensor([chosen[number]]))
        curve = fidelity_curve(
            Target(model), batch, one.bonds, one.bond_score, ratios=QUICK.ratios, seed=3
        )
        part = rows[(rows["graph"] == chosen[number]) & (rows["protocol"] == "em")]
        names = zip(part["metric"], part["level"].fillna(-1.0), strict=True)
        by_name = dict(zip(names, part["value"], strict=True))
        assert by_name["kept", 0.3] == curve.kept[0, 0]
        assert by_name["prob_fid_plus", 0.6] == pytest.approx(
            float(curve.metrics()["prob_fid_plus"][1, 0])
        )
        assert by_name["kept_area", -1.0] == pytest.approx(float(curve.area[0]))
        assert len(by_name) == 11


def test_numbers_of_a_whole_cell_have_graph_minus_one(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "random", "ground-truth"))
    rows = read_rows(tmp_path)
    whole = rows[rows["graph"] == -1]
    assert set(whole["metric"]) == {"fit_seconds", "explain_seconds_per_graph", "pooled_roc_auc"}
    assert set(whole[whole["metric"] == "fit_seconds"]["protocol"]) == {""}
    assert (whole[whole["metric"] == "fit_seconds"]["value"] == 0).all()
    assert (whole[whole["metric"] == "explain_seconds_per_graph"]["value"] > 0).all()
    best = rows[(rows["explainer"] == "ground-truth") & (rows["protocol"] == "strict")]
    assert (best[best["metric"] == "roc_auc"]["value"].dropna() == 1).all()
    assert set(rows[rows["explainer"] == "random"]["mechanism"]) == {""}


def test_subset_is_the_same_for_all_explainers_and_seeds(world: World, tmp_path: Path) -> None:
    config = world.config(tmp_path, "random", "saliency", seeds=(0, 1), max_graphs=4)
    run_bench(config)
    rows = read_rows(tmp_path, where={"protocol": "em"})
    sets = rows.groupby(["explainer", "seed"], observed=True)["graph"].agg(
        lambda graph: tuple(sorted(set(graph)))
    )
    assert len(sets) == 4
    assert len(set(sets)) == 1
    assert len(sets.iloc[0]) == 4


def test_failed_cell_is_recorded_and_the_rest_goes_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = Random._edge_score

    def breaks(self: Random, query: object, seed: int) -> torch.Tensor:
        if seed == 1:
            raise RuntimeError("no such luck\nsecond line")
        return works(self, query, seed)  # type: ignore[arg-type]

    config = world.config(tmp_path, "random", "saliency", seeds=(0, 1, 2))
    lines: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Random, "_edge_score", breaks)
        report = run_bench(config, say=lines.append)
        assert [(cell.explainer, cell.seed) for cell in report.failed] == [("random", 1)]
        assert report.num_measured == 5
        assert sum("FAILED, RuntimeError: no such luck" in line for line in lines) == 1
        record = json.loads((tmp_path / "failed" / f"{report.failed[0].key}.json").read_text())
        assert record["error"] == "RuntimeError"
        assert record["message"] == "no such luck\nsecond line"
        assert "breaks" in record["traceback"]
        assert record["cell"]["seed"] == 1
        assert record["time"]

        skipping = run_bench(config, retry_failed=False)
        assert skipping.outcomes == ()
        assert skipping.failed == report.failed
        again = run_bench(config)  # tried again, and fails again
        assert len(again.outcomes) == 1
        assert len(again.failed) == 1
    repaired = run_bench(config)
    assert repaired.num_explained == 1
    assert repaired.failed == ()
    assert not list((tmp_path / "failed").iterdir())


def test_new_metrics_need_no_new_explanations(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path, "random", "nice")
    run_bench(config)

    def no_explanation(*args: object) -> None:
        raise AssertionError("a stored cell was explained again")

    monkeypatch.setattr(Job, "_explain", no_explanation)
    monkeypatch.setattr(Job, "_fit", no_explanation)
    other = replace(QUICK, top=0.5, protocols=("paper", "paper-best"))
    report = run_bench(replace(config, metrics=other))
    assert report.failed == ()
    assert (report.num_measured, report.num_explained) == (2, 0)
    assert "2 measured again from stored scores" in str(report)
    assert set(read_rows(tmp_path)["protocol"]) == {"", "paper", "paper-best", "em"}


def flip(path: Path, at: float) -> None:
    """Changes one byte of a file."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "empty", "flip"])
def test_damaged_rows_are_named_and_computed_again(
    world: World, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = world.config(tmp_path, "random", "saliency")
    run_bench(config)
    before = without_clocks(read_rows(tmp_path))
    (cell, _) = config.cells()
    path = Folder(config.out).rows(cell.key)
    whole = path.read_bytes()
    if damage == "flip":
        flip(path, 0.3)
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    assert set(read_rows(tmp_path)["explainer"]) == {"saliency"}
    assert path.name in caplog.text
    caplog.clear()
    report = run_bench(config)
    assert f"{path} is damaged" in caplog.text
    assert (report.num_measured, report.num_explained) == (1, 0)  # its scores are sound
    assert before.equals(without_clocks(read_rows(tmp_path)))


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_scores_are_named_and_explained_again(
    world: World, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = world.config(tmp_path, "random")
    run_bench(config)
    before = without_clocks(read_rows(tmp_path))
    (cell,) = config.cells()
    path = scores_path(config.out, cell)
    if damage == "flip":
        flip(path, 0.95)
    else:
        path.write_bytes(path.read_bytes()[:-10])
    Folder(config.out).rows(cell.key).unlink()
    report = run_bench(config)
    assert report.failed == ()
    assert report.num_explained == 1
    assert f"{path} is damaged" in caplog.text
    assert before.equals(without_clocks(read_rows(tmp_path)))


def test_unusable_checkpoint_of_a_fit_starts_it_anew(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = world.config(tmp_path, "nice")
    run_bench(config)
    (fit,) = tmp_path.glob("fits/*.safetensors")
    path = fit.with_suffix(".part")
    for file in (*tmp_path.glob("fits/*"), *tmp_path.glob("scores/*"), *tmp_path.glob("rows/*")):
        file.unlink()
    path.write_bytes(b"not a checkpoint")
    report = run_bench(config)
    assert report.failed == ()
    assert "from the start" in caplog.text
    assert not path.exists()
    rows = read_rows(tmp_path, where={"metric": ["fit_seconds"]})
    assert (rows["value"] > 0).all()


def test_scores_hold_what_later_metrics_need(world: World, tmp_path: Path) -> None:
    config = world.config(tmp_path, "nice", fit_graphs=30)
    run_bench(config)
    (cell,) = config.cells()
    scores = scores_in(config.out, cell)
    test = world.dataset().test
    batch = test.batch(scores.positions)
    assert int(scores.bond_ptr[-1]) == scores.bond_score.numel() == batch.num_edges // 2
    assert torch.equal(scores.explained, scores.prediction.argmax(1))
    assert torch.allclose(scores.prediction.exp().sum(1), torch.ones(scores.num_graphs))
    assert set(scores.extras) >= {"bond_big", "risk_corrupted"}
    assert scores.flags.numel() == scores.num_graphs
    facts = scores.facts
    assert facts["fit_graphs"] == 30
    assert facts["fit_steps"] == len(facts["fit_history"]) == 10
    assert facts["boundary"] == "amortised"
    assert facts["fit_status"]
    assert facts["device"] == "cpu"


def test_report_tells_that_finished_cells_came_from_other_code(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(tmp_path, "random", "saliency")
    run_bench(config)
    assert run_bench(config).num_other_code == 0
    monkeypatch.setattr("nicegnn_lab.bench.run.code_hash", lambda module: "changed")
    report = run_bench(config)
    assert report.num_other_code == 2
    assert report.outcomes == ()  # told, not repeated
    assert "2 of the finished cells were computed with another version of the code" in str(report)


OUTSIDE = '''"""An explainer that no list of nicegnn names."""
import torch
from nicegnn.explain.score_explainer import ScoreExplainer

class ByDegree(ScoreExplainer):
    """Edges of busy nodes first."""
    name = "by-degree"
    mechanisms = ()

    def _edge_score(self, query, seed):
        index = query.case.batch.edge_index
        return 1.0 * torch.bincount(index[0], minlength=int(index.max()) + 1)[index[0]]
'''


def test_an_explainer_from_outside_runs_and_counts_with_its_own_source(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "by_degree_explainer.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("by-degree", "by_degree_explainer:ByDegree", "Busy nodes first.", "none", "-")
    monkeypatch.setitem(EXPLAINERS, entry.name, entry)
    config = world.config(tmp_path / "out", "by-degree", "random")
    assert run_bench(config).failed == ()
    own, other = finished_cells(config.out).values()
    assert own.description["code"] == code_hash("by_degree_explainer")
    assert other.description["code"] == code_hash(Random.__module__) != own.description["code"]
    assert set(read_rows(config.out)["explainer"]) == {"by-degree", "random"}


def test_metrics_may_be_left_out(world: World, tmp_path: Path) -> None:
    run_bench(world.config(tmp_path, "random", metrics=MetricConfig(protocols=(), removals=())))
    assert set(read_rows(tmp_path)["metric"]) == {
        *("fit_seconds", "explain_seconds_per_graph", "molecule", "bond_score")
    }


def test_label_is_explained_and_fidelity_of_another_class_is_undefined(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that is wrong on some graphs: their truth counts, their fidelity does not."""

    forward = GraphClassifier.forward

    @wraps(forward)
    def half_wrong(self: GraphClassifier, *args: Any, **kwargs: Any) -> torch.Tensor:
        out = forward(self, *args, **kwargs)
        return torch.cat([out[:, :1] + 1.5, out[:, 1:]], dim=1)

    monkeypatch.setattr(GraphClassifier, "forward", half_wrong)
    for explained in ("label", "predicted"):
        out = tmp_path / explained
        config = world.config(out, "occlusion", explained=explained)
        run_bench(config)
        (cell,) = config.cells()
        scores = scores_in(out, cell)
        predicted = scores.prediction.argmax(1)
        is_wrong = predicted == 0
        assert is_wrong.any()
        assert not is_wrong.all()
        wanted = torch.ones_like(predicted) if explained == "label" else predicted
        assert torch.equal(scores.explained, wanted)
        rows = read_rows(out)
        kept = rows[rows["metric"] == "kept_area"].set_index("graph")["value"]
        undefined = set(kept[kept.isna()].index)
        wrong = set(scores.positions[is_wrong].tolist())
        assert undefined == (wrong if explained == "label" else set())
        agreement = rows[(rows["metric"] == "roc_auc") & (rows["protocol"] == "paper")]
        assert set(agreement["graph"]) == set(scores.positions.tolist())
