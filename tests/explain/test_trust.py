"""Trust: hand numbers, batches, words; verdicts on models that were built to earn them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing, global_add_pool

from nicegnn import NICE, Explanation, Flag
from nicegnn.explain import trust as trust_module
from nicegnn.explain.explanation import concatenate
from nicegnn.explain.trust import Trust, chance_of, flags_of, verdict_of
from tests.conftest import make_graph, random_graph
from tests.explain.small_models import make

NUMBERS = [*Trust.__dataclass_fields__]


class OneBond(nn.Module):
    """Class 1 by the messages between marked nodes alone."""

    def __init__(self, gain: float = 4.0) -> None:
        super().__init__()
        self.conv, self.gain = Marked(), gain

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        seen = global_add_pool(self.conv(x, edge_index), batch)[:, :1].clamp(-2, 2)  # [B, 1]
        return torch.cat([torch.zeros_like(seen), self.gain * (seen - 1)], dim=1)


class Marked(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_i * x_j  # 1 between two marked nodes, else 0


def marked_path(num_nodes: int = 9) -> Data:
    """A path whose nodes 3 and 4 are marked."""
    graph = make_graph([(k, k + 1) for k in range(num_nodes - 1)], num_nodes, seed=0)
    graph.x = torch.zeros(num_nodes, 1)
    graph.x[3:5] = 1.0
    return graph


def told(out: Explanation) -> Trust:
    assert out.trust is not None
    return out.trust


def test_the_one_bond_that_matters_has_all_of_the_loss() -> None:
    """Its prototypes are edges of an unmarked path, so all of 2 * gain log-odds are lost."""
    plain = marked_path()
    plain.x = torch.zeros(9, 1)
    out = NICE(OneBond(), background=[plain]).explain(marked_path())
    trust = told(out)
    assert out.bond_score.argmax() == 3
    assert float(trust.share) == pytest.approx(1, abs=1e-5)
    assert float(trust.largest) == pytest.approx(8, rel=1e-4)
    assert float(trust.log_odds) == pytest.approx(4, rel=1e-5)
    assert float(trust.chance) == pytest.approx(float(chance_of(trust.largest, trust.share)))


def test_largest_and_share_are_those_of_the_losses(graphs: list[Data]) -> None:
    out = NICE(make("gin"), background=graphs).explain(graphs)
    for number, part in enumerate(out.split()):
        loss, trust = part.bond_loss, told(out)
        torch.testing.assert_close(trust.largest[number], loss.max())
        torch.testing.assert_close(trust.share[number], loss.max() / loss.sum())
        p = part.prediction[0].exp()[int(part.target)].double()
        expected = pytest.approx(float((p / (1 - p)).log()), rel=1e-3, abs=1e-4)
        assert float(trust.log_odds[number]) == expected


def test_the_chance_is_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_module, "COEFFICIENTS", (-1.0, 2.0, 3.0))
    found = chance_of(torch.tensor([0.0, math.e - 1]), torch.tensor([0.5, 1.0]))
    expected = [1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-4))]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)


def test_verdicts_and_flags_by_hand() -> None:
    chance = torch.tensor([0.95, 0.91, 0.89, 0.61, 0.59, torch.nan, 0.3])
    size = torch.tensor([5.0, 5, 5, 5, 5, 5, 0.019])
    trust = Trust(size, torch.ones(7), chance, torch.ones(7))
    rely, look, leave = "rely on it", "look twice", "do not use"
    assert trust.verdicts == (rely, rely, look, look, leave, "not checked", leave)
    twice, wrong = Flag.LOOK_TWICE, Flag.DO_NOT_USE
    assert flags_of(trust.flag_numbers) == (
        Flag.OK,
        Flag.OK,
        twice,
        twice,
        wrong,
        Flag.OK,
        Flag.INSENSITIVE,
    )
    assert verdict_of(math.nan) == "not checked"


def test_batch_equals_loop_and_parts_keep_their_numbers(graphs: list[Data]) -> None:
    nice = NICE(make("gin"), background=graphs)
    together = nice.explain(graphs)
    alone = concatenate([nice.explain(graph) for graph in reversed(graphs)])
    parts = together.split()
    joined = concatenate(parts)
    for name in NUMBERS:
        one, two = (getattr(told(out), name) for out in (together, alone))
        torch.testing.assert_close(one, two.flip(0), rtol=1e-3, atol=1e-4, equal_nan=True)
        assert torch.equal(getattr(told(joined), name), one)
        assert getattr(told(parts[2]), name).shape == (1,)


@pytest.mark.parametrize("mechanism", ["nc", "em"])
def test_chances_were_not_checked_under_other_damage(mechanism: str, ring: Data) -> None:
    out = NICE(make("gin"), mechanism=mechanism).explain(ring)
    assert told(out).verdicts == ("not checked",)
    assert told(out).largest > 0
    assert "was not checked here" in out.summary()


def test_graphs_with_no_bond_have_no_numbers() -> None:
    lone, pair = make_graph([], 1, seed=0), make_graph([(0, 1)], 2, seed=1)
    out = NICE(make("gin"), background=[random_graph(6, 0)]).explain([lone, pair])
    for name in ("largest", "share", "chance"):
        assert getattr(told(out), name).isnan().tolist()[0]
    assert float(told(out).share[1]) == 1
    assert out.status.flags[0] == Flag.NO_EDGES
    assert told(out).verdicts[0] == "not checked"


def test_tables_and_words_tell_it(graphs: list[Data]) -> None:
    out = NICE(make("gin"), background=graphs).explain(graphs)
    frame, trust = out.to_frame("graphs"), told(out)
    assert set(NUMBERS) <= set(frame.columns)
    assert frame["chance"].tolist() == pytest.approx(trust.chance.tolist())
    words, chance = out.split()[3].summary(), 100 * float(trust.chance[3])
    assert f"In about {chance:.0f} of 100 such cases the best bond is a true one" in words
    assert trust.verdicts[3] in words
    assert f"Verdicts on the best bonds: {max(trust.verdicts, key=trust.verdicts.count)}" in (
        out.summary(2)
    )
