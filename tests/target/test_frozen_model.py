"""How the frozen model is called and read, by what it is known, and how its losses are counted."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GCNConv

from nicegnn.errors import NicegnnError, TargetError
from nicegnn.graph.batch import to_batch
from nicegnn.target.frozen_model import Target, fingerprint
from nicegnn.target.zoo import make_model
from tests.conftest import random_graph
from tests.target.small_models import (
    Batched,
    Core,
    Featured,
    Odd,
    Pairs,
    Single,
    Sized,
    Weighted,
    Whole,
    reference,
)

# --- calling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "inputs", "is_batched"),
    [
        (Batched, None, True),
        (Sized, None, True),
        (Whole, None, True),
        (Pairs, None, True),
        (Single, None, False),
        (Odd, ["x", "edge_index", "batch"], True),
        (Odd, lambda model, data: model(data.x, data.edge_index, data.batch), True),
        (Batched, ["x", "edge_index"], False),
        (Sized, ["x", "edge_index", "batch", "batch_size"], True),
    ],
)
def test_model_is_called_as_its_signature_or_inputs_say(kind, inputs, is_batched, graphs, batch):
    model = kind()
    target = Target(model, inputs=inputs)
    assert target.is_batched is is_batched
    if is_batched:
        torch.testing.assert_close(target.call(batch), reference(model, batch))
    else:
        out = [target.call(Batch.from_data_list([graph])) for graph in graphs]
        torch.testing.assert_close(torch.cat(out), reference(model, batch))


def test_edge_weight_and_edge_features_are_passed(batch):
    batch.edge_weight = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0))
    model: Core = Weighted()
    torch.testing.assert_close(
        Target(model).call(batch), reference(model, batch, batch.edge_weight)
    )
    model = Featured()
    torch.testing.assert_close(
        Target(model).call(batch), reference(model, batch, batch.edge_attr[:, 0])
    )


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # from torch.compile itself
def test_compiled_model_is_called_by_the_signature_behind_it(batch):
    model = Batched()
    target = Target(torch.compile(model, backend="eager"))
    assert target.is_batched
    torch.testing.assert_close(target.call(batch), reference(model, batch))


class Anything(Core):
    """Nothing can be read off such a signature; the error must say so, not the model's own."""

    def forward(self, *args, **kwargs):
        return self.run(*args, **kwargs)


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        (Weighted(), {}, r"needs `edge_weight`, which the graph does not have"),
        (
            Batched(),
            {"inputs": ["x", "weight"]},
            "needs `weight`, .*in `inputs`",
        ),
        (Anything(), {}, "inputs="),
        (Batched(), {"inputs": lambda model, data: None}, "floating point tensor"),
        (Batched(), {"inputs": lambda model, data: {"a": 1}}, "floating point tensor"),
        (Batched(), {"inputs": lambda model, data: torch.ones(5).long()}, "floating point tensor"),
        (Batched(), {"mode": "ranking"}, "`mode` must be one of .*got 'ranking'"),
        (Batched(), {"return_type": "logit"}, "`return_type` must be one of .*got 'logit'"),
        (Batched(), {"level": "edge"}, "`level` must be one of .*got 'edge'"),
        (nn.Linear(2, 2), {}, "no torch_geometric MessagePassing"),
        (GCNConv(-1, 2), {}, "Call it once on a graph"),
    ],
)
def test_what_cannot_be_called_is_named(model, settings, words, batch):
    with pytest.raises(NicegnnError, match=words):
        Target(model, **settings).call(batch)


def test_frozen_puts_every_module_back_in_its_own_mode_also_after_an_error(snapshot):
    model = Batched()
    model.drop = nn.Dropout()
    model.train()
    model.second.eval()
    before, target = snapshot(model), Target(model)
    with suppress(ZeroDivisionError), target.frozen():
        assert not any(module.training for module in model.modules())
        raise ZeroDivisionError
    assert snapshot(model) == before


# --- reading -----------------------------------------------------------------------------------


def settled(out: Tensor, **kwargs: Any) -> Target:
    target = Target(Batched(), **kwargs)
    target.settle(out, to_batch(random_graph(4, 0)))
    return target


@pytest.mark.parametrize(
    ("out", "settings"),
    [
        ([[1.0], [0.0]], {"mode": "binary", "return_type": "probs"}),
        ([[1.0, 0.0]], {}),
    ],
)
def test_sure_answers_stay_finite_with_finite_gradients(out, settings):
    value = torch.tensor(out, requires_grad=True)
    read = settled(value.detach(), **settings).read(value)
    (slope,) = torch.autograd.grad(read.sum(), value)
    assert bool(read.isfinite().all() and slope.isfinite().all())


@pytest.mark.parametrize(
    ("out", "settings", "words"),
    [
        ([[0.3], [2.0]], {}, "mode='binary' or mode='regression'"),
        ([[0.3], [2.0]], {"mode": "multiclass"}, "one column per class"),
        ([[0.3, 0.7]], {"mode": "binary"}, "one value per graph"),
        ([[-2.0, 3.0]], {"return_type": "probs"}, r"must lie in \[0, 1\]"),
        ([[-2.0], [3.0]], {"mode": "binary", "return_type": "probs"}, r"must lie in \[0, 1\]"),
        ([[2.0, 3.0]], {"return_type": "log_probs"}, "add up to 1"),
        (
            [[2.0]],
            {"mode": "binary", "return_type": "log_probs"},
            r"must lie in \[0, 1\].*'log_probs'",
        ),
        ([[float("nan"), 0.0]], {}, "finite"),
        ([[float("inf"), 0.0]], {"mode": "regression"}, "finite"),
    ],
)
def test_output_that_does_not_fit_the_settings_is_refused(out, settings, words):
    value, target = torch.tensor(out), Target(Batched(), **settings)
    with pytest.raises(TargetError, match=words):  # noqa: PT012
        target.settle(value, to_batch(random_graph(4, 0)))
        target.read(value)


# --- choosing ----------------------------------------------------------------------------------

CLEAN = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]).log()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, [1, 0]),
        (2, [2, 2]),
        (torch.tensor(0), [0, 0]),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.tensor([2], dtype=torch.int32), [2, 2]),
        ([0, 1], [0, 1]),
    ],
)
def test_explained_class_is_the_predicted_or_the_asked_one(target, expected):
    chosen = Target(Batched(), mode="multiclass").choose(CLEAN, target)
    assert chosen.tolist() == expected
    assert chosen.dtype == torch.long


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (3, "between 0 and 2"),
        (-1, "between 0 and 2"),
        (torch.tensor([0, 7]), r"got 0 to 7"),
        (torch.tensor([0, 1, 2]), r"one per explained output, 2 \(got 3\)"),
        (1.0, "class numbers"),
        (torch.tensor([True, False]), "class numbers"),
    ],
)
def test_bad_targets_are_refused(target, words):
    with pytest.raises(TargetError, match=words):
        Target(Batched(), mode="multiclass").choose(CLEAN, target)


def test_regression_is_read_as_it_is_and_explains_all_outputs_unless_one_is_asked_for():
    out = torch.tensor([[0.3, 0.7], [-5.0, 6.0]])
    target = settled(out, mode="regression")
    assert torch.equal(target.read(out), out)
    assert target.choose(out[:, :1], None).tolist() == [0, 0]
    assert target.choose(out, None).tolist() == [-1, -1]
    assert target.choose(out, 1).tolist() == [1, 1]


# --- fingerprints ------------------------------------------------------------------------------


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return make_model("gin", 5, 2, hidden_size=8)


def test_fingerprint_is_that_of_a_copy_and_not_of_the_mode(model):
    value = fingerprint(model)
    assert fingerprint(copy.deepcopy(model)) == value
    assert fingerprint(model.eval()) == value
    assert fingerprint(torch.compile(model, backend="eager")) == value
    model.head.weight.requires_grad_(False)
    assert fingerprint(model) == value


def test_fingerprint_notices_every_weight_and_buffer_type_and_name(model):
    value = fingerprint(model)
    seen = {value}
    for tensor in model.state_dict().values():
        flat = tensor.view(-1)
        before = flat[-1].clone()
        flat[-1] = flat[-1] + 1
        seen.add(fingerprint(model))
        flat[-1] = before
    assert fingerprint(model) == value
    a, b = nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)
    b.weight.data = a.weight.data.view(2, 3).clone()
    others = [nn.Sequential(model), copy.deepcopy(model).double(), model.bfloat16(), a, b]
    seen |= {fingerprint(one) for one in others}
    assert len(seen) == 1 + len(model.state_dict()) + len(others)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_fingerprint_is_the_same_on_every_device(model):
    assert fingerprint(copy.deepcopy(model).cuda()) == fingerprint(model)
