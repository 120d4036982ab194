"""Models in the wheel: they load, say what they are, and look at what they should."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
import torch

from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.pretrained import NAMES, card_of, load, load_file
from nicegnn.store import load_tensors, save_tensors
from scripts.shipped_models import rebuilt_smiles


@pytest.mark.parametrize("name", NAMES)
def test_model_is_better_than_its_baseline_and_knows_its_data(name: str) -> None:
    found = load(name)
    assert found.card == card_of(name)  # the card beside the file is the card in it
    assert found.background is not None
    assert found.domain is not None
    assert found.domain.nearness(parse_smiles("Cc1ccccc1")).words == "ok"
    measure = "r2" if found.card.task == "regression" else "accuracy"
    assert found.card.test[measure] > found.card.baseline[measure] + 0.1
    assert all((found.card.question, found.card.data, found.card.split))
    out = found.explainer.explain(found.featurizer("CC(=O)Nc1ccc(O)cc1"))
    assert out.bond_score.isfinite().all()
    of_smiles = NICE(found.model, background=found.background, mode=found.explainer.target.mode)
    assert of_smiles.explain(["CCO", "CCN"]).smiles == ("CCO", "CCN")
    assert of_smiles.explain("CCO").num_graphs == 1


def test_benzene_model_rests_on_the_ring() -> None:
    found, smiles = load("benzene"), "CCCCCCNC(=O)CCc1ccccc1"
    out = found.explainer.explain(found.featurizer(smiles))
    assert found.card.class_name(int(out.target)) == "benzene ring"
    mol = parse_smiles(smiles)
    best = out.top(6).nonzero().view(-1).tolist()
    ends = [out.bond_index[:, bond].tolist() for bond in best]
    aromatic = [mol.GetBondBetweenAtoms(*pair).GetIsAromatic() for pair in ends]
    assert sum(aromatic) >= 5


def test_logp_model_answers_in_log_units() -> None:
    found = load("logp")
    values = [
        float(found.explainer.explain(found.featurizer(smiles)).prediction)
        for smiles in ("OCC(O)C(O)C(O)CCO", "CCCCCCCCc1ccccc1")
    ]
    assert values[0] < 0 < 3 < values[1]


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="benzene"):
        load("nope")


def test_graphs_with_hydrogens_become_smiles_again() -> None:
    methane = ["C", *"HHHH"], [(0, n, 1) for n in range(1, 5)]
    assert rebuilt_smiles(*methane) == "C"
    assert rebuilt_smiles(methane[0][:-1], methane[1][:-1]) is None  # a hydrogen is missing


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda t, d: t.pop("model.head.weight"), 'Missing key.*"head.weight"'),
        (lambda t, d: t.update({"model.more": torch.ones(2)}), 'Unexpected key.*"more"'),
        (lambda t, d: t.update({"model.head.bias": torch.ones(3)}), "size mismatch for head.bias"),
        (lambda t, d: t["model.head.bias"].fill_(torch.nan), "weights that are not finite"),
        (lambda t, d: d.pop("settings"), "wrong .KeyError: 'settings'"),
        (lambda t, d: d.pop("card"), "wrong .KeyError: 'card'"),
        (lambda t, d: d.update(card={"name": 3}), "a part of it is missing or wrong"),
        (lambda t, d: d.update(architecture="vgg"), "must be one of .*'vgg'"),
        (lambda t, d: d.pop("version"), "of version 2 .got None"),
        (lambda t, d: d["domain"].pop("atoms"), "a part of it is missing or wrong"),
        (lambda t, d: t.pop("domain.fingerprints"), "a part of it is missing or wrong"),
    ],
)
def test_a_damaged_file_of_a_model_is_one_line_that_names_it(
    tmp_path: Path, spoil: Callable[[Any, Any], object], match: str
) -> None:
    with as_file(files("nicegnn.pretrained") / "models" / "benzene.safetensors") as path:
        tensors, description = load_tensors(path, "model")
    spoil(tensors, description)
    save_tensors(tmp_path / "m.safetensors", tensors, description)
    with pytest.raises(StoreError, match=match) as caught:
        load_file(tmp_path / "m.safetensors")
    assert "m.safetensors" in str(caught.value)
    assert "\n" not in str(caught.value)
