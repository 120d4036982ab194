"""What is told of one molecule: the effect of keeping few bonds, other methods, escaped words."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nicegnn.explain.explanation import Explanation
from nicegnn.graph.batch import to_batch
from nicegnn.page import views
from nicegnn.page.answer import DRAWS, SHARES, Answer, answer, beside, other_methods
from nicegnn.page.asking import Limits, Shelf, typed_record
from nicegnn_lab.metrics.fidelity import fidelity_curve

pytest.importorskip("rdkit", reason="needs RDKit")
SMILES = "O=[N+]([O-])c1ccc(CCO)cc1"
SHELF = Shelf()


def make(model: str, smiles: str = SMILES) -> Answer:
    return answer(typed_record(smiles), model, SHELF[model], Limits())


@pytest.mark.parametrize("model", ["benzene", "mutagenicity"])
def test_kept_bonds_have_the_effect_that_the_fidelity_curve_tells(model: str) -> None:
    found = make(model)
    assert found.found.bond_score.unique().numel() == len(found.bonds)  # no ties
    places = [place for place, number in enumerate(found.kept.number) if number]
    target = SHELF[model].explainer.target
    for removal, values in (("em", found.kept.masked), ("nc", found.kept.noised)):
        curve = fidelity_curve(
            target,
            to_batch(found.graph),
            found.found.bonds,
            found.found.bond_score,
            removal=removal,
            ratios=[SHARES[place] for place in places],
            num_draws=DRAWS,
        )
        expected = torch.tensor([values[place] for place in places], dtype=torch.double)
        torch.testing.assert_close(curve.prob_kept[:, 0], expected, atol=1e-4, rtol=1e-4)
        assert float(curve.prob_clean) == pytest.approx(found.kept.clean, abs=1e-4)


@pytest.mark.parametrize("model", ["benzene", "logp"])
def test_all_bonds_kept_give_the_prediction_itself(model: str) -> None:
    kept = make(model).kept
    assert kept.number[0] == 0
    assert kept.masked[-1] == pytest.approx(kept.clean, abs=1e-4)
    assert kept.noised[-1] == pytest.approx(kept.clean, abs=1e-4)
    assert abs(kept.masked[0] - kept.clean) > 0.01


def test_molecule_without_bonds_is_told_as_such() -> None:
    found = make("benzene", "C")
    assert "no edges, so there is nothing to score" in views.words(found)
    assert "no bonds" in views.effect(found, 5)
    assert "<svg" in views.picture(found, 5)


def test_other_methods_are_kept_and_their_errors_told(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = SHELF["benzene"]
    assert not {"ground-truth", "random", "pgexplainer", "nice"} & set(other_methods())
    found = beside(make("benzene"), subject, ["saliency", "nosuch"], Limits())
    assert set(found.others) == {"saliency"}
    first = found.others["saliency"]
    monkeypatch.setattr("nicegnn.page.answer.get_explainer", _broken)
    again = beside(found, subject, ["saliency", "occlusion"], Limits())
    assert again.others["saliency"] is first
    assert isinstance(first, Explanation)
    page = views.others(again, ["saliency", "occlusion"], "nice")
    assert page.count("<figure") == 3
    assert "out of &lt;order&gt;" in page


def _broken(*_: object, **__: object) -> None:
    raise RuntimeError("out of <order>")


def test_number_of_outlined_bonds_follows_the_share() -> None:
    found = make("benzene")
    place = SHARES.index(0.5)
    assert found.kept.number[place] == round(0.5 * len(found.bonds))
    assert "bonds kept" in views.picture(found, place)
    assert "bonds kept" not in views.picture(found, len(SHARES) - 1)


def test_words_of_visitors_are_escaped() -> None:
    found = make("benzene")
    record = replace(found.record, id="<script>x</script>")
    assert "<script" not in views.headline(replace(found, record=record))
    assert "<img" not in views.problem("<img src=x onerror=y>")
    assert len(views.problem("a" * 5000)) < 800
