"""Tables of settings: which table holds for which explainer, dataset and target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.bench.plan import read_settings, settings_of

TOML = """
[gnnexplainer]
steps = 7
num_draws = 2

["gnnexplainer+nc"]
num_draws = 3

[nice]
boundary__steps = 5
"""


def test_table_of_a_mechanism_goes_on_top_of_the_explainers(tmp_path: Path) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(TOML)
    tables = read_settings(path)

    def of(name: str) -> dict[str, Any]:
        return settings_of(name, tables, "benzene", "gin")

    assert of("gnnexplainer") == {"steps": 7, "num_draws": 2}  # with em, as it was published
    assert of("gnnexplainer+nc") == {"steps": 7, "num_draws": 3}
    assert of("nice+nc") == {"boundary__steps": 5}
    assert of("random") == {}


def test_table_of_a_target_goes_on_top_of_its_dataset(tmp_path: Path) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(
        TOML
        + "\n[benzene.gnnexplainer]\nsteps = 9\n[gcn.gnnexplainer]\nsize = 1.0\nsteps = 10\n"
        + "[gcn.benzene.gnnexplainer]\nsteps = 11\n"
    )
    tables = read_settings(path)
    found = {
        (dataset, target): settings_of("gnnexplainer", tables, dataset, target)
        for dataset in ("benzene", "mutagenicity")
        for target in ("gin", "gcn")
    }
    assert found["benzene", "gin"] == {"steps": 9, "num_draws": 2}
    assert found["benzene", "gcn"] == {"steps": 11, "num_draws": 2, "size": 1.0}
    assert found["mutagenicity", "gin"] == {"steps": 7, "num_draws": 2}
    assert found["mutagenicity", "gcn"] == {"steps": 10, "num_draws": 2, "size": 1.0}
    path.write_text("[gcn.benzene.gnnexplainr]\nsteps = 9\n")
    with pytest.raises(ConfigError, match="gnnexplainr"):
        read_settings(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gnnexplainr]\nsteps = 1", "gnnexplainr"),
        ("['gnnexplainer+noise']\nsteps = 1", "noise"),
        ("[saliency]\nseed = 3", "seed"),
        ("[saliency]\nundirected = false", "undirected"),
        ("saliency = 3", "table"),
        ("[saliency", "Cannot read"),
    ],
)
def test_wrong_table_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_settings(path)
    assert str(path) in str(caught.value)
