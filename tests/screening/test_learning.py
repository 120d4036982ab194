"""Models from files with labels: what the card says is true, and the file gives the same model."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from nicegnn.errors import ConfigError
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.pretrained import Pretrained, load_file
from nicegnn.screening import learning
from nicegnn.screening.learning import Learned, learn
from nicegnn.screening.loading import load_words
from nicegnn.screening.reading import Reader
from nicegnn.screening.settings import ModelConfig
from nicegnn_lab.datasets.generator import generate_smiles
from tests.screening.small_screen import SMALL, write_csv

Chem = pytest.importorskip("rdkit.Chem", reason="needs RDKit")
Crippen = pytest.importorskip("rdkit.Chem.Crippen")


def test_card_tells_the_held_out_accuracy_of_the_stored_model(
    small: tuple[Learned, Pretrained], model_file: Path
) -> None:
    learned, loaded = small
    stored = load_file(model_file)
    model, card = stored.model, stored.card
    assert card == learned.cards["label"]
    assert tomllib.loads(learned.files[1].read_text()) == {
        **card.to_dict(),
        "classes": list(card.classes),
    }
    assert card.split == "random, seed 0: 128 train, 16 validation, 16 test"
    assert card.architecture.endswith("; at most 25 epochs, batches of 32, learning rate 0.01")
    assert card.test["accuracy"] > card.baseline["accuracy"]
    assert card.test["accuracy_low"] <= card.test["accuracy"] <= card.test["accuracy_high"]
    graph = loaded.featurizer("Cc1ccccc1")
    with torch.no_grad():
        one, other = (
            m(graph.x, graph.edge_index, None, graph.edge_attr) for m in (model, learned.model)
        )
    assert torch.equal(one, other)
    assert loaded.background is not None
    assert loaded.domain is not None


def test_quality_is_told_by_hand_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 negatives 6 are right, of 2 positives 1: 7 of 10, and (0.75 + 0.5) / 2."""
    wanted = [0] * 8 + [1] * 2
    share = torch.tensor([0.1] * 6 + [0.7, 0.7, 0.6, 0.2])  # of class 1
    monkeypatch.setattr(learning, "predict", lambda *_, mode: torch.stack([1 - share, share], 1))
    graphs = [Data(y=torch.tensor([label])) for label in wanted]
    test, constant = learning.judge(None, graphs, graphs, "classification")  # type: ignore[arg-type]
    assert test["accuracy"] == 0.7
    assert test["balanced_accuracy"] == 0.625
    assert test["auc"] == 12 / 16  # 0.6 beats six of eight, 0.2 six
    assert test["balanced_accuracy_low"] < 0.5
    assert constant == {"accuracy": 0.8, "balanced_accuracy": 0.5}


def test_labels_that_cannot_be_told_apart_are_said_to_be_so(tmp_path: Path) -> None:
    rows: list[list[object]] = [[s, n % 5 == 0] for n, s in enumerate(generate_smiles(120, seed=5))]
    path = write_csv(tmp_path / "in.csv", ["smiles", "label"], rows)
    config = SMALL.with_(epochs=3, note="Mine.")
    found = learn(Reader(path), tmp_path / "m.safetensors", config)
    card = found.cards["label"]
    assert card.note == "Mine. Classes of different size weighed the same in training."
    assert card.doubt.startswith("It is no better than the most frequent class: do not use")
    assert card.doubt.rstrip(".") in card.in_words()


def test_values_are_learned_in_their_own_unit(tmp_path: Path) -> None:
    smiles = generate_smiles(200, seed=2)
    rows: list[list[object]] = [
        [s, f"{100 + 20 * Crippen.MolLogP(Chem.MolFromSmiles(s)):.3f}"] for s in smiles
    ]
    path = write_csv(tmp_path / "logp.csv", ["smiles", "label"], rows)
    config = SMALL.with_(epochs=40, split="scaffold")
    found = learn(Reader(path), tmp_path / "logp.safetensors", config)
    assert found.cards["label"].task == "regression"
    assert found.cards["label"].test["r2"] > 0.5
    assert found.cards["label"].baseline["r2"] <= 0
    assert found.cards["label"].note == found.cards["label"].doubt == ""
    loaded = load_file(tmp_path / "logp.safetensors")
    value = loaded.explainer.explain(loaded.featurizer(smiles[0])).prediction
    assert 60 < float(value) < 300


@pytest.mark.parametrize(
    ("labels", "changes", "match"),
    [
        (["1"] * 30, {}, "2 to 20 different labels"),
        (["a", "b"] * 5, {}, "at least 20 molecules"),
        (["a", "b"] * 15, {"classes": ("x", "y", "z")}, "must name the 2 labels"),
        (["a", "b"] * 15, {"task": "regression"}, "is not a number"),
        ([], {}, "no rows"),
        (["a", "b"] * 15, {"split": "scaffold"}, r"got \(30, 0, 0\) of them with 'scaffold'"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(
    tmp_path: Path, labels: list[str], changes: dict[str, Any], match: str
) -> None:
    rows: list[list[object]] = [[s, y] for s, y in zip(["CCO"] * len(labels), labels, strict=True)]
    path = write_csv(tmp_path / "in.csv", ["smiles", "label"], rows)
    with pytest.raises(ConfigError, match=match):
        learn(Reader(path), tmp_path / "m.safetensors", SMALL.with_(**changes))
    assert not (tmp_path / "m.safetensors").exists()


def test_several_labels_share_a_model_and_each_is_explained_alone(tmp_path: Path) -> None:
    smiles = generate_smiles(200, seed=3)
    has_ring = ["c" in one.replace("Cl", "") for one in smiles]  # an aromatic one
    rows: list[list[object]] = [
        [one, "" if n % 7 == 0 else int(has_ring[n]), ["no O", "O"]["O" in one], 1]
        for n, one in enumerate(smiles)
    ]
    path = write_csv(tmp_path / "in.csv", ["smiles", "ring", "oxygen", "same"], rows)
    config = SMALL.with_(label=("ring", "oxygen"), epochs=15)
    out = tmp_path / "m.safetensors"
    found = learn(Reader(path), out, config)
    assert {label: card.classes for label, card in found.cards.items()} == {
        "ring": ("not ring", "ring"),
        "oxygen": ("O", "no O"),
    }
    graph = FEATURIZERS["elements"]("CCOc1ccccc1")
    with torch.no_grad():
        both = found.model(graph.x, graph.edge_index, None, graph.edge_attr)
    for number, label in enumerate(found.cards):
        one = load_words(ModelConfig(model=f"{out}:{label}"))
        assert one.card == found.cards[label]
        assert one.card.test["balanced_accuracy"] > 0.7
        p = one.explainer.explain(graph).prediction[0, 1].exp()
        assert p == pytest.approx(float(both[0, number].sigmoid()), abs=1e-5)
    sizes = [card.split.partition(": ")[2] for card in found.cards.values()]
    assert sizes[1] == "160 train, 20 validation, 20 test"
    assert sizes[0] != sizes[1]  # empty cells are not known, and others of their row count
    with pytest.raises(ConfigError, match="one of \\('ring', 'oxygen'\\)"):
        load_words(ModelConfig(model=f"{out}:nope"))
    with pytest.raises(ConfigError, match="'same' must have 2 different labels"):
        learn(Reader(path), out, config.with_(label=("ring", "same")))
