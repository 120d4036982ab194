"""Models in the wheel: they load, say what they are, and look at what they should."""

from __future__ import annotations

import pytest

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.nice import NICE
from nicegnn.molecule.smiles import parse_smiles
from nicegnn.pretrained import NAMES, card_of, load
from nicegnn_lab.datasets.shipped_models import rebuilt_smiles


@pytest.mark.parametrize("name", NAMES)
def test_model_is_better_than_its_baseline_and_fitted(name: str) -> None:
    found = load(name)
    assert found.card == card_of(name)  # the card beside the file is the card in it
    assert found.explainer.is_fitted
    measure = "r2" if found.card.task == "regression" else "accuracy"
    assert found.card.test[measure] > found.card.baseline[measure] + 0.1
    assert all((found.card.question, found.card.data, found.card.split))
    out = found.explainer.explain(found.featurizer("CC(=O)Nc1ccc(O)cc1"))
    assert out.bond_score.isfinite().all()
    of_smiles = NICE(found.model, NICEConfig.instant(), mode=found.explainer.target.mode)
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
