"""Ablation: each variant changes what its name says, fits are shared, tables are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.bench.study_rows import read_experiment, write_part
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.studies import ablation
from nicegnn.studies.ablation import COLUMNS, EXPERIMENT, VARIANTS
from tests.studies.small_runs import NICE as QUICK
from tests.studies.small_runs import quick, use_world


@pytest.fixture(autouse=True)
def _small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    use_world(monkeypatch)


def test_every_variant_differs_from_its_base() -> None:
    for name, variant in VARIANTS.items():
        base = NICEConfig.paper() if name.startswith("paper") else NICEConfig()
        assert (variant.config({}) == base) == (name in ("paper", "nice"))
    configs = [variant.config({}).to_toml() for variant in VARIANTS.values()]
    assert len(set(configs)) == len(configs)


def test_variants_of_one_fit_share_it_and_its_boundary(tmp_path: Path, monkeypatch) -> None:
    fits = []
    plain = NICE.fit
    monkeypatch.setattr(NICE, "fit", lambda *a, **k: fits.append(1) or plain(*a, **k))
    names = ("paper", "paper/no-compactness", "nice", "nice/score-gate", "nice/joint-path-clean")
    settings = quick(
        tmp_path,
        variants=names,
        settings=QUICK,
        fit_graphs=40,
        num_draws=4,
        removals=("em",),
    )
    ablation.compute(**settings)
    assert len(fits) == 3
    rows = read_experiment(tmp_path, EXPERIMENT).set_index(["setting", "metric"])["value"]
    ours = [rows[name, "restored"] for name in names if name.startswith("nice")]
    assert len(set(ours)) == 1
    for name in names:
        for _, metric, _ in COLUMNS[:-1]:
            assert rows[name, metric] == rows[name, metric]  # no nan
        statuses = [m for m in rows[name].index if m.startswith("fit_status/")]
        assert len(statuses) == 1
    ablation.compute(**settings)  # all there
    assert len(fits) == 3
    srb, nice = ablation.tables(tmp_path)
    assert [row[1] for row in srb.rows] == ["Full SRB", "w/o Comp."]
    assert len(nice.rows) == 3


def test_unknown_variant_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such"):
        ablation.compute(**quick(tmp_path, variants=("nice", "no-such")))


def test_table_has_spread_over_seeds_statuses_and_the_papers_numbers(tmp_path: Path) -> None:
    rows = [
        {
            "dataset": "benzene",
            "target": "gin",
            "setting": "paper",
            "level": float("nan"),
            "seed": seed,
            "metric": metric,
            "value": value,
        }
        for seed, status in enumerate(("ok", "inverted", "ok"))
        for metric, value in (("restored", 0.2 + 0.1 * seed), (f"fit_status/{status}", 1.0))
    ]
    write_part(tmp_path, EXPERIMENT, "hand", rows)
    (table,) = ablation.tables(tmp_path)
    (line,) = table.rows
    cells = dict(zip(table.columns, line, strict=True))
    assert cells["Rest."] == "0.30 ± 0.10"
    assert cells["fit"] == "2 ok, 1 inverted"
    assert cells["Mean"] == "-"
    assert cells["paper Rest."] == "0.27 ± 0.11"
    assert cells["paper AUC"] == "0.87 ± 0.00"
