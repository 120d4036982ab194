"""Any graph and any settings: an explanation or a named error, and the model stays as it was."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig
from nicegnn.errors import NicegnnError
from nicegnn.explain.registry import get_explainer
from nicegnn.target.zoo import make_model

QUIET = [HealthCheck.too_slow]
MODELS = {name: make_model(name, 3, 2, hidden_size=8, num_layers=2) for name in ("gin", "gcn")}
STATES = {
    name: {k: v.clone() for k, v in model.state_dict().items()} for name, model in MODELS.items()
}

BACKGROUND = [
    Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])) for _ in range(3)
]

numbers = st.floats(width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, float("nan")])


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    """Returns a graph that may have loops, repeated, one-way or missing edges and odd features."""
    size = draw(st.integers(0, 6))
    node = st.integers(0, max(0, size - 1 + draw(st.sampled_from([0, 0, 0, 2]))))
    pairs = draw(st.lists(st.tuples(node, node), max_size=10)) if size else []
    if draw(st.booleans()):
        pairs += [(b, a) for a, b in pairs]
    width = draw(st.sampled_from([3, 3, 3, 3, 2, 0]))
    x = draw(
        st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=size, max_size=size)
    )
    features = torch.tensor(x, dtype=torch.float32).view(size, width)
    kind = draw(st.sampled_from([torch.float32] * 6 + [torch.int64, torch.float64]))
    index = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t()
    return Data(x=features.to(kind), edge_index=index)


changes = st.fixed_dictionaries(
    {},
    optional={
        "attribution__num_draws": st.sampled_from([1, 2, 3]),
        "attribution__path": st.sampled_from(["joint", "bond"]),
        "attribution__anchor": st.sampled_from(["clean", "propagated"]),
        "boundary__graph_steps": st.integers(1, 3),
        "boundary__objective": st.sampled_from(["penalty", "budget"]),
        "mechanism": st.sampled_from(["exchange", "nc", "em"]),
        "undirected": st.booleans(),
        "chunk_edges": st.sampled_from([1, 7, 400_000]),
        "batch_size": st.sampled_from([1, 2, 256]),
    },
)


@settings(max_examples=120, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(
    some=graphs() | st.lists(graphs(), max_size=3),
    changed=changes,
    name=st.sampled_from([*MODELS]),
    asked=st.fixed_dictionaries(
        {},
        optional={
            "target": st.sampled_from([0, 1, 2, -1]),
            "seed": st.sampled_from([0, 3, -1]),
            "atoms": st.booleans(),
        },
    ),
    method=st.sampled_from(["nice", "nice", "nice", "occlusion", "saliency"]),
)
@example(some=[], changed={}, name="gin", asked={}, method="nice")
def test_every_graph_is_explained_or_named(
    some: Any, changed: dict[str, Any], name: str, asked: dict[str, Any], method: str
) -> None:
    model = MODELS[name].train()
    if method != "nice":
        asked.pop("atoms", None)
    small: dict[str, Any] = {"attribution__num_draws": 2, "attribution__num_nodes": 2}
    small |= {"boundary__num_draws": 2, "boundary__graph_steps": 2}
    config = NICEConfig().with_(**{**small, **changed})
    try:
        if method == "nice":
            out = NICE(model, config, background=BACKGROUND).explain(some, **asked)
        else:
            out = get_explainer(method, model).explain(some, **asked)
    except NicegnnError:
        pass  # a named error; any other fails the test
    else:
        assert out.bond_score.isfinite().all()
        assert out.bond_index.numel() == 0 or int(out.bond_index.max()) < int(out.ptr[-1])
    assert model.training
    assert all(module.training for module in model.modules())
    for key, value in model.state_dict().items():
        assert torch.equal(value, STATES[name][key])
    assert not any(module._forward_hooks for module in model.modules())
