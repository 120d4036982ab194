"""Candidates for the score: they are what their names say, and are judged as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.config import NICEConfig
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Site
from nicegnn.target.frozen_model import Target
from nicegnn_lab.metrics import Truth, fidelity_curve, roc_auc
from nicegnn_lab.studies.bond_scores import explained_batch, fit_again, fitted_nice, judge
from nicegnn_lab.studies.scores import (
    JOINS,
    PATHS,
    QUICK,
    EnsembleStudy,
    JoinStudy,
    NoiseAndMask,
    PartStudy,
    RemovalStudy,
    ScoreStudy,
    joined,
)
from tests.lab.studies.small_runs import NICE as SMALL
from tests.lab.studies.small_runs import rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_a_score_is_judged_by_truth_and_by_what_its_best_bonds_keep(tmp_path: Path) -> None:
    job = small_job(ScoreStudy(SMALL), tmp_path)
    batch, target = explained_batch(job), Target(job.model)
    bonds = make_case(batch).bonds
    score = torch.rand(bonds.batch.numel(), generator=torch.Generator().manual_seed(0))
    found = {(b.metric, b.protocol): b.value for b in judge(target, batch, score)}
    is_true = bonds.mean(Truth.from_graphs(batch).edge_truth.float()) > 0.5
    auc = roc_auc(score, is_true, bonds.batch, batch.num_graphs).nanmean()
    assert found["roc_auc", "strict"] == pytest.approx(float(auc))
    curve = fidelity_curve(target, batch, bonds, score, removal="em", explained=1)
    assert found["kept", "em"] == pytest.approx(float(curve.prob_kept.mean()))
    assert found["needed", "em"] == pytest.approx(float((1 - curve.prob_dropped).mean()))
    assert set(found) == {
        ("roc_auc", "strict"),
        ("roc_auc", "paper"),
        ("f1", "paper"),
        *((metric, removal) for metric in ("kept", "needed") for removal in ("em", "nc")),
    }


def test_quick_settings_are_those_of_the_quick_preset() -> None:
    assert NICEConfig().with_(**QUICK) == NICEConfig.quick()


def test_bond_by_bond_needs_no_gates_and_order_no_attribution(tmp_path: Path) -> None:
    study = ScoreStudy(SMALL)
    job = small_job(study, tmp_path, number=3, fit_graphs=40)
    assert job.variant.setting == "margin"
    batch = explained_batch(job)
    found = study.candidates(job, batch)
    assert list(found) == [
        "margin: order",
        *(f"margin: path {name}" for name in PATHS),
        "margin: bond by bond",
        "margin: order and bond by bond",
    ]
    plain = fitted_nice(job).explain(batch, target=1)
    assert torch.allclose(found["margin: bond by bond"], plain.bond_big, atol=1e-5)
    assert torch.allclose(found["margin: order and bond by bond"], plain.bond_score, atol=1e-5)


def test_parts_are_joined_in_every_set_but_two_orders_of_noise(tmp_path: Path) -> None:
    study = PartStudy(SMALL)
    job = small_job(study, tmp_path, fit_graphs=40)
    batch = explained_batch(job)
    found = study.candidates(job, batch)
    assert len(found) == 19
    assert "order nc + order both" not in found
    default = NICE(job.model, NICEConfig().with_(**SMALL))
    fit_again(job, default, 0)
    whole = default.explain(batch, target=1)
    parts = "bond nc + order em + bond em"
    assert torch.allclose(found[parts], whole.bond_score, atol=1e-4)
    names = ("order nc", "order em", "bond em", "order both")
    case = make_case(batch)
    some = {name: torch.randn(case.bonds.batch.numel()) for name in names}
    assert set(joined(some, case)) == {
        *names,
        *("order nc + order em", "order nc + bond em", "order em + bond em"),
        *("bond em + order both", "order nc + order em + bond em"),
    }


def test_noise_and_mask_take_turns() -> None:
    message, gate = torch.ones(4, 3), torch.zeros(4)
    zero = torch.zeros(4, dtype=torch.long)
    site = Site(
        layer=0, name="", draw=torch.arange(4), slot=zero, stream=0, num_slots=1, num_draws=4
    )
    out = NoiseAndMask()(message, gate, site)
    assert bool((out[2:] == 0).all())  # masked
    assert torch.allclose(out[:2].norm(dim=1), message[:2].norm(dim=1))  # noise of the same norm
    assert torch.allclose(out[0], -out[1])  # an antithetic pair


def test_on_gin_a_masked_bond_is_a_bond_taken_out(tmp_path: Path) -> None:
    study = RemovalStudy(SMALL)
    job = small_job(study, tmp_path, fit_graphs=40)
    found = study.candidates(job, explained_batch(job))
    assert torch.allclose(found["masked, alone"], found["taken out, alone"], atol=1e-4)
    assert torch.allclose(found["masked"], found["taken out"], atol=1e-4)


def test_an_ensemble_is_the_mean_of_its_networks(tmp_path: Path) -> None:
    run(EnsembleStudy(SMALL), tmp_path, max_graphs=3)
    rows = rows_of_run(tmp_path, "ensembles")
    settings = set(rows["setting"]) - {""}
    single = {f"one network, seed {member}" for member in range(4)}
    several = {"one network, as long as all", "mean of 2 networks", "mean of 4 networks"}
    assert settings == {
        name + ending for name in single | several for ending in ("", ", order alone")
    }
    assert set(rows.loc[rows["metric"] == "kept", "protocol"]) == {"em", "nc", "delete"}
    assert rows.loc[rows["metric"] == "num_graphs", "value"].tolist() == [3]


def test_joins_have_one_fit_for_all_short_orders_and_the_default_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    job = small_job(JoinStudy(SMALL), tmp_path, fit_graphs=40)
    batch = explained_batch(job)
    found = JoinStudy(SMALL).candidates(job, batch)
    assert len(fits) == 2  # a long one besides
    assert list(found) == [" + ".join(names) for names in JOINS]
    assert len(set(found["loss delete"].tolist())) == 1  # on GIN it repeats masking
    default = NICE(job.model, NICEConfig().with_(**job.variant.settings))
    fit_again(job, default, job.seed)
    expected = default.explain(batch, target=1, seed=job.seed).bond_score
    # the same parts, whose order was learned beside three others
    first = found[" + ".join(JOINS[0])]
    assert float(torch.corrcoef(torch.stack([first, expected]))[0, 1]) > 0.8
