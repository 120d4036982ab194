"""Scale study on a small benchmark: rows agree with the theory and with the model itself."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from nicegnn.bench.targets import load_target, target_path
from nicegnn.errors import StoreError
from nicegnn.studies.scale import ScaleStudy, read_states, states_under
from nicegnn.target.zoo import GCN, GIN
from tests.conftest import take_snapshot
from tests.studies.small_runs import make_world, rows_of_run, run, use_world


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        use_world(patch)
        run(ScaleStudy(num_draws=2), folder, max_graphs=12)
    return folder


def scales_of(out: Path, metric: str) -> pd.DataFrame:
    rows = rows_of_run(out, "scale")
    rows = rows[rows["metric"] == metric]
    return rows.pivot(index="graph", columns=["setting", "level"], values="value")


def test_rows_agree_with_norms_and_with_the_theorem(out: Path) -> None:
    states = read_states(out, "benzene", "gin")
    batch = make_world().dataset().test.batch(states.positions)
    home = batch.batch[batch.edge_index[0]]
    size = torch.bincount(home).double()
    scales = scales_of(out, "scale").astype("float64")
    for setting in ("clean", "em"):  # NC is one draw in the states and a mean in the rows
        for layer, norm in enumerate(states.norm[setting].double(), start=1):
            mean = torch.zeros(states.num_graphs).double().index_add(0, home, norm.square()) / size
            found = torch.tensor(scales[setting, layer].loc[states.positions.tolist()].to_numpy())
            torch.testing.assert_close(found, mean, rtol=0.02, atol=1e-6)  # norms in bfloat16
    # one-hot atoms: every message of layer 1 has norm 1, so EM keeps the share of true edges
    share = torch.zeros(states.num_graphs).index_add(0, home, batch.edge_truth.float()) / size
    first = torch.tensor(scales["em", 1].loc[states.positions.tolist()].to_numpy())
    torch.testing.assert_close(first, share.double(), rtol=1e-5, atol=1e-6)
    ratios = scales_of(out, "ratio")
    assert (ratios >= 0).all(axis=None)
    assert ratios["nc", 1].to_numpy() == pytest.approx(1.0, abs=1e-5)  # gates of 0 and 1 keep norms
    assert (scales_of(out, "ratio_fixed")["em"] <= 1 + 1e-6).all(axis=None)  # Theorem 1


def test_states_are_those_of_the_model(out: Path) -> None:
    world = make_world()
    states = read_states(out, "benzene", "gin")
    model = load_target(target_path(world.targets, "benzene", "gin")).model
    batch = world.dataset().test.batch(states.positions)
    with torch.no_grad():
        h = model.embed(batch.x, batch.edge_index, batch.batch)
        logits = model(batch.x, batch.edge_index, batch.batch)
    torch.testing.assert_close(states.embedding["clean"], h, rtol=1e-5, atol=1e-6)
    assert bool((logits.argmax(1) == 1).all())  # correctly classified graphs of label 1 only
    is_false = ~batch.edge_truth
    assert float(states.norm["em"][:, is_false].max()) == 0
    assert float(states.norm["nc"][0, is_false].min()) > 0
    assert not torch.equal(states.embedding["nc"], h)


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_model_is_left_as_it_was(kind, batch) -> None:
    model = kind(5, 2).eval()
    before = take_snapshot(model)
    found = states_under(model, batch, torch.ones(batch.num_edges))
    assert take_snapshot(model) == before
    for name in ("em", "nc"):  # open gates change nothing
        for one, clean in zip(found[name], found["clean"], strict=True):
            torch.testing.assert_close(one, clean)
    assert found["clean"][0].shape == (3, batch.num_edges)
    again = states_under(model, batch, torch.zeros(batch.num_edges), seed=3)
    same = states_under(model, batch, torch.zeros(batch.num_edges), seed=3)
    assert torch.equal(again["nc"][1], same["nc"][1])


def test_missing_states_name_the_command(out: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn experiment scale"):
        read_states(out, "benzene", "gat")
