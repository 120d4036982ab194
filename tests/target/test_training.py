"""Training of the reference classifiers, and their calibration against hand numbers."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.target.training import (
    TrainConfig,
    accuracy_of,
    calibration,
    predict,
    r_squared,
    train_model,
    wilson_interval,
)
from nicegnn.target.zoo import GIN, MODELS, make_model
from tests.conftest import NUM_FEATURES, random_graph


def separable(number: int) -> list[Data]:
    """Label 1 where the first feature is shifted up: any of the models can learn it."""
    graphs = [random_graph(5, seed=s) for s in range(number)]
    for k, graph in enumerate(graphs):
        graph.y = torch.tensor([k % 2])
        graph.x[:, 0] = graph.x[:, 0].abs() * (1 if k % 2 else -1)
    return graphs


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_learns_a_separable_task(name: str) -> None:
    graphs = separable(90)
    torch.manual_seed(0)
    model = make_model(name, NUM_FEATURES, 2, edge_size=3)
    config = TrainConfig(batch_size=16, epochs=20)
    report = train_model(model, graphs[:60], graphs[60:75], config, progress=False)
    assert accuracy_of(model, graphs[75:]) >= 0.9
    assert report.valid_accuracy == max(h["valid_accuracy"] for h in report.history)
    assert not model.training


def test_best_weights_are_kept_and_runs_repeat() -> None:
    graphs = separable(60)
    outputs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = GIN(NUM_FEATURES, 2, hidden_size=8)
        config = TrainConfig(batch_size=16, epochs=8)
        report = train_model(model, graphs[:40], graphs[40:], config, progress=False)
        assert accuracy_of(model, graphs[40:]) == pytest.approx(report.valid_accuracy)
        outputs.append(predict(model, graphs))
    assert torch.equal(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[0].sum(1), torch.ones(60))


def test_regressor_learns_values_far_from_zero() -> None:
    graphs = separable(90)
    for graph in graphs:
        graph.y = 500 + 40 * graph.x[:, :1].sum(0)
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 1, hidden_size=16)
    config = TrainConfig(batch_size=16, epochs=40)
    report = train_model(model, graphs[:60], graphs[60:], config, mode="regression", progress=False)
    found = predict(model, graphs[60:], mode="regression").view(-1)  # in units of y
    wanted = torch.cat([graph.y for graph in graphs[60:]])
    assert r_squared(found, wanted) == pytest.approx(report.valid_accuracy, abs=1e-4)
    assert report.valid_accuracy > 0.8


def test_training_stops_early_and_bad_settings_are_named() -> None:
    graphs = separable(40)
    config = TrainConfig(batch_size=40, epochs=300, stop_after=3, learning_rate=1.0)
    report = train_model(
        GIN(NUM_FEATURES, 2, hidden_size=4), graphs, graphs, config, progress=False
    )
    assert report.best_epoch + 3 == report.epochs - 1 < 299
    with pytest.raises(ConfigError, match="epochs"):
        TrainConfig(epochs=0)


def test_calibration_by_hand() -> None:
    probability = torch.tensor([[0.9, 0.1], [0.05, 0.95], [0.45, 0.55], [0.4, 0.6]])
    label = torch.tensor([0, 1, 0, 1])
    found = calibration(probability, label, num_bins=5)  # bins of 0.1 from 0.5
    assert found["accuracy"] == 0.75
    assert found["mean_confidence"] == pytest.approx(0.75)
    # the gaps of the bins: 0.55 though wrong, 0.40, 0.10 and 0.05 too modest
    assert found["ece"] == pytest.approx((0.55 + 0.40 + 0.10 + 0.05) / 4)
    assert found["interval"][0] < 0.75 < found["interval"][1]


def test_wilson_interval_equals_its_known_values() -> None:
    low, high = wilson_interval(8, 10)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson_interval(0, 20)[0] == 0.0


def test_balanced_classes_weigh_the_same() -> None:
    """Graphs that are all the same leave only how often a class comes to be learned."""
    graph = random_graph(3, seed=0)
    graphs = [Data(**graph.to_dict() | {"y": torch.tensor([int(n < 2)])}) for n in range(20)]
    config = TrainConfig(epochs=150, learning_rate=0.05, seed=1)
    share = {}
    for balanced in (False, True):
        torch.manual_seed(0)
        model = make_model("gin", NUM_FEATURES, 2, hidden_size=4, num_layers=1)
        train_model(model, graphs, graphs, config, balanced=balanced, progress=False)
        share[balanced] = float(predict(model, graphs[:1])[0, 1])
    assert share[False] == pytest.approx(0.1, abs=0.03)
    assert share[True] == pytest.approx(0.5, abs=0.05)


def test_unknown_models_and_readouts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"`readout` must be one of .* \(got 'median'\)"):
        GIN(3, 2, readout="median")
    with pytest.raises(ConfigError, match=r"`name` must be one of .* \(got 'mlp'\)"):
        make_model("mlp", 3, 2)


@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
def test_readouts_pool_each_graph_by_itself(readout: str, graphs: list[Data]) -> None:
    torch.manual_seed(0)
    model = GIN(NUM_FEATURES, 2, hidden_size=4, readout=readout).eval()
    together = predict(model, graphs)
    alone = torch.cat([predict(model, [graph]) for graph in graphs])
    torch.testing.assert_close(together, alone)
