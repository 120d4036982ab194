"""Atoms are scored by what the prediction loses without their features and messages."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, GraphConv, InstanceNorm, global_add_pool

from nicegnn import NICE, ElementMask, NICEConfig, NoiseCorruption, intervene
from nicegnn.attribution.atom_by_atom import atom_wise_loss
from nicegnn.config import AttributionConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import edge_slots, make_case
from nicegnn.intervention.intervene import Mechanism, Site
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.target.frozen_model import Target, log_odds
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import FAST, NodeGCN, Smooth

INSTANT = NICEConfig().with_(attribution__num_draws=4)
CONFIG = AttributionConfig(num_draws=4, beta=0.0)


def losses(model: nn.Module, graphs: list[Data], mechanism: Mechanism, seed: int = 3) -> Tensor:
    query = Query(Target(model).private(), make_case(to_batch(graphs)), mechanism)
    return atom_wise_loss(query, CONFIG, seed).score


def literal(model: nn.Module, graph: Data, mechanism: Mechanism, seed: int = 3) -> Tensor:
    """Does the same with a loop: changes `x` and closes the gates of the messages sent."""
    batch, out = to_batch(graph), []
    draws = 4 if mechanism.is_random else 1  # type: ignore[attr-defined]
    stream = mix(seed, "atoms")

    @torch.no_grad()
    def logits(x: Tensor) -> Tensor:
        return model(x, batch.edge_index, batch.batch).log_softmax(1).unsqueeze(0)

    clean = logits(batch.x)
    label = clean[0].argmax(1)
    slot = edge_slots(torch.zeros(batch.num_edges, dtype=torch.long), 1)
    for atom in range(batch.num_nodes):
        falls = []
        for draw in range(draws):
            one = torch.tensor([atom]), torch.tensor([draw])
            site = Site(-1, "features", stream, *one, batch.num_nodes, draw + 1)
            x = batch.x.clone()
            x[atom] = mechanism(x[atom : atom + 1], torch.zeros(1), site)[0]
            gate = (batch.edge_index[0] != atom).float()
            numbers = {"slot": slot, "draw": torch.full_like(slot, draw), "stream": stream}
            with intervene(model, mechanism, gate, **numbers):
                damaged = logits(x)
            falls.append(log_odds(clean, label) - log_odds(damaged, label))
        out.append(torch.stack(falls).mean())
    return torch.stack(out)


@pytest.mark.parametrize("mechanism", [ElementMask(), NoiseCorruption(5, antithetic=True)])
def test_scores_equal_a_loop_over_atoms(mechanism: Mechanism, ring: Data, path: Data) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8).eval()
    expected = torch.cat([literal(model, graph, mechanism) for graph in (ring, path)])
    torch.testing.assert_close(
        losses(model, [ring, path], mechanism), expected, rtol=1e-4, atol=1e-5
    )


def test_features_become_noise_of_the_same_norm(ring: Data) -> None:
    seen: list[Tensor] = []

    class Watching(Smooth):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            seen.append(x)
            return super().forward(x, edge_index, batch)

    losses(Watching(), [ring], NoiseCorruption(1))
    copies = seen[-1].view(-1, 7, NUM_FEATURES)  # seven atoms, four draws
    changed = (copies != ring.x).any(2)
    assert torch.equal(changed, torch.eye(7, dtype=torch.bool).repeat_interleave(4, 0))
    torch.testing.assert_close(copies.norm(dim=2), ring.x.norm(dim=1).expand(28, 7))


def test_an_atom_without_bonds_counts(isolated: Data) -> None:
    found = NICE(Smooth(), INSTANT).explain(isolated, atoms=True)
    assert found.atom_loss is not None
    assert float(found.atom_loss[3].abs()) > 1e-4


class Sums(nn.Module):
    """Adds the first features of all atoms; messages are ignored."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(NUM_FEATURES, 1)
        nn.init.zeros_(self.conv.lin_rel.weight)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        total = global_add_pool(x[:, :1] + 0 * self.conv(x, edge_index), batch)
        return torch.cat([-total, total], dim=1)


def test_losses_are_signed_and_no_sums_of_bonds(ring: Data) -> None:
    ring.x[:, 0] = torch.tensor([3.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.0])  # class 1, by 2.5
    found = NICE(Sums(), INSTANT.with_(mechanism="em")).explain(ring, atoms=True)
    assert found.atom_loss is not None
    torch.testing.assert_close(found.atom_loss, 2 * ring.x[:, 0])  # by hand, in log-odds
    torch.testing.assert_close(found.bond_loss, torch.zeros(7))


class LinearValue(nn.Module):
    """A value that is a sum over atoms: what each adds is known."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = GraphConv(NUM_FEATURES, outputs, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index), batch)


def test_values_fall_and_rise_by_what_an_atom_adds(path: Data) -> None:
    """Masked, an atom adds nothing; noise in opposite pairs does so in the mean."""
    model = LinearValue()
    with torch.no_grad():
        sends = torch.bincount(path.edge_index[0], minlength=path.num_nodes).unsqueeze(1)
        expected = (model.conv.lin_root(path.x) + sends * model.conv.lin_rel(path.x)).view(-1)
    assert bool((expected < 0).any())
    assert bool((expected > 0).any())
    for mechanism in ("em", "nc"):
        config = INSTANT.with_(mechanism=mechanism)
        out = NICE(model, config, mode="regression").explain(path, atoms=True)
        assert out.atom_loss is not None
        torch.testing.assert_close(out.atom_loss, expected, rtol=1e-4, atol=1e-4)
        assert out.atom_score is not None
        assert bool((out.atom_score >= 0).all())


def test_several_values_together_have_no_direction(path: Data) -> None:
    out = NICE(LinearValue(2), INSTANT, mode="regression").explain(path, atoms=True)
    assert out.atom_loss is not None
    assert bool((out.atom_loss >= 0).all())


def test_both_views_are_joined(ring: Data) -> None:
    found = NICE(Smooth(), INSTANT).explain(ring, atoms=True)
    assert found.atom_score is not None
    assert found.atom_loss is not None
    assert found.atom_stderr is not None
    assert bool(((found.atom_score > 0) & (found.atom_score < 1)).all())
    assert bool((found.atom_stderr > 0).all())
    one = NICE(Smooth(), INSTANT, mechanism="nc").explain(ring, atoms=True)
    assert torch.equal(one.atom_score, one.atom_loss)  # type: ignore[arg-type]
    assert NICE(Smooth(), INSTANT).explain(ring).atom_score is None


def test_a_graph_has_the_same_scores_in_every_batch(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    nice = NICE(Smooth(), FAST.with_(batch_size=2))
    whole = nice.explain(graphs, atoms=True)
    batch = NICE(nice.target.model, FAST.with_(chunk_edges=40)).explain(
        Batch.from_data_list(graphs), atoms=True
    )
    torch.testing.assert_close(batch.atom_loss, whole.atom_loss)
    for graph, part in zip(graphs, whole.split(), strict=True):
        alone = nice.explain(graph, atoms=True)
        torch.testing.assert_close(part.atom_score, alone.atom_score)
        torch.testing.assert_close(part.atom_stderr, alone.atom_stderr)
        assert part.atom_loss is not None
        assert part.atom_loss.numel() == graph.num_nodes


def test_models_that_mix_graphs_are_run_one_by_one(graphs: list[Data]) -> None:
    class Normed(Smooth):
        def __init__(self) -> None:
            super().__init__()
            self.norm = InstanceNorm(NUM_FEATURES)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return super().forward(self.norm(x), edge_index, batch)

    torch.manual_seed(0)
    nice = NICE(Normed(), INSTANT)
    for graph, part in zip(graphs, nice.explain(graphs, atoms=True).split(), strict=True):
        torch.testing.assert_close(part.atom_loss, nice.explain(graph, atoms=True).atom_loss)


class Typed(nn.Module):
    """Reads atom and bond types by embeddings."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.atoms, self.bonds = nn.Embedding(4, 6), nn.Embedding(3, 6)
        self.conv = GINEConv(nn.Linear(6, 6))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(self.atoms(x[:, 0]), edge_index, self.bonds(edge_attr))
        return self.head(global_add_pool(h, batch))


def typed(graph: Data, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, (graph.num_nodes, 1), generator=generator)
    edge_attr = torch.randint(3, (graph.num_edges,), generator=generator)
    return Data(x=x, edge_index=graph.edge_index, edge_attr=edge_attr)


def test_embeddings_of_atom_types_are_damaged() -> None:
    model = Typed().eval()
    graphs = [typed(random_graph(5 + n, n), n) for n in range(2)]
    batch = to_batch(graphs)

    class Embedded(nn.Module):
        """The same model, given what the embedding returns."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bonds, self.head = model.conv, model.bonds, model.head

        def forward(
            self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor
        ) -> Tensor:
            h = self.conv(x, edge_index, self.bonds(edge_attr))
            return self.head(global_add_pool(h, batch))

    found = NICE(model, INSTANT.with_(mechanism="em")).explain(batch, atoms=True)
    with torch.no_grad():
        dense = [
            Data(x=model.atoms(g.x[:, 0]), edge_index=g.edge_index, edge_attr=g.edge_attr)
            for g in graphs
        ]
    expected = NICE(Embedded(), INSTANT.with_(mechanism="em")).explain(dense, atoms=True)
    torch.testing.assert_close(found.atom_loss, expected.atom_loss)
    noisy = NICE(model, INSTANT).explain(batch, atoms=True)
    assert bool(torch.isfinite(noisy.atom_loss).all())  # type: ignore[arg-type]
    assert not any("only the messages" in note for note in noisy.status.notes)
    assert not model.atoms._forward_hooks


def test_what_cannot_be_damaged_is_said() -> None:
    graph = typed(random_graph(6, 1), 1)

    class OneHot(Typed):
        def forward(
            self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor
        ) -> Tensor:
            h = nn.functional.one_hot(x[:, 0], 6).float()
            h = self.conv(h, edge_index, self.bonds(edge_attr))
            return self.head(global_add_pool(h, batch))

    found = NICE(OneHot(), INSTANT).explain(graph, atoms=True)
    assert any("only the messages that they send" in note for note in found.status.notes)


def test_atoms_of_node_tasks(ring: Data) -> None:
    torch.manual_seed(0)
    nice = NICE(NodeGCN(), INSTANT.with_(mechanism="em"))
    found = nice.explain(ring, index=[2, 6], atoms=True)
    assert found.atom_loss is not None
    loss = found.atom_loss.view(2, 7)
    near = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1]], dtype=torch.bool)
    assert bool((loss[~near].abs() < 1e-5).all())  # two layers reach two bonds far
    assert bool((loss[near].abs() > 1e-5).all())


def test_batches_that_cannot_be_cut_have_no_scores(batch: Batch) -> None:
    class Scaled(Smooth):
        def forward(self, data: Data) -> Tensor:  # type: ignore[override]
            return super().forward(data.x, data.edge_index, data.batch) * data.factor

    batch.factor = torch.tensor(1.0)
    found = NICE(Scaled(), INSTANT).explain(batch, atoms=True)
    for value in (found.atom_score, found.atom_loss, found.atom_stderr):
        assert bool(value.isnan().all())  # type: ignore[union-attr]
