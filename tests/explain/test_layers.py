"""Every convolution of PyG in a model of its own: explained, or refused with a reason."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import conv as convolutions

from nicegnn import NICE
from nicegnn.errors import NicegnnError

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"
WIDTH, EDGES = 6, 4

#: Values of arguments by their name; classes are made with those that they have.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("in_channels", "out_channels", "channels", "hidden_channels"), WIDTH),
    **dict.fromkeys(("dim", "edge_dim", "edge_type_emb_dim", "edge_attr_emb_dim"), EDGES),
    **dict.fromkeys(("num_relations", "num_edge_types", "num_node_types"), 3),
    **dict.fromkeys(("K", "num_layers", "kernel_size"), 2),
    "alpha": 0.5,
    "aggregators": ["sum", "mean"],
    "scalers": ["identity"],
    "deg": torch.tensor([0, 2, 4]),
}
#: Why some are not tried, and what to do.
NOT_TRIED = {
    **dict.fromkeys(
        ("CuGraphGATConv", "CuGraphRGCNConv", "CuGraphSAGEConv", "FusedGATConv"),
        "no: its kernel fuses messages with their sum, so that none can be damaged. Use the layer "
        "of the same name without `CuGraph` or `Fused`",
    ),
    **dict.fromkeys(
        ("DynamicEdgeConv", "GravNetConv", "XConv"),
        "no: it finds neighbours by itself, and has no edges of the graph to score. Make the edges "
        "first, and use EdgeConv, for example",
    ),
    **dict.fromkeys(
        ("PANConv", "SplineConv"), "not tried: it needs a further package (torch-sparse, pyg-lib)"
    ),
    "DNAConv": "not tried: it reads a history of states; explain the model that makes it",
    "HypergraphConv": "no: it sends from nodes to hyperedges and back, which are no edges between "
    "nodes. Write the two as kinds of a HeteroData",
    "MeshCNNConv": "no: it sums over four fixed neighbours, not over edges",
    "SignedConv": "no: it takes two sets of edges. Write them as kinds of a HeteroData",
    "WLConv": "no: it hashes colours, which are whole numbers",
}
#: Arguments that the names do not tell.
OWN: dict[str, Any] = {
    "CGConv": {"channels": WIDTH, "dim": EDGES},
    "GeneralConv": {"in_edge_channels": EDGES},
    "GCN2Conv": {"theta": 0.5, "layer": 1},
    "EGConv": {"num_heads": 2, "aggregators": ["sum"]},
    "NNConv": {"nn": nn.Linear(EDGES, WIDTH * WIDTH)},
    "EdgeConv": {"nn": nn.Linear(2 * WIDTH, WIDTH)},
    "DynamicEdgeConv": {"nn": nn.Linear(2 * WIDTH, WIDTH)},
    "PointNetConv": {"local_nn": nn.Linear(WIDTH + 3, WIDTH)},
    "PPFConv": {"local_nn": nn.Linear(WIDTH + 4, WIDTH)},
    "PointGNNConv": {
        "mlp_h": nn.Linear(WIDTH, 3),
        "mlp_f": nn.Linear(WIDTH + 3, WIDTH),
        "mlp_g": nn.Linear(WIDTH, WIDTH),
    },
    "GPSConv": {"conv": convolutions.GCNConv(WIDTH, WIDTH), "heads": 2},
    "DirGNNConv": {"conv": convolutions.SAGEConv(WIDTH, WIDTH)},
    "PointTransformerConv": {},
    "XConv": {"dim": 3},
}
KIND = ("a", "to", "a")


def make(name: str) -> nn.Module:
    kind = getattr(convolutions, name)
    if name == "HeteroConv":
        return kind({KIND: convolutions.SAGEConv(WIDTH, WIDTH)})
    own = {**OWN.get(name, {})}
    for key, parameter in inspect.signature(kind.__init__).parameters.items():
        is_needed = parameter.default is inspect.Parameter.empty or key == "edge_dim"
        if key not in ("self", "args", "kwargs") and is_needed and key not in own:
            if key == "nn":
                own[key] = nn.Linear(WIDTH, WIDTH)
            elif key == "metadata":
                own[key] = (["a"], [KIND])
            elif key in VALUES:
                own[key] = VALUES[key]
    made: nn.Module = kind(**own)
    return made


def graph() -> Data:
    draw = torch.Generator().manual_seed(0)
    ends = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4]])
    x = torch.rand(5, WIDTH, generator=draw)
    return Data(
        x=x,
        x_0=x.clone(),
        edge_index=ends,
        edge_attr=torch.rand(10, EDGES, generator=draw),
        edge_type=torch.arange(10) % 3,
        node_type=torch.arange(5) % 3,
        pos=torch.rand(5, 3, generator=draw),
        normal=torch.rand(5, 3, generator=draw),
    )


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv, self.name = make(name), name
        self.names = list(inspect.signature(self.conv.forward).parameters)
        self.head = nn.LazyLinear(3)

    def forward(self, data: Any) -> Tensor:
        if isinstance(data, HeteroData):
            out = self.conv(data.x_dict, data.edge_index_dict)["a"]
            return self.head(out.mean(0, keepdim=True))
        given = {key: data[key] for key in self.names if key in data and key != "batch"}
        out = self.conv(**given)
        out = out[0] if isinstance(out, tuple) else out
        return self.head(out.float().view(5, -1).mean(0, keepdim=True))


def outcome(name: str) -> str:
    """Returns "yes", or why a convolution is refused, in words."""
    if name in NOT_TRIED:
        return NOT_TRIED[name]
    data: Any = graph()
    if name in ("HeteroConv", "HGTConv", "HANConv"):
        data = HeteroData()
        data["a"].x, data[KIND].edge_index = graph().x, graph().edge_index
    torch.manual_seed(0)
    model = Model(name).eval()
    model(data)
    try:
        out = NICE(model, batched=False).explain(data, atoms=False)
    except NicegnnError as error:
        return f"no: {error}"
    assert bool(out.bond_loss.isfinite().all())
    return "yes"


HEAD = """# Layers

Every convolution of PyG, alone in a model: whether its edges are explained.
`tests/explain/test_layers.py` makes this table. Other layers work if they are a `MessagePassing`
that sends one message along each edge; for those that are none see
[your own model](howto/own-model.md).

| layer | explained |
| --- | --- |
"""


def test_the_page_of_layers_is_what_happens() -> None:
    names = sorted(name for name in convolutions.__all__ if name[0].isupper())
    names.remove("MessagePassing")
    told = HEAD + "".join(f"| `{name}` | {outcome(name)} |\n" for name in names)
    if PAGE.read_text() != told:
        PAGE.write_text(told)
        pytest.fail("docs/layers.md was another one. It is written anew: look at what changed.")
