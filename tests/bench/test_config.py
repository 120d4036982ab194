"""Settings of a benchmark: tables of explainers, and errors before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nicegnn.bench import BenchConfig, MetricConfig, make_engine, read_settings
from nicegnn.bench.settings import choose, settings_for
from nicegnn.errors import ConfigError, NicegnnError

TOML = """
[gnnexplainer]
steps = 7
num_draws = 2

["gnnexplainer+nc"]
num_draws = 3

[nice]
boundary__steps = 5
mechanism = "em"
"""


def test_table_of_a_mechanism_goes_on_top_of_the_explainers(tmp_path: Path) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(TOML)
    tables = read_settings(path)
    assert dict(choose("gnnexplainer", tables).values) == {"steps": 7, "num_draws": 2}
    assert dict(choose("gnnexplainer+nc", tables).values) == {"steps": 7, "num_draws": 3}
    assert choose("gnnexplainer", tables).mechanism == "em"  # what it was published with
    assert choose("gnnexplainer+nc", tables).mechanism == "nc"
    assert choose("nice", tables).mechanism == "em"  # as its table says
    assert choose("nice+nc", tables).mechanism == "nc"  # as its name says
    assert dict(choose("nice", tables).values) == {"boundary__steps": 5}
    assert choose("random", tables).mechanism == ""


def test_table_of_a_dataset_goes_on_top_of_all(tmp_path: Path) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(TOML + "\n[benzene.gnnexplainer]\nsteps = 9\n[benzene.saliency]\n")
    tables = read_settings(path)
    here, there = (settings_for(tables, name, "gin") for name in ("benzene", "mutagenicity"))
    assert dict(choose("gnnexplainer+nc", here).values) == {"steps": 9, "num_draws": 3}
    assert dict(choose("gnnexplainer+nc", there).values) == {"steps": 7, "num_draws": 3}
    path.write_text("[benzene.gnnexplainr]\nsteps = 9\n")
    with pytest.raises(ConfigError, match="gnnexplainr"):
        read_settings(path)


def test_table_of_a_target_goes_on_top_of_its_dataset(tmp_path: Path) -> None:
    path = tmp_path / "explainers.toml"
    path.write_text(
        TOML
        + "\n[benzene.gnnexplainer]\nsteps = 9\n[gcn.gnnexplainer]\nsize = 1.0\nsteps = 10\n"
        + "[gcn.benzene.gnnexplainer]\nsteps = 11\n"
    )
    tables = read_settings(path)
    found = {
        (dataset, target): settings_for(tables, dataset, target)["gnnexplainer"]
        for dataset in ("benzene", "mutagenicity")
        for target in ("gin", "gcn")
    }
    assert found["benzene", "gin"] == {"steps": 9, "num_draws": 2}
    assert found["benzene", "gcn"] == {"steps": 11, "num_draws": 2, "size": 1.0}
    assert found["mutagenicity", "gin"] == {"steps": 7, "num_draws": 2}
    assert found["mutagenicity", "gcn"] == {"steps": 10, "num_draws": 2, "size": 1.0}
    assert "gcn" not in settings_for(tables, "benzene", "gcn")
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


@pytest.mark.parametrize("name", ["unknown", "random+nc", "saliency+nc", "nice+dropout"])
def test_unknown_explainer_or_mechanism_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError):
        choose(name, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"explainers": ()},
        {"datasets": ()},
        {"seeds": ("0",)},
        {"part": "train"},
        {"max_graphs": 0},
        {"fit_graphs": -1},
        {"device": "gpu"},
    ],
)
def test_impossible_benchmark_is_an_error(settings: dict[str, object]) -> None:
    given = {"datasets": ("benzene",), "explainers": ("random",)} | settings
    with pytest.raises(ConfigError):
        BenchConfig(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"protocols": ("lenient",)},
        {"removals": ("drop",)},
        {"ratios": (0.5, 0.1)},
        {"ratios": ()},
        {"ratios": (0.0, 0.5)},
        {"top": 0.0},
        {"num_draws": 0},
    ],
)
def test_impossible_metrics_are_errors(settings: dict[str, object]) -> None:
    with pytest.raises(NicegnnError):
        MetricConfig(**settings)  # type: ignore[arg-type]


def test_order_and_unused_settings_of_metrics_do_not_matter() -> None:
    one = MetricConfig(protocols=("strict", "paper"), removals=("delete", "em"))
    other = MetricConfig(protocols=("paper", "strict"), removals=("em", "delete"), num_draws=3)
    assert one.identity() == other.identity()  # draws are those of removal nc
    assert MetricConfig().identity() != MetricConfig(num_draws=3).identity()


def test_names_count_once_and_folders_are_absolute() -> None:
    config = BenchConfig(("benzene", "benzene"), ("random",), seeds=(1, 0, 1), out=Path("here"))
    assert config.datasets == ("benzene",)
    assert config.seeds == (1, 0)
    assert config.out == Path.cwd() / "here"


def test_local_engine_refuses_what_only_ray_can_do() -> None:
    with pytest.raises(ConfigError, match="--engine ray"):
        make_engine("local", workers=4)
    with pytest.raises(ConfigError, match="must be one of"):
        make_engine("slurm")
