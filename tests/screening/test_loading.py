"""From words to a model: names, files, the user's own code, and what does not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nicegnn.errors import NicegnnError
from nicegnn.explain.registry import load_plugins
from nicegnn.screening.loading import load_words
from nicegnn.screening.settings import ModelConfig
from nicegnn.target.zoo import GIN

OWN = """
from safetensors.torch import load_model
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.target.zoo import GIN

model = GIN(14, 3, hidden_size=8)
load_model(model, "w.safetensors")

def make():
    return GIN(14, 3)

def graphs(smiles):
    return FEATURIZERS["elements"](smiles)

number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GIN:
    """A user's folder: a module, and weights of its model."""
    (tmp_path / "own_model_for_test.py").write_text(OWN)
    model = GIN(14, 3, hidden_size=8)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_model_for_test", raising=False)
    return model


def words(**changes: Any) -> ModelConfig:
    usual = {"model": "own_model_for_test:model", "featurizer": "own_model_for_test:graphs"}
    return ModelConfig(**{**usual, **changes})


def test_results_belong_to_the_code_of_an_own_model(own: GIN, tmp_path: Path) -> None:
    file = tmp_path / "own_code_for_test.py"  # a module of this test alone
    file.write_text(OWN)
    asked = words(model="own_code_for_test:model")
    before = load_words(asked).origin
    assert load_words(asked).origin == before
    file.write_text(OWN + "# another forward, say\n")
    after = load_words(asked).origin
    assert [key for key, value in before.items() if after[key] != value] == ["code"]


def test_own_model_is_the_named_one(own: GIN) -> None:
    found = load_words(words(classes=("a", "b", "c")))
    for key, value in found.model.state_dict().items():
        assert torch.equal(value, own.state_dict()[key])
    assert found.card.classes == ("a", "b", "c")
    assert not found.explainer.is_fitted
    assert load_words(words(explainer="saliency")).explainer.name == "saliency"


def test_origin_tells_models_and_explainers_apart(own: GIN) -> None:
    one, same, other = (load_words(words(explainer=name)).origin for name in ("", "", "saliency"))
    assert one == same
    assert {key for key in one if one[key] != other[key]} == {"explainer"}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model": "own_model_for_test:absent"}, "can be imported .*absent"),
        ({"model": "no_such_module:model"}, "can be imported .*no_such_module"),
        ({"model": "own_model_for_test:number"}, "a trained torch model .*got int"),
        ({"model": "own_model_for_test:make"}, "got function .*makes an untrained one"),
        ({"featurizer": ""}, "how a SMILES becomes a graph"),
        ({"featurizer": "nope"}, "`featurizer` must be one of"),
        ({"featurizer": "rich"}, "must take graphs of the featuriser 'rich'"),
        ({"classes": ("a", "b")}, "must name the 3 classes"),
        ({"task": "binary"}, r"--task \(binary here\)"),
        ({"explainer": "nope"}, "`explainer` must be one of"),
        ({"explainer": "pgexplainer"}, "must be fitted first, .*explainer.fit"),
        ({"explainer": "nice-paper"}, "must be fitted first"),
        ({"explainer": "ground-truth"}, "true explanations"),
        ({"explainer": "w.safetensors"}, "`explainer` must be one of"),
        ({"model": "nope"}, "must be one of .*'benzene'"),
        ({"background": "nope.csv"}, "nope.csv does not exist"),
    ],
)
def test_words_that_do_not_fit_are_named(own: GIN, changes: dict[str, Any], match: str) -> None:
    load_plugins()  # methods that learn are the laboratory's
    with pytest.raises(NicegnnError, match=match) as caught:
        load_words(words(**changes))
    assert "\n" not in str(caught.value)


def test_stored_model_has_its_own_weights_and_featuriser(model_file: Path) -> None:
    found = load_words(ModelConfig(model=str(model_file)))
    assert found.background is not None
    for changes in ({"classes": ("a", "b")}, {"featurizer": "rich"}, {"background": "x.csv"}):
        with pytest.raises(NicegnnError, match=f"`{next(iter(changes))}` must be"):
            load_words(ModelConfig(model=str(model_file), **changes))
