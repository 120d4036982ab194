"""Ablation: each variant changes what its name says, equal fits are shared, rows are complete."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.seeding import mix
from nicegnn.studies.ablation import PARTS, AblationStudy, boundary_quality
from nicegnn.studies.bond_scores import explained_batch, query_of
from tests.studies.small_runs import NICE as QUICK
from tests.studies.small_runs import rows_of_run, run, small_job, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_part_changes_its_base_in_its_own_way() -> None:
    configs = {}
    for name, (_, changes) in PARTS.items():
        base = NICEConfig.paper() if name.startswith("paper") else NICEConfig()
        configs[name] = base.with_(**changes).to_toml()
        assert (configs[name] == base.to_toml()) == (name in ("paper", "nice"))
    assert len(set(configs.values())) == len(configs)


def test_variants_of_one_fit_share_it_and_its_boundary(tmp_path: Path, monkeypatch) -> None:
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    names = ("paper", "paper/no-compactness", "nice", "nice/score-gate", "nice/joint-path-clean")
    study = AblationStudy(names, QUICK, num_draws=4, removals=("em",))
    run(study, tmp_path)
    assert len(fits) == 3
    rows = rows_of_run(tmp_path, "ablation")
    value = rows.set_index(["setting", "metric", "protocol"])["value"]
    ours = [value[name, "restored", ""] for name in names if name.startswith("nice")]
    assert len(set(ours)) == 1
    for name in names:
        for metric, protocol in (
            ("degradation_mean", ""),
            ("degradation_std", ""),
            ("roc_auc", "paper"),
            ("roc_auc", "strict"),
            ("kept_area", "em"),
        ):
            assert value[name, metric, protocol] == value[name, metric, protocol]  # no nan
        (status,) = rows.loc[(rows["setting"] == name) & (rows["metric"] == "fit_status"), "note"]
        assert status
    assert set(rows.loc[rows["setting"] == "paper", "explainer"]) == {"nice-paper"}
    assert run(study, tmp_path).num_explained == 0  # all there
    assert len(fits) == 3


def test_boundary_is_judged_by_draws_of_its_own(tmp_path: Path) -> None:
    """Mean and spread of single graphs, one after the other, are those of the batch."""
    job = small_job(AblationStudy(("paper",), QUICK), tmp_path, fit_graphs=40)
    nice = job.explainer()
    scores = job.scores(nice)
    found = {block.metric: block.value for block in boundary_quality(job, nice, scores, 6)}
    means, spreads = [], []
    for row, position in enumerate(job.positions):
        batch = explained_batch(job, position.view(1))
        some = slice(int(scores.bond_ptr[row]), int(scores.bond_ptr[row + 1]))
        with nice.target.frozen(), torch.no_grad():
            query = query_of(nice, batch).under(NoiseCorruption(mix(0, "boundary quality")))
            lost = query.sample(scores.extras["bond_gate"][some], 6, mix(0, "judged draws"))
        means.append(float(lost.mean()))
        spreads.append(float(lost.std(correction=0)))
    assert found["degradation_mean"] == pytest.approx(sum(means) / len(means), rel=1e-3)
    assert found["degradation_std"] == pytest.approx(sum(spreads) / len(spreads), rel=1e-3)
    assert found["restored"] == pytest.approx(float(scores.extras["restored"].mean()))


def test_unknown_part_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such"):
        AblationStudy(("nice", "no-such"))
