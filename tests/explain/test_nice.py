"""NICE end to end: the public interface and the properties every explanation must have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn import NICE, ElementMask
from nicegnn.errors import NotFittedError, TargetError
from nicegnn.explain.trust import Flag, boundary_flags, flags_of
from tests.conftest import random_graph, take_snapshot
from tests.explain.small_models import BACKBONES, FAST, PAPER, Smooth, make


@pytest.mark.parametrize("name", BACKBONES)
def test_interface_works_as_written_on_every_backbone(name: str, batch: Batch) -> None:
    model = make(name)
    nice = NICE(model, PAPER)
    before = take_snapshot(model)
    for call in (nice.explain, nice.teach):
        with pytest.raises(NotFittedError, match=r"needs fitted gates .* Call fit\(graphs\) first"):
            call(batch, progress=False)
    assert take_snapshot(model) == before
    nice.fit(batch.to_data_list(), progress=False)
    out = nice.explain(batch)
    assert take_snapshot(model) == before
    assert out.edge_score.shape == (batch.num_edges,)
    assert out.bond_index.shape == (2, batch.num_edges // 2)
    assert out.bond_score.shape == (batch.num_edges // 2,)
    assert out.target.tolist() == model.eval()(**call_arguments(model, batch)).argmax(1).tolist()
    for value in (out.edge_score, out.risk_boundary, out.risk_corrupted):
        assert torch.isfinite(value).all()
    assert ((out.bond_gate >= 0) & (out.bond_gate <= 1)).all()
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
    nice = NICE(make(name), PAPER if fitted else FAST)
    if fitted:
        nice.fit(graphs, progress=False)
    together = nice.explain(Batch.from_data_list(graphs)).split()
    reordered = nice.explain(graphs[::-1]).split()[::-1]
    for graph, a, b in zip(graphs, together, reordered, strict=True):
        alone = nice.explain(graph)
        for other in (a, b):
            torch.testing.assert_close(other.edge_score, alone.edge_score, rtol=1e-4, atol=1e-5)
            near = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}
            torch.testing.assert_close(other.bond_gate, alone.bond_gate, **near)
            assert torch.equal(other.edge_index, graph.edge_index)
            assert other.status.flags == alone.status.flags


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
    assert not out.bond_loss.any()
    assert not out.bond_score.any()
    assert not out.atom_score.any()
    assert all(Flag.INSENSITIVE in flag for flag in out.status.flags)


def test_values_are_explained_output_by_output(batch: Batch) -> None:
    torch.manual_seed(0)
    model = Smooth(num_classes=3)
    nice = NICE(model, FAST, mode="regression", background=batch.to_data_list())
    with pytest.raises(TargetError, match="name the output to explain, 0 to 2"):
        nice.explain(batch)
    out = nice.explain(batch, target=1)
    assert out.unit == "value"
    assert torch.equal(out.bond_score, out.bond_change)
    torch.testing.assert_close(out.prediction, model(batch.x, batch.edge_index, batch.batch))
    scaled = Smooth(num_classes=3)
    scaled.load_state_dict(model.state_dict())
    scaled.scale = 10.0
    ten = NICE(scaled, FAST, mode="regression", background=batch.to_data_list())
    torch.testing.assert_close(
        ten.explain(batch, target=1).bond_score, 10 * out.bond_score, rtol=1e-4, atol=1e-5
    )


def test_a_loaded_explainer_reads_the_model_in_the_same_way(tmp_path: Path) -> None:
    """One column of a model in float64 is a value here, which the model itself does not tell."""
    graphs = [random_graph(n, seed=n, dtype=torch.float64) for n in (4, 5, 6)]
    torch.manual_seed(0)
    model = Smooth(num_classes=1).double()
    nice = NICE(model, PAPER, mode="regression").fit(graphs, progress=False)
    nice.save(tmp_path / "nice.safetensors")
    again = NICE.load(tmp_path / "nice.safetensors", model)
    assert again.gates is not None
    assert next(again.gates.parameters()).dtype == torch.float64
    found, wanted = again.explain(graphs), nice.explain(graphs)
    assert torch.equal(found.prediction, wanted.prediction)
    assert torch.equal(found.bond_score, wanted.bond_score)


@pytest.mark.parametrize("learned", ["background", "gates"])
def test_weights_that_changed_since_something_was_learned_are_noticed(
    learned: str, tmp_path: Path, graphs: list[Data]
) -> None:
    model, file = make("gin"), tmp_path / "fitted.safetensors"
    if learned == "gates":
        explainer = NICE(model, PAPER).fit(graphs, progress=False)
    else:
        explainer = NICE(model, FAST, background=graphs)
    explainer.save(file)
    loaded = type(explainer).load(file, model)
    weight = next(model.parameters())
    before = weight.data.clone()
    weight.data += 1  # without a trace in autograd's counters
    for one in (explainer, loaded):
        with pytest.raises(NotFittedError, match="must have the weights"):
            one.explain(graphs[0])
    with pytest.raises(NotFittedError, match="must have the weights"):
        explainer.save(file)
    NICE(model, FAST, background=graphs).explain(graphs[0])
    weight.data.copy_(before)
    loaded.explain(graphs[0])  # the weights are back


def test_status_tells_about_clean_self_loops_and_left_out_layers(ring: Data) -> None:
    model = make("gcn")
    model.convs[1].explain = False
    notes = " ".join(NICE(model, FAST).explain(ring).status.notes)
    assert "stayed clean: convs.0, convs.2" in notes
    assert "explain=False: convs.1" in notes
    assert "Pass `background`" in notes
    assert not any("clean" in note for note in NICE(make("gin"), FAST).explain(ring).status.notes)


def test_masking_can_take_the_place_of_noise(batch: Batch) -> None:
    by_name = NICE(make("gin"), FAST.with_(mechanism="em")).explain(batch)
    by_object = NICE(make("gin"), FAST, mechanism=ElementMask()).explain(batch)
    assert torch.equal(by_name.edge_score, by_object.edge_score)
    assert float(by_name.bond_stderr.max()) == pytest.approx(0.0, abs=1e-6)  # no randomness


@pytest.mark.parametrize(
    ("corrupted", "risk", "restored", "expected"),
    [
        (1.0, 0.09, 0.5, Flag.OK),
        (1.0, 0.11, 0.5, Flag.NOT_RESTORED),
        (1.0, 0.0, 0.96, Flag.OK),
        (1.0, 0.0, 0.98, Flag.ALL_RESTORED),
        (0.01, 0.0015, 0.5, Flag.INSENSITIVE),  # a tenth of the least risk that counts, 0.02
        (0.01, 0.0025, 0.98, Flag.INSENSITIVE | Flag.NOT_RESTORED | Flag.ALL_RESTORED),
    ],
)
def test_flags_of_a_boundary_by_hand(
    corrupted: float, risk: float, restored: float, expected: Flag
) -> None:
    numbers = (torch.tensor([value]) for value in (corrupted, risk, restored))
    assert flags_of(boundary_flags(*numbers)) == (expected,)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fitted", [False, True])
def test_device_of_the_model_is_followed_and_agrees_with_the_cpu(
    fitted: bool, graphs: list[Data]
) -> None:
    config = PAPER if fitted else FAST
    cpu, gpu = (NICE(make("gin").to(d), config) for d in ("cpu", "cuda"))
    if fitted:
        cpu.fit(graphs, progress=False)
        gpu.fit(graphs, progress=False)
    a, b = cpu.explain(graphs), gpu.explain(graphs)
    assert b.edge_score.is_cuda
    torch.testing.assert_close(b.edge_score.cpu(), a.edge_score, rtol=1e-2, atol=1e-3)
