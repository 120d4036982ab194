"""Scale study on a small benchmark: rows agree with the theory and with the model itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nicegnn.bench.targets import load_target, target_path
from nicegnn.errors import ConfigError, StoreError
from nicegnn.studies import scale as scale_study
from nicegnn.studies.scale import (
    EXPERIMENT,
    compute,
    read_scales,
    read_states,
    states_under,
    table,
    targets_in,
)
from nicegnn.target.zoo import GCN, GIN
from tests.conftest import take_snapshot
from tests.tables.synthetic_rows import make_world

SETTINGS = {"targets": ["gin"], "max_graphs": 12, "num_draws": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments")
    world = make_world()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        compute(["benzene"], out=folder, progress=False, targets_folder=world.targets, **SETTINGS)
    return folder


def test_rows_agree_with_norms_and_with_the_theorem(out: Path) -> None:
    states = read_states(out, "benzene", "gin")
    batch = make_world().dataset().test.batch(states.positions)
    home = batch.batch[batch.edge_index[0]]
    size = torch.bincount(home).double()
    scales = read_scales(out).pivot(index="graph", columns=["setting", "layer"], values="value")
    for setting in ("clean", "em"):  # NC is one draw in the states and a mean in the rows
        for layer, norm in enumerate(states.norm[setting].double(), start=1):
            mean = torch.zeros(states.num_graphs).double().index_add(0, home, norm.square()) / size
            found = torch.tensor(scales[setting, layer].loc[states.positions.tolist()].to_numpy())
            torch.testing.assert_close(found, mean, rtol=0.02, atol=1e-6)  # norms in bfloat16
    # one-hot atoms: every message of layer 1 has norm 1, so EM keeps the share of true edges
    share = torch.zeros(states.num_graphs).index_add(0, home, batch.edge_truth.float()) / size
    first = torch.tensor(scales["em", 1].loc[states.positions.tolist()].to_numpy())
    torch.testing.assert_close(first, share.double(), rtol=1e-5, atol=1e-6)
    ratios = read_scales(out, "ratio")
    assert (ratios["value"] >= 0).all()
    nc = ratios[(ratios["setting"] == "nc") & (ratios["layer"] == 1)]
    assert nc["value"].to_numpy() == pytest.approx(1.0, abs=1e-5)  # gates of 0 and 1 keep norms
    fixed = read_scales(out, "ratio_fixed")
    em = fixed[fixed["setting"] == "em"]
    assert (em["value"] <= 1 + 1e-6).all()  # Theorem 1


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


def test_finished_parts_are_not_computed_again(out: Path, monkeypatch) -> None:
    world = make_world()
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(scale_study, "measure", never)
    compute(["benzene"], out=out, progress=False, targets_folder=world.targets, **SETTINGS)
    assert len(list((out / EXPERIMENT).glob("*.parquet"))) == 1


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


def test_table_has_a_row_per_dataset_and_target(out: Path) -> None:
    found = table(out)
    assert found.columns == ["dataset", "target", "graphs"] + [
        f"{name} {layer}" for name in ("EM", "NC") for layer in (1, 2, 3)
    ] + ["EM off", "NC off"]
    (row,) = found.rows
    assert row[:2] == ["benzene", "gin"]
    assert row[6] == "1.00"
    ratios = read_scales(out, "ratio")
    first = ratios[(ratios["setting"] == "em") & (ratios["layer"] == 1)]["value"]
    assert row[3] == f"{first.mean():.2f}"
    assert int(row[2]) == len(first)
    assert targets_in(ratios) == ["gin"]


def test_errors_say_what_to_do(out: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn experiment scale_study"):
        read_states(out, "benzene", "gat")
    with pytest.raises(ConfigError, match="atoms"):
        compute(["B"], out=tmp_path, progress=False)
