"""Files of explainers: what was changed in one is refused by a line that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nicegnn import NICE, TeachConfig
from nicegnn.errors import StoreError
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.zoo import make_model
from tests.conftest import NUM_FEATURES, random_graph
from tests.explain.small_models import PAPER

Parts = tuple[dict[str, Tensor], dict[str, Any]]
GRAPHS = [random_graph(6, seed) for seed in range(6)]


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return make_model("gin", NUM_FEATURES, 2, hidden_size=8, num_layers=2)


@pytest.fixture(scope="module")
def whole(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """The parts of a file with a background, gates and a student."""
    path = tmp_path_factory.mktemp("whole") / "explainer.safetensors"
    nice = NICE(model, PAPER, background=GRAPHS).fit(GRAPHS, progress=False)
    nice.teach(GRAPHS * 3, config=TeachConfig(epochs=1), progress=False)
    nice.save(path)
    return load_tensors(path, "nice")


def spoil(tensors: dict[str, Tensor], prefix: str, change: Callable[[Tensor], Tensor]) -> None:
    """Changes the floating-point tensors of a part."""
    for key in [k for k, v in tensors.items() if k.startswith(prefix) and v.is_floating_point()]:
        tensors[key] = change(tensors[key])


@pytest.mark.parametrize(
    "change",
    [
        lambda t, d: spoil(t, "gates", lambda v: v * torch.nan),
        lambda t, d: spoil(t, "background", lambda v: v * torch.inf),
        lambda t, d: spoil(t, "student", lambda v: v * torch.nan),
        lambda t, d: spoil(t, "gates", Tensor.half),
        lambda t, d: spoil(t, "gates", lambda v: v + 0j),
        lambda t, d: spoil(t, "background", Tensor.long),
        lambda t, d: spoil(t, "student", lambda v: v.unsqueeze(-1)),
        lambda t, d: t.update({"background.feature.x": torch.ones(3) * torch.nan}),
        lambda t, d: t.pop("gates.first.weight"),
        lambda t, d: t.pop("background.sample.0"),
        lambda t, d: t.pop("student.limit"),
        lambda t, d: t.update({"gates.more": torch.ones(1)}),
        lambda t, d: t.update({"background.message.7": torch.ones(1)}),
        lambda t, d: t.update({"more": torch.ones(1)}),
        lambda t, d: d.pop("config"),
        lambda t, d: d.pop("version"),
        lambda t, d: d.pop("model"),
        lambda t, d: d.update(config={"nosuch": 1}),
        lambda t, d: d.update(config=None),
        lambda t, d: d.update(mode="x"),
        lambda t, d: d.update(background=None),
        lambda t, d: d.update(student={}),
        lambda t, d: d.update(taught=[1]),
        lambda t, d: d["background"].update(num=1e400),
        lambda t, d: d["background"].update(layers=["x"]),
        lambda t, d: d["student"].update(num_labels=7),
    ],
)
def test_a_spoiled_file_is_one_line_that_names_it(
    change: Callable[[dict[str, Tensor], dict[str, Any]], object],
    whole: Parts,
    model: torch.nn.Module,
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.safetensors"
    tensors, description = dict(whole[0]), {k: _copy(v) for k, v in whole[1].items()}
    save_tensors(path, tensors, description)
    found = NICE.load(path, model)
    assert found.gates is not None
    assert found.student is not None
    change(tensors, description)
    save_tensors(path, tensors, description)  # the checksum is right
    with pytest.raises(StoreError, match=r"mine\.safetensors") as error:
        NICE.load(path, model)
    assert "\n" not in str(error.value)


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
