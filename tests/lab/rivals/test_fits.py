"""What a fit depends on, and fits that are taken over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nicegnn import NICE, NICEConfig
from nicegnn_lab.rivals.fits import EXPLAIN_ALONE, adopt, fit_settings
from tests.conftest import random_graph
from tests.explain.small_models import PAPER, make

OTHERWISE: dict[str, Any] = {  # settings that only explain() reads, with other values than in `FEW`
    "seed": 7,
    "batch_size": 2,
    "chunk_edges": 100,
    "attribution.num_draws": 2,
    "attribution.num_nodes": 2,
    "attribution.quadrature": "gauss",
}
FEW = PAPER.with_(boundary__steps=3)
SOME = [random_graph(5 + n % 4, seed=n) for n in range(6)]


def fitted(config: NICEConfig) -> NICE:
    return NICE(make("gin"), config).fit(SOME, seed=0, progress=False)


def gates_of(nice: NICE) -> list[Tensor]:
    assert nice.gates is not None
    return [*nice.gates.state_dict().values()]


def changed(config: NICEConfig, name: str, value: Any) -> NICEConfig:
    return config.with_(**{name.replace(".", "__"): value})


@pytest.fixture(scope="module")
def plain() -> NICE:
    return fitted(FEW)


@pytest.mark.parametrize("name", OTHERWISE)
def test_settings_that_only_explain_reads_leave_the_gates_as_they_are(
    name: str, plain: NICE
) -> None:
    other = fitted(changed(FEW, name, OTHERWISE[name]))
    assert fit_settings(other) == fit_settings(plain)
    near = {"rtol": 1e-3, "atol": 1e-4} if name == "chunk_edges" else {"rtol": 0, "atol": 0}
    if name == "chunk_edges":  # draws that run together are rounded together
        found, expected = (nice.explain(SOME).bond_gate for nice in (other, plain))
        torch.testing.assert_close(found, expected, **near)
        return
    for ours, theirs in zip(gates_of(plain), gates_of(other), strict=True):
        torch.testing.assert_close(ours, theirs, **near)


def test_each_setting_belongs_either_to_the_fit_or_to_explain_alone() -> None:
    assert set(OTHERWISE) == EXPLAIN_ALONE

    def names(values: dict[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for key, value in values.items():
            inner = isinstance(value, dict)
            found |= names(value, f"{prefix}{key}.") if inner else {prefix + key}
        return found

    every, read = names(FEW.to_dict()), names(fit_settings(NICE(make("gin"), FEW)))
    assert read == every - set(OTHERWISE)


def test_adopted_gates_explain_as_if_they_were_fitted_again(plain: NICE) -> None:
    config = FEW.with_(attribution__num_draws=2)
    adopted, again = NICE(plain.target.model, config), fitted(config)
    before = [value.clone() for value in gates_of(plain)]
    adopt(adopted, plain)
    assert adopted.config == config
    assert torch.equal(adopted.explain(SOME).bond_score, again.explain(SOME).bond_score)
    adopted.fit(SOME[:3], seed=1, progress=False)
    for ours, theirs in zip(before, gates_of(plain), strict=True):
        assert torch.equal(ours, theirs)
