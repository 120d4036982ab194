"""Fitting the gates: a planted motif is found, and what was learned is judged without truth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch_geometric.data import Data

from nicegnn import NICE, NICEConfig
from nicegnn.boundary import srb
from nicegnn.boundary.srb import FIT_ADVICE, FitReport, judge_order
from nicegnn.config import BoundaryConfig
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import edge_slots, make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import TrainConfig, accuracy_of, train_model
from nicegnn.target.zoo import GIN
from tests.boundary.small_models import LogOdds, path_graph
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import PAPER


def small_model() -> GIN:
    torch.manual_seed(0)
    return GIN(NUM_FEATURES, 2, hidden_size=8)


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
    train_model(model, graphs[:240], graphs[240:300], config, progress=False)
    assert accuracy_of(model, graphs[300:]) > 0.95
    return model, graphs[:240], graphs[300:]


def mean_auc(graphs: list[Data], scores: list[torch.Tensor]) -> float:
    pairs = zip(graphs, scores, strict=True)
    return sum(roc_auc_score(g.edge_truth, score) for g, score in pairs) / len(graphs)


def test_planted_motif_is_found(motif_task: tuple[GIN, list[Data], list[Data]]) -> None:
    model, train, test = motif_task
    config = NICEConfig.paper("propagated").with_(
        boundary__steps=100,
        boundary__batch_size=64,
        boundary__learning_rate=0.01,
        boundary__start=0.95,
    )
    nice = NICE(model, config).fit(train, progress=False)
    report = nice.fit_report
    assert report is not None
    assert report.status == "ok"
    first, last = report.history[:10], report.history[-10:]
    assert sum(h["loss"] for h in last) < 0.8 * sum(h["loss"] for h in first)
    parts = nice.explain(test).split()
    assert mean_auc(test, [part.bond_gate[part.bonds.edge_bond] for part in parts]) > 0.9
    one_by_one = NICEConfig(mechanism="nc").with_(attribution__num_draws=32)
    parts = NICE(model, one_by_one).explain(test).split()
    assert mean_auc(test, [part.edge_score for part in parts]) > 0.7


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
    assert "larger one" in FIT_ADVICE[report.status] or "smaller one" in FIT_ADVICE[report.status]
    for label, found in report.classes.items():
        assert (f"class {label} are {status}" in caplog.text) == (found == status)


def small_fit(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[FitReport, list[Any]]:
    """Fits on eight graphs, and returns the report and what each step gave to the objective."""
    seen, plain = list[Any](), srb.srb_loss

    def watched(query: Query, logit: Tensor, settings: BoundaryConfig, stream: int) -> Any:
        case = query.case
        own = (case.slot - edge_slots(case.edge_batch, case.num_graphs)).unique()
        seen.append((stream, own))
        return plain(query, logit, settings, stream)

    monkeypatch.setattr(srb, "srb_loss", watched)
    graphs = [random_graph(5 + n % 4, seed=n) for n in range(8)]
    nice = NICE(small_model(), PAPER.with_(**changes))
    report = nice.fit(graphs, progress=False).fit_report
    assert report is not None
    return report, seen


def test_steps_have_new_noise_and_graphs_of_a_step_their_own_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, seen = small_fit(monkeypatch, boundary__steps=20, boundary__batch_size=8)
    assert len({stream for stream, _ in seen}) == 20
    begin = torch.cat([own for _, own in seen]).unique()
    assert begin.numel() == 8  # noise comes from eight tables
    most = max(random_graph(5 + n % 4, seed=n).num_edges for n in range(8))
    assert int(begin.diff().min()) >= most  # no two tables overlap


@pytest.mark.parametrize("batch_size", [1, 8])
def test_penalty_counts_the_same_whatever_the_batch_size(
    monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    """The loss of the paper is the mean over graphs of risk + lambda times the mean gate."""
    report, _ = small_fit(
        monkeypatch,
        boundary__penalty=0.5,
        boundary__start=0.95,
        boundary__batch_size=batch_size,
        boundary__steps=3,
    )
    for step in report.history:
        assert step["loss"] == pytest.approx(step["risk"] + 0.5 * step["restored"], rel=1e-5)
    assert 0.9 < report.history[0]["restored"] < 1.0


# --- judging without ground truth: a model whose risks are known by hand -------------------------

NUM = 20
RIGHT = torch.tensor([-math.log(3), math.log(3)], dtype=torch.float64).repeat(NUM)


@pytest.mark.parametrize(
    ("logit", "size", "status"),
    [
        (RIGHT, 1.0, "ok"),  # without the bond of 3 alone 3 is lost, without that of 5 alone 5
        (-RIGHT, 1.0, "inverted"),
        (torch.zeros_like(RIGHT), 1.0, "uninformative"),
        (RIGHT, 0.001, "insensitive"),  # 0.008 in all
        (RIGHT + 6, 1.0, "saturated-high"),
        (RIGHT - 6, 1.0, "saturated-low"),
    ],
)
def test_each_failure_is_recognised(logit: Tensor, size: float, status: str) -> None:
    """Graphs with a bond of 3 and a bond of 5; the prediction needs both."""
    case = make_case(to_batch([path_graph(size, 2 * size, 3 * size) for _ in range(NUM)]))
    query = Query(Target(LogOdds()), case, ElementMask(), degradation="margin")
    assert judge_order(query, logit, BoundaryConfig(beta=0.0), 0) == status


def test_the_worst_class_is_the_status_of_a_fit() -> None:
    def status(*classes: str) -> str:
        report = FitReport(dict(enumerate(classes)), [], num_graphs=1)
        assert report.status in FIT_ADVICE
        return report.status

    assert status("ok", "insensitive") == "ok"  # what cannot be learned is no failure
    assert status("insensitive") == "insensitive"
    assert status("ok", "uninformative") == "uninformative"
