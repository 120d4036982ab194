"""Trust: hand numbers, a literal loop, batches and seeds; flags on models built to earn them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, MessagePassing, global_add_pool

from nicegnn import NICE, Explanation, Flag, NICEConfig
from nicegnn.explain import trust as trust_module
from nicegnn.explain.explanation import SHARES, concatenate
from nicegnn.explain.trust import (
    Part,
    Trust,
    bond_slots,
    expected_overlap,
    first_ranks,
    judge_scores,
    ranks,
)
from nicegnn.graph.case import Case, make_case
from nicegnn.intervention.intervene import intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix, slot_numbers
from nicegnn.target.frozen_model import Target
from tests.conftest import NUM_FEATURES, make_graph, random_graph
from tests.explain.small_models import FAST, NodeGCN, Smooth, make

INSTANT = NICEConfig().with_(attribution__num_draws=4)
NUMBERS = [*Trust.__dataclass_fields__]


def best_bonds(case: Case, score: Tensor) -> Tensor:
    return first_ranks(case, ranks(case, score.unsqueeze(0))[0], trust_module.TOP)


class OneBond(nn.Module):
    """Class 1 by the messages between marked nodes alone; `bias` makes it less or more certain."""

    def __init__(self, gain: float = 4.0, bias: float = 0.0) -> None:
        super().__init__()
        self.conv = Marked()
        self.gain, self.bias = gain, bias

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        seen = global_add_pool(self.conv(x, edge_index), batch)[:, :1].clamp(-2, 2)  # [B, 1]
        return torch.cat([torch.zeros_like(seen), self.gain * (seen - 1) + self.bias], dim=1)


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


def test_the_one_bond_that_matters_is_trusted() -> None:
    out = NICE(OneBond(), INSTANT).explain(marked_path())
    trust = told(out)
    assert out.bond_score.argmax() == 3
    assert out.status.flags == (Flag.OK,)
    assert float(trust.share) == 0.5
    assert float(trust.kept) > 0.9
    assert float(trust.needed) > 0.9
    assert 0.1 < float(trust.kept_random) < 0.9
    assert float(trust.random_better) == 0
    torch.testing.assert_close(trust.log_odds, torch.tensor([4.0]))


def test_the_worst_order_is_no_better_than_random() -> None:
    """Every random order keeps the bond that matters longer than its last place does."""
    case = make_case(Batch.from_data_list([marked_path()]))
    score = torch.zeros(8).index_fill(0, torch.tensor([3]), -1.0)
    trust = judge_scores(Query(Target(OneBond()), case, ElementMask()), score, [Part(score)], 0)
    assert float(trust.kept) < 0.1
    assert float(trust.needed) < 0.1
    assert float(trust.random_better) >= 7
    assert trust.flags == (Flag.NO_BETTER_THAN_RANDOM,)


def test_a_constant_model_is_insensitive_and_has_no_verdict(ring: Data) -> None:
    model = Smooth()
    nn.init.zeros_(model.head.weight)
    out = NICE(model, INSTANT).explain(ring)
    assert out.status.flags == (Flag.INSENSITIVE,)
    trust = told(out)
    assert trust.random_better.isnan().all()
    assert float(trust.effect) == 0
    assert "random orders" not in out.summary()


def test_random_scores_are_warned_of_in_eleven_of_twelve_cases() -> None:
    """Exact for orders without ties: 400 scores, three standard errors of a share of 11/12."""
    case = make_case(Batch.from_data_list([random_graph(12, 0)] * 400))
    size = case.bonds.batch.numel() // 400
    slot = torch.arange(400 * size)  # each copy has random orders of its own
    case = replace(case, slot=slot[case.bonds.edge_bond])
    score = torch.rand(400 * size, generator=torch.Generator().manual_seed(0))
    target = Target(make("gin").eval())
    trust = judge_scores(Query(target, case, ElementMask()), score, [Part(score)], 0)
    share = float((trust.random_better > 0).float().mean())
    assert share == pytest.approx(11 / 12, abs=3 * (11 / 144 / 400) ** 0.5)


@pytest.mark.parametrize(("bias", "expected"), [(5.0, False), (5.4, True)])
def test_a_probability_above_0_9999_is_told(bias: float, expected: bool) -> None:
    """Log-odds of 0.9999 are 9.21; those of the model 4 + bias."""
    out = NICE(OneBond(bias=bias), INSTANT).explain(marked_path())
    assert told(out).is_certain.tolist() == [expected]
    assert ("certain beyond 0.9999" in out.summary()) == expected


def test_flags_by_hand() -> None:
    nan, same = math.nan, torch.zeros(5)
    overlap = torch.tensor([0.49, 0.5, nan, 1, 0.1])
    better, effect = torch.tensor([0, nan, nan, 1, 9]), torch.tensor([1, 0.01, nan, 0.03, 1])
    trust = Trust(overlap, same, same, same, same, better, effect, same)
    unsure = Flag.NO_BETTER_THAN_RANDOM
    assert trust.flags == (
        *(Flag.UNSTABLE, Flag.INSENSITIVE, Flag.OK, unsure, unsure | Flag.UNSTABLE),
    )


def test_equal_bonds_with_large_errors_are_unstable() -> None:
    """Of ten bonds three are chosen; with noise alone, another seed shares three of ten of them."""
    case = make_case(Batch.from_data_list([marked_path(11), marked_path(11)]))
    value = torch.linspace(0, 1e-6, 20)
    top = best_bonds(case, value)
    noise = Part(value, torch.ones(20))
    found = expected_overlap(case, top, [noise], seed=0)
    assert found.tolist() == pytest.approx([0.3, 0.3], abs=0.12)
    assert expected_overlap(case, top, [Part(value)], seed=0).tolist() == [1.0, 1.0]
    weak = Part(torch.arange(20.0), torch.full((20,), 0.01))
    assert expected_overlap(case, best_bonds(case, weak.value), [weak], 0).tolist() == [1.0, 1.0]
    single = Part(value, torch.full((20,), torch.nan))  # one draw has no error
    assert expected_overlap(case, top, [single], seed=0).isnan().all()


def test_errors_of_few_draws_are_right_in_the_mean() -> None:
    torch.manual_seed(0)
    for num in (2, 4, 8):
        values = torch.randn(num, 200_000)
        stderr = values.std(0) / num**0.5
        part = Part.drawn(values.mean(0), stderr, num)
        assert part.stderr is not None
        assert float(part.stderr.mean()) == pytest.approx(num**-0.5, rel=0.01)
        assert float(stderr.mean()) < 0.98 * num**-0.5


def test_expected_overlap_equals_a_literal_loop() -> None:
    graphs = [random_graph(8, 3), random_graph(6, 1)]
    case = make_case(Batch.from_data_list(graphs))
    generator = torch.Generator().manual_seed(0)
    parts = [Part(torch.randn(case.bonds.batch.numel(), generator=generator)) for _ in range(2)]
    parts[0] = Part(parts[0].value, torch.rand(parts[0].value.numel(), generator=generator))
    top = best_bonds(case, parts[0].value + parts[1].value)
    found = expected_overlap(case, top, parts, seed=7)
    for graph in range(2):
        own = (case.bonds.batch == graph).nonzero().view(-1)
        shares = []
        for turn in range(trust_module._SEEDS):
            total = torch.zeros(own.numel())
            for number, part in enumerate(parts):
                value = part.value[own]
                if part.stderr is not None:
                    slot = bond_slots(case)[own]
                    rows = trust_module.normal_rows(
                        mix(7, "trust", number), torch.zeros_like(slot), slot, trust_module._SEEDS
                    )
                    value = value + 2**0.5 * part.stderr[own] * rows[:, turn]
                total += (value - value.mean()) / value.std(correction=0)
            size = max(1, round(0.3 * own.numel()))
            chosen = set(total.topk(size).indices.tolist())
            mine = set(top[own].nonzero().view(-1).tolist())
            assert len(mine) == size
            shares.append(len(chosen & mine) / size)
        assert float(found[graph]) == pytest.approx(sum(shares) / len(shares), abs=1e-6)


def test_numbers_equal_a_literal_loop(ring: Data) -> None:
    """Own order, five random ones and these reversed, each bond set masked by itself."""
    model = Smooth(scale=2.0).eval()
    out = NICE(model, INSTANT.with_(mechanism="em")).explain(ring, seed=5)
    batch = Batch.from_data_list([ring])
    case = make_case(batch)
    label = int(out.target)

    def probability(chosen: list[int]) -> float:
        kept = torch.zeros(7).index_fill(0, torch.tensor(chosen, dtype=torch.long), 1.0)
        gate = kept[case.bonds.edge_bond]
        with torch.no_grad(), intervene(model, lambda m, g, site: m * g[:, None], gate):
            logits = model(batch.x, batch.edge_index, batch.batch).double()
            return float(logits.softmax(1)[0, label])

    clean, sizes = probability([*range(7)]), (4, 6)  # half of 7 is rounded to an even number

    def odds(chosen: list[int]) -> float:
        p = probability(chosen)
        return math.log(p / (1 - p))

    def gain(order: list[int]) -> float:  # best bond first
        return sum(odds(order[:n]) - odds(order[-n:]) for n in sizes) / 2

    order = out.bond_score.argsort(descending=True).tolist()
    random = []
    for turn in range(5):
        numbers = slot_numbers(mix(5, "trust", "random", turn), bond_slots(case), kind="uniform")
        random.append(numbers.argsort(descending=True).tolist())
    better = sum(gain(one) > gain(order) for other in random for one in (other, other[::-1]))
    contrast = [probability(order[:n]) - min(clean, probability(order[-n:])) for n in sizes]
    place = contrast.index(max(contrast))
    num = sizes[place]

    def left(chosen: list[int]) -> float:
        return min(1.0, probability(chosen) / clean)

    halves = [left(one) for other in random for one in (other[:num], other[-num:])]
    expected = [SHARES[place], left(order[:num]), 1 - left(order[-num:]), sum(halves) / 10]
    trust = told(out)
    found = [trust.share, trust.kept, trust.needed, trust.kept_random]
    assert [float(one) for one in found] == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert int(trust.random_better) == better
    assert float(trust.overlap) == 1  # masking does not depend on the seed


def test_batch_equals_loop_and_seeds_are_kept(graphs: list[Data]) -> None:
    nice = NICE(make("gin"), INSTANT)
    together = nice.explain(graphs, seed=3)
    alone = concatenate([nice.explain(graph, seed=3) for graph in reversed(graphs)])
    again, other = nice.explain(graphs, seed=3), nice.explain(graphs, seed=4)
    for name in NUMBERS:
        one, two = (getattr(told(out), name) for out in (together, alone))
        torch.testing.assert_close(one, two.flip(0), rtol=1e-3, atol=1e-4, equal_nan=True)
        torch.testing.assert_close(one, getattr(told(again), name), equal_nan=True)
    assert not torch.equal(told(together).kept_random, told(other).kept_random)
    parts = together.split()
    joined = concatenate(parts)
    for name in NUMBERS:
        whole = getattr(told(together), name)
        assert torch.equal(getattr(told(joined), name).nan_to_num(), whole.nan_to_num())
        assert getattr(told(parts[2]), name).shape == (1,)


@pytest.mark.parametrize("config", [INSTANT, FAST, FAST.with_(score="order")])
def test_scores_are_the_same_without_trust(config: NICEConfig, graphs: list[Data]) -> None:
    nice = NICE(make("gcn"), config)
    out, plain = nice.explain(graphs), nice.explain(graphs, trust=False)
    assert plain.trust is None
    assert told(out).kept.shape == (5,)
    for name in ("bond_score", "bond_loss", "bond_stderr", "bond_gate", "risk_corrupted"):
        first, second = getattr(out, name), getattr(plain, name)
        assert torch.equal(first.nan_to_num(), second.nan_to_num()), name


def test_there_is_none_along_a_joint_path(ring: Data) -> None:
    out = NICE(make("gin"), FAST.with_(attribution__path="joint")).explain(ring)
    assert out.trust is None


def test_graphs_with_no_bond_have_no_numbers() -> None:
    lone, pair = make_graph([], 1, seed=0), make_graph([(0, 1)], 2, seed=1)
    out = NICE(make("gin"), INSTANT).explain([lone, pair, random_graph(6, 2)])
    trust = told(out)
    assert trust.random_better.isnan().tolist() == [True, False, False]
    assert trust.kept.isnan().tolist() == [True, False, False]
    assert float(trust.random_better[1]) == 0  # there is one order
    assert trust.overlap.nan_to_num(-1)[:2].tolist() == [-1.0, 1.0]
    assert out.status.flags[0] == Flag.NO_EDGES


def test_values_have_shares_of_the_change_that_all_damage_makes(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = Smooth(num_classes=1)
    out = NICE(model, INSTANT, mode="regression").explain(graphs)
    trust = told(out)
    assert trust.log_odds.isnan().all()
    assert (trust.kept <= 1).all()
    assert (trust.needed >= 0).all()
    assert not trust.random_better.isnan().any()
    assert "of the effect of all bonds on the value, random" in out.split()[0].summary()


def test_nodes_have_trust_of_their_own() -> None:
    torch.manual_seed(0)
    graph = random_graph(12, 0)
    nice = NICE(NodeGCN(), INSTANT)
    out, alone = nice.explain(graph, index=[2, 7]), nice.explain(graph, index=7)
    for name in NUMBERS:
        one, two = getattr(told(out), name)[1:], getattr(told(alone), name)
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4, equal_nan=True)


def test_tables_and_words_tell_it(graphs: list[Data]) -> None:
    out = NICE(make("gin"), INSTANT).explain(graphs)
    frame = out.to_frame("graphs")
    assert set(NUMBERS) <= set(frame.columns)
    assert frame["kept"].tolist() == pytest.approx(told(out).kept.tolist())
    words = out.split()[3].summary()
    share = 100 * float(told(out).overlap[3])
    assert f"Another seed would choose {share:.0f} % of the top 30 % of bonds too." in words
    assert "Means: Another seed" in out.summary(2)
    assert "random orders" in out._repr_html_()


def test_sizes_are_those_of_top(graphs: list[Data]) -> None:
    out = NICE(make("gin"), INSTANT).explain(graphs)
    case = make_case(Batch.from_data_list(graphs))
    assert torch.equal(best_bonds(case, out.bond_score), out.top(trust_module.TOP))


def test_expected_overlap_is_what_other_seeds_give() -> None:
    """Calibration: the mean over graphs of the expected overlap is that of fresh noise."""
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(NUM_FEATURES, 16), nn.ReLU(), nn.Linear(16, 2))
    model = Pooled(GINConv(mlp))
    some = [random_graph(14, seed) for seed in range(30)]
    nice = NICE(model, INSTANT, mechanism=NoiseCorruption(antithetic=True))
    first, second = nice.explain(some, seed=0), nice.explain(some, seed=1)
    one, other = first.top(0.3), second.top(0.3)
    seen = float((one & other).sum() / one.sum())
    expected = float(told(first).overlap.mean())
    assert expected < 0.99
    assert expected == pytest.approx(seen, abs=0.08)


class Pooled(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index), batch)


def test_slots_of_bonds_are_their_first() -> None:
    case: Case = make_case(Batch.from_data_list([marked_path(4)]), slot=torch.arange(6).flip(0))
    assert bond_slots(case).tolist() == [4, 2, 0]
