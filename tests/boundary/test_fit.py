"""Fitting the gates: a planted motif is found, failures are recognised, runs can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Batch, Data

from nicegnn import NICE, NICEConfig, NoiseCorruption
from nicegnn.boundary import fit as fit_module
from nicegnn.errors import StoreError
from nicegnn.explain.status import Flag
from nicegnn.graph.case import edge_slots
from nicegnn.optimisation import CHECKPOINT_EVERY
from nicegnn.store import load_tensors
from nicegnn.target.training import TrainConfig, accuracy_of, train_classifier
from nicegnn.target.zoo import GIN
from tests.conftest import NUM_FEATURES, random_graph, take_snapshot

FAST = NICEConfig().with_(
    boundary__num_draws=4,
    boundary__fit_draws=4,
    boundary__steps=CHECKPOINT_EVERY + 5,
    boundary__batch_size=4,
    boundary__graph_steps=4,
    attribution__num_draws=4,
    attribution__num_nodes=2,
)


def motif_graph(label: int, generator: torch.Generator) -> Data:
    """A random tree with a house (label 1) or a ring of five (label 0) hung on it."""

    def below(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    size = 8 + below(6)
    house = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]
    ring = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    motif = [(u + size, v + size) for u, v in (house if label else ring)]
    rest = [(v, below(v)) for v in range(1, size)] + [(size, below(size))]
    bonds = torch.tensor(rest + motif).t()
    truth = torch.tensor([False] * len(rest) + [True] * len(motif))
    return Data(
        x=torch.ones(size + 5, 1),
        edge_index=torch.cat([bonds, bonds.flip(0)], dim=1),
        edge_truth=truth.repeat(2),
        y=torch.tensor([label]),
    )


@pytest.fixture(scope="module")
def motif_task() -> tuple[GIN, list[Data], list[Data]]:
    """A GIN that tells the two motifs apart, and graphs it was and was not trained on."""
    generator = torch.Generator().manual_seed(0)
    graphs = [motif_graph(number % 2, generator) for number in range(340)]
    torch.manual_seed(0)
    model = GIN(1, 2, hidden_size=16)
    config = TrainConfig(batch_size=64, epochs=40)
    train_classifier(model, graphs[:240], graphs[240:300], config, progress=False)
    assert accuracy_of(model, graphs[300:]) > 0.95
    return model, graphs[:240], graphs[300:]


def mean_auc(graphs: list[Data], scores: list[torch.Tensor]) -> float:
    pairs = zip(graphs, scores, strict=True)
    return sum(roc_auc_score(g.edge_truth, score) for g, score in pairs) / len(graphs)


def test_planted_motif_is_found(motif_task: tuple[GIN, list[Data], list[Data]]) -> None:
    model, train, test = motif_task
    config = NICEConfig().with_(
        boundary__steps=100,
        boundary__batch_size=64,
        boundary__num_draws=8,
        boundary__fit_draws=8,
        attribution__num_draws=128,
    )
    nice = NICE(model, config, mechanism="nc").fit(train, progress=False)
    assert nice.fit_report is not None
    assert nice.fit_report.status == "ok"
    parts = nice.explain(test, boundary=True).split()
    assert mean_auc(test, [part.gate for part in parts]) > 0.9
    assert mean_auc(test, [part.edge_score for part in parts]) > 0.75


def test_planted_motif_is_found_without_fitting(
    motif_task: tuple[GIN, list[Data], list[Data]],
) -> None:
    model, _, test = motif_task
    out = NICE(model, NICEConfig().with_(score="order")).explain(test[:20])
    assert out.status.boundary == "per-graph"
    assert mean_auc(test[:20], [part.edge_score for part in out.split()]) > 0.75


def test_training_lowers_the_risk(motif_task: tuple[GIN, list[Data], list[Data]]) -> None:
    model, train, _ = motif_task
    config = FAST.with_(boundary__steps=60, boundary__batch_size=64)
    report = NICE(model, config).fit(train, progress=False).fit_report
    assert report is not None
    first, last = report.history[:10], report.history[-10:]
    assert sum(h["risk"] for h in last) < 0.8 * sum(h["risk"] for h in first)
    for judgement in report.classes.values():
        assert judgement.risk["learned"] < judgement.risk["shuffled"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"boundary__penalty": 0.0, "boundary__start": 0.995}, "saturated-high"),
        ({"boundary__penalty": 1e3, "boundary__start": 0.01}, "saturated-low"),
    ],
)
def test_saturated_gates_are_recognised_with_advice(
    motif_task: tuple[GIN, list[Data], list[Data]],
    changes: dict[str, float],
    status: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, train, _ = motif_task
    config = NICEConfig.paper().with_(
        boundary__steps=40, boundary__batch_size=32, boundary__learning_rate=0.01, **changes
    )
    with caplog.at_level("WARNING", logger="nicegnn"):
        report = NICE(model, config).fit(train[:64], progress=False).fit_report
    assert report is not None
    assert report.status == status
    assert "budget" in report.advice
    for label, judgement in report.classes.items():
        assert (f"class {label} are {status}" in caplog.text) == (judgement.status == status)


def test_predictions_that_ignore_edges_are_recognised(
    graphs: list[Data], caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    torch.nn.init.zeros_(model.head.weight)  # the prediction does not depend on the graph
    with caplog.at_level("WARNING", logger="nicegnn"):
        report = NICE(model, FAST).fit(graphs, progress=False).fit_report
    assert report is not None
    assert report.status == "insensitive"
    assert "do not depend on edges" in caplog.text


def test_class_that_was_never_fitted_falls_back_and_says_so(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    predicted = int(NICE(model, FAST).explain(graphs[0]).target)
    nice = NICE(model, FAST.with_(boundary__classes=(predicted,), score="order")).fit(
        graphs, progress=False
    )
    known, other = (nice.explain(graphs[0], target=t) for t in (predicted, 1 - predicted))
    assert Flag.UNFITTED_CLASS not in known.status.flags[0]
    assert Flag.UNFITTED_CLASS in other.status.flags[0]
    alone = NICE(model, nice.config).explain(graphs[0], target=1 - predicted)
    torch.testing.assert_close(other.edge_score, alone.edge_score)


class Interrupting:
    """A mechanism that stops the run after so many messages, as Ctrl-C would."""

    def __init__(self, inner, calls: int) -> None:  # type: ignore[no-untyped-def]
        self.inner, self.calls, self.is_random = inner, calls, inner.is_random

    def __call__(self, message, gate, site):  # type: ignore[no-untyped-def]
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return self.inner(message, gate, site)

    def __repr__(self) -> str:
        return f"Interrupting({self.inner!r})"


@pytest.mark.parametrize("calls", [20, 61, 90])
def test_interrupted_fit_resumes_to_the_same_gates(tmp_path: Path, calls: int) -> None:
    graphs = [random_graph(5 + n % 4, seed=n) for n in range(8)]
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    straight, broken, resumed = (
        NICE(model, FAST, mechanism=Interrupting(NoiseCorruption(), most))
        for most in (10**6, calls, 10**6)
    )
    straight.fit(graphs, progress=False)
    assert straight.gates is not None
    file = tmp_path / "fit.ckpt"
    before = take_snapshot(model)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(graphs, progress=False, checkpoint=file)
    assert take_snapshot(model) == before
    assert not broken.is_fitted
    steps_done = len(load_tensors(file, "fit")[1]["history"])
    assert 0 < steps_done < FAST.boundary.steps
    resumed.fit(graphs, progress=False, checkpoint=file)
    assert resumed.gates is not None
    for key, value in straight.gates.state_dict().items():
        assert torch.equal(value, resumed.gates.state_dict()[key]), key
    assert resumed.fit_report is not None
    assert straight.fit_report is not None
    assert resumed.fit_report.history == straight.fit_report.history


def small_fit(monkeypatch, **changes):
    """Fits on eight graphs and returns the steps that were reported and the streams of noise."""
    streams = []
    plain = fit_module.srb_loss

    def watched(*args, stream: int, **kwargs):
        streams.append(stream)
        return plain(*args, stream=stream, **kwargs)

    monkeypatch.setattr(fit_module, "srb_loss", watched)
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    graphs = [random_graph(5 + n % 4, seed=n) for n in range(8)]
    nice = NICE(model, FAST.with_(mechanism="nc", **changes))
    nice.fit(graphs, progress=False)
    assert nice.fit_report is not None
    return nice.fit_report.history, streams


def test_noise_is_new_for_sixteen_steps_and_then_reused(monkeypatch) -> None:
    _, streams = small_fit(monkeypatch, boundary__steps=20)
    assert len(set(streams[:16])) == 16
    assert streams[16:] == streams[:4]


def test_graphs_of_a_step_have_budgets_of_their_own_and_noise_from_eight_tables(
    monkeypatch,
) -> None:
    budgets, offsets, plain = [], [], fit_module.srb_loss

    def watched(query, *args, share: torch.Tensor, **kwargs):
        case = query.case
        budgets.append(share)
        offsets.append((case.slot - edge_slots(case.edge_batch, case.num_graphs)).unique())
        return plain(query, *args, share=share, **kwargs)

    monkeypatch.setattr(fit_module, "srb_loss", watched)
    small_fit(monkeypatch, boundary__steps=8, boundary__batch_size=8)
    assert all(share.unique().numel() == 8 for share in budgets)
    begin = torch.cat(offsets).unique()
    assert begin.numel() == 8
    most = max(random_graph(5 + n % 4, seed=n).num_edges for n in range(8))
    assert int(begin.diff().min()) >= most  # no two tables overlap


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_penalty_counts_the_same_whatever_the_batch_size(monkeypatch, batch_size: int) -> None:
    """The loss of the paper is the mean over graphs of risk + lambda times the mean gate."""
    history, _ = small_fit(
        monkeypatch,
        boundary__objective="penalty",
        boundary__penalty=0.5,
        boundary__batch_size=batch_size,
        boundary__steps=3,
    )
    for step in history:
        assert step["loss"] == pytest.approx(step["risk"] + 0.5 * step["restored"], rel=1e-5)
    assert 0.9 < history[0]["restored"] < 1.0  # gates start at 0.95


def test_checkpoint_of_another_run_is_refused(tmp_path: Path, graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    file = tmp_path / "fit.ckpt"
    NICE(model, FAST).fit(graphs, progress=False, checkpoint=file)
    with pytest.raises(StoreError, match="these differ: seed"):
        NICE(model, FAST).fit(graphs, progress=False, checkpoint=file, seed=5)
    with pytest.raises(StoreError, match="these differ: graphs"):
        NICE(model, FAST).fit(graphs[:3], progress=False, checkpoint=file)
    other = NICE(model, FAST.with_(boundary__hidden_size=3))
    with pytest.raises(StoreError, match=r"these differ: settings\.boundary\.hidden_size\)"):
        other.fit(graphs, progress=False, checkpoint=file)
    same = FAST.with_(score="order", attribution__num_draws=2, boundary__risk_target=0.3, seed=9)
    NICE(model, same).fit(graphs, progress=False, checkpoint=file, seed=FAST.seed)
    file.write_text(json.dumps({"not": "a checkpoint"}))
    with pytest.raises(StoreError, match="damaged"):
        NICE(model, FAST).fit(graphs, progress=False, checkpoint=file)


def test_progress_is_shown_on_stderr_when_asked_for(
    capfd: pytest.CaptureFixture[str], graphs: list[Data]
) -> None:
    torch.manual_seed(0)
    NICE(GIN(NUM_FEATURES, 2, hidden_size=8), FAST).fit(graphs, progress=True)
    shown = capfd.readouterr()
    assert "Fitting gates" in shown.err
    assert shown.out == ""


class OwnBatches(list[Data]):
    """A dataset that stacks its graphs by itself, as the benchmarks do."""

    calls = 0

    def batch(self) -> Batch:
        self.calls += 1
        return Batch.from_data_list(list(self))


def test_datasets_that_batch_themselves_give_the_same_gates(graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=8)
    source = OwnBatches(graphs)
    fitted = [NICE(model, FAST).fit(s, progress=False).gates for s in (graphs, source)]
    assert source.calls > 0
    for key, value in fitted[0].state_dict().items():
        assert torch.equal(value, fitted[1].state_dict()[key]), key


def test_no_more_graphs_are_read_than_asked_for(graphs: list[Data]) -> None:
    config = FAST.with_(boundary__max_graphs=3, boundary__steps=2)
    few = NICE(GIN(NUM_FEATURES, 2), config).fit(graphs, progress=False)
    assert few.fit_report.num_graphs + few.fit_report.num_left_out == 3
    enough = FAST.with_(boundary__max_graphs=len(graphs), boundary__steps=2)
    every = NICE(GIN(NUM_FEATURES, 2), enough).fit(graphs, progress=False)
    assert every.fit_report.num_graphs + every.fit_report.num_left_out == len(graphs)
