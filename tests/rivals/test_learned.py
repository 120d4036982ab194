"""What rivals that learn share: what a fit depends on, checkpoints, files, graphs without edges."""

from __future__ import annotations

import pytest
import torch

from nicegnn.errors import ConfigError, GraphError, NotFittedError, StoreError
from nicegnn.rivals.pgexplainer import PGExplainer, PGExplainerConfig
from nicegnn.rivals.registry import EXPLAINERS, get_explainer
from tests.conftest import make_graph
from tests.rivals.learned_properties import SHORT, fitted
from tests.rivals.rival_properties import gin, some_graphs

LEARNED = [
    name for name, entry in EXPLAINERS.items() if entry.learns and not name.startswith("nice")
]


@pytest.mark.parametrize("name", LEARNED)
def test_a_fit_depends_on_all_but_the_settings_of_explaining(name):
    explainer = get_explainer(name, gin())
    known = {"seed", "batch_size", "chunk_edges"}
    known |= {
        "refine": {"fine_tune_steps", "fine_tune_rate"},
        "d4explainer": {"sign", "num_draws", "chunk_pairs"},
    }.get(name, set())
    settings = explainer.fit_settings()
    assert set(explainer.config.to_dict()) - set(settings) == known
    assert settings["mechanism"] == "ElementMask()"


def test_the_mechanism_is_part_of_what_a_fit_depends_on():
    names = [get_explainer(f"pgexplainer{end}", gin()).fit_settings() for end in ("", "+nc")]
    assert names[0] != names[1]


@pytest.mark.parametrize("change", [{"fine_tune_steps": 0}, {"fine_tune_rate": 1e-3}])
def test_settings_of_explaining_do_not_change_the_fit(change):
    one, other = fitted("refine"), fitted("refine", **change)
    assert all(
        torch.equal(a, b) for a, b in zip(one.net.parameters(), other.net.parameters(), strict=True)
    )


def test_a_checkpoint_serves_other_settings_of_explaining_and_no_other_fit(tmp_path):
    path = tmp_path / "fit.safetensors"
    fitted("refine", fit={"checkpoint": path})
    again = fitted("refine", fit={"checkpoint": path}, fine_tune_steps=1, chunk_edges=9)
    assert len(again.history) == SHORT["steps"]
    for name, value in (("hidden_size", 8), ("size", 0.5)):
        with pytest.raises(StoreError, match=f"differ: settings.{name}"):
            fitted("refine", fit={"checkpoint": path}, **{name: value})


def test_what_was_learned_is_adopted_where_only_explaining_differs():
    model = gin()
    learned = fitted("refine", model)
    other = get_explainer("refine", model, **SHORT, fine_tune_steps=0)
    plain = fitted("refine", model, fine_tune_steps=0).explain(some_graphs())
    assert torch.equal(other.adopt(learned).explain(some_graphs()).bond_score, plain.bond_score)
    with pytest.raises(NotFittedError, match="differ: size"):
        get_explainer("refine", model, **SHORT, size=0.5).adopt(learned)


def test_a_file_is_refused_for_another_mechanism_or_model(tmp_path):
    path = tmp_path / "pg.safetensors"
    explainer = fitted("pgexplainer")
    explainer.save(path)
    with pytest.raises(StoreError, match=r"`mechanism` must be the one.*ElementMask"):
        PGExplainer.load(path, explainer.target.model, mechanism="nc")
    with pytest.raises(StoreError, match="fingerprint"):
        PGExplainer.load(path, gin(hidden_size=4))


def test_graphs_without_edges_teach_nothing():
    explainer = get_explainer("pgexplainer", gin(), **SHORT)
    with pytest.raises(GraphError, match=r"a graph with edges \(got 2 without\)"):
        explainer.fit([make_graph([], 3, seed=5), make_graph([], 2, seed=6)], progress=False)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="`learning_rate` must be a positive number"):
        PGExplainerConfig(learning_rate=0.0)
    for name in ("steps", "fit_batch_size", "hidden_size"):
        with pytest.raises(ConfigError, match=f"`{name}` must be a whole number of at least 1"):
            PGExplainerConfig(**{name: 0})
