"""Views of the target: which message they damage, and falling back from noise to masking."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig
from nicegnn.explain import nice as nice_module
from nicegnn.explain import score_parts
from tests.explain.small_models import FAST, make


@pytest.mark.parametrize("part", ["boundary", "attribution"])
def test_the_anchor_of_each_part_reaches_its_own_mechanism(part: str, graphs: list[Data]) -> None:
    config = FAST.with_(mechanism="nc", **{f"{part}__anchor": "clean"})
    view = NICE(make("gin"), config).views[0]
    anchors = {"boundary": view.boundary_mechanism.anchor, "attribution": view.mechanism.anchor}
    assert anchors.pop(part) == "clean"
    assert set(anchors.values()) == {"propagated"}


def test_both_parts_share_one_mechanism_where_their_anchors_agree() -> None:
    for view in NICE(make("gin"), NICEConfig.paper()).views:
        assert view.mechanism is view.boundary_mechanism
        assert view.mechanism.anchor == "clean"


@pytest.mark.parametrize("anchor", ["clean", "propagated"])
def test_the_papers_method_is_saved_and_loaded_whole(
    anchor: str, graphs: list[Data], tmp_path: Path
) -> None:
    config = NICEConfig.paper(anchor).with_(boundary__steps=3, boundary__batch_size=4)
    model = make("gin")
    nice = NICE(model, config).fit(graphs, progress=False)
    nice.save(tmp_path / "nice.safetensors")
    again = NICE.load(tmp_path / "nice.safetensors", model)
    assert again.config == config
    found, wanted = (one.explain(graphs) for one in (again, nice))
    assert torch.equal(found.bond_score, wanted.bond_score)
    assert torch.equal(found.bond_gate, wanted.bond_gate)


def test_ordered_ends_give_a_bond_the_mean_of_its_directions(graphs: list[Data]) -> None:
    config = NICEConfig.paper().with_(boundary__steps=2, boundary__batch_size=4)
    nice = NICE(make("gin"), config).fit(graphs, progress=False)
    out = nice.explain(graphs)
    flipped = [graph.clone() for graph in graphs]
    for graph in flipped:
        graph.edge_index = graph.edge_index.flip(0)
    again = nice.explain(flipped)
    torch.testing.assert_close(again.bond_gate, out.bond_gate)


def test_instant_settings_seek_no_boundary(graphs: list[Data], monkeypatch) -> None:
    for name in ("find_boundary", "optimise_logits"):
        monkeypatch.setattr(nice_module, name, None, raising=False)
        monkeypatch.setattr(score_parts, name, None, raising=False)
    out = NICE(make("gcn"), NICEConfig.instant()).explain(graphs)
    assert out.status.boundary == "none"
    assert bool(out.bond_gate.isnan().all())
    assert bool(out.bond_score.isfinite().all())


def test_instant_scores_are_the_losses_of_the_default(graphs: list[Data]) -> None:
    model = make("gcn")
    fitted = NICE(model, FAST.with_(score="big")).fit(graphs, progress=False)
    instant = NICE(model, NICEConfig.instant().with_(attribution=FAST.attribution))
    torch.testing.assert_close(
        instant.explain(graphs).bond_score, fitted.explain(graphs).bond_score
    )


BRIEF = NICEConfig().with_(boundary__steps=3, boundary__batch_size=4, boundary__num_draws=2)
