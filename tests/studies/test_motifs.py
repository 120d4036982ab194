"""Planted motifs: truth is a house or a cycle, scores are judged within reach, runs go on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from typer.testing import CliRunner

from nicegnn.bench import motif_tasks
from nicegnn.bench.motif_tasks import MotifConfig, NodeGCN, Shapes, TwoMotifs
from nicegnn.bench.study_rows import read_experiment, write_part
from nicegnn.cli.main import app
from nicegnn.datasets.motifs import ba_2motifs, ba_shapes, preferential_graph
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.rivals.registry import get_explainer
from nicegnn.rivals.saliency import Saliency
from nicegnn.studies import motifs
from nicegnn.studies.motifs import EXPERIMENT, UnfinishedError, agreement, compute
from nicegnn.tables.motifs import tables

SMALL = MotifConfig(num_graphs=120, graph_epochs=8, base_nodes=40, num_motifs=12, node_epochs=60)
QUICK = ("random", "ground-truth", "saliency")


def small_run(out: Path, **changes: Any) -> None:
    given: dict[str, Any] = {
        "out": out,
        "device": "cpu",
        "progress": False,
        "explainers": QUICK,
        "config": SMALL,
    }
    compute(**(given | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a small run of all tasks and targets."""
    out = tmp_path_factory.mktemp("motifs")
    small_run(out)
    return out


def bonds_of(edge_index: Tensor) -> set[tuple[int, int]]:
    """Returns the bonds of a graph and checks that both directions are there, each once."""
    directed = [(int(u), int(v)) for u, v in edge_index.t()]
    assert len(set(directed)) == len(directed)
    assert {(v, u) for u, v in directed} == set(directed)
    assert all(u != v for u, v in directed)
    return {(u, v) for u, v in directed if u < v}


def degrees(bonds: set[tuple[int, int]]) -> dict[int, int]:
    ends = [end for bond in bonds for end in bond]
    return {node: ends.count(node) for node in set(ends)}


def num_triangles(bonds: set[tuple[int, int]]) -> int:
    nodes = sorted(degrees(bonds))
    return sum(
        {(a, b), (a, c), (b, c)} <= bonds for a in nodes for b in nodes for c in nodes if a < b < c
    )


def is_house(bonds: set[tuple[int, int]]) -> bool:
    """Whether bonds are a square with a triangle on one side."""
    return sorted(degrees(bonds).values()) == [2, 2, 2, 3, 3] and num_triangles(bonds) == 1


def is_connected(bonds: set[tuple[int, int]], num_nodes: int) -> bool:
    seen, new = {0}, {0}
    while new:
        new = {b for u, v in bonds for a, b in ((u, v), (v, u)) if a in new} - seen
        seen |= new
    return len(seen) == num_nodes


def test_truth_of_a_graph_is_its_house_or_cycle() -> None:
    graphs = ba_2motifs(20, seed=3)
    assert [int(graph.y) for graph in graphs] == [0, 1] * 10
    for graph in graphs:
        everything = bonds_of(graph.edge_index)
        true = bonds_of(graph.edge_index[:, graph.edge_truth])
        label = int(graph.y)
        if label == 1:
            assert is_house(true)
        else:
            assert sorted(degrees(true).values()) == [2] * 5
            assert num_triangles(true) == 0
        assert len(everything) == 19 + 1 + len(true)  # a tree and one bond to the motif
        assert is_connected(everything, 25)
        assert graph.x.shape == (25, 10)
        assert bool((graph.x == 1).all())


def test_truth_of_a_node_is_its_own_house() -> None:
    made = ba_shapes(seed=1)
    graph = made.graph
    everything = bonds_of(graph.edge_index)
    assert graph.num_nodes == 700
    assert torch.bincount(graph.y).tolist() == [300, 160, 160, 80]
    assert len(everything) == 5 * 295 + 80 * (6 + 1) + 70
    for node in (300, 417, 699):
        true = bonds_of(graph.edge_index[:, made.truth_of(node)])
        assert is_house(true)
        assert node in degrees(true)
        roles = [int(graph.y[other]) for other in sorted(degrees(true))]
        assert roles == [1, 1, 2, 2, 3]
        top = next(other for other in degrees(true) if int(graph.y[other]) == 3)
        near = {end for bond in true if top in bond for end in bond} - {top}
        assert {int(graph.y[other]) for other in near} == {1}
    assert not made.truth_of(7).any()
    assert int(graph.edge_truth.sum()) == 80 * 12


def test_base_graph_grows_by_different_earlier_nodes() -> None:
    bonds = preferential_graph(50, 3, torch.Generator().manual_seed(0))
    later, count = bonds.max(0).values.unique(return_counts=True)
    assert later.tolist() == list(range(3, 50))
    assert set(count.tolist()) == {3}
    assert len({(int(u), int(v)) for u, v in bonds.t()}) == 3 * 47
    with pytest.raises(ConfigError, match="num_edges"):
        preferential_graph(3, 3, torch.Generator())


def test_chance_of_an_earlier_node_is_in_proportion_to_its_degree() -> None:
    generator = torch.Generator().manual_seed(0)
    hits = sum(
        int(0 in preferential_graph(4, 1, generator)[:, 2]) for _ in range(3000)
    )  # bonds 1-0, 2-?, 3-?
    # node 2 joins 0 with chance 2/3 (it stands in the list twice); then node 3 finds node 0 with
    # chance 3/5, else 2/5 (the list has five entries)
    assert abs(hits / 3000 - (2 / 3 * 3 / 5 + 1 / 3 * 2 / 5)) < 0.03


def same(first: Sequence[Data], second: Sequence[Data]) -> bool:
    return all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, second, strict=True))


def test_seed_alone_decides_and_global_randomness_is_untouched() -> None:
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    graphs, shapes = ba_2motifs(6, seed=5), ba_shapes(5)
    Shapes(5, SMALL).new_target("gcn")
    TwoMotifs(5, SMALL).new_target("gin")
    after = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    assert before[2] == after[2]
    torch.manual_seed(1)
    assert same(graphs, ba_2motifs(6, seed=5))
    assert not same(graphs, ba_2motifs(6, seed=6))
    assert torch.equal(shapes.graph.edge_index, ba_shapes(5).graph.edge_index)
    assert not torch.equal(shapes.graph.edge_index, ba_shapes(6).graph.edge_index)


def test_parts_of_a_split_are_disjoint_and_change_with_the_seed() -> None:
    first, second = TwoMotifs(0, SMALL), TwoMotifs(1, SMALL)
    parts = (first.train_part, first.valid_part, first.test_part)
    assert [part.numel() for part in parts] == [96, 12, 12]
    assert torch.cat(parts).sort().values.tolist() == list(range(120))
    assert first.test_part.tolist() != second.test_part.tolist()


def path_graph() -> Data:
    """Returns nodes 0 to 7 in a row; bond (1, 2) is true, and (5, 6) too."""
    u = torch.arange(7)
    bonds = torch.stack([u, u + 1])
    truth = (u == 1) | (u == 5)
    return Data(
        x=torch.ones(8, 10),
        edge_index=torch.cat([bonds, bonds.flip(0)], dim=1),
        edge_truth=torch.cat([truth, truth]),
    )


def test_only_bonds_within_reach_of_a_node_are_judged() -> None:
    graph = path_graph()
    found = get_explainer("random", NodeGCN(10, 4)).explain(graph, index=[0])
    assert found.bond_reached.tolist() == [True] * 3 + [False] * 4  # three layers
    score = torch.tensor([0.9, 0.5, 0.1, 7.0, 7.0, -7.0, 7.0])
    values = agreement(replace(found, bond_score=score), graph.edge_truth)
    assert values["roc_auc"].tolist() == [0.5]  # below one false bond, above the other
    assert values["recall@k"].tolist() == [0.0]  # of one true bond within reach
    score[1] = 1.0
    values = agreement(replace(found, bond_score=score), graph.edge_truth)
    assert values["roc_auc"].tolist() == [1.0]
    assert values["recall@k"].tolist() == [1.0]


def test_equal_scores_get_no_more_than_chance() -> None:
    graph = path_graph()
    found = get_explainer("random", NodeGCN(10, 4)).explain(graph, index=[0])
    flat = replace(found, bond_score=torch.zeros(7))
    recall = [float(agreement(flat, graph.edge_truth, seed)["recall@k"]) for seed in range(300)]
    assert abs(sum(recall) / 300 - 1 / 3) < 0.1
    assert agreement(flat, graph.edge_truth)["roc_auc"].tolist() == [0.5]


def test_random_scores_are_as_good_as_chance() -> None:
    task = TwoMotifs(0, SMALL)
    explainer = get_explainer("random", task.new_target("gin"))
    ((found, truth),) = task.explain(explainer, torch.arange(120))
    values = agreement(found, truth)
    assert abs(float(values["roc_auc"].mean()) - 0.5) < 0.06
    # a motif has 5 of 25 bonds, or 6 of 26
    assert abs(float(values["recall@k"].mean()) - (5 / 25 + 6 / 26) / 2) < 0.06


def test_truth_is_perfect_and_every_number_is_there(finished: Path) -> None:
    rows = read_experiment(finished, EXPERIMENT)
    values = rows.set_index(["dataset", "target", "setting", "metric"])["value"]
    for about in (("ba-2motifs", "gin"), ("ba-2motifs", "gcn"), ("ba-shapes", "gcn")):
        assert 0 <= values[*about, "target", "accuracy"] <= 1
        assert values[*about, "ground-truth", "roc_auc"] == 1
        assert values[*about, "ground-truth", "recall@k"] == 1
        for name in QUICK:
            assert values[*about, name, "num_explained"] >= 3
            assert values[*about, name, "explain_seconds"] > 0
            assert 0 <= values[*about, name, "roc_auc"] <= 1
            for removal in ("em", "nc"):
                is_there = (*about, name, f"kept_area/{removal}") in values.index
                assert is_there == (about[0] == "ba-2motifs")
    wanted = rows[rows["setting"] == "target"].set_index(["dataset", "target"])["level"]
    assert wanted["ba-2motifs", "gin"] == 0.95
    assert wanted["ba-shapes", "gcn"] == 0.9


def test_explained_nodes_are_right_test_nodes_of_houses() -> None:
    task = Shapes(0, SMALL)
    model = task.new_target("gcn")
    task.train(model)
    chosen = task.explained(model, None)
    logits = model(task.data.graph.x, task.data.graph.edge_index)
    label = task.data.graph.y
    wanted = {
        node
        for node in task.test_part.tolist()
        if int(label[node]) > 0 and int(logits[node].argmax()) == int(label[node])
    }
    assert set(chosen.tolist()) == wanted
    assert len(wanted) > 0
    assert set(task.explained(model, 2).tolist()) < wanted


def test_training_learns_the_task() -> None:
    task = TwoMotifs(0, replace(SMALL, num_graphs=240, graph_epochs=30))
    model = task.new_target("gin")
    task.train(model)
    assert task.accuracy(model) > 0.8  # chance is one half


def test_a_repeat_trains_and_explains_nothing(finished: Path, monkeypatch) -> None:
    done: list[str] = []
    plain = Explainer.explain

    def explain(self: Explainer, *args: Any, **kwargs: Any) -> Any:
        done.append(self.name)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Explainer, "explain", explain)
    for kind in (TwoMotifs, Shapes):
        monkeypatch.setattr(kind, "train", lambda *_: pytest.fail("trained again"))
    small_run(finished)
    assert done == []
    (part,) = (finished / EXPERIMENT).glob("ba-2motifs-gcn-0-saliency-*.parquet")
    kept = read_experiment(finished, EXPERIMENT)
    part.unlink()
    small_run(finished)
    assert done == ["saliency"]
    again = read_experiment(finished, EXPERIMENT)
    without_times = ~kept["metric"].str.endswith("seconds")
    assert kept[without_times].equals(again[without_times])


def test_other_seeds_and_settings_are_other_parts(finished: Path, tmp_path: Path) -> None:
    names = {path.name for path in (finished / EXPERIMENT).glob("*.parquet")}
    for changes in ({"seeds": (1,)}, {"settings": {"saliency": {"num_draws": 2}}}):
        small_run(tmp_path, datasets=["ba-shapes"], explainers=["saliency"], **changes)
    found = {path.name for path in (tmp_path / EXPERIMENT).glob("*-saliency-*.parquet")}
    assert len(found) == 2
    assert not found & names


def test_who_cannot_says_why_and_who_breaks_stops_no_other(tmp_path: Path, monkeypatch) -> None:
    given: dict[str, Any] = {
        "datasets": ["ba-2motifs"],
        "targets": ["gin"],
        "explainers": ["d4explainer", "saliency", "random"],
        "settings": {"d4explainer": {"max_nodes": 3}},
    }

    def out_of_memory(*_: Any) -> Tensor:
        raise RuntimeError("not enough memory")

    with monkeypatch.context() as patch:
        patch.setattr(Saliency, "_edge_score", out_of_memory)
        with pytest.raises(UnfinishedError, match=r"1 of 3 parts .*saliency.*not enough memory"):
            small_run(tmp_path, **given)
    rows = read_experiment(tmp_path, EXPERIMENT)
    assert set(rows["setting"]) == {"target", "d4explainer", "random"}
    (reason,) = rows.loc[rows["setting"] == "d4explainer", "metric"]
    assert reason.startswith("cannot/All 96 training graphs")
    small_run(tmp_path, **given)  # what broke is tried again
    assert "saliency" in set(read_experiment(tmp_path, EXPERIMENT)["setting"])
    quality, _ = tables(tmp_path)
    assert any("d4explainer cannot explain ba-2motifs gin" in note for note in quality.notes)


@pytest.mark.parametrize("level", ["graph", "node"])
def test_fits_take_few_nodes_at_a_time(level: str) -> None:
    task = TwoMotifs(0, SMALL) if level == "graph" else Shapes(0, SMALL)
    model = task.new_target("gcn")
    nice = motifs._config("nice", model, task, {})
    rival = motifs._config("pgexplainer+nc", model, task, {"pgexplainer": {"steps": 7}})
    assert rival.steps == 7
    is_few = level == "node"
    assert (nice.boundary.batch_size == motifs.NODES_PER_STEP) == is_few
    assert (rival.fit_batch_size == motifs.NODES_PER_STEP) == is_few


def test_learners_fit_on_both_tasks(tmp_path: Path) -> None:
    small_run(
        tmp_path,
        targets=["gcn"],
        explainers=["nice", "pgexplainer+nc"],
        settings={
            "nice": {"boundary__steps": 2, "boundary__fit_draws": 2, "attribution__num_draws": 2},
            "pgexplainer": {"steps": 2},
        },
        fit_graphs=12,
        max_graphs=2,
    )
    values = read_experiment(tmp_path, EXPERIMENT).set_index(["dataset", "setting", "metric"])
    for task in ("ba-2motifs", "ba-shapes"):
        for name in ("nice", "pgexplainer+nc"):
            assert values.loc[(task, name, "fit_seconds"), "value"] > 0
            assert 0 <= values.loc[(task, name, "roc_auc"), "value"] <= 1


def test_unknown_names_are_told_before_anything_is_computed(tmp_path: Path) -> None:
    for changes, said in (
        ({"datasets": ["benzene"]}, "ba-2motifs"),
        ({"targets": ["gat"]}, "gcn"),
        ({"explainers": ["no-such"]}, "pgexplainer"),
        ({"explainers": ["graphmask+nc"]}, "graphmask"),
        ({"settings": {"nice+em": {}}}, "plain names"),
    ):
        with pytest.raises(ConfigError, match=said):
            small_run(tmp_path, **changes)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="num_graphs"):
        MotifConfig(num_graphs=0)


def hand_rows() -> list[dict[str, Any]]:
    """Returns rows of three methods on two tasks; ours is the second best."""
    numbers = {
        ("ba-2motifs", "gin", "roc_auc"): {"nice": 0.8, "saliency": 0.9, "pgexplainer+nc": 0.5},
        ("ba-2motifs", "gin", "kept_area/em"): {"nice": 0.7, "saliency": 0.6},
        ("ba-shapes", "gcn", "roc_auc"): {"nice": 0.6, "saliency": 0.7, "random": 0.95},
    }
    lines = [
        (task, target, name, metric, seed, value + 0.02 * seed, float("nan"))
        for (task, target, metric), cells in numbers.items()
        for name, value in cells.items()
        for seed in (0, 1)
    ]
    lines += [
        ("ba-2motifs", "gin", "target", "accuracy", 0, 1.0, 0.95),
        ("ba-shapes", "gcn", "target", "accuracy", 0, 0.85, 0.9),
        ("ba-shapes", "gcn", "pgexplainer+nc", "cannot/too large", 0, 1.0, float("nan")),
    ]
    names = ("dataset", "target", "setting", "metric", "seed", "value", "level")
    return [dict(zip(names, line, strict=True)) for line in lines]


def test_table_has_ours_first_then_rivals_by_mean_rank(tmp_path: Path) -> None:
    write_part(tmp_path, EXPERIMENT, "hand", hand_rows())
    quality, _ = tables(tmp_path)
    assert list(quality.columns) == [
        "method",
        "group",
        "ba-2motifs gin: AUC",
        "ba-2motifs gin: kept EM",
        "ba-shapes gcn: AUC",
        "rank (of 3)",
    ]
    assert [list(row) for row in quality.rows] == [
        ["nice", "ours", "81.0 ± 1.4", "71.0 ± 1.4", "61.0 ± 1.4", "1.67 (3)"],
        ["saliency", "rival", "91.0 ± 1.4", "61.0 ± 1.4", "71.0 ± 1.4", "1.33 (3)"],
        ["pgexplainer+nc", "rival", "51.0 ± 1.4", "-", "-", "3.00 (1)"],
        ["random", "reference", "-", "-", "96.0 ± 1.4", "-"],
    ]
    assert quality.best == {(1, 2), (0, 3), (1, 4)}  # random is not ranked
    notes = " ".join(quality.notes)
    assert "ba-shapes gcn with seed 0 (85.0, wanted over 90)" in notes
    assert "ba-2motifs gin with seed" not in notes
    assert "pgexplainer+nc cannot explain ba-shapes gcn (seed 0): too large" in notes
    for path in quality.save(tmp_path / "tables"):
        assert "saliency" in path.read_text(encoding="utf-8")


def test_command_makes_its_own_graphs_and_others_need_datasets(tmp_path: Path, monkeypatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(motifs, "compute", lambda **given: asked.append(given))
    run = CliRunner()
    words = ["experiment", "motifs", "--out", str(tmp_path)]
    assert run.invoke(app, words).exit_code == 0
    chosen = ["-e", "nice,random", "--seeds", "0", "--seeds", "1", "-d", "ba-shapes"]
    assert run.invoke(app, [*words, *chosen, "--max-graphs", "20"]).exit_code == 0
    assert asked[0] == {"seeds": (0,), "out": tmp_path, "device": None}
    assert asked[1] == {
        "seeds": (0, 1),
        "out": tmp_path,
        "device": None,
        "max_graphs": 20,
        "datasets": ["ba-shapes"],
        "explainers": ["nice", "random"],
    }
    assert isinstance(run.invoke(app, [*words, "-s", "0,x"]).exception, ConfigError)
    failed = run.invoke(app, ["experiment", "ablation", "--out", str(tmp_path)])
    assert isinstance(failed.exception, ConfigError)
    failed = run.invoke(app, ["experiment", "ablation", "-d", "benzene", "-e", "nice"])
    assert isinstance(failed.exception, ConfigError)


def test_default_methods_are_all_and_six_with_noise_corruption() -> None:
    from nicegnn.rivals.registry import list_explainers

    plain = [name for name in motifs.METHODS if "+" not in name]
    assert plain == list_explainers()
    assert len(motifs.METHODS) == len(plain) + 6
    motifs._check(tuple(motif_tasks.TASKS), None, motifs.METHODS, {})
