"""Views: noise and masking side by side, fitted together as if alone, joined, kept in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from nicegnn import NICE, ElementMask, NICEConfig, NoiseCorruption
from nicegnn.explain.nice import combine
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import case_of
from nicegnn.intervention.intervene import Site
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, random_graph

FAST = NICEConfig(fallback=False).with_(
    boundary__steps=4, boundary__batch_size=4, boundary__num_draws=2, boundary__graph_steps=3
)
GRAPHS = [random_graph(5 + n % 4, seed=n) for n in range(8)]


@pytest.fixture
def model() -> GIN:
    torch.manual_seed(0)
    return GIN(NUM_FEATURES, 2, hidden_size=8)


def states(nice: NICE) -> list[dict[str, Tensor]]:
    return [view.gates.state_dict() for view in nice.views if view.gates is not None]


def test_default_sees_noise_first_and_masking_too(model: GIN) -> None:
    kinds = [type(view.mechanism) for view in NICE(model).views]
    assert kinds == [NoiseCorruption, ElementMask]
    assert len(NICE(model, NICEConfig.paper()).views) == 1
    assert len(NICE(model, mechanism=ElementMask()).views) == 1


def test_views_fitted_together_end_as_if_alone(model: GIN) -> None:
    together = states(NICE(model, FAST).fit(GRAPHS, progress=False))
    for number, name in enumerate(("nc", "em")):
        (alone,) = states(NICE(model, FAST.with_(mechanism=name)).fit(GRAPHS, progress=False))
        for key, value in alone.items():
            torch.testing.assert_close(together[number][key], value, rtol=1e-4, atol=1e-5)
    assert any(not torch.equal(together[0][k], together[1][k]) for k in together[0])


@pytest.mark.parametrize("is_fitted", [True, False])
@pytest.mark.parametrize("score", ["both", "gate", "big"])
def test_score_joins_the_parts_of_both(model: GIN, score: str, is_fitted: bool) -> None:
    def explained(mechanism: str, score: str, **changes: bool) -> Tensor:
        nice = NICE(model, FAST.with_(mechanism=mechanism, score=score, **changes))
        if is_fitted:
            nice.fit(GRAPHS, progress=False)
        return nice.explain(GRAPHS).bond_score

    kinds = ("gate", "big") if score == "both" else (score,)
    parts = [
        explained(mechanism, kind, attribution__take_out=False)  # one part alone stays as it is
        for kind in kinds
        for mechanism in ("nc", "em")
    ]
    wanted = combine(case_of(to_batch(GRAPHS)), *parts)
    torch.testing.assert_close(explained("both", score), wanted, rtol=1e-3, atol=1e-4)


def test_boundary_and_attribution_are_those_of_noise(model: GIN) -> None:
    both, noise = (NICE(model, FAST.with_(mechanism=m)).explain(GRAPHS) for m in ("both", "nc"))
    for name in ("bond_big", "bond_gate", "bond_stderr", "restored", "risk_corrupted"):
        assert torch.equal(getattr(both, name), getattr(noise, name)), name


def test_both_views_are_kept_in_one_file(model: GIN, tmp_path: Path) -> None:
    path = tmp_path / "gates.safetensors"
    nice = NICE(model, FAST).fit(GRAPHS, progress=False)
    nice.save(path)
    loaded = NICE.load(path, model)
    assert torch.equal(loaded.explain(GRAPHS).bond_score, nice.explain(GRAPHS).bond_score)
    lead = NICE.load(path, model, mechanism=NoiseCorruption(antithetic=True))
    assert len(lead.views) == 1
    assert lead.is_fitted


def test_file_of_the_first_version_is_read(model: GIN, tmp_path: Path) -> None:
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    nice = NICE(model, FAST.with_(mechanism="nc")).fit(GRAPHS, progress=False)
    nice.save(new)
    tensors, description = load_tensors(new, "nice")
    plain = {key.removeprefix("0."): value for key, value in tensors.items()}
    save_tensors(old, plain, description | {"version": 1})
    found = NICE.load(old, model).explain(GRAPHS)
    assert torch.equal(found.bond_score, nice.explain(GRAPHS).bond_score)


def test_report_judges_each_view(model: GIN) -> None:
    report = NICE(model, FAST).fit(GRAPHS, progress=False).fit_report
    assert report is not None
    assert len(report.views) == 2
    assert report.classes == report.views[0]
    assert set(report.views[0]) == set(report.views[1])


def test_nothing_random_is_drawn_once(model: GIN) -> None:
    class Counting(ElementMask):
        rows = 0

        def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
            self.rows += message.size(0)
            return super().__call__(message, gate, site)

    seen = {}
    for num_draws in (2, 16):
        mechanism = Counting()
        config = FAST.with_(boundary__num_draws=num_draws, boundary__fit_draws=num_draws)
        nice = NICE(model, config, mechanism=mechanism).fit(GRAPHS, progress=False)
        nice.explain(GRAPHS)
        seen[num_draws] = mechanism.rows
    assert seen[2] == seen[16]
