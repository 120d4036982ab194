"""NICE end to end: the public interface and the properties every explanation must have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, GINConv, GraphConv, MessagePassing, global_add_pool

from nicegnn import NICE, AttributionConfig, ElementMask, NICEConfig, NoiseCorruption
from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.errors import GraphError, NotFittedError, StoreError, TargetError
from nicegnn.explain.explanation import Flag
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import GIN, MODELS, make_model
from tests.conftest import NUM_EDGE_FEATURES, NUM_FEATURES, random_graph, take_snapshot

FAST = NICEConfig().with_(
    boundary__num_draws=4,
    boundary__fit_draws=4,
    boundary__graph_steps=6,
    boundary__steps=8,
    boundary__batch_size=4,
    attribution__num_draws=4,
    attribution__num_nodes=4,
)


class Custom(MessagePassing):
    """A user's own layer: gated messages from both ends."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__(aggr="max")
        self.lin = nn.Linear(2 * in_size, out_size)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.lin(torch.cat([x_i, x_j - x_i], dim=1)).tanh()


class CustomModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Custom(NUM_FEATURES, 8), Custom(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.second(self.first(x, edge_index), edge_index)
        return self.head(global_add_pool(x, batch))


class Smooth(nn.Module):
    """A GIN of tanh, without kinks, for exact integrals."""

    def __init__(self, num_classes: int = 2, scale: float = 1.0) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, 6), nn.Tanh())) for a in (NUM_FEATURES, 6)
        )
        self.head = nn.Linear(6, num_classes)
        self.scale = scale

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        if batch is None:
            batch = edge_index.new_zeros(x.size(0))
        return self.scale * self.head(global_add_pool(x, batch))


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "custom":
        return CustomModel()
    return make_model(name, NUM_FEATURES, 3, edge_size=NUM_EDGE_FEATURES, hidden_size=8)


BACKBONES = [*MODELS, "custom"]


@pytest.mark.parametrize("name", BACKBONES)
def test_interface_works_as_written_on_every_backbone(name: str, batch: Batch) -> None:
    model = make(name)
    nice = NICE(model, FAST)
    before = take_snapshot(model)
    nice.fit(batch.to_data_list(), progress=False)
    out = nice.explain(batch)
    assert take_snapshot(model) == before
    assert out.edge_score.shape == out.gate.shape == (batch.num_edges,)
    assert out.bond_index.shape == (2, batch.num_edges // 2)
    assert out.bond_score.shape == (batch.num_edges // 2,)
    assert out.target.tolist() == model.eval()(**call_arguments(model, batch)).argmax(1).tolist()
    for value in (out.edge_score, out.edge_stderr, out.risk_boundary, out.risk_corrupted):
        assert torch.isfinite(value).all()
    assert ((out.gate >= 0) & (out.gate <= 1)).all()
    assert out.status.boundary == "amortised"
    assert len(out.split()) == batch.num_graphs


def call_arguments(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    arguments = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
    if getattr(model, "uses_edges", False):
        arguments["edge_attr"] = batch.edge_attr
    return arguments


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("fitted", [False, True])
def test_batch_equals_loop_and_does_not_depend_on_company(
    name: str, fitted: bool, graphs: list[Data]
) -> None:
    nice = NICE(make(name), FAST)
    if fitted:
        nice.fit(graphs, progress=False)
    together = nice.explain(Batch.from_data_list(graphs)).split()
    reordered = nice.explain(graphs[::-1]).split()[::-1]
    for graph, a, b in zip(graphs, together, reordered, strict=True):
        alone = nice.explain(graph)
        for other in (a, b):
            torch.testing.assert_close(other.edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(other.gate, alone.gate, rtol=1e-4, atol=1e-4)
            assert torch.equal(other.edge_index, graph.edge_index)
            assert other.status.flags == alone.status.flags


def test_scores_follow_a_permutation_of_nodes_and_edges() -> None:
    graph = random_graph(9, seed=4)
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randperm(graph.num_nodes, generator=generator)  # new number of each old node
    edges = torch.randperm(graph.num_edges, generator=generator)
    moved = Data(
        x=graph.x[nodes.argsort()],
        edge_index=nodes[graph.edge_index][:, edges],
        edge_attr=graph.edge_attr[edges],
    )
    slot = torch.arange(graph.num_edges)
    nice = NICE(make("gin"), FAST)
    a = nice.explain(graph, slot=slot)
    b = nice.explain(moved, slot=slot[edges])
    torch.testing.assert_close(b.edge_score, a.edge_score[edges], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(b.gate, a.gate[edges], rtol=1e-4, atol=1e-5)


def test_equal_seeds_give_equal_results_and_other_seeds_others(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    first, again, other = (nice.explain(batch, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.edge_score, again.edge_score)
    assert not torch.allclose(first.edge_score, other.edge_score)


def test_global_random_state_is_left_alone(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    state = torch.random.get_rng_state()
    nice.fit(batch.to_data_list(), progress=False)
    nice.explain(batch)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_bonds_share_one_gate_and_scores_of_edges_and_bonds_add_up(batch: Batch) -> None:
    out = NICE(make("gin"), FAST).explain(batch)
    reverse = {(int(u), int(v)): k for k, (u, v) in enumerate(batch.edge_index.t())}
    for k, (u, v) in enumerate(batch.edge_index.t().tolist()):
        assert out.gate[k] == out.gate[reverse[v, u]]
        assert out.edge_score[k] == out.edge_score[reverse[v, u]]
    torch.testing.assert_close(out.edge_score.sum(), out.bond_score.sum())


def test_directed_gates_on_request(path: Data) -> None:
    out = NICE(make("gin"), FAST.with_(undirected=False)).explain(path)
    assert out.bond_score.numel() == path.num_edges
    assert out.gate[0] != out.gate[1]


def test_completeness_is_exact_with_shared_draws_and_enough_nodes() -> None:
    torch.manual_seed(1)
    graphs = [random_graph(n, seed=n, dtype=torch.float64) for n in (4, 6, 8)]
    config = NICEConfig().with_(
        boundary__num_draws=8,
        boundary__fit_draws=8,
        boundary__graph_steps=10,
        boundary__degradation="log-prob",
        attribution__path="joint",
        attribution__draws="shared",
        attribution__num_draws=8,
        attribution__num_nodes=400,
        attribution__quadrature="gauss",
        attribution__degradation="log-prob",
        score="big",
        mechanism="nc",
    )
    out = NICE(Smooth(scale=3.0).double(), config).explain(graphs)
    assert (out.risk_corrupted > 0.05).all()  # there is something to explain
    assert (out.completeness_gap < 1e-4).all(), out.completeness_gap
    total = torch.zeros(3, dtype=torch.float64).index_add(0, out.bonds.batch, out.bond_score)
    torch.testing.assert_close(total, out.risk_corrupted - out.risk_boundary, rtol=0, atol=1e-4)


def test_clean_context_attributes_what_is_lost_without_the_boundary() -> None:
    """Scores add up to the risk of corrupting only the boundary, R(1 - rho*) - R(1)."""
    torch.manual_seed(1)
    config = AttributionConfig(
        num_draws=8,
        num_nodes=200,
        quadrature="gauss-sine",
        draws="shared",
        context="clean",
        degradation="signed-margin",
        beta=0.0,
    )
    target = Target(Smooth(scale=3.0).double().eval())
    batch = to_batch([random_graph(n, seed=n, dtype=torch.float64) for n in (4, 6, 8)])
    query = Query(target, make_case(batch), NoiseCorruption(antithetic=True))
    boundary = torch.linspace(0.1, 0.9, query.case.bonds.batch.numel(), dtype=torch.float64)
    found = boundary_integrated_gradient(query, boundary, config, 0)
    assert (found.risk_boundary.abs() < 1e-9).all()  # all messages are clean there
    assert (found.completeness_gap < 1e-4).all(), found.completeness_gap
    assert query.degradation_kind == "log-prob"  # the caller's query is not changed


class Deaf(torch.nn.Module):
    """A model whose output ignores its messages, although its layers run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make("gin")
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, edge_index, batch):
        return 0 * self.inner(x, edge_index, batch).detach() + self.bias


def test_outputs_that_ignore_their_messages_have_zero_scores(batch: Batch) -> None:
    out = NICE(Deaf(), FAST).explain(batch)
    assert not out.bond_big.any()
    assert (out.bond_score == 0.5).all()  # no bond stands out
    assert all(Flag.INSENSITIVE in flag for flag in out.status.flags)


def attribution_error(quadrature: str, num_nodes: int, gate: float = 0.7) -> float:
    """Completeness gap of a smooth regression: no hinge, so the quadrature rule alone matters."""
    torch.manual_seed(1)
    config = AttributionConfig(
        num_draws=4, num_nodes=num_nodes, quadrature=quadrature, draws="shared"
    )
    target = Target(Smooth(num_classes=1).double().eval(), mode="regression")
    graph = to_batch(random_graph(6, seed=6, dtype=torch.float64))
    query = Query(target, make_case(graph), NoiseCorruption())
    boundary = torch.full((graph.num_edges // 2,), gate, dtype=torch.float64)
    return float(boundary_integrated_gradient(query, boundary, config, 0).completeness_gap)


def test_more_nodes_reduce_the_error_at_the_expected_rate() -> None:
    coarse, fine = (attribution_error("riemann", t) for t in (64, 1024))
    rate = float(torch.tensor(coarse / fine).log() / torch.tensor(16.0).log())
    assert rate == pytest.approx(0.5, abs=0.15)  # the slope grows like t^-1/2 at the start
    assert attribution_error("gauss", 16) < 1e-9 < fine  # in u, with t = u^2, it is smooth


def test_paths_to_open_gates_need_a_rule_that_is_smooth_at_both_ends() -> None:
    one_end, both_ends = (attribution_error(rule, 16, 1.0) for rule in ("gauss", "gauss-sine"))
    assert both_ends < one_end / 50


def test_standard_error_falls_with_the_square_root_of_draws(batch: Batch) -> None:
    torch.manual_seed(0)
    nice = NICE(Smooth(scale=3.0), FAST)
    medians = []
    for draws in (16, 256):
        nice.config = FAST.with_(attribution__num_draws=draws)
        medians.append(float(nice.explain(batch).bond_stderr.median()))
    assert medians[0] / medians[1] == pytest.approx(4.0, rel=0.35)


@pytest.mark.parametrize("antithetic", [False, True])
def test_standard_error_tells_the_spread_over_seeds(ring: Data, antithetic: bool) -> None:
    torch.manual_seed(0)
    config = AttributionConfig(num_draws=32, num_nodes=4, antithetic=antithetic)
    target = Target(Smooth(scale=3.0).eval())
    query = Query(target, make_case(to_batch(ring)), NoiseCorruption(antithetic=antithetic))
    boundary = torch.full((7,), 0.7)
    runs = [boundary_integrated_gradient(query, boundary, config, seed) for seed in range(32)]
    spread = torch.stack([run.score for run in runs]).std(0)
    claimed = torch.stack([run.stderr for run in runs]).square().mean(0).sqrt()
    assert (claimed / spread > 0.6).all()
    assert (claimed / spread < 1.7).all()


def test_chosen_class_is_explained(batch: Batch) -> None:
    nice = NICE(make("gin"), FAST)
    out = nice.explain(batch, target=2)
    assert out.target.tolist() == [2] * 5
    mixed = torch.tensor([0, 1, 2, 1, 0])
    out = nice.explain(batch, target=mixed)
    assert out.target.tolist() == mixed.tolist()
    alone = nice.explain(batch[1], target=1)
    torch.testing.assert_close(out.split()[1].edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
    listed = nice.explain(batch.to_data_list(), target=mixed)
    torch.testing.assert_close(listed.edge_score, out.edge_score, rtol=1e-4, atol=1e-5)


def test_regression_degradation_is_the_squared_change(batch: Batch) -> None:
    torch.manual_seed(0)
    model = Smooth(num_classes=1)
    out = NICE(model, FAST, mode="regression").explain(batch)
    clean = model(batch.x, batch.edge_index, batch.batch)
    torch.testing.assert_close(out.prediction, clean)
    assert (out.risk_corrupted > 0).all()
    assert out.target.tolist() == [0] * 5
    many = NICE(Smooth(num_classes=3), FAST, mode="regression")
    assert many.explain(batch).target.tolist() == [-1] * 5  # all outputs together
    assert many.explain(batch, target=1).target.tolist() == [1] * 5
    many.fit(batch.to_data_list(), progress=False)
    assert many.explain(batch).status.boundary == "amortised"


def test_one_column_needs_a_word_about_its_meaning(batch: Batch) -> None:
    with pytest.raises(TargetError, match="mode='binary' or mode='regression'"):
        NICE(Smooth(num_classes=1), FAST).explain(batch)
    out = NICE(Smooth(num_classes=1), FAST, mode="binary").explain(batch)
    assert set(out.target.tolist()) <= {0, 1}
    torch.testing.assert_close(out.prediction.exp().sum(1), torch.ones(5))


class PlainCall(nn.Module):
    """Takes one graph per call, no batch vector."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index, edge_index.new_zeros(x.size(0)))


class DataCall(PlainCall):
    def forward(self, data: Data) -> Tensor:
        return self.inner(data.x, data.edge_index, data.batch)


class RenamedCall(PlainCall):
    def forward(self, feats: Tensor, edges: Tensor, which: Tensor) -> Tensor:
        return self.inner(feats, edges, which)


@pytest.mark.parametrize(
    ("wrapper", "inputs"),
    [
        (PlainCall, None),
        (DataCall, None),
        (RenamedCall, ["x", "edge_index", "batch"]),
        (RenamedCall, lambda model, batch: model(batch.x, batch.edge_index, batch.batch)),
    ],
)
def test_every_way_to_call_a_model_gives_the_same_scores(
    wrapper: type[PlainCall], inputs: object, graphs: list[Data]
) -> None:
    torch.manual_seed(0)
    inner = Smooth()
    expected = NICE(inner, FAST).explain(graphs[:3])
    out = NICE(wrapper(inner), FAST, inputs=inputs).explain(graphs[:3])  # type: ignore[arg-type]
    torch.testing.assert_close(out.edge_score, expected.edge_score, rtol=1e-4, atol=1e-5)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(NUM_FEATURES, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index, edge_weight), batch)


def test_edge_weights_reach_the_model_and_dead_edges_get_no_score(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    for graph in graphs:
        graph.edge_weight = torch.rand(graph.num_edges)
        graph.edge_weight[:2] = 0.0  # first bond
    out = NICE(Weighted(), FAST).explain(graphs)
    for part in out.split():
        assert part.bond_big[0] == 0
        assert part.bond_big[1:].abs().sum() > 0


class NodeGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(NUM_FEATURES, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).tanh(), edge_index)


def long_graph() -> Data:
    graph = random_graph(12, seed=7)
    tail = torch.tensor([[12, 13, 14, 15], [13, 14, 15, 11]])
    edge_index = torch.cat([graph.edge_index, tail, tail.flip(0)], dim=1)
    return Data(x=torch.randn(16, NUM_FEATURES), edge_index=edge_index)


def test_only_the_computation_graph_of_a_node_counts() -> None:
    torch.manual_seed(0)
    graph, model = long_graph(), NodeGCN()
    out = NICE(model, FAST).explain(graph, index=12)
    assert torch.equal(out.edge_index, graph.edge_index)
    near = {(12, 13), (13, 12), (13, 14), (14, 13)}
    reached = {(u, v) for u, v in near}
    for k, (u, v) in enumerate(graph.edge_index.t().tolist()):
        if (u, v) not in reached:
            assert out.edge_score[k] == 0
    assert out.bond_reached.sum() == 2
    assert out.top(1.0).sum() == 2
    assert out.prediction.argmax() == model(graph.x, graph.edge_index)[12].argmax()


def test_nodes_explained_together_equal_nodes_explained_alone() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), FAST)
    together = nice.explain(graph, index=[3, 12, 15]).split()
    for node, part in zip((3, 12, 15), together, strict=True):
        alone = nice.explain(graph, index=node)
        torch.testing.assert_close(part.edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
        assert int(part.index) == node


def test_node_explainer_can_be_fitted_on_nodes() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    nice = NICE(NodeGCN(), FAST).fit(graph, index=torch.arange(12), progress=False)
    assert nice.explain(graph, index=12).status.boundary == "amortised"


class WholeGraphNorm(NodeGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = super().forward(x, edge_index)
        return x - x.mean(0)


def test_models_that_read_the_whole_graph_are_noticed() -> None:
    torch.manual_seed(0)
    graph = long_graph()
    out = NICE(WholeGraphNorm(), FAST).explain(graph, index=12)
    assert any("whole graph" in note for note in out.status.notes)


def test_save_and_load_give_the_same_scores(tmp_path, graphs: list[Data]) -> None:  # type: ignore[no-untyped-def]
    model = make("gin")
    nice = NICE(model, FAST).fit(graphs, progress=False)
    file = tmp_path / "nice.safetensors"
    nice.save(file)
    again = NICE.load(file, model)
    assert again.config == nice.config
    assert torch.equal(again.explain(graphs).edge_score, nice.explain(graphs).edge_score)


def test_saving_before_fitting_and_loading_for_another_model_fail(tmp_path, graphs) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "nice.safetensors"
    with pytest.raises(NotFittedError, match=r"fit\(\) first"):
        NICE(make("gin"), FAST).save(file)
    assert not list(tmp_path.iterdir())
    NICE(make("gin"), FAST).fit(graphs, progress=False).save(file)
    torch.manual_seed(9)
    with pytest.raises(StoreError, match="fingerprint"):
        NICE.load(file, GIN(NUM_FEATURES, 3, hidden_size=8))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StoreError, match="damaged"):
        NICE.load(file, make("gin"))


def test_datasets_loaders_and_lists_are_accepted_alike(graphs: list[Data]) -> None:
    scores = []
    for source in (graphs, DataLoader(graphs, batch_size=2), iter(graphs)):
        nice = NICE(make("gin"), FAST).fit(source, progress=False)
        scores.append(nice.explain(graphs).edge_score)
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_graphs_without_edges_and_single_nodes_have_defined_results(graphs: list[Data]) -> None:
    lonely = Data(x=torch.randn(1, NUM_FEATURES), edge_index=torch.zeros(2, 0, dtype=torch.long))
    scattered = Data(x=torch.randn(4, NUM_FEATURES), edge_index=torch.zeros(2, 0, dtype=torch.long))
    for graph in graphs:
        graph.edge_attr = None
    nice = NICE(make("gin"), FAST)
    out = nice.explain([graphs[0], lonely, graphs[1], scattered])
    assert out.status.flags[1] == out.status.flags[3] == Flag.NO_EDGES
    assert [part.bond_score.numel() for part in out.split()][1::2] == [0, 0]
    torch.testing.assert_close(
        out.split()[2].edge_score, nice.explain(graphs[1]).edge_score, rtol=1e-4, atol=1e-5
    )
    alone = nice.explain(lonely)
    assert alone.bond_score.numel() == 0
    assert float(alone.risk_corrupted) == pytest.approx(0, abs=1e-6)
    assert "no edges" in str(alone.status)
    nice.fit([lonely, *graphs], progress=False)
    assert nice.fit_report is not None
    assert nice.fit_report.num_left_out == 1
    with pytest.raises(GraphError, match="no edges"):
        nice.fit([lonely, scattered], progress=False)


def test_isolated_nodes_self_loops_duplicates_and_one_way_edges(isolated: Data) -> None:
    nice = NICE(make("gin"), FAST)
    assert nice.explain(isolated).bond_score.numel() == 2
    odd = Data(
        x=torch.randn(4, NUM_FEATURES),
        # a loop, a one-way edge, a bond, and the bond's first direction once more
        edge_index=torch.tensor([[0, 1, 2, 3, 2], [0, 2, 3, 2, 3]]),
    )
    out = nice.explain(odd)
    assert out.bond_index.t().tolist() == [[0, 0], [1, 2], [2, 3]]
    assert out.bonds.count.tolist() == [1, 1, 3]
    looped = NICE(make("gcn"), FAST).explain(odd)
    assert looped.bond_big[0] == 0  # GCN takes the loop over as its own, which stays clean
    assert looped.bond_big[1:].abs().min() > 0


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda g: g.x.__setitem__((0, 0), float("nan")), GraphError, "finite"),
        (lambda g: setattr(g, "edge_index", g.edge_index.int()), GraphError, "torch.long"),
        (lambda g: setattr(g, "x", g.x.double()), GraphError, "dtype"),
        (lambda g: setattr(g, "edge_index", g.edge_index + 100), GraphError, "node numbers"),
        (lambda g: setattr(g, "edge_index", None), GraphError, "edge_index"),
        (lambda g: setattr(g, "edge_attr", g.edge_attr[1:]), GraphError, "one row per edge"),
    ],
)
def test_bad_graphs_are_named_and_leave_the_model_alone(spoil, error, words, ring: Data) -> None:  # type: ignore[no-untyped-def]
    model = make("gin").train()
    before = take_snapshot(model)
    spoil(ring)
    with pytest.raises(error, match=words):
        NICE(model, FAST).explain(ring)
    assert take_snapshot(model) == before


def test_bad_targets_indices_and_inputs_are_named(ring: Data) -> None:
    nice = NICE(make("gin"), FAST)
    with pytest.raises(TargetError, match="between 0 and 2"):
        nice.explain(ring, target=3)
    with pytest.raises(TargetError, match="class numbers"):
        nice.explain(ring, target=torch.tensor(1.5))
    with pytest.raises(TargetError, match="leave `index` out"):
        nice.explain(ring, index=0)
    node = NICE(NodeGCN(), FAST)
    with pytest.raises(TargetError, match="pass `index=`"):
        node.explain(ring)
    with pytest.raises(TargetError, match="between 0 and 6"):
        node.explain(ring, index=7)
    with pytest.raises(GraphError, match="at least one graph"):
        nice.explain([])
    with pytest.raises(GraphError, match="str"):
        nice.explain("benzene")  # type: ignore[arg-type]


def test_unreached_graph_attribute_is_named(ring: Data) -> None:
    ring.edge_attr = None
    with pytest.raises(TargetError, match="edge_weight"):
        NICE(Weighted(), FAST).explain(ring)


class Failing(Smooth):
    """Runs until told to fail; the switch is a list, so that the model's attributes stay as is."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = [10**6]

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        self.calls_left[0] -= 1
        if self.calls_left[0] < 0:
            raise KeyboardInterrupt
        return super().forward(x, edge_index, batch)


def test_interrupted_explanation_leaves_the_model_alone(ring: Data) -> None:
    model = Failing().train()
    model.calls_left[0] = 5
    before = take_snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        NICE(model, FAST).explain(ring)
    model.calls_left[0] = 5
    assert take_snapshot(model) == before


def test_compiled_models_are_explained_like_the_model_itself(ring: Data) -> None:
    torch.manual_seed(0)
    model = Smooth()
    expected = NICE(model, FAST).explain(ring)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(ring.x, ring.edge_index)  # compiled before anything is explained
    out = NICE(compiled, FAST).explain(ring)
    torch.testing.assert_close(out.edge_score, expected.edge_score)


def test_status_tells_about_clean_self_loops_and_left_out_layers(ring: Data) -> None:
    model = make("gcn")
    model.convs[1].explain = False
    notes = " ".join(NICE(model, FAST).explain(ring).status.notes)
    assert "stayed clean: convs.0, convs.2" in notes
    assert "explain=False: convs.1" in notes
    assert "Not fitted" in notes
    assert not any("clean" in note for note in NICE(make("gin"), FAST).explain(ring).status.notes)


def test_masking_can_take_the_place_of_noise(batch: Batch) -> None:
    by_name = NICE(make("gin"), FAST.with_(mechanism="em")).explain(batch)
    by_object = NICE(make("gin"), FAST, mechanism=ElementMask()).explain(batch)
    assert torch.equal(by_name.edge_score, by_object.edge_score)
    assert float(by_name.bond_stderr.max()) == pytest.approx(0.0, abs=1e-6)  # no randomness


@pytest.mark.parametrize(("name", "differs"), [("gin", False), ("gcn", True), ("gat", True)])
def test_bonds_are_taken_out_of_the_graph_too(name, differs, graphs: list[Data]) -> None:
    """Where layers only add up nothing changes; elsewhere each graph still stands for itself."""
    model = make(name)
    before = take_snapshot(model)
    plain = NICE(model, FAST.with_(attribution__take_out=False)).explain(graphs)
    found = NICE(model, FAST).explain(graphs)
    assert torch.equal(found.bond_big, plain.bond_big)
    assert torch.allclose(found.bond_score, plain.bond_score) is not differs
    alone = [NICE(model, FAST).explain(g) for g in graphs]
    whole = torch.cat([one.bond_score for one in alone])
    torch.testing.assert_close(found.bond_score, whole, rtol=1e-3, atol=1e-4)
    assert take_snapshot(model) == before


def test_bonds_stay_where_a_batch_cannot_be_cut(batch: Batch) -> None:
    class Scaled(DataCall):
        def forward(self, data: Data) -> Tensor:
            return super().forward(data) * data.scale

    batch = batch.clone()
    batch.scale = torch.tensor(1.0)
    torch.manual_seed(0)
    model = Scaled(GIN(NUM_FEATURES, 3, hidden_size=8)).eval()
    plain = NICE(model, FAST.with_(attribution__take_out=False)).explain(batch)
    found = NICE(model, FAST).explain(batch)
    assert torch.equal(found.bond_score, plain.bond_score)
    assert any("only masked, not taken out" in note for note in found.status.notes)
    assert not any("taken out" in note for note in plain.status.notes)


def test_insensitive_prediction_is_flagged(ring: Data) -> None:
    model = Smooth()
    nn.init.zeros_(model.head.weight)
    out = NICE(model, FAST).explain(ring)
    assert Flag.INSENSITIVE in out.status.flags[0]
    assert "does not rest on edges" in str(out.status)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fitted", [False, True])
def test_device_of_the_model_is_followed_and_agrees_with_the_cpu(
    fitted: bool, graphs: list[Data]
) -> None:
    cpu, gpu = (NICE(make("gin").to(d), FAST) for d in ("cpu", "cuda"))
    if fitted:
        cpu.fit(graphs, progress=False)
        gpu.fit(graphs, progress=False)
    a, b = cpu.explain(graphs), gpu.explain(graphs)
    assert b.edge_score.is_cuda
    torch.testing.assert_close(b.edge_score.cpu(), a.edge_score, rtol=1e-2, atol=1e-3)
