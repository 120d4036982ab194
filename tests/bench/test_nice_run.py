"""Fits that are kept: one for all settings that do not change it, the same as a plain fit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nicegnn.bench.nice_run import boundary_quality, explain_all, fit_once, quality
from nicegnn.config import NICEConfig
from nicegnn.explain.nice import NICE
from tests.studies.small_runs import NICE as QUICK
from tests.studies.small_runs import small_subject, use_world

CONFIG = NICEConfig().with_(**QUICK)


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of gates for several tests."""
    return tmp_path_factory.mktemp("experiments")


def test_kept_gates_explain_like_a_plain_fit(tmp_path: Path) -> None:
    subject = small_subject()
    plain = NICE(subject.model, CONFIG).fit(subject.dataset.train, seed=3, progress=False)
    expected = plain.explain(subject.dataset.test.batch(subject.positions), seed=3)
    for _ in range(2):  # fitted, then read
        fitted = fit_once(subject, CONFIG, 3, tmp_path)
        scores = explain_all(subject, fitted.nice, 3)
        assert torch.equal(scores.bond_score, expected.bond_score)
        assert plain.fit_report is not None
        assert fitted.status == plain.fit_report.status
        assert fitted.seconds > 0
    assert not list(tmp_path.rglob("*.part"))


def test_only_what_changes_gates_is_fitted_anew(gates: Path, monkeypatch) -> None:
    subject = small_subject()
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    fit_once(subject, CONFIG, 0, gates, fit_graphs=40)
    for changes, is_another_fit in (
        ({"score": "gate"}, False),
        ({"attribution__path": "joint", "attribution__num_nodes": 3}, False),
        ({"boundary__risk_target": 0.2}, False),
        ({"boundary__contrast": 0.5}, True),
        ({"boundary__beta": 0.2}, True),
        ({"mechanism": "em"}, True),
        ({"attribution__antithetic": False}, True),  # the noise of the fit is antithetic too
    ):
        fits.clear()
        config = CONFIG.with_(**changes)
        assert fit_once(subject, config, 0, gates, fit_graphs=40).nice.config == config
        assert len(fits) == is_another_fit, changes
    fits.clear()
    fit_once(subject, CONFIG, 1, gates, fit_graphs=40)
    fit_once(subject, CONFIG, 0, gates, fit_graphs=30)
    assert len(fits) == 2  # another seed, other graphs


def test_a_fit_that_was_broken_off_goes_on(tmp_path: Path, gates: Path, monkeypatch) -> None:
    subject = small_subject()
    expected = fit_once(subject, CONFIG, 0, gates, fit_graphs=40)
    with monkeypatch.context() as patch:
        patch.setattr(NICE, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit_once(subject, CONFIG, 0, tmp_path, fit_graphs=40)
    found = fit_once(subject, CONFIG, 0, tmp_path, fit_graphs=40)
    assert math.isnan(found.seconds)  # of the first try nobody knows
    assert found.nice.gates is not None
    assert expected.nice.gates is not None
    wanted = expected.nice.gates.state_dict()
    for name, value in found.nice.gates.state_dict().items():
        assert torch.equal(value, wanted[name])


def test_open_gates_lose_nothing_and_shut_ones_do(gates: Path) -> None:
    subject = small_subject()
    fitted = fit_once(subject, CONFIG, 0, gates, fit_graphs=40)
    scores = explain_all(subject, fitted.nice, 0)
    gate = scores.extras["bond_gate"]
    found = {
        value: boundary_quality(
            subject,
            fitted.nice,
            replace(scores, extras={**scores.extras, "bond_gate": torch.full_like(gate, value)}),
            num_draws=8,
            seed=0,
        )
        for value in (0.0, 1.0)
    }
    assert found[1.0]["degradation_mean"] == pytest.approx(0, abs=1e-5)
    assert found[1.0]["degradation_std"] == pytest.approx(0, abs=1e-5)
    assert found[0.0]["degradation_mean"] > 0.01
    assert found[0.0]["degradation_std"] > 0.001


def test_quality_of_the_truth_is_perfect(gates: Path) -> None:
    subject = small_subject()
    fitted = fit_once(subject, CONFIG, 0, gates, fit_graphs=40)
    scores = explain_all(subject, fitted.nice, 0)
    batch = subject.dataset.test.batch(subject.positions)
    truth = batch.edge_truth[::2].float()  # bond b is edges 2b and 2b + 1
    found = quality(subject, replace(scores, bond_score=truth), 0, removals=("em",))
    assert found["roc_auc/strict"] == 1
    assert set(found) == {
        f"{metric}/{protocol}" for metric in ("roc_auc", "f1") for protocol in ("paper", "strict")
    } | {"kept_area/em"}
